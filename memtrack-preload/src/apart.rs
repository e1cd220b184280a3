//! Threads of the library's own, which the program does not notice.
//!
//! A process ends when its last thread does, and these are none of the program's: where no other is left, they end it. Their signals
//! are blocked, since one that a thread of the program's waits for must not come to them.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::process::{caught, inside};
use crate::signals;
use crate::voice;

/// So often these threads look whether they are the last ones.
pub(crate) const LOOKED_EVERY: Duration = Duration::from_millis(200);

/// These threads, by the kernel's numbers.
static OWN: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// What the program had blocked where the first of them was started.
static PROGRAMS_MASK: OnceLock<libc::sigset_t> = OnceLock::new();

/// Starts a thread whose driver calls are not counted and that gets none of the program's signals.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let before = signals::block(&signals::all());
    PROGRAMS_MASK.get_or_init(|| before);
    // It begins with this thread's signals blocked.
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
        // SAFETY: no arguments.
        let number = u64::from(unsafe { libc::gettid() }.unsigned_abs());
        own(|own| own.push(number));
        let _ = caught(|| inside(|| voice::heard(work)));
        // The number can become another thread's.
        own(|own| own.retain(|known| *known != number));
    });
    signals::restore(&before);
    started.map(drop)
}

fn own<R>(work: impl FnOnce(&mut Vec<u64>) -> R) -> R {
    work(&mut OWN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Ends the process as the C library does when its last thread ends, if all others are these.
pub(crate) fn end_if_alone() {
    static IS_ENDING: AtomicBool = AtomicBool::new(false);
    if !main_thread_has_ended() || !are_alone() || !are_alone() || IS_ENDING.swap(true, Ordering::AcqRel) {
        return;
    }
    // On a thread of its own, since these are waited for at the end.
    let started = thread::Builder::new().name("memtrack-end".to_owned()).spawn(|| {
        if let Some(mask) = PROGRAMS_MASK.get() {
            // A signal that nobody was left to take comes here.
            signals::restore(mask);
        }
        // SAFETY: what the program does at its end was to be done by its own last thread.
        unsafe { libc::exit(0) }
    });
    if started.is_err() {
        IS_ENDING.store(false, Ordering::Release);
    }
}

/// Asked without opening a file, which would take a number that the program may be about to reuse.
fn main_thread_has_ended() -> bool {
    fs::read_link("/proc/self/exe").is_err()
}

/// Whether all other threads have ended. A second look finds one that was started during the first.
fn are_alone() -> bool {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return false };
    for task in tasks {
        let Ok(task) = task else { return false };
        let Some(number) = task.file_name().to_str().and_then(|name| name.parse::<u64>().ok()) else { return false };
        if own(|own| own.contains(&number)) {
            continue;
        }
        if !has_ended(&task.path()) {
            return false;
        }
    }
    true
}

/// Whether a thread with this folder has ended, or is gone altogether.
fn has_ended(task: &Path) -> bool {
    match fs::read_to_string(task.join("stat")) {
        // Its number, its name in parentheses, which can have some in it, and its state.
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(error) => error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH),
    }
}
