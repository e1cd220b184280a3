//! Streams by names of the cache's own: the driver's handles do not tell all streams apart, and are given out again.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::real::{SUCCESS, real};

/// `CU_STREAM_LEGACY`: the default stream by another name.
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`
pub(crate) const PER_THREAD: u64 = 2;

/// Names that are no handle have this bit, which no address has.
const NO_HANDLE: u64 = 1 << 63;
/// The name of a thread's own stream: this, and the thread's number.
const OF_THREAD: u64 = NO_HANDLE | 1 << 62;

/// The name under which memory is kept that no stream has work on.
pub(crate) const IDLE: u64 = NO_HANDLE;

/// What is behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// No stream: there never is work.
    Idle,
    /// The stream with this handle, which is alive, or a built-in one that means the same on this thread.
    Handle(u64),
    /// Another thread's own stream, which this thread cannot name to the driver.
    OtherThread,
    /// A stream that was destroyed, after its work was done.
    Destroyed,
}

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Threads are numbered from 1, and no number is given twice.
pub(super) fn thread_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    match NUMBER.get() {
        0 => {
            let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            NUMBER.set(number);
            number
        }
        number => number,
    }
}

/// The streams of one context.
#[derive(Debug)]
pub(crate) struct Streams {
    context: u64,
    /// Handles of streams that are alive and of this context.
    alive: RwLock<HashSet<u64>>,
}

impl Streams {
    pub(crate) fn new(context: u64) -> Self {
        Self { context, alive: RwLock::default() }
    }

    fn is_alive(&self, handle: u64) -> bool {
        self.alive.read().unwrap_or_else(PoisonError::into_inner).contains(&handle)
    }

    /// The name of a stream that the program uses on this thread; `None` for one of another context.
    pub(crate) fn name(&self, handle: u64) -> Option<u64> {
        match handle {
            0 | LEGACY => Some(0),
            PER_THREAD => Some(OF_THREAD | thread_number()),
            _ => (self.is_alive(handle) || self.meet(handle)).then_some(handle),
        }
    }

    /// A stream that is new, or has a destroyed one's handle.
    #[cold]
    fn meet(&self, handle: u64) -> bool {
        let mut context = 0;
        // SAFETY: the program's own stream, and a place for one handle.
        let answer = unsafe { real().stream_get_context(handle, &raw mut context) };
        let is_ours = answer == SUCCESS && context == self.context;
        if is_ours {
            self.alive.write().unwrap_or_else(PoisonError::into_inner).insert(handle);
        }
        is_ours
    }

    /// What is behind a name, for this thread.
    pub(crate) fn behind(&self, name: u64) -> Named {
        match name {
            0 => Named::Handle(0),
            IDLE => Named::Idle,
            _ if name & OF_THREAD == OF_THREAD => {
                if name == OF_THREAD | thread_number() {
                    Named::Handle(PER_THREAD)
                } else {
                    Named::OtherThread
                }
            }
            _ if self.is_alive(name) => Named::Handle(name),
            _ => Named::Destroyed,
        }
    }

    /// The stream is about to be destroyed; whether it was known.
    pub(crate) fn forget(&self, handle: u64) -> bool {
        self.is_alive(handle) && self.alive.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }

    pub(crate) fn knows(&self, handle: u64) -> bool {
        self.is_alive(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_stream_has_one_name_and_threads_have_their_own() {
        let streams = Streams::new(1);
        assert_eq!((streams.name(0), streams.name(1)), (Some(0), Some(0)));
        let here = streams.name(PER_THREAD).unwrap();
        assert_eq!(streams.name(PER_THREAD), Some(here));
        assert_eq!(streams.behind(here), Named::Handle(PER_THREAD));
        let there = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert_eq!(streams.behind(here), Named::OtherThread);
                streams.name(PER_THREAD).unwrap()
            });
            other.join().unwrap()
        });
        assert_ne!(here, there);
        assert!(here != IDLE && there != IDLE);
        assert_eq!((streams.behind(IDLE), streams.behind(0)), (Named::Idle, Named::Handle(0)));
    }

    #[test]
    fn a_handle_is_met_again_after_its_stream_was_destroyed() {
        let streams = Streams::new(1);
        streams.alive.write().unwrap().insert(0x5000);
        assert_eq!(streams.name(0x5000), Some(0x5000));
        assert!(streams.forget(0x5000) && !streams.forget(0x5000));
        assert_eq!(streams.behind(0x5000), Named::Destroyed);
        // There is no driver here that knows it.
        assert_eq!(streams.name(0x5000), None);
    }
}
