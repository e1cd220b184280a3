//! Threads of the library's own, which the program does not notice.

use std::io;
use std::thread;

use crate::process::{caught, inside};

/// Starts a thread whose driver calls are not counted and that gets none of the program's signals.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let before = block_signals();
    // It begins with this thread's signals blocked.
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _ = caught(|| inside(work));
    });
    // SAFETY: the set that was in force.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started.map(drop)
}

/// Blocks all signals on this thread; what was blocked before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are filled by the calls before they are read; signal sets are plain data.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}
