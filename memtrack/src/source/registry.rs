//! The sources of the process, and what scopes call when they begin and end.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::books::{Books, Warning};
use super::{MemorySource, SourceError, SourceFigures, SourceSummary};
use crate::allocator::{CachingAllocator, Inner};
use crate::context;
use crate::device::Simulated;
use crate::ledger::ScopeKey;
use crate::plain_text::shown;
use crate::sync::lock;

static BOOKS: Mutex<Books> = Mutex::new(Books::new());

/// How many sources there are, for a look without the lock.
static SOURCE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Sources, and scopes open that had one when they began: whose records say what became of it.
static INVOLVED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Registrations that were dropped by a source while sources are read: they end when that is over.
static LEAVING: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Measured where a source is registered and no allocator is current. It is made with the first source, and nobody can allocate
/// from it: all of its own figures are zero.
static STAND_IN: OnceLock<CachingAllocator> = OnceLock::new();

thread_local! {
    /// Whether this thread is reading sources: what they do must not read them again.
    static IS_READING: Cell<bool> = const { Cell::new(false) };
}

/// Registers a source for all scopes of the process that begin from now on, after all that were registered before it.
///
/// ```no_run
/// # #[cfg(feature = "cuda")] {
/// use std::sync::Arc;
/// use memtrack::source::{CudaPoolSource, register_source};
///
/// // What candle allocates.
/// let _registered = register_source(Arc::new(CudaPoolSource::current(0)?))?;
/// # }
/// # Ok::<(), memtrack::source::SourceError>(())
/// ```
///
/// # Errors
///
/// What the source says when it is read for the first time, here; [`SourceError::NameTaken`] where another has its name.
pub fn register_source(source: Arc<dyn MemorySource>) -> Result<SourceRegistration, SourceError> {
    STAND_IN.get_or_init(|| CachingAllocator::stand_in(Arc::new(Simulated::with_capacity(0))));
    // Where it is refused, the last of it goes when no lock is held: what it owns may be a registration.
    let kept = Arc::clone(&source);
    let id = reading(|| {
        let mut books = lock(&BOOKS);
        let id = books.register(source)?;
        count(&books);
        Ok(id)
    });
    leave();
    drop(kept);
    let nested = || SourceError::new("a source cannot be registered while sources are read");
    id.unwrap_or_else(|| Err(nested())).map(|id| SourceRegistration { id })
}

/// Keeps a source registered until it is dropped.
///
/// Scopes that are open then say so in their records in place of the source's figures.
#[derive(Debug)]
#[must_use = "the source is registered only while this lives; `forever` keeps it to the end of the program"]
pub struct SourceRegistration {
    id: u64,
}

impl SourceRegistration {
    /// Leaves the source registered to the end of the program.
    pub fn forever(self) {
        std::mem::forget(self);
    }
}

impl Drop for SourceRegistration {
    fn drop(&mut self) {
        // A source that drops it while it is read holds what is needed for it; whoever reads does it then.
        if IS_READING.try_with(Cell::get).unwrap_or(false) {
            lock(&LEAVING).push(self.id);
        } else {
            // Not by way of the list, which another thread may be at: whoever drops it may use the name again at once.
            unregister(&[self.id]);
        }
    }
}

/// Ends registrations. No lock may be held.
fn unregister(ids: &[u64]) {
    let removed: Vec<_> = {
        let mut books = lock(&BOOKS);
        let removed = ids.iter().filter_map(|id| books.unregister(*id)).collect();
        count(&books);
        removed
    };
    // Outside the lock: it may be the last of them, and own other registrations.
    drop(removed);
}

/// Ends the registrations that sources dropped while they were read. No lock may be held.
fn leave() {
    loop {
        let leaving = std::mem::take(&mut *lock(&LEAVING));
        if leaving.is_empty() {
            return;
        }
        unregister(&leaving);
    }
}

fn count(books: &Books) {
    SOURCE_COUNT.store(books.source_count(), Ordering::Relaxed);
    INVOLVED_COUNT.store(books.source_count() + books.open_count(), Ordering::Relaxed);
}

/// Whether there is any source, or was one when an open scope began. One relaxed load.
#[inline]
pub(crate) fn is_active() -> bool {
    INVOLVED_COUNT.load(Ordering::Relaxed) != 0
}

/// What is measured where no allocator is current, if there is any source.
pub(crate) fn stand_in() -> Option<&'static CachingAllocator> {
    if SOURCE_COUNT.load(Ordering::Relaxed) != 0 { STAND_IN.get() } else { None }
}

/// `None` on a thread that is inside such a call already.
fn reading<T>(read: impl FnOnce() -> T) -> Option<T> {
    struct Done;
    impl Drop for Done {
        fn drop(&mut self) {
            let _ = IS_READING.try_with(|is_reading| is_reading.set(false));
        }
    }
    let was_reading = IS_READING.try_with(|is_reading| is_reading.replace(true)).unwrap_or(true);
    if was_reading {
        return None;
    }
    let _done = Done;
    Some(read())
}

/// Says once of each source that it failed. No lock may be held.
fn warn(warnings: Vec<Warning>) {
    for (source, error) in warnings {
        tracing::warn!(
            target: "memtrack::source",
            source = source.as_ref(),
            error = %shown(&error.to_string()),
            "a memory source could not be read: its figures are absent where this happens, and records say why; said once"
        );
    }
}

fn with_books<T: Default>(work: impl FnOnce(&mut Books, &mut Vec<Warning>) -> T) -> T {
    let mut warnings = Vec::new();
    let done = reading(|| {
        let mut books = lock(&BOOKS);
        let done = work(&mut books, &mut warnings);
        count(&books);
        done
    });
    leave();
    warn(warnings);
    done.unwrap_or_default()
}

/// A scope has begun; to be called only if there is a source, before the scope is entered.
#[cold]
#[inline(never)]
pub(crate) fn opened(inner: &Inner, key: ScopeKey, phase: Option<&'static str>) {
    let parent = context::innermost();
    with_books(|books, warnings| books.open((inner.id, key), parent, phase, false, warnings));
}

/// An epoch has begun.
#[cold]
#[inline(never)]
pub(crate) fn opened_epoch(inner: &Inner, key: ScopeKey) {
    let parent = context::innermost();
    with_books(|books, warnings| books.open((inner.id, key), parent, None, true, warnings));
}

/// A scope ends whose record is read.
#[cold]
#[inline(never)]
pub(crate) fn closed(inner: &Inner, key: ScopeKey) -> Vec<SourceFigures> {
    with_books(|books, warnings| books.close((inner.id, key), warnings)).0
}

/// A scope ends whose record nobody reads.
#[cold]
#[inline(never)]
pub(crate) fn closed_unread(inner: &Inner, key: ScopeKey) {
    with_books(|books, warnings| books.close_unread((inner.id, key), warnings));
}

/// An epoch ends.
#[cold]
#[inline(never)]
pub(crate) fn closed_epoch(inner: &Inner, key: ScopeKey) -> Vec<SourceSummary> {
    with_books(|books, warnings| books.close((inner.id, key), warnings)).1.unwrap_or_default()
}
