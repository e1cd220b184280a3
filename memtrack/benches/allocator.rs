//! What a cached allocation and its free cost, beside a heap allocation and an uncontended lock of the same run.
//!
//! The device is simulated, so that no driver call and no byte of memory is in the figures.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops and says why")]

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use divan::Bencher;
use memtrack::device::{Simulated, Stream};
use memtrack::history::{ContextLevel, HistoryOptions};
use memtrack::scope::Scope;
use memtrack::units::Bytes;
use memtrack::{Buffer, CachingAllocator};

fn main() {
    divan::main();
}

/// The small pool, the small pool again with longer rests, and the large pool.
const SIZES: [Bytes; 3] = [Bytes(512), Bytes(64 << 10), Bytes(8 << 20)];

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

/// An allocator whose cache serves a request of this size.
fn warm_allocator(bytes: Bytes) -> CachingAllocator {
    let allocator = allocator();
    drop(Buffer::<u8>::uninit(&allocator, bytes.0 as usize).unwrap());
    allocator
}

fn open_scopes<const COUNT: usize>(allocator: &CachingAllocator) -> [Scope; COUNT] {
    std::array::from_fn(|_| Scope::open(allocator, "around", None))
}

/// Closes scopes in the opposite order of their opening.
fn close_scopes(scopes: impl IntoIterator<Item = Scope, IntoIter: DoubleEndedIterator>) {
    scopes.into_iter().rev().for_each(drop);
}

/// An allocation that finds a cached block, and its free; in so many open scopes.
mod pair {
    use super::*;

    #[divan::bench(args = SIZES, consts = [0, 1, 3], sample_size = 2000)]
    fn buffer<const SCOPES: usize>(bencher: Bencher<'_, '_>, bytes: Bytes) {
        let allocator = warm_allocator(bytes);
        let scopes = open_scopes::<SCOPES>(&allocator);
        bencher.bench_local(|| drop(black_box(Buffer::<u8>::uninit(&allocator, black_box(bytes.0 as usize)))));
        close_scopes(scopes);
    }

    /// As `buffer` outside any scope, while the history is recorded without call sites.
    #[divan::bench(args = SIZES, sample_size = 2000)]
    fn recorded(bencher: Bencher<'_, '_>, bytes: Bytes) {
        let allocator = warm_allocator(bytes);
        let options = HistoryOptions::new().context(ContextLevel::None).max_entries(100_000);
        allocator.record_memory_history(Some(&options));
        // A full ring, as in a long run.
        (0..50_000).for_each(|_| drop(Buffer::<u8>::uninit(&allocator, bytes.0 as usize)));
        bencher.bench_local(|| drop(black_box(Buffer::<u8>::uninit(&allocator, black_box(bytes.0 as usize)))));
    }

    #[divan::bench(args = SIZES, consts = [0, 1, 3], sample_size = 2000)]
    fn raw<const SCOPES: usize>(bencher: Bencher<'_, '_>, bytes: Bytes) {
        let allocator = warm_allocator(bytes);
        let scopes = open_scopes::<SCOPES>(&allocator);
        bencher.bench_local(|| {
            let address = allocator.allocate_raw(black_box(bytes.0 as u64), Stream::DEFAULT).unwrap();
            allocator.free_raw(black_box(address)).unwrap();
        });
        close_scopes(scopes);
    }
}

/// The pair on threads that each use a stream of their own; they meet only at the statistics.
mod threads {
    use super::*;

    static NEXT_STREAM: AtomicU64 = AtomicU64::new(1);

    thread_local! {
        static STREAM: Cell<u64> = const { Cell::new(0) };
    }

    fn own_stream() -> Stream {
        STREAM.with(|stream| {
            if stream.get() == 0 {
                stream.set(NEXT_STREAM.fetch_add(1, Ordering::Relaxed));
            }
            Stream(stream.get())
        })
    }

    #[divan::bench(threads = [1, 2, 4, 8, 16], sample_size = 200_000, sample_count = 20)]
    fn buffer(bencher: Bencher<'_, '_>) {
        let allocator = allocator();
        bencher.bench(|| drop(black_box(Buffer::<u8>::uninit_on(&allocator, own_stream(), black_box(512)))));
    }
}

/// A free of one of 4096 live blocks and an allocation in its place, sizes from 512 B to 16 MiB, each power of two as
/// likely as the next.
mod churn {
    use super::*;

    const LIVE_COUNT: usize = 4096;

    /// Xorshift, so that every run sees the same sizes.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn below(&mut self, limit: usize) -> usize {
            (self.next() >> 32) as usize % limit
        }

        /// From 512 B to 16 MiB, or to 1 MiB for the small pool alone.
        fn size_bytes(&mut self, doublings: usize) -> usize {
            let low = 512 << self.below(doublings);
            low + self.below(low)
        }
    }

    fn replace_one_of_many(bencher: Bencher<'_, '_>, doublings: usize) {
        let allocator = allocator();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut live: Vec<Option<Buffer<u8>>> = (0..LIVE_COUNT).map(|_| None).collect();
        let mut replace_one = move || {
            let at = random.below(LIVE_COUNT);
            live[at] = None;
            live[at] = Some(Buffer::uninit(&allocator, random.size_bytes(doublings)).unwrap());
        };
        // Until every place is taken and the cache has grown to what the churn needs.
        (0..100 * LIVE_COUNT).for_each(|_| replace_one());
        bencher.bench_local(replace_one);
    }

    #[divan::bench(sample_size = 2000)]
    fn small_pool(bencher: Bencher<'_, '_>) {
        replace_one_of_many(bencher, 11);
    }

    #[divan::bench(sample_size = 2000)]
    fn both_pools(bencher: Bencher<'_, '_>) {
        replace_one_of_many(bencher, 15);
    }
}

/// What the figures above can be told against.
mod reference {
    use super::*;

    #[divan::bench]
    fn heap_512_bytes() {
        drop(black_box(Vec::<u8>::with_capacity(black_box(512))));
    }

    #[divan::bench]
    fn mutex_lock_and_unlock(bencher: Bencher<'_, '_>) {
        let mutex = Mutex::new(0_u64);
        bencher.bench_local(|| *black_box(&mutex).lock().unwrap() += 1);
    }

    #[divan::bench]
    fn arc_clone_and_drop(bencher: Bencher<'_, '_>) {
        let shared = Arc::new(0_u64);
        bencher.bench_local(|| drop(black_box(Arc::clone(&shared))));
    }
}
