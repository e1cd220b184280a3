//! Events on their way into the books, in the order of their numbers.
//!
//! A writer draws a number, which is one read-modify-write, and writes its event into the place that the number names, which is one
//! cache line; whoever holds the books reads the places one after the other. Nobody sorts, and nobody takes a lock to write.
//!
//! Each place has a *stamp*, the number of the event that may be written there next. The writer waits for its own number, writes, and
//! raises the stamp by one; the reader waits for that, reads, and raises it to the number of the next round. So each place
//! passes from writer to reader and back, and what one wrote the other sees.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many events can be on their way.
pub(super) const RING_LEN: u64 = 2048;
const _: () = assert!(RING_LEN.is_power_of_two());

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
    /// Made when two threads first meet.
    places: OnceLock<Box<[Place]>>,
}

impl Ring {
    /// How many numbers have been drawn. What a thread wrote before is below it.
    #[inline]
    pub(super) fn drawn_count(&self) -> u64 {
        self.next.0.load(Ordering::Acquire)
    }

    /// Writes an event and returns its number. While there is no place for it, `wait` is called again and again with the number;
    /// who reads there must read no further than below it.
    #[inline]
    pub(super) fn write(&self, words: &Words, mut wait: impl FnMut(u64)) -> u64 {
        let place_of = self.places.get_or_init(Self::make);
        let number = self.next.0.fetch_add(1, Ordering::AcqRel);
        let place = &place_of[(number % RING_LEN) as usize];
        while place.stamp.load(Ordering::Acquire) != number {
            wait(number);
        }
        for (place, word) in place.words.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        place.stamp.store(number + 1, Ordering::Release);
        number
    }

    #[cold]
    fn make() -> Box<[Place]> {
        (0..RING_LEN).map(|number| Place { stamp: AtomicU64::new(number), ..Place::default() }).collect()
    }

    /// Reads the event of this number, once it is written, and gives its place back. Only the reader may call it, for each number once
    /// and in order.
    #[inline]
    pub(super) fn read(&self, number: u64) -> Words {
        let place = &self.places.get_or_init(Self::make)[(number % RING_LEN) as usize];
        let mut looks = 0_u32;
        while place.stamp.load(Ordering::Acquire) != number + 1 {
            // Its writer has the number and is about to write.
            pause(&mut looks);
        }
        let words = std::array::from_fn(|at| place.words[at].load(Ordering::Relaxed));
        place.stamp.store(number + RING_LEN, Ordering::Release);
        words
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

    #[test]
    fn events_are_read_in_the_order_of_their_numbers_over_many_rounds() {
        let ring = Ring::default();
        for round in 0..3 * RING_LEN {
            assert_eq!(ring.write(&[round, 1, 2, 3, 4, 5, 6], |_| panic!("there is place")), round);
            assert_eq!(ring.read(round), [round, 1, 2, 3, 4, 5, 6]);
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
                assert_eq!(ring.read(0), [0; 7]);
            }
        });
        assert_eq!((number, waits), (RING_LEN, 3));
        assert_eq!(ring.read(1), [1; 7]);
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
                    while number < end {
                        seen.lock().unwrap().push(ring.read(number));
                        number += 1;
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
