//! Which allocator is meant when none is named, and the switch that turns measuring off.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};

use crate::allocator::{CachingAllocator, Inner};
use crate::source;
use crate::sync::{read, write};

static DEFAULT: RwLock<Option<CachingAllocator>> = RwLock::new(None);
/// Counts the changes of the default, so that a thread knows whether what it remembers is the default still.
static DEFAULT_CHANGES: AtomicU64 = AtomicU64::new(0);
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

    /// The default after so many changes, as this thread saw it last: a scope then need not ask the lock that all threads share.
    /// Weak: a thread that sleeps must not keep an allocator.
    static LAST_DEFAULT: RefCell<Option<(u64, Weak<Inner>)>> = const { RefCell::new(None) };
}

/// Makes an allocator the process's default: what scopes, phases and epochs measure on threads that made no other
/// current. The default keeps the allocator alive.
pub fn set_default(allocator: &CachingAllocator) {
    change_default(Some(allocator.clone()));
}

/// Takes the default away again.
pub fn clear_default() {
    change_default(None);
}

fn change_default(to: Option<CachingAllocator>) {
    let former = {
        let mut default = write(&DEFAULT);
        // Under the lock, so that what a thread reads there belongs to the count it reads there.
        DEFAULT_CHANGES.fetch_add(1, Ordering::Release);
        std::mem::replace(&mut *default, to)
    };
    // Dropped outside the lock: this may be its last handle, and giving memory back takes time.
    drop(former);
}

/// The allocator that is meant on this thread when none is named: the one made current here last, else the default.
pub fn current() -> Option<CachingAllocator> {
    let here = CURRENT.try_with(|current| current.borrow().last().cloned()).unwrap_or(None);
    here.or_else(|| read(&DEFAULT).clone())
}

/// As [`current`], or where there is none what keeps the books of sources; says once per process what to do when there is neither.
pub(crate) fn current_or_warn() -> Option<CachingAllocator> {
    current().or_else(|| {
        let stand_in = source::stand_in();
        if stand_in.is_none() {
            warn_once();
        }
        stand_in.cloned()
    })
}

/// As [`current_or_warn`], without making a handle.
#[inline]
pub(crate) fn current_inner_or_warn() -> Option<Arc<Inner>> {
    let here = CURRENT
        .try_with(|current| current.borrow().last().map(|allocator| Arc::clone(allocator.inner())))
        .unwrap_or(None);
    here.or_else(default_inner).or_else(stand_in_or_warn)
}

#[cold]
#[inline(never)]
fn stand_in_or_warn() -> Option<Arc<Inner>> {
    let stand_in = source::stand_in();
    if stand_in.is_none() {
        warn_once();
    }
    stand_in.map(|stand_in| Arc::clone(stand_in.inner()))
}

#[inline]
fn default_inner() -> Option<Arc<Inner>> {
    let changes = DEFAULT_CHANGES.load(Ordering::Acquire);
    let last = LAST_DEFAULT.try_with(|last| match &*last.borrow() {
        // The default is held by a handle, so it is there for as long as it is the default.
        Some((seen, default)) if *seen == changes => Some(default.upgrade()),
        _ => None,
    });
    match last {
        Ok(Some(default)) => default,
        _ => look_up_default(),
    }
}

#[cold]
#[inline(never)]
fn look_up_default() -> Option<Arc<Inner>> {
    let default = read(&DEFAULT);
    let inner = default.as_ref().map(|allocator| Arc::clone(allocator.inner()));
    let seen = (DEFAULT_CHANGES.load(Ordering::Acquire), inner.as_ref().map_or_else(Weak::new, Arc::downgrade));
    let _ = LAST_DEFAULT.try_with(|last| last.replace(Some(seen)));
    inner
}

#[cold]
#[inline(never)]
fn warn_once() {
    if !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            target: "memtrack",
            "nothing is measured: no allocator is current; call memtrack::set_default(&allocator) once, or make_current() on this thread; \
             a program that allocates in a framework registers a source instead (memtrack::source)"
        );
    }
}

/// The allocator that scopes, phases and epochs measure; `None` with measuring off.
pub(crate) fn measured() -> Option<CachingAllocator> {
    if enabled() { current_or_warn() } else { None }
}

/// As [`measured`], without making a handle.
pub(crate) fn measured_inner() -> Option<Arc<Inner>> {
    if enabled() { current_inner_or_warn() } else { None }
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
