//! What this process does with the calls, decided at the first of them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::books::{Api, Books, UNKNOWN_DEVICE};
use crate::cache::{Cache, beside_captures, current_context, in_context};
use crate::place::Place;
use crate::real::{Answer, OUT_OF_MEMORY, SUCCESS, real};
use crate::{at_exit, at_load, live_figures, voice};

/// Says what is done.
pub(crate) const ENVIRONMENT_VARIABLE: &str = "MEMTRACK_PRELOAD";

/// Streams with handles up to this one, `CU_STREAM_PER_THREAD`, are those of the thread's context.
const LAST_BUILT_IN: u64 = 2;

/// What is done with the program's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are passed on.
    Off,
    /// They are counted and passed on.
    Observe,
    /// They are counted, and served by memtrack's caching allocator.
    Cache,
}

/// The first call was made, and what is done with calls is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLate;

/// What [`set_mode`] said, as [`Mode::number`] has it; 0 for nothing.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// Says what is done in place of what `MEMTRACK_PRELOAD` says, before the first call.
///
/// # Errors
///
/// [`TooLate`] when that call was made.
pub fn set_mode(mode: Mode) -> Result<(), TooLate> {
    if PROCESS.get().is_some() {
        return Err(TooLate);
    }
    CHOSEN.store(mode.number(), Ordering::Release);
    Ok(())
}

/// What [`set_mode`] said.
pub fn chosen_mode() -> Option<Mode> {
    Mode::from_number(CHOSEN.load(Ordering::Acquire))
}

impl Mode {
    /// As it goes from one copy of this code to another.
    pub const fn number(self) -> u32 {
        match self {
            Self::Off => 1,
            Self::Observe => 2,
            Self::Cache => 3,
        }
    }

    /// The mode with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Off),
            2 => Some(Self::Observe),
            3 => Some(Self::Cache),
            _ => None,
        }
    }

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
        let text = at_load::variable(ENVIRONMENT_VARIABLE).unwrap_or_default();
        Self::parse(&text.to_string_lossy()).unwrap_or_else(|| {
            voice::say(&format!(
                "{ENVIRONMENT_VARIABLE}={}: neither `observe`, `cache` nor `off`; nothing is counted",
                memtrack::plain_text::shown(&text.to_string_lossy())
            ));
            Self::Off
        })
    }
}

/// The process, from its first counted call on.
#[derive(Debug)]
pub(crate) struct Process {
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
        // The other copy counts, to which all is passed on.
        if matches!(Place::own(), Place::BesideLibrary(_)) {
            return None;
        }
        at_load::note();
        let mode = chosen_mode().unwrap_or_else(Mode::from_env);
        if mode == Mode::Off {
            return None;
        }
        voice::begin();
        at_load::settle();
        at_exit::register();
        if mode == Mode::Observe {
            live_figures::begin();
        }
        let cache = (mode == Mode::Cache).then(Cache::default);
        Some(Process { books: Books::default(), cache, device_count: AtomicI32::new(0) })
    });
    begun.as_ref()
}

/// Whether this thread is within memtrack, or within the driver by way of it.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
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

    /// The device of memory that was allocated, which need not be the current one where a stream or a pool says which.
    #[inline]
    pub(crate) fn device_of(&self, api: Api, address: u64, stream: Option<u64>) -> usize {
        if self.device_count.load(Ordering::Relaxed) == 0 {
            self.first_device();
        }
        let says_which = match stream {
            Some(stream) => stream > LAST_BUILT_IN || api == Api::AllocFromPoolAsync,
            None => false,
        };
        if says_which && address != 0 && self.device_count.load(Ordering::Relaxed) > 1 {
            return device_of_memory(address).unwrap_or_else(|| self.current_device());
        }
        self.current_device()
    }

    /// The device that a failed request was for, and what it has free if it had too little.
    #[cold]
    pub(crate) fn device_of_failure(&self, stream: Option<u64>, answer: Answer) -> (usize, Option<u64>) {
        let ask = || {
            let device = self.current_device();
            (device, (answer == OUT_OF_MEMORY).then(free_bytes).flatten())
        };
        let of_other =
            stream.filter(|stream| *stream > LAST_BUILT_IN && self.device_count.load(Ordering::Relaxed) != 1);
        match of_other.and_then(context_of_stream) {
            Some(context) if context != current_context() => in_context(context, |_| ask()),
            _ => ask(),
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

fn device_of_memory(address: u64) -> Option<usize> {
    /// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`
    const DEVICE_ORDINAL: u32 = 9;
    let mut device = -1_i32;
    // SAFETY: a place for one number, which is what the driver writes for this attribute.
    let answer = unsafe { real().pointer_get_attribute((&raw mut device).cast(), DEVICE_ORDINAL, address) };
    if answer == SUCCESS { usize::try_from(device).ok() } else { None }
}

fn context_of_stream(stream: u64) -> Option<u64> {
    let mut context = 0;
    // SAFETY: the program's own stream, which the driver has just been given, and a place for one handle.
    let answer = unsafe { real().stream_get_context(stream, &raw mut context) };
    (answer == SUCCESS).then_some(context)
}

/// What the current device has free.
fn free_bytes() -> Option<u64> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: places for two numbers.
    let answer = beside_captures(|| unsafe { real().mem_get_info(&raw mut free, &raw mut total) });
    (answer == SUCCESS).then_some(free as u64)
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
    fn modes_have_numbers_and_nothing_else_has_one() {
        let modes = [Mode::Off, Mode::Observe, Mode::Cache];
        assert_eq!(modes.map(|mode| Mode::from_number(mode.number())), modes.map(Some));
        assert_eq!((Mode::from_number(0), Mode::from_number(4)), (None, None));
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
