//! The ledger behind its lock, and the ring through which events of threads that meet there come in.
//!
//! A peak is a property of one order of all events, so all threads of a device meet here. They would also wait for each
//! other here: the books are many cache lines, which would have to move from core to core for each event. So once a
//! thread finds the books taken, events are *put off*: their threads write them into a [`Ring`], with a number from a common
//! sequence, and go on. Whoever takes the books next enters them first, many at once. When for a while only one thread had anything
//! to write, events are entered directly again.
//!
//! **Why this is exact.** Whenever one operation ended before another began, the books have the two in this order:
//!
//! - Both were put off: their numbers are in this order, and they are entered by number.
//! - The first was put off, the second not: the second has the books and enters all events whose numbers were drawn by then, waiting for
//!   those that are being written. The first's is among them.
//! - The first was not put off: it was in the books before the second began.
//!
//! Operations that overlap in time have no order, and get one.
//!
//! **Events of several devices.** Each device has books and a sequence of its own, so an event that was put off has no place
//! among those of another device. While a scope is open on several devices, their events are therefore entered *at once*:
//! before the operation returns. The scope's opening (1) raises a count, (2) writes a mark, which draws a number, and (3) takes the
//! books and enters all that is below it. A writer reads the count after it has drawn its number, and if it is not zero takes the
//! books, and so enters what it wrote. All draws are read-modify-writes of one variable: a number drawn before step 2 is
//! entered by step 3, and one drawn after it was drawn after step 1, so that its writer sees the count.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::event::Event;
use super::ring::{Apart, READ_LEN, RING_LEN, Ring, pause};
use super::threads::ThreadSet;
use super::{BlockEntry, Ledger, ScopeKey, SplitChange};
use crate::sync::{BiasedGuard, BiasedMutex};

/// Whoever writes each so-many-th event enters what was put off, if the books are free.
pub(super) const BATCH_LEN: u64 = 256;
/// With so many waiting, a writer sees to it that they are entered: the ring must not fill.
const MOST_WAITING: u64 = RING_LEN / 2;
/// After so many events their places in the ring are given back.
const GIVEN_BACK_LEN: u64 = 256;
/// So often it looks whether another does it; then it waits for the books.
const MOST_LOOKS: u32 = 80;
/// When so many events in a row were of one thread, they are put off no more.
const ALONE_COUNT: u64 = 2 * BATCH_LEN;

#[derive(Debug)]
struct Books {
    ledger: Ledger,
    /// How many events of the ring are in the ledger.
    entered_count: u64,
    /// Those who wrote since it was last asked whether several do, and how much.
    writers: ThreadSet,
    writer_event_count: u64,
}

/// A device's ledger for many threads.
#[derive(Debug)]
pub(crate) struct SharedLedger {
    books: Apart<BiasedMutex<Books>>,
    ring: Ring,
    /// Several threads meet here: their events are put off.
    is_shared: Apart<AtomicBool>,
    /// Scopes over several devices that are open on this one: events are entered at once, see the module's proof. Read only
    /// where an event was put off.
    at_once_count: AtomicUsize,
}

impl SharedLedger {
    pub(crate) fn new(ledger: Ledger) -> Self {
        let books = Books { ledger, entered_count: 0, writers: ThreadSet::default(), writer_event_count: 0 };
        Self {
            books: Apart(BiasedMutex::new(books)),
            ring: Ring::default(),
            is_shared: Apart::default(),
            at_once_count: AtomicUsize::new(0),
        }
    }

