//! The end of the process, and its forks.

use crate::process::{caught, forked, inside, is_inside, told_of};
use crate::signals::unharmed;
use crate::{live_figures, report};

/// Has the process told of when it ends by `exit` or by returning from `main`, and its children left alone.
///
/// Called at the first counted call: the driver has registered its own end before, so it still answers at this one.
pub(crate) fn register() {
    // SAFETY: both are functions of this library, which is never unloaded, that unwind into nobody.
    unsafe {
        // Where there is no room for another function to call, nothing is told.
        let _ = libc::atexit(at_exit);
        let _ = libc::pthread_atfork(None, None, Some(in_child));
    }
}

extern "C" fn at_exit() {
    let _ = caught(|| {
        if let Some(process) = told_of() {
            // In a handler of a signal that came while this thread was in the cache, which waits for it then.
            let is_within = is_inside();
            inside(|| {
                unharmed(|| {
                    report::tell(process, is_within);
                    live_figures::end();
                });
            });
        }
    });
}

/// Between a fork and an `exec` only what is safe in a signal handler may be done.
unsafe extern "C" fn in_child() {
    forked();
}
