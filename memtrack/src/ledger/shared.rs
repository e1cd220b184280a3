//! The ledger behind its lock, and the logs of threads that find the lock taken.
//!
//! A peak is a property of one order of all events, so all threads of a device meet here. They would also wait for each
//! other here: the books are many cache lines, which would have to move from core to core for each event. So a thread that
//! finds the books taken writes its event into the log of its stream, with a number from a common sequence, and goes on.
//! Whoever takes the books next enters the logs first, many events at once.
//!
//! **Why this is exact.** Whenever one operation ended before another began, the books have the two in this order:
//!
//! - Both logged: their numbers are in this order. Entering takes a number S first and enters, by number, what is below S in
//!   all logs. If the second is entered, its number is below S, so the first was logged, and its log marked, before S was
//!   taken; a number is drawn under its log's lock, so none below S can come into a log that has been looked at.
//! - The first logged, the second not: the second found a log marked once it had the books, and entered it first.
//! - The first not logged: it was in the books before the second began.
//!
//! Operations that overlap in time have no order, and get one. A thread that finds the books free never logs.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use super::{BlockEntry, Ledger, ScopeKey, SplitChange};
use crate::sync::lock;

/// So many logged events are entered together when the books are free by then.
pub(super) const BATCH_LEN: usize = 128;
/// With so many the writer waits for the books: they must not be put off for ever.
const LOG_LIMIT: usize = 16 * BATCH_LEN;

/// What can be logged: the events of the cached path.
#[derive(Debug, Clone, Copy)]
enum Event {
    Allocated { entry: BlockEntry, split: SplitChange, owner: Option<ScopeKey> },
    Freed { entry: BlockEntry, split: SplitChange, owner: Option<ScopeKey>, context: Option<ScopeKey> },
}

impl Ledger {
    #[inline]
    fn enter(&mut self, event: &Event) {
        match event {
            Event::Allocated { entry, split, owner } => self.allocated(entry, *split, *owner),
            Event::Freed { entry, split, owner, context } => {
                self.free_requested(entry, *owner, *context);
                self.free_completed(entry, *split);
            }
        }
    }
}

/// Events of one stream that are not in the books yet, in order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: Mutex<Vec<(u64, Event)>>,
}

impl EventLog {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.events).len()
    }
}

/// Alone on its cache lines: what stands next to it is read by all threads and should not move when this is written.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

#[derive(Debug)]
struct Books {
    ledger: Ledger,
    /// Kept for its capacity.
    batch: Vec<(u64, Event)>,
}

/// A device's ledger for many threads.
///
/// Locks are taken in this order: books, a log, the list of marked logs.
#[derive(Debug)]
pub(crate) struct SharedLedger {
    books: Apart<Mutex<Books>>,
    sequence: Apart<AtomicU64>,
    marked_count: Apart<AtomicUsize>,
    /// Logs with events.
    marked: Mutex<Vec<Arc<EventLog>>>,
}

impl SharedLedger {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self {
            books: Apart(Mutex::new(Books { ledger, batch: Vec::new() })),
            sequence: Apart::default(),
            marked_count: Apart::default(),
            marked: Mutex::default(),
        }
    }

    /// The books, with everything in them that has happened.
    #[inline]
    pub(crate) fn lock(&self) -> LedgerGuard<'_> {
        self.up_to_date(lock(&self.books.0))
    }

    /// A block was handed out; `log` is its stream's.
    #[inline]
    pub(crate) fn allocated(
        &self,
        log: &Arc<EventLog>,
        entry: &BlockEntry,
        split: SplitChange,
        owner: Option<ScopeKey>,
    ) {
        match self.books_for() {
            Some(mut books) => books.allocated(entry, split, owner),
            None => self.write(log, Event::Allocated { entry: *entry, split, owner }),
        }
    }

    /// A block was given back and is free; `log` is its stream's.
    #[inline]
    pub(crate) fn freed(
        &self,
        log: &Arc<EventLog>,
        entry: &BlockEntry,
        split: SplitChange,
        owner: Option<ScopeKey>,
        context: Option<ScopeKey>,
    ) {
        match self.books_for() {
            Some(mut books) => {
                books.free_requested(entry, owner, context);
                books.free_completed(entry, split);
            }
            None => self.write(log, Event::Freed { entry: *entry, split, owner, context }),
        }
    }

    /// The books, if an event should be entered at once.
    #[inline]
    fn books_for(&self) -> Option<LedgerGuard<'_>> {
        // Once one thread logs, all do, until a batch is full: while threads contend, the books should move rarely.
        if self.marked_count.0.load(Ordering::Relaxed) > 0 {
            return None;
        }
        match self.books.0.try_lock() {
            Ok(books) => Some(self.up_to_date(books)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.up_to_date(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn up_to_date<'a>(&self, mut books: MutexGuard<'a, Books>) -> LedgerGuard<'a> {
        if self.marked_count.0.load(Ordering::Acquire) > 0 {
            self.enter_logs(&mut books);
        }
        LedgerGuard(books)
    }

    #[cold]
    #[inline(never)]
    fn write(&self, log: &Arc<EventLog>, event: Event) {
        let len = {
            let mut events = lock(&log.events);
            // Drawn under the log's lock: see the module's proof.
            events.push((self.sequence.0.fetch_add(1, Ordering::AcqRel), event));
            if events.len() == 1 {
                self.mark(log);
            }
            events.len()
        };
        if len >= LOG_LIMIT {
            drop(self.lock());
        } else if len.is_multiple_of(BATCH_LEN)
            && let Ok(mut books) = self.books.0.try_lock()
        {
            self.enter_logs(&mut books);
        }
    }

    fn mark(&self, log: &Arc<EventLog>) {
        let mut marked = lock(&self.marked);
        marked.push(Arc::clone(log));
        self.marked_count.0.store(marked.len(), Ordering::Release);
    }

    /// Enters all logged events that happened before now.
    #[cold]
    #[inline(never)]
    fn enter_logs(&self, books: &mut Books) {
        let Books { ledger, batch } = books;
        let end = self.sequence.0.load(Ordering::Acquire);
        let logs = {
            let mut marked = lock(&self.marked);
            self.marked_count.0.store(0, Ordering::Release);
            std::mem::take(&mut *marked)
        };
        batch.clear();
        for log in logs {
            let mut events = lock(&log.events);
            let ready = events.partition_point(|(number, _)| *number < end);
            batch.extend(events.drain(..ready));
            if !events.is_empty() {
                self.mark(&log);
            }
        }
        // Sorted runs, one a log: a merge sort makes one pass for each doubling of their number.
        batch.sort_by_key(|(number, _)| *number);
        for (_, event) in batch.iter() {
            ledger.enter(event);
        }
    }
}

/// The books, held.
#[derive(Debug)]
pub(crate) struct LedgerGuard<'a>(MutexGuard<'a, Books>);

impl Deref for LedgerGuard<'_> {
    type Target = Ledger;

    #[inline]
    fn deref(&self) -> &Ledger {
        &self.0.ledger
    }
}

impl DerefMut for LedgerGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Ledger {
        &mut self.0.ledger
    }
}
