//! Signals that memtrack's own work raises, which the program is not to get.

/// What writing raises: to a pipe that nobody reads any more, and beyond the largest file that is allowed.
const OF_WRITING: [i32; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: the set is filled by the first call; signal sets are plain data.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// Blocks signals on this thread, with those that are blocked; the set that was in force.
pub(crate) fn block(set: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: the second set is filled by the call before it is read; signal sets are plain data.
    unsafe {
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut before);
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::from_ref(set), &raw mut before);
        before
    }
}

/// Every signal.
pub(crate) fn all() -> libc::sigset_t {
    // SAFETY: the set is filled by the call; signal sets are plain data.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        all
    }
}

/// Has this set, and no more, blocked on this thread.
pub(crate) fn restore(set: &libc::sigset_t) {
    // SAFETY: a set that was in force.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::from_ref(set), std::ptr::null_mut()) };
}

fn pending() -> libc::sigset_t {
    // SAFETY: the set is filled by the calls; signal sets are plain data.
    unsafe {
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut pending);
        libc::sigpending(&raw mut pending);
        pending
    }
}

/// Does memtrack's own writing: a signal that it raises is taken away, and the failed write is all that comes of it.
pub(crate) fn unharmed<R>(work: impl FnOnce() -> R) -> R {
    struct Blocked {
        before: libc::sigset_t,
        pending: libc::sigset_t,
    }
    impl Drop for Blocked {
        fn drop(&mut self) {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            for signal in OF_WRITING {
                // One that was pending before is the program's.
                // SAFETY: sets that are filled, and a time that is read.
                unsafe {
                    if libc::sigismember(&raw const self.pending, signal) == 0 {
                        let one = set_of(&[signal]);
                        libc::sigtimedwait(&raw const one, std::ptr::null_mut(), &raw const at_once);
                    }
                }
            }
            restore(&self.before);
        }
    }
    let before = block(&set_of(&OF_WRITING));
    let _blocked = Blocked { before, pending: pending() };
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_pending() -> bool {
        let pending = pending();
        // SAFETY: a set that is filled.
        unsafe { libc::sigismember(&raw const pending, libc::SIGPIPE) == 1 }
    }

    #[test]
    fn a_signal_of_its_own_writing_is_taken_away_and_the_mask_is_as_before() {
        let piped = set_of(&[libc::SIGPIPE]);
        let mask_before = block(&set_of(&[]));
        unharmed(|| {
            // SAFETY: to this thread, which has it blocked.
            unsafe { libc::raise(libc::SIGPIPE) };
            assert!(is_pending());
        });
        assert!(!is_pending());
        let mask_after = block(&set_of(&[]));
        for signal in 1..32 {
            // SAFETY: sets that are filled.
            let is_in = |set: &libc::sigset_t| unsafe { libc::sigismember(std::ptr::from_ref(set), signal) };
            assert_eq!(is_in(&mask_before), is_in(&mask_after), "{signal}");
        }
        // One of the program's stays.
        let before = block(&piped);
        // SAFETY: to this thread, which has it blocked.
        unsafe { libc::raise(libc::SIGPIPE) };
        unharmed(|| ());
        assert!(is_pending());
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a set that is filled, and a time that is read.
        unsafe { libc::sigtimedwait(&raw const piped, std::ptr::null_mut(), &raw const at_once) };
        restore(&before);
    }
}
