//! Figures while the process runs, for `memtrack smi` and `memtrack check`: published once a second where `MEMTRACK_PUBLISH` asks for it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use memtrack::device::{DeviceKind, DeviceUuid};
use memtrack::publish::{self, PublishedAllocator};

use crate::apart;
use crate::books::DeviceFigures;
use crate::process::told_of;
use crate::real::{SUCCESS, real};

/// So often.
pub(crate) const PUBLISHED_EVERY: Duration = Duration::from_secs(1);

/// Publishes what is observed from now on. Where no thread can be started there are no such figures.
pub(crate) fn begin() {
    if publish::folder().is_none() {
        return;
    }
    publish::add_source(observed);
    let _ = apart::spawn("memtrack-live", || {
        loop {
            let published = Instant::now();
            while published.elapsed() < PUBLISHED_EVERY {
                std::thread::sleep(apart::LOOKED_EVERY);
                apart::end_if_alone();
            }
            publish();
        }
    });
}

/// Whether the process has ended as far as its figures go.
static HAS_ENDED: Mutex<bool> = Mutex::new(false);

/// Publishes, where that is asked for, unless the process has ended.
pub(crate) fn publish() {
    let has_ended = HAS_ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*has_ended {
        publish::when_on();
    }
}

/// A process that ended has no figures, however long it takes to be gone.
pub(crate) fn end() {
    *HAS_ENDED.lock().unwrap_or_else(PoisonError::into_inner) = true;
    if publish::folder().is_some() {
        let _ = publish::withdraw();
    }
}

fn observed() -> Vec<PublishedAllocator> {
    let Some(process) = told_of() else { return Vec::new() };
    process.books.figures().iter().filter_map(published).collect()
}

fn published(figures: &DeviceFigures) -> Option<PublishedAllocator> {
    let number = figures.device?;
    let mut published = PublishedAllocator::new(format!("cuda:{number}"), DeviceKind::Cuda);
    published.uuid = uuid(number);
    // Nothing is cached by anybody who is seen here.
    published.allocated_bytes = figures.live_bytes;
    published.requested_bytes = figures.live_bytes;
    published.reserved_bytes = figures.live_bytes;
    published.peak_allocated_bytes = figures.peak_bytes;
    published.peak_reserved_bytes = figures.peak_bytes;
    published.oom_count = figures.out_of_memory;
    Some(published)
}

fn uuid(device: usize) -> Option<DeviceUuid> {
    let mut uuid = [0; 16];
    // SAFETY: a place for 16 bytes.
    let answer = unsafe { real().device_get_uuid(&raw mut uuid, i32::try_from(device).ok()?) };
    (answer == SUCCESS).then_some(DeviceUuid(uuid))
}
