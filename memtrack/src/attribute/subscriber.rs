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
