//! The thread that looks, every 100 µs, which blocks their streams are done with.
//!
//! It holds nothing of the allocator but a weak reference, ends with its last handle, and sleeps while no block waits.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::error::PinnedError;
use super::inner::Inner;
use crate::sync::lock;

const PERIOD: Duration = Duration::from_micros(100);

/// What the thread waits for.
#[derive(Debug, Default)]
pub(super) struct Signal {
    word: Mutex<Word>,
    said: Condvar,
}

#[derive(Debug, Default)]
struct Word {
    has_work: bool,
    is_over: bool,
}

impl Signal {
    /// Says that blocks wait.
    pub(super) fn wake(&self) {
        lock(&self.word).has_work = true;
        self.said.notify_one();
    }

    fn end(&self) {
        lock(&self.word).is_over = true;
        self.said.notify_one();
    }

    /// Waits until there is work, and if there was already for one period. `false` when it is over.
    fn wait(&self, is_busy: bool) -> bool {
        let mut word = lock(&self.word);
        if is_busy && !word.is_over {
            word = self
                .said
                .wait_timeout_while(word, PERIOD, |word| !word.is_over)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(word, _)| word);
        } else {
            let is_idle = |word: &mut Word| !word.has_work && !word.is_over;
            word = self.said.wait_while(word, is_idle).unwrap_or_else(PoisonError::into_inner);
        }
        word.has_work = false;
        !word.is_over
    }
}

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Background {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(super) fn start(inner: &Arc<Inner>, signal: Arc<Signal>) -> Result<Self, PinnedError> {
        let (weak, for_thread) = (Arc::downgrade(inner), Arc::clone(&signal));
        let thread = Builder::new().name("memtrack-pinned".to_owned()).spawn(move || run(&weak, &for_thread));
        match thread {
            Ok(thread) => Ok(Self { signal, thread: Some(thread) }),
            Err(error) => Err(PinnedError::NoThread { message: error.to_string() }),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.signal.end();
        if let Some(thread) = self.thread.take() {
            // It has nothing to return, and a panic of its own was told where it happened.
            let _ = thread.join();
        }
    }
}

fn run(inner: &Weak<Inner>, signal: &Signal) {
    let mut is_busy = false;
    while signal.wait(is_busy) {
        let Some(inner) = inner.upgrade() else { return };
        is_busy = match inner.poll() {
            Ok(()) => !inner.state().pending.is_empty(),
            Err(_) => {
                // Allocations look for themselves from now on, and so their callers are told of the failure.
                inner.is_polled.store(false, Ordering::Release);
                return;
            }
        };
    }
}
