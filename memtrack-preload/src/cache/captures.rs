//! Captures under way that were begun by calls that are seen.
//!
//! A capture can end without a call that says so: with its stream, with its context, by an error. So the streams are remembered, and
//! the driver is asked of each whether it is still captured.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::streams::{PER_THREAD, thread_number};
use super::{CAPTURE_ERRORS, current_context, in_context, lock};
use crate::real::{SUCCESS, real};

/// A stream whose work goes into a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Captured {
    stream: u64,
    /// The thread whose stream it is, as [`thread_number`] has it; 0 for one that means the same on all threads.
    thread: u64,
    /// The kernel's number of the thread that began it.
    begun_by: i32,
    /// 0 where the driver does not say.
    context: u64,
    device: Option<usize>,
}

impl Captured {
    /// Whether the driver still captures it. Only the stream's thread can name a stream of its own, which goes with the thread.
    fn is_under_way(&self) -> bool {
        if self.thread != 0 && self.thread != thread_number() {
            return is_alive(self.begun_by);
        }
        let mut status = 0;
        // SAFETY: a stream that is not known to be destroyed, and a place for one number.
        match unsafe { real().stream_is_capturing(self.stream, &raw mut status) } {
            SUCCESS => status != 0,
            answer => CAPTURE_ERRORS.contains(&answer),
        }
    }
}

/// Whether a thread of this process has not ended: one that has ended has no program any more.
fn is_alive(thread: i32) -> bool {
    std::fs::read_link(format!("/proc/self/task/{thread}/exe")).is_ok()
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    streams: Mutex<Vec<Captured>>,
    count: AtomicUsize,
}

impl Captures {
    fn change<R>(&self, change: impl FnOnce(&mut Vec<Captured>) -> R) -> R {
        let mut streams = lock(&self.streams);
        let result = change(&mut streams);
        self.count.store(streams.len(), Ordering::Release);
        result
    }

    /// Whether there is one.
    pub(super) fn any(&self) -> bool {
        // No capture, no lock.
        self.count.load(Ordering::Acquire) > 0
            && self.change(|streams| {
                streams.retain(Captured::is_under_way);
                !streams.is_empty()
            })
    }

    /// The driver has begun one.
    pub(crate) fn begun(&self, stream: u64) {
        let thread = if stream == PER_THREAD { thread_number() } else { 0 };
        let mut context = 0;
        // SAFETY: the program's own stream, which was just given to the driver, and a place for one handle.
        let told = unsafe { real().stream_get_context(stream, &raw mut context) };
        if told != SUCCESS {
            context = current_context();
        }
        let device = in_context(context, |_| {
            let mut device = 0;
            // SAFETY: a place for one number.
            let told = unsafe { real().context_get_device(&raw mut device) };
            if told == SUCCESS { usize::try_from(device).ok() } else { None }
        });
        // SAFETY: no arguments.
        let begun_by = unsafe { libc::gettid() };
        self.change(|streams| streams.push(Captured { stream, thread, begun_by, context, device }));
    }

    /// The driver was told to end one, whatever it answered.
    pub(crate) fn ended(&self, stream: u64) {
        let thread = if stream == PER_THREAD { thread_number() } else { 0 };
        if self.count.load(Ordering::Acquire) > 0 {
            self.change(|streams| {
                streams.retain(|known| (known.stream, known.thread) != (stream, thread) || known.is_under_way());
            });
        }
    }

    /// Takes out a stream that is about to be destroyed: the driver must not be asked about it any more.
    pub(crate) fn take(&self, stream: u64) -> Option<Captured> {
        if stream <= PER_THREAD || self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.change(|streams| {
            let index = streams.iter().position(|known| known.stream == stream)?;
            Some(streams.swap_remove(index))
        })
    }

    /// The stream was not destroyed after all.
    pub(crate) fn put_back(&self, captured: Captured) {
        self.change(|streams| streams.push(captured));
    }

    /// The context is gone, and its streams with it.
    pub(super) fn ended_in(&self, context: u64) {
        self.change(|streams| streams.retain(|known| known.context != context));
    }

    /// The device's primary context is gone. Captures in another context of that device are no longer known of.
    pub(super) fn ended_on(&self, device: usize) {
        self.change(|streams| streams.retain(|known| known.device != Some(device)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_of_a_threads_own_stream_is_under_way_no_longer_than_the_thread() {
        let captures = Captures::default();
        std::thread::scope(|scope| {
            scope.spawn(|| captures.begun(PER_THREAD)).join().unwrap();
            let (begun, told) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
            let captures = &captures;
            scope.spawn(move || {
                captures.begun(PER_THREAD);
                begun.0.send(()).unwrap();
                let _ = told.1.recv();
            });
            begun.1.recv().unwrap();
            assert!(captures.any());
            drop(told.0);
        });
        // The kernel lets go of a thread a little after it is joined.
        while captures.any() {
            std::thread::yield_now();
        }
    }
}