    /// The books, with everything in them that has happened.
    #[inline]
    pub(crate) fn lock(&self) -> LedgerGuard<'_> {
        let mut books = self.up_to_date(self.books.0.lock());
        books.settle();
        books
    }

    /// As [`lock`](Self::lock). From here on until [`end_at_once`](Self::end_at_once), each event is entered before its
    /// operation returns, and what came before is.
    pub(crate) fn lock_at_once(&self) -> LedgerGuard<'_> {
        self.at_once_count.fetch_add(1, Ordering::Relaxed);
        self.write(Event::Mark);
        self.lock()
    }

    /// Ends what one [`lock_at_once`](Self::lock_at_once) began.
    pub(crate) fn end_at_once(&self) {
        self.at_once_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// A block was handed out.
    #[inline(always)]
    pub(crate) fn allocated(&self, entry: &BlockEntry, split: SplitChange, owner: Option<ScopeKey>) {
        match self.books_for() {
            Some(mut books) => books.allocated(entry, split, owner),
            None => self.put_off(Event::Allocated { entry: *entry, split, owner }),
        }
    }

    /// A block was given back and is free.
    #[inline]
    pub(crate) fn freed(
        &self,
        entry: &BlockEntry,
        split: SplitChange,
        owner: Option<ScopeKey>,
        context: Option<ScopeKey>,
    ) {
        match self.books_for() {
            Some(mut books) => {
                books.freed(entry, split, owner, context);
            }
            None => self.put_off(Event::Freed { entry: *entry, split, owner, context }),
        }
    }

    /// The books, if an event should be entered directly.
    #[inline(always)]
    fn books_for(&self) -> Option<LedgerGuard<'_>> {
        match self.books.0.try_lock_as_owner() {
            Some(books) => Some(self.up_to_date(books)),
            None => self.books_for_others(),
        }
    }

    #[inline(never)]
    fn books_for_others(&self) -> Option<LedgerGuard<'_>> {
        // While threads meet, the books should move from core to core rarely.
        if self.is_shared.0.load(Ordering::Relaxed) {
            return None;
        }
        let books = self.books.0.try_lock();
        if books.is_none() {
            self.is_shared.0.store(true, Ordering::Relaxed);
        }
        books.map(|books| self.up_to_date(books))
    }

    #[inline(always)]
    fn up_to_date<'a>(&self, mut books: BiasedGuard<'a, Books>) -> LedgerGuard<'a> {
        // What comes from here on is for the next who takes the books.
        let end = self.ring.drawn_count();
        if end != books.entered_count {
            self.enter_below(&mut books, end);
        }
        LedgerGuard(books)
    }

    #[cold]
    #[inline(never)]
    fn put_off(&self, event: Event) {
        let number = self.write(event);
        // The count is read after the number was drawn: see the module's proof.
        if self.at_once_count.load(Ordering::Relaxed) > 0 {
            drop(self.lock());
        } else if (number + 1).is_multiple_of(BATCH_LEN)
            && let Some(mut books) = self.books.0.try_lock()
        {
            self.enter_below(&mut books, number + 1);
        } else if self.ring.waiting_before(number) > MOST_WAITING {
            self.catch_up(number);
        }
    }

    /// Waits until few events before this one wait.
    #[cold]
    fn catch_up(&self, number: u64) {
        if let Some(books) = self.books.0.try_lock() {
            drop(self.up_to_date(books));
            return;
        }
        let mut looks = 0;
        while self.ring.waiting_before(number) > MOST_WAITING {
            if looks == MOST_LOOKS {
                drop(self.lock());
                return;
            }
            pause(&mut looks);
        }
    }

    fn write(&self, event: Event) -> u64 {
        let mut looks = 0;
        self.ring.write(&event.to_words(), |number| {
            // The ring is full all the same, which takes a thousand threads: somebody must read. No waiting for the books, since who
            // has them may be waiting for this event.
            if looks % 32 == 0
                && let Some(mut books) = self.books.0.try_lock()
            {
                self.enter_below(&mut books, number);
            }
            pause(&mut looks);
        })
    }

    /// Enters all events whose numbers are below `end`.
    #[cold]
    #[inline(never)]
    fn enter_below(&self, books: &mut Books, end: u64) {
        let mut events = [[0; 7]; READ_LEN];
        let mut given_back = None;
        while books.entered_count < end {
            let count = self.ring.read(books.entered_count, end, &mut events);
            books.entered_count += count as u64;
            // Rarely: all writers look at it.
            if given_back.is_none_or(|given_back| books.entered_count - given_back >= GIVEN_BACK_LEN) {
                self.ring.give_back(books.entered_count);
                given_back = Some(books.entered_count);
            }
            for words in &events[..count] {
                let event = Event::from_words(*words);
                if let Some(thread) = event.thread() {
                    books.writers.insert(thread);
                    books.writer_event_count += 1;
                }
                books.ledger.enter(&event);
            }
        }
        self.ring.give_back(books.entered_count);
        if books.writer_event_count >= ALONE_COUNT {
            if books.writers.count() == 1 {
                self.is_shared.0.store(false, Ordering::Relaxed);
            }
            books.writers = ThreadSet::default();
            books.writer_event_count = 0;
        }
    }

    /// How many events were put off since the beginning.
    #[cfg(test)]
    pub(super) fn put_off_count(&self) -> u64 {
        self.ring.drawn_count()
    }

    /// How many of them are not entered.
    #[cfg(test)]
    pub(super) fn waiting_count(&self) -> u64 {
        self.ring.drawn_count() - self.books.0.lock().entered_count
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
