//! Threads by small numbers, so that a set of them is one word.
//!
//! A thread gets a number at its first allocation or free and gives it back when it ends. Up to 63 threads at a time have numbers
//! of their own, and a number is used again as late as possible; all further threads share the last.

use std::cell::Cell;
use std::sync::Mutex;

use crate::sync::lock;

/// The number that all threads beyond the 63rd share.
const SHARED: u8 = 63;

/// A thread's number, below 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ThreadNumber(u8);

impl ThreadNumber {
    pub(super) fn number(self) -> u8 {
        self.0
    }

    /// The thread of this number; of one too large, of its lowest six bits.
    pub(super) fn of_number(number: u8) -> Self {
        Self(number & 63)
    }

    #[cfg(test)]
    pub(super) fn of_test(number: usize) -> Self {
        Self((number % 64) as u8)
    }
}

/// A set of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ThreadSet(u64);

impl ThreadSet {
    pub(crate) fn of(thread: ThreadNumber) -> Self {
        let mut set = Self::default();
        set.insert(thread);
        set
    }

    #[inline]
    pub(crate) fn insert(&mut self, thread: ThreadNumber) {
        self.0 |= 1 << (thread.0 & 63);
    }

    #[inline]
    pub(crate) fn insert_all(&mut self, threads: Self) {
        self.0 |= threads.0;
    }

    #[inline]
    pub(crate) fn has_all(self, threads: Self) -> bool {
        threads.0 & !self.0 == 0
    }

    pub(crate) fn without(self, threads: Self) -> Self {
        Self(self.0 & !threads.0)
    }

    /// How many; all that share a number are one.
    pub(crate) fn count(self) -> u32 {
        self.0.count_ones()
    }
}

struct Numbers {
    taken: u64,
    last_given: u8,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { taken: 0, last_given: SHARED - 1 });

/// Not given yet.
const NONE: u8 = u8::MAX;

thread_local! {
    static NUMBER: Cell<u8> = const { Cell::new(NONE) };
    /// Gives the number back when the thread ends.
    static HOLD: Cell<Option<Hold>> = const { Cell::new(None) };
}

struct Hold(u8);

impl Drop for Hold {
    fn drop(&mut self) {
        lock(&NUMBERS).taken &= !(1 << self.0);
        // What the thread does after this is done by nobody in particular.
        let _ = NUMBER.try_with(|number| number.set(SHARED));
    }
}

/// This thread's number.
#[inline]
pub(crate) fn current() -> ThreadNumber {
    match NUMBER.try_with(Cell::get) {
        Ok(NONE) => take_number(),
        Ok(number) => ThreadNumber(number),
        Err(_) => ThreadNumber(SHARED),
    }
}

#[cold]
#[inline(never)]
fn take_number() -> ThreadNumber {
    let number = {
        let mut numbers = lock(&NUMBERS);
        // From the one after the last on, so that a number that was given back rests for long.
        let next = (1..=SHARED).map(|step| (numbers.last_given + step) % SHARED);
        let free = next.into_iter().find(|number| numbers.taken & (1 << number) == 0);
        if let Some(number) = free {
            numbers.taken |= 1 << number;
            numbers.last_given = number;
        }
        free
    };
    let number = match number {
        // A thread that is ending cannot give it back, so it has none.
        Some(number) if HOLD.try_with(|hold| hold.set(Some(Hold(number)))).is_err() => {
            lock(&NUMBERS).taken &= !(1 << number);
            SHARED
        }
        Some(number) => number,
        None => SHARED,
    };
    let _ = NUMBER.try_with(|cell| cell.set(number));
    ThreadNumber(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_at_the_same_time_have_different_numbers_and_ended_ones_give_theirs_back() {
        let together = |count: usize| {
            let barrier = std::sync::Barrier::new(count);
            std::thread::scope(|threads| {
                let numbers: Vec<_> = (0..count)
                    .map(|_| {
                        threads.spawn(|| {
                            let number = current();
                            assert_eq!(number, current());
                            barrier.wait();
                            number
                        })
                    })
                    .collect();
                let mut set = ThreadSet::default();
                numbers.into_iter().for_each(|thread| set.insert(thread.join().unwrap()));
                set.count() as usize
            })
        };
        // Other tests run meanwhile and have numbers too.
        for _ in 0..20 {
            assert_eq!(together(8), 8);
        }
        assert!((2..=64).contains(&together(100)));
    }
}
