//! Events on their way into the books, in the order of their numbers.
//!
//! A writer draws a number, which is one read-modify-write, and writes its event into the place that the number names, which is one
//! cache line; whoever holds the books reads the places one after the other. Nobody sorts, and nobody takes a lock to write.
//!
//! A writer raises the place's *stamp* to one above its number once the event is there. The reader waits for that and writes to no
//! place, which would cost it the line a second time: it says from time to time how far it has read, and a writer waits until
//! that is less than a round behind.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many events can be on their way.
pub(super) const RING_LEN: u64 = 4096;
const _: () = assert!(RING_LEN.is_power_of_two());
/// So many events are read in one go: their lines come from other cores, and so come together.
pub(super) const READ_LEN: usize = 32;

/// What an event is written as.
pub(super) type Words = [u64; 7];

/// One place, a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    stamp: AtomicU64,
    words: [AtomicU64; 7],
}

/// Alone on its cache lines: what stands next to it is read by all threads and should not move when this is written.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

/// A ring of events, with many writers and one reader at a time.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// The number that is drawn next.
    next: Apart<AtomicU64>,
    /// The events below it were read, and their places are free.
    read_count: Apart<AtomicU64>,
    /// Made when two threads first meet.
    places: OnceLock<Box<[Place]>>,
}

impl Ring {
    /// How many numbers have been drawn. What a thread wrote before is below it.
    #[inline]
    pub(super) fn drawn_count(&self) -> u64 {
        self.next.0.load(Ordering::Acquire)
    }

    /// How many events before the one of this number were not read, not long ago.
    #[inline]
    pub(super) fn waiting_before(&self, number: u64) -> u64 {
        number.saturating_sub(self.read_count.0.load(Ordering::Relaxed))
    }

    /// Writes an event and returns its number. While there is no place for it, `wait` is called again and again with the number;
    /// who reads there must read no further than below it.
    #[inline]
    pub(super) fn write(&self, words: &Words, mut wait: impl FnMut(u64)) -> u64 {
        let places = self.places.get_or_init(Self::make);
        let number = self.next.0.fetch_add(1, Ordering::AcqRel);
        while number.saturating_sub(self.read_count.0.load(Ordering::Acquire)) >= RING_LEN {
            wait(number);
        }
        let place = &places[(number % RING_LEN) as usize];
        for (place, word) in place.words.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        place.stamp.store(number + 1, Ordering::Release);
        number
    }

    #[cold]
    fn make() -> Box<[Place]> {
        (0..RING_LEN).map(|_| Place::default()).collect()
    }

    /// Reads the events from `first` on, below `end` and as many as `events` takes; returns how many. Waits for the first of them, and
    /// stops at one that is not there yet. Only the reader may call it, and give the events' places back afterwards.
    #[inline]
    pub(super) fn read(&self, first: u64, end: u64, events: &mut [Words; READ_LEN]) -> usize {
        let places = self.places.get_or_init(Self::make);
        let place_of = |number: u64| &places[(number % RING_LEN) as usize];
        let mut looks = 0_u32;
        while place_of(first).stamp.load(Ordering::Acquire) != first + 1 {
            // Its writer has the number and is about to write.
            pause(&mut looks);
        }
        let mut count = 0;
        for (number, event) in (first..end).zip(events) {
            let place = place_of(number);
            if place.stamp.load(Ordering::Acquire) != number + 1 {
                break;
            }
            *event = std::array::from_fn(|at| place.words[at].load(Ordering::Relaxed));
            count += 1;
        }
        count
    }

    /// The events below `number` were read.
    #[inline]
    pub(super) fn give_back(&self, number: u64) {
        self.read_count.0.store(number, Ordering::Release);
    }
}

/// Waits a little: the longer, the more often it was called for.
#[inline]
pub(super) fn pause(looks: &mut u32) {
    *looks = looks.saturating_add(1);
    if *looks < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    /// Reads the one event of this number.
    fn read_one(ring: &Ring, number: u64) -> Words {
        let mut events = [[0; 7]; READ_LEN];
        assert_eq!(ring.read(number, number + 1, &mut events), 1);
        ring.give_back(number + 1);
        events[0]
    }

    #[test]
    fn events_are_read_in_the_order_of_their_numbers_over_many_rounds() {
        let ring = Ring::default();
        for round in 0..3 * RING_LEN {
            assert_eq!(ring.write(&[round, 1, 2, 3, 4, 5, 6], |_| panic!("there is place")), round);
            assert_eq!(read_one(&ring, round), [round, 1, 2, 3, 4, 5, 6]);
        }
    }

    #[test]
    fn a_writer_waits_while_the_ring_is_full() {
        let ring = Ring::default();
        (0..RING_LEN).for_each(|number| assert_eq!(ring.write(&[number; 7], |_| panic!("there is place")), number));
        let mut waits = 0;
        let number = ring.write(&[77; 7], |_| {
            waits += 1;
            if waits == 3 {
                assert_eq!(read_one(&ring, 0), [0; 7]);
            }
        });
        assert_eq!((number, waits), (RING_LEN, 3));
        assert_eq!(read_one(&ring, 1), [1; 7]);
    }

    #[test]
    fn many_writers_lose_nothing_and_keep_their_own_order() {
        const WRITERS: u64 = 4;
        const EACH: u64 = 20_000;
        let ring = Ring::default();
        let done = AtomicBool::new(false);
        let seen = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut number = 0;
                while number < WRITERS * EACH {
                    let end = ring.drawn_count();
                    let mut events = [[0; 7]; READ_LEN];
                    while number < end {
                        let count = ring.read(number, end, &mut events);
                        seen.lock().unwrap().extend_from_slice(&events[..count]);
                        number += count as u64;
                        ring.give_back(number);
                    }
                    std::thread::yield_now();
                }
                done.store(true, Ordering::Relaxed);
            });
            for writer in 0..WRITERS {
                let ring = &ring;
                scope.spawn(move || {
                    for count in 0..EACH {
                        // All words are of one event, or two writers would have met in a place.
                        ring.write(&[writer, count, writer, count, writer, count, writer], |_| {
                            std::thread::yield_now()
                        });
                    }
                });
            }
            reader.join().unwrap();
        });
        assert!(done.into_inner());
        let mut next = [0; WRITERS as usize];
        for [writer, count, words @ ..] in seen.into_inner().unwrap() {
            assert_eq!(words, [writer, count, writer, count, writer]);
            assert_eq!(count, next[writer as usize]);
            next[writer as usize] += 1;
        }
    }
}
