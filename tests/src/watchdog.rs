//! Work that could hang, given up after a while.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Far more than any of the work takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `work` on a thread of its own and returns its value, or goes on with its panic.
///
/// # Panics
///
/// Panics when `work` does not end: a deadlock fails the test and does not hang the run.
pub fn within_patience<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, finished) = channel();
    let thread = thread::spawn(move || {
        // Nobody listens any more if this came too late.
        let _ = done.send(work());
    });
    match finished.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("{what} does not end"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(()) => unreachable!("the value was sent"),
            Err(payload) => resume_unwind(payload),
        },
    }
}
