//! The thread that has a device's epoch, from the first allocation to the end of the process.
//!
//! An epoch belongs to the thread that began it, and the program's threads come and go. This one also publishes the figures now and
//! then, where that is asked for.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use memtrack::units::Bytes;
use memtrack::{CachingAllocator, plain_text, publish};

use super::lock;
use crate::apart;
use crate::live_figures::PUBLISHED_EVERY;
use crate::voice;

/// A program that begins, and one that ends, waits no longer for this thread.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

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
    pub(crate) fn start(allocator: &CachingAllocator) -> Self {
        let ((end, ended), (tell, told)) = (channel(), channel());
        let allocator = allocator.clone();
        let started = apart::spawn("memtrack-epoch", move || keep(&allocator, &ended, &tell));
        let ends = started.is_ok().then_some(Ends { end, told });
        if let Some(ends) = &ends {
            // Until the epoch is begun, so that it has the first allocation.
            let _ = ends.told.recv_timeout(LONGEST_WAIT);
        }
        Self { ends: Mutex::new(ends) }
    }

    /// Ends the epoch; its summary.
    pub(crate) fn end(&self) -> Option<String> {
        let Ends { end, told } = lock(&self.ends).take()?;
        end.send(()).ok()?;
        told.recv_timeout(LONGEST_WAIT).ok()
    }
}

fn keep(allocator: &CachingAllocator, ended: &Receiver<()>, tell: &Sender<String>) {
    let epoch = allocator.epoch(1);
    if tell.send(String::new()).is_err() {
        return;
    }
    let publishes = publish::folder().is_some();
    if publishes {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PUBLISHED_EVERY) {
            publish::when_on();
        }
    } else {
        let _ = ended.recv();
    }
    let mut text = epoch.finish().map(|summary| summary.to_string()).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text = voice::without_own_lines(&text);
    text += &figures(allocator);
    if publishes {
        // A process that ended has no figures.
        let _ = publish::withdraw();
    }
    let _ = tell.send(text);
}

/// What the cache itself did.
fn figures(allocator: &CachingAllocator) -> String {
    let stats = allocator.memory_stats();
    format!(
        "  cache: {} allocations of the driver, {} given back; reserved {} at most, {} at the end; {}, {} out of memory\n",
        stats.num_device_alloc,
        stats.num_device_free,
        Bytes(stats.reserved_bytes.all.peak),
        Bytes(stats.reserved_bytes.all.current),
        plain_text::counted(stats.num_alloc_retries.unsigned_abs(), "retry"),
        stats.num_ooms,
    )
}
