//! The program's standard error, where memtrack's lines go as long as it is that.
//!
//! A program can close it, and a file that it opens next has the same number. So what was there at the start is remembered, and where
//! there is something else nothing is written, unless that is plainly meant to be written to by many: a terminal or another device, what
//! standard output goes to as well, a pipe that children get too, or a file that is appended to.

use std::io::Write as _;
use std::sync::OnceLock;

use crate::signals::unharmed;

const STANDARD_OUTPUT: i32 = 1;
const STANDARD_ERROR: i32 = 2;

/// What is open: its device, its number there, and its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    device: u64,
    inode: u64,
    mode: u32,
}

/// `None` within where standard error was closed.
static AT_START: OnceLock<Option<Open>> = OnceLock::new();

/// Remembers what is there.
pub(crate) fn note() {
    AT_START.get_or_init(|| open(STANDARD_ERROR));
}

/// Writes in one piece, so that it stays together among others' lines. Where standard error is closed nobody reads it.
pub(crate) fn write(text: &str) {
    if !text.is_empty() && is_standard_error() {
        let _ = unharmed(|| std::io::stderr().write_all(text.as_bytes()));
    }
}

fn is_standard_error() -> bool {
    note();
    let Some(now) = open(STANDARD_ERROR) else { return false };
    let is = |other: Option<Open>| other.is_some_and(|other| (other.device, other.inode) == (now.device, now.inode));
    is(AT_START.get().copied().flatten())
        || is(open(STANDARD_OUTPUT))
        || match now.mode & libc::S_IFMT {
            libc::S_IFCHR => true,
            // As one that was put there by `dup2`, and not one that only took the number.
            libc::S_IFIFO => flags(libc::F_GETFD).is_some_and(|flags| flags & libc::FD_CLOEXEC == 0),
            libc::S_IFREG => flags(libc::F_GETFL).is_some_and(|flags| flags & libc::O_APPEND != 0),
            _ => false,
        }
}

fn flags(which: i32) -> Option<i32> {
    // SAFETY: asks about a number that need not be open.
    let flags = unsafe { libc::fcntl(STANDARD_ERROR, which) };
    (flags >= 0).then_some(flags)
}

fn open(number: i32) -> Option<Open> {
    // SAFETY: plain data, filled by the call where it succeeds; the number need not be open.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        if libc::fstat(number, &raw mut found) != 0 {
            return None;
        }
        Some(Open { device: found.st_dev, inode: found.st_ino, mode: found.st_mode })
    }
}
