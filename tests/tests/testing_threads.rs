//! Checks are of what the work itself does, whatever other threads do to the same allocator at the same time.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memtrack::device::{Simulated, Stream};
use memtrack::scope::{InScope, Outcome, Scope, ScopeHandle};
use memtrack::{Buffer, CachingAllocator, testing, track_memory};
use memtrack_tests::futures::block_on;

/// Xorshift, so that every run does the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % limit
    }
}

/// Takes and drops buffers at random, and counts along.
#[derive(Default)]
struct Work {
    held: Vec<Buffer<u8>>,
    live_bytes: u64,
    peak_bytes: u64,
    allocation_count: u64,
}

impl Work {
    #[track_memory(phase = "step", device = allocator)]
    fn step(&mut self, allocator: &CachingAllocator, random: &mut Random) {
        if self.held.is_empty() || random.below(2) == 0 {
            // Streams shared with other threads, so that blocks of one are reused by another.
            let stream = Stream(random.below(3) as u64);
            let bytes = 1 + random.below(100_000);
            self.held.push(Buffer::uninit_on(allocator, stream, bytes).unwrap());
            self.live_bytes += bytes as u64;
            self.peak_bytes = self.peak_bytes.max(self.live_bytes);
            self.allocation_count += 1;
        } else {
            let freed = self.held.swap_remove(random.below(self.held.len()));
            self.live_bytes -= freed.requested_bytes();
        }
    }
}

#[test]
fn eight_threads_on_one_allocator_each_get_their_own_exact_figures() {
    const THREADS: u64 = 8;
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    memtrack::set_default(&allocator);
    let measuring = AtomicUsize::new(THREADS as usize);
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let (allocator, measuring) = (&allocator, &measuring);
            threads.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15 + thread);
                for _ in 0..300 {
                    let mut work = Work::default();
                    let steps = 1 + random.below(60);
                    let around = Scope::open(allocator, "around", None);
                    let measured = testing::expect(|| (0..steps).for_each(|_| work.step(allocator, &mut random)));
                    let record = around.close(Outcome::Ok);
                    let Work { live_bytes, peak_bytes, allocation_count, held } = work;
                    assert_eq!(measured.kept_bytes(), live_bytes);
                    assert_eq!(measured.peak_bytes(), peak_bytes);
                    assert_eq!(measured.allocation_count(), allocation_count);
                    assert_eq!(record.own_peak_bytes as u64, peak_bytes, "the ledger says the same");
                    assert_eq!(record.own_delta_bytes as u64, live_bytes);
                    let _ = measured
                        .keeps_at_most(live_bytes)
                        .peak_at_most(peak_bytes)
                        .allocations_at_most(allocation_count);
                    drop(held);
                    testing::assert_no_allocations(|| random.below(7));
                }
                measuring.fetch_sub(1, Ordering::Relaxed);
            });
        }
        // Threads that are measured by nobody.
        for thread in 0..2 {
            let (allocator, measuring) = (&allocator, &measuring);
            threads.spawn(move || {
                let (mut random, mut work) = (Random(77 + thread), Work::default());
                while measuring.load(Ordering::Relaxed) > 0 {
                    work.step(allocator, &mut random);
                }
            });
        }
    });
    assert_eq!(allocator.memory_allocated(), 0);
    memtrack::clear_default();
}

#[test]
fn strictness_is_of_the_thread_and_of_what_it_hands_to_others() {
    let elsewhere = |handle: Option<&ScopeHandle>| {
        let ask = || handle.map_or_else(testing::is_strict, |handle| handle.in_scope(testing::is_strict));
        std::thread::scope(|threads| threads.spawn(ask).join().unwrap())
    };
    assert!(!testing::is_strict());
    let before = ScopeHandle::current();
    let guard = testing::strict();
    let again = testing::strict();
    drop(guard);
    assert!(testing::is_strict(), "as long as one guard lives");
    let handle = ScopeHandle::current();
    let future = async { testing::is_strict() }.in_current_scope();
    assert_eq!((elsewhere(None), elsewhere(Some(&before)), elsewhere(Some(&handle))), (false, false, true));
    drop(again);
    assert!(!testing::is_strict());
    assert!(elsewhere(Some(&handle)), "what was handed over goes on");
    assert!(block_on(future));
    assert!(!testing::is_strict(), "and only that");
}
