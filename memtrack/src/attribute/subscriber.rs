//! Calls of a subscriber from destructors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::panicking;

/// Runs what calls a subscriber; none if it panicked while the thread already unwound.
///
/// A panic that leaves a destructor during another panic aborts the process, so there it ends here. Without another
/// panic it goes on to the caller, as from any other use of a span.
pub(super) fn contained<T>(call: impl FnOnce() -> T) -> Option<T> {
    if !panicking() {
        return Some(call());
    }
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Not dropped: its destructor is foreign code as well.
            std::mem::forget(payload);
            None
        }
    }
}

/// A value whose drop calls a subscriber. It is [`contained`].
pub(super) struct DroppedContained<T>(Option<T>);

impl<T> DroppedContained<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// The value; none only while it is dropped.
    pub(super) const fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T> Drop for DroppedContained<T> {
    #[inline]
    fn drop(&mut self) {
        let value = self.0.take();
        contained(|| drop(value));
    }
}
