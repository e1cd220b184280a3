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
//!
//! **Events of several devices.** Each device has books and a sequence of its own, so an event that waits in a log has no place
//! among those of another device. While a scope is open on several devices, their events are therefore entered *at once*:
//! before the operation returns. The scope's opening (1) raises a count, (2) draws a number, (3) takes the books and enters
//! the logs, looking at the list of marked ones even if it seems empty. A writer that has logged an event, and let go of its
//! log's lock, reads the count; if it is not zero, it takes the books, and so enters what it logged. Then each event that is
//! logged is entered by step 3, or its writer sees the count:
//!
//! - Its number was drawn after step 2. All draws are read-modify-writes of one variable, so step 2 happens before the draw, and
//!   step 1 before the reading of the count.
//! - It was drawn before, and step 3 looked at its log afterwards: it was entered, its number being below S.
//! - It was drawn before, and step 3 looked at its log before the writer locked it: the log's lock orders the two, and the
//!   writer sees the count.
//! - It was drawn before, and step 3 did not look at its log, which was not in the list then. Whoever marked it did so later;
//!   the list's lock orders step 3 before that, the log's lock that before the end of the writing, and the writer sees the
//!   count.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::{BlockEntry, Ledger, ScopeKey, SplitChange};
use crate::sync::{BiasedGuard, BiasedMutex, lock};

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
    books: Apart<BiasedMutex<Books>>,
    sequence: Apart<AtomicU64>,
    marked_count: Apart<AtomicUsize>,
    /// Scopes over several devices that are open on this one: events are entered at once, see the module's proof. Read only
    /// where an event was logged.
    at_once_count: AtomicUsize,
    /// Logs with events.
    marked: Mutex<Vec<Arc<EventLog>>>,
}

impl SharedLedger {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self {
            books: Apart(BiasedMutex::new(Books { ledger, batch: Vec::new() })),
            sequence: Apart::default(),
            marked_count: Apart::default(),
            at_once_count: AtomicUsize::new(0),
            marked: Mutex::default(),
        }
    }

    /// The books, with everything in them that has happened.
    #[inline]
    pub(crate) fn lock(&self) -> LedgerGuard<'_> {
        self.up_to_date(self.books.0.lock())
    }

    /// As [`lock`](Self::lock). From here on until [`end_at_once`](Self::end_at_once), each event is entered before its
    /// operation returns, and what came before is.
    pub(crate) fn lock_at_once(&self) -> LedgerGuard<'_> {
        self.at_once_count.fetch_add(1, Ordering::Relaxed);
        self.sequence.0.fetch_add(1, Ordering::AcqRel);
        let mut books = self.books.0.lock();
        self.enter_logs(&mut books);
        LedgerGuard(books)
    }

    /// Ends what one [`lock_at_once`](Self::lock_at_once) began.
    pub(crate) fn end_at_once(&self) {
        self.at_once_count.fetch_sub(1, Ordering::Relaxed);
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
    #[inline(always)]
    fn books_for(&self) -> Option<LedgerGuard<'_>> {
        match self.books.0.try_lock_as_owner() {
            Some(books) => Some(self.up_to_date(books)),
            None => self.books_of_others(),
        }
    }

    #[inline(never)]
    fn books_of_others(&self) -> Option<LedgerGuard<'_>> {
        // Once one thread logs, all do, until a batch is full: while threads contend, the books should move rarely.
        if self.marked_count.0.load(Ordering::Relaxed) > 0 {
            return None;
        }
        self.books.0.try_lock().map(|books| self.up_to_date(books))
    }

    #[inline(always)]
    fn up_to_date<'a>(&self, mut books: BiasedGuard<'a, Books>) -> LedgerGuard<'a> {
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
        // The count is read after the event is in its log: see the module's proof.
        if len >= LOG_LIMIT || self.at_once_count.load(Ordering::Relaxed) > 0 {
            drop(self.lock());
        } else if len.is_multiple_of(BATCH_LEN)
            && let Some(mut books) = self.books.0.try_lock()
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
pub(crate) struct LedgerGuard<'a>(BiasedGuard<'a, Books>);

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
