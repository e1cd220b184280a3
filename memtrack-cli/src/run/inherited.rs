//! What this command was started with and Rust's runtime changes before `main`, for the program that takes its place.
//!
//! The runtime ignores `SIGPIPE` and opens `/dev/null` where a standard stream is closed, and an `exec` by the standard library makes
//! `SIGPIPE` deadly again and unblocks all signals. A program under `memtrack run` begins as it would without it.
#![expect(unsafe_code, reason = "signals and descriptors are asked about before the runtime begins")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Standard input, output and error.
const STANDARD_STREAMS: [i32; 3] = [0, 1, 2];

static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);
static IS_CLOSED: [AtomicBool; STANDARD_STREAMS.len()] = [const { AtomicBool::new(false) }; STANDARD_STREAMS.len()];

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_THE_RUNTIME: extern "C" fn() = note;

/// Runs before the runtime's own beginning, so it only asks and stores.
extern "C" fn note() {
    // SAFETY: plain data, filled by the call where it succeeds; descriptors need not be open to be asked about.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0 {
            IGNORES_SIGPIPE.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
        for (number, is_closed) in STANDARD_STREAMS.into_iter().zip(&IS_CLOSED) {
            is_closed.store(libc::fcntl(number, libc::F_GETFD) == -1, Ordering::Relaxed);
        }
    }
}

/// Has the program begin with what this command was started with.
pub(super) fn pass_on(command: &mut Command) {
    // SAFETY: plain data, filled by the call; this thread's own mask, which nothing has changed since the start.
    let blocked = unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut blocked);
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked);
        blocked
    };
    let restore = move || -> io::Result<()> {
        // SAFETY: a set that was in force; nobody uses the standard streams any more when the program takes this one's place.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut());
            if IGNORES_SIGPIPE.load(Ordering::Relaxed) {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            for (number, is_closed) in STANDARD_STREAMS.into_iter().zip(&IS_CLOSED) {
                if is_closed.load(Ordering::Relaxed) {
                    libc::close(number);
                }
            }
        }
        Ok(())
    };
    // SAFETY: only calls that may be made anywhere; there is no fork before the `exec`.
    unsafe { command.pre_exec(restore) };
}
