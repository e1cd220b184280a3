//! What this process does with the calls, decided at the first of them.

use std::cell::Cell;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::at_exit;
use crate::books::{Books, UNKNOWN_DEVICE};
use crate::cache::Cache;
use crate::live_figures;
use crate::real::{SUCCESS, real};

/// Says what is done.
const ENVIRONMENT_VARIABLE: &str = "MEMTRACK_PRELOAD";

/// What is done with the program's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Off,
    Observe,
    Cache,
}

impl Mode {
    /// The words of the environment variable.
    fn parse(text: &str) -> Option<Self> {
        match text {
            "off" | "0" => Some(Self::Off),
            "" | "observe" => Some(Self::Observe),
            "cache" => Some(Self::Cache),
            _ => None,
        }
    }

    fn from_env() -> Self {
        let text = env::var_os(ENVIRONMENT_VARIABLE).unwrap_or_default();
        Self::parse(&text.to_string_lossy()).unwrap_or_else(|| {
            eprintln!(
                "memtrack: {ENVIRONMENT_VARIABLE}={}: neither `observe`, `cache` nor `off`; nothing is counted",
                memtrack::plain_text::shown(&text.to_string_lossy())
            );
            Self::Off
        })
    }
}

/// The process, from its first counted call on.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) mode: Mode,
    pub(crate) books: Books,
    /// `None` where calls are only observed.
    pub(crate) cache: Option<Cache>,
    /// 0 until the driver has said.
    device_count: AtomicI32,
}

static PROCESS: OnceLock<Option<Process>> = OnceLock::new();
/// This is the child of a process that had made calls. The driver does not serve it, and locks may be held that nobody opens.
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread is within memtrack, whose own calls come back here where it finds the driver under the name `libcuda.so`.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The process, for calls of the program's that are to be counted; `None` for those that are only to be passed on.
#[inline]
pub(crate) fn counted() -> Option<&'static Process> {
    if INSIDE.get() || FORKED.load(Ordering::Relaxed) {
        return None;
    }
    match PROCESS.get() {
        Some(process) => process.as_ref(),
        None => begin(),
    }
}

#[cold]
fn begin() -> Option<&'static Process> {
    let begun = PROCESS.get_or_init(|| {
        let mode = Mode::from_env();
        if mode == Mode::Off {
            return None;
        }
        at_exit::register();
        if mode == Mode::Observe {
            live_figures::begin();
        }
        let cache = (mode == Mode::Cache).then(Cache::default);
        Some(Process { mode, books: Books::default(), cache, device_count: AtomicI32::new(0) })
    });
    begun.as_ref()
}

/// The process if it has counted anything, for telling of it.
pub(crate) fn told_of() -> Option<&'static Process> {
    if FORKED.load(Ordering::Relaxed) { None } else { PROCESS.get().and_then(Option::as_ref) }
}

/// In a child, after a fork.
pub(crate) fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Runs what must not be taken for the program's: its driver calls are passed on uncounted.
pub(crate) fn inside<R>(work: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _reset = Reset(INSIDE.replace(true));
    work()
}

/// `None` where it panicked: no panic gets into the program.
#[inline]
pub(crate) fn caught<R>(work: impl FnOnce() -> R) -> Option<R> {
    // What a panic leaves behind is only used through locks that hold whole states.
    catch_unwind(AssertUnwindSafe(work)).ok()
}

impl Process {
    /// The device of the thread's context.
    pub(crate) fn current_device(&self) -> usize {
        match self.device_count.load(Ordering::Relaxed) {
            // No need to ask the driver each time.
            1 => 0,
            0 => self.first_device(),
            _ => ask_device(),
        }
    }

    #[cold]
    fn first_device(&self) -> usize {
        let mut count = 0;
        // SAFETY: a place for one number.
        if unsafe { real().device_get_count(&raw mut count) } == SUCCESS {
            self.device_count.store(count, Ordering::Relaxed);
        }
        ask_device()
    }
}

fn ask_device() -> usize {
    let mut device = 0;
    // SAFETY: a place for one number.
    let answer = unsafe { real().context_get_device(&raw mut device) };
    if answer == SUCCESS { usize::try_from(device).unwrap_or(UNKNOWN_DEVICE) } else { UNKNOWN_DEVICE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_named_and_nothing_else_is_one() {
        assert_eq!(Mode::parse(""), Some(Mode::Observe));
        assert_eq!(Mode::parse("observe"), Some(Mode::Observe));
        assert_eq!(Mode::parse("cache"), Some(Mode::Cache));
        assert_eq!(Mode::parse("off"), Some(Mode::Off));
        assert_eq!(Mode::parse("Cache"), None);
        assert_eq!(Mode::parse("1"), None);
    }

    #[test]
    fn what_is_inside_is_over_when_it_ends_even_by_a_panic() {
        assert!(!INSIDE.get());
        inside(|| {
            assert!(INSIDE.get() && counted().is_none());
            inside(|| ());
            assert!(INSIDE.get());
        });
        assert!(!INSIDE.get());
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(caught(|| inside(|| -> u32 { panic!("within") })), None);
        let _ = std::panic::take_hook();
        assert!(!INSIDE.get());
    }
}
