//! The thread that has a device's epoch, from the first allocation to the end of the process.
//!
//! An epoch belongs to the thread that began it, and the program's threads come and go. This one also publishes the figures now and
//! then, where that is asked for.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use memtrack::units::Bytes;
use memtrack::{CachingAllocator, plain_text, publish};

use super::device::ServedDevice;
use super::lock;
use crate::apart;
use crate::live_figures::{self, PUBLISHED_EVERY};
use crate::voice;

/// A program that begins waits no longer for this thread. In a function that runs while a library is loaded it would wait in vain: the
/// loader lets no thread begin then.
const LONGEST_BEGIN: Duration = Duration::from_millis(300);
/// One that ends waits no longer.
const LONGEST_END: Duration = Duration::from_secs(10);
/// One that ends in the middle of a call of its thread's, which has what this thread waits for.
const LONGEST_END_WITHIN: Duration = Duration::from_millis(200);

/// The thread, from outside.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// `None` once it was told to end, or if it could not be started.
    ends: Mutex<Option<Ends>>,
}

#[derive(Debug)]
struct Ends {
    end: Sender<()>,
    told: Receiver<String>,
}

impl Keeper {
    /// Begins the epoch.
    pub(crate) fn start(allocator: &CachingAllocator, device: Arc<ServedDevice>) -> Self {
        // Loads the driver's management library, which the other thread could not do while this one loads something.
        let _ = allocator.attach_driver();
        let ((end, ended), (tell, told)) = (channel(), channel());
        let allocator = allocator.clone();
        let started = apart::spawn("memtrack-epoch", move || keep(&allocator, &device, &ended, &tell));
        let ends = started.is_ok().then_some(Ends { end, told });
        if let Some(ends) = &ends {
            // Until the epoch is begun, so that it has the first allocation.
            let _ = ends.told.recv_timeout(LONGEST_BEGIN);
        }
        Self { ends: Mutex::new(ends) }
    }

    /// Ends the epoch; its summary. `is_within` says that this thread is in the middle of a call to the cache.
    pub(crate) fn end(&self, is_within: bool) -> Option<String> {
        let Ends { end, told } = lock(&self.ends).take()?;
        end.send(()).ok()?;
        let until = Instant::now() + if is_within { LONGEST_END_WITHIN } else { LONGEST_END };
        loop {
            let text = told.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
            // Empty when it began, which nobody may have waited for.
            if !text.is_empty() {
                return Some(text);
            }
        }
    }
}

fn keep(allocator: &CachingAllocator, device: &ServedDevice, ended: &Receiver<()>, tell: &Sender<String>) {
    let epoch = allocator.epoch(1);
    if tell.send(String::new()).is_err() {
        return;
    }
    let publishes = publish::folder().is_some();
    let mut published = Instant::now();
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(apart::LOOKED_EVERY) {
        if publishes && published.elapsed() >= PUBLISHED_EVERY {
            live_figures::publish();
            published = Instant::now();
        }
        apart::end_if_alone();
    }
    let mut text = epoch.finish().map(|summary| summary.to_string()).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text = voice::without_own_lines(&text);
    text += &figures(allocator, device.is_gone());
    if publishes {
        // A process that ended has no figures.
        let _ = publish::withdraw();
    }
    let _ = tell.send(text);
}

/// What the cache itself did.
fn figures(allocator: &CachingAllocator, is_gone: bool) -> String {
    let stats = allocator.memory_stats();
    let reserved = Bytes(stats.reserved_bytes.all.current);
    let at_end = if is_gone { format!("{reserved} went with the context") } else { format!("{reserved} at the end") };
    format!(
        "  cache: {} allocations of the driver, {} given back; reserved {} at most, {at_end}; {}, {} out of memory\n",
        stats.num_device_alloc,
        stats.num_device_free,
        Bytes(stats.reserved_bytes.all.peak),
        plain_text::counted(stats.num_alloc_retries.unsigned_abs(), "retry"),
        stats.num_ooms,
    )
}
