//! Which allocator is meant when none is named, and the switch that turns measuring off.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::allocator::CachingAllocator;
use crate::sync::{read, write};

static DEFAULT: RwLock<Option<CachingAllocator>> = RwLock::new(None);
/// One byte, so that what is not measured costs one load however many switches there are.
static SWITCHES: AtomicU8 = AtomicU8::new(ENABLED);
static WARNED: AtomicBool = AtomicBool::new(false);

/// Measuring is on, see [`set_enabled`].
pub(crate) const ENABLED: u8 = 1;
/// Annotated functions are measured even when nobody reads their spans, see [`set_measure_all`].
pub(crate) const MEASURE_ALL: u8 = 2;

thread_local! {
    /// Allocators this thread made current, the newest last.
    static CURRENT: RefCell<Vec<CachingAllocator>> = const { RefCell::new(Vec::new()) };
}

/// Makes an allocator the process's default: what scopes, phases and epochs measure on threads that made no other
/// current. The default keeps the allocator alive.
pub fn set_default(allocator: &CachingAllocator) {
    let former = write(&DEFAULT).replace(allocator.clone());
    // Dropped outside the lock: this may be its last handle, and giving memory back takes time.
    drop(former);
}

/// Takes the default away again.
pub fn clear_default() {
    let former = write(&DEFAULT).take();
    drop(former);
}

/// The allocator that is meant on this thread when none is named: the one made current here last, else the default.
pub fn current() -> Option<CachingAllocator> {
    let here = CURRENT.try_with(|current| current.borrow().last().cloned()).unwrap_or(None);
    here.or_else(|| read(&DEFAULT).clone())
}

/// As [`current`]; says once per process what to do when there is none.
pub(crate) fn current_or_warn() -> Option<CachingAllocator> {
    let current = current();
    if current.is_none() && !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            target: "memtrack",
            "nothing is measured: no allocator is current; call memtrack::set_default(&allocator) once, or make_current() on this thread"
        );
    }
    current
}

/// The allocator that scopes, phases and epochs measure; `None` with measuring off.
pub(crate) fn measured() -> Option<CachingAllocator> {
    if enabled() { current_or_warn() } else { None }
}

/// All switches, as [`ENABLED`] and [`MEASURE_ALL`]. One relaxed load.
#[inline]
pub(crate) fn switches() -> u8 {
    SWITCHES.load(Ordering::Relaxed)
}

fn set_switch(switch: u8, on: bool) {
    if on {
        SWITCHES.fetch_or(switch, Ordering::Relaxed);
    } else {
        SWITCHES.fetch_and(!switch, Ordering::Relaxed);
    }
}

/// Whether measuring is on, see [`set_enabled`]. One relaxed load.
#[inline]
pub fn enabled() -> bool {
    switches() & ENABLED != 0
}

/// Turns `#[track_memory]`, [`scope`](fn@crate::scope), [`phase`](fn@crate::phase), [`step`](fn@crate::step) and
/// [`epoch`](fn@crate::epoch) on or off for the whole process; on at the start. Scopes that are open stay so. What is opened
/// on an allocator by name measures all the same, and statistics of allocators are not concerned.
pub fn set_enabled(enabled: bool) {
    set_switch(ENABLED, enabled);
}

/// Whether every annotated function is measured, see [`set_measure_all`]. One relaxed load.
#[inline]
pub fn measure_all() -> bool {
    switches() & MEASURE_ALL != 0
}

/// Measures every call of a function with `#[track_memory]` while measuring is on, also when a filter has turned its span off,
/// so that the totals by call site ([`CachingAllocator::call_sites`]) do not depend on a log level; off at the start.
pub fn set_measure_all(measure_all: bool) {
    set_switch(MEASURE_ALL, measure_all);
}

/// While it lives, its allocator is the current one on this thread.
#[derive(Debug)]
#[must_use = "the allocator is current only while this guard lives"]
pub struct Current {
    allocator: CachingAllocator,
    /// It belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

impl CachingAllocator {
    /// Makes this the current allocator on this thread, until the guard is dropped.
    pub fn make_current(&self) -> Current {
        let _ = CURRENT.try_with(|current| current.borrow_mut().push(self.clone()));
        Current { allocator: self.clone(), not_send: PhantomData }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let removed = CURRENT.try_with(|current| {
            let mut current = current.borrow_mut();
            let position = current.iter().rposition(|allocator| allocator.is_same(&self.allocator));
            position.map(|position| current.remove(position))
        });
        drop(removed);
    }
}
