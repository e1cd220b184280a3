//! What scopes, phases and attaching cost, with nothing allocated in them.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops and says why")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Arc, Mutex};

use divan::Bencher;
use memtrack::device::Simulated;
use memtrack::scope::{CallSite, DevicesScope, OpenScope, Outcome, Scope};
use memtrack::{Buffer, CachingAllocator};

fn main() {
    let allocator = allocator();
    memtrack::set_default(&allocator);
    divan::main();
}

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

/// `Scope::open` on a named allocator and `close`, inside so many open scopes.
#[divan::bench(consts = [0, 1, 3], sample_size = 2000)]
fn open_and_close<const AROUND: usize>(bencher: Bencher<'_, '_>) {
    let allocator = allocator();
    let around: [Scope; AROUND] = std::array::from_fn(|_| Scope::open(&allocator, "around", None));
    bencher.bench_local(|| drop(black_box(Scope::open(black_box(&allocator), "inner", None).close(Outcome::Ok))));
    around.into_iter().rev().for_each(drop);
}

static AROUND_SITE: CallSite = CallSite::new("around", module_path!(), file!(), line!());
static INNER_SITE: CallSite = CallSite::new("inner", module_path!(), file!(), line!());

/// `Scope::open_site` on a named allocator and `close`, inside so many open calls of another site.
#[divan::bench(consts = [0, 1, 3], sample_size = 2000)]
fn open_site_and_close<const AROUND: usize>(bencher: Bencher<'_, '_>) {
    let allocator = allocator();
    let around: [Scope; AROUND] = std::array::from_fn(|_| Scope::open_site(&allocator, &AROUND_SITE, None));
    let open = || Scope::open_site(black_box(&allocator), &INNER_SITE, None);
    bencher.bench_local(|| drop(black_box(open().close(Outcome::Ok))));
    around.into_iter().rev().for_each(drop);
}

/// A recursive call: of the same site as so many open ones.
#[divan::bench(consts = [1, 1000], sample_size = 2000)]
fn open_site_recursively<const AROUND: usize>(bencher: Bencher<'_, '_>) {
    let allocator = allocator();
    let around: Vec<Scope> = (0..AROUND).map(|_| Scope::open_site(&allocator, &INNER_SITE, None)).collect();
    let open = || Scope::open_site(black_box(&allocator), &INNER_SITE, None);
    bencher.bench_local(|| drop(black_box(open().close(Outcome::Ok))));
    around.into_iter().rev().for_each(drop);
}

/// A scope over so many devices.
#[divan::bench(consts = [1, 2, 8], sample_size = 2000)]
fn open_and_close_on_devices<const COUNT: usize>(bencher: Bencher<'_, '_>) {
    let allocators: [CachingAllocator; COUNT] = std::array::from_fn(|_| allocator());
    let open = || DevicesScope::open(black_box(&allocators), "all", None);
    bencher.bench_local(|| drop(black_box(open().close(Outcome::Ok))));
}

/// A cached allocation of 512 bytes and its free, inside scopes of one kind or another.
mod pair {
    use super::*;

    fn pair<S>(bencher: Bencher<'_, '_>, around: impl FnOnce(&CachingAllocator) -> S) {
        let allocator = allocator();
        let take = || drop(black_box(Buffer::<u8>::uninit(&allocator, black_box(512)).unwrap()));
        take();
        let around = around(&allocator);
        bencher.bench_local(take);
        drop(around);
    }

    #[divan::bench(sample_size = 2000)]
    fn in_no_scope(bencher: Bencher<'_, '_>) {
        pair(bencher, |_| ());
    }

    #[divan::bench(sample_size = 2000)]
    fn in_a_scope(bencher: Bencher<'_, '_>) {
        pair(bencher, |allocator| Scope::open(allocator, "around", None));
    }

    #[divan::bench(sample_size = 2000)]
    fn in_a_call_of_a_site(bencher: Bencher<'_, '_>) {
        pair(bencher, |allocator| Scope::open_site(allocator, &AROUND_SITE, None));
    }

    #[divan::bench(sample_size = 2000)]
    fn in_a_scope_over_two_devices(bencher: Bencher<'_, '_>) {
        pair(bencher, |of| DevicesScope::open(&[of.clone(), allocator()], "around", None));
    }
}

/// A cached allocation of 512 bytes with a free, in so many scopes, which ends the run of events in each scope around it.
mod pair_in_depth {
    use super::*;

    const DEPTHS: [usize; 4] = [1, 3, 10, 100];
    const SAMPLES: u32 = 20;
    const PAIRS: u32 = 1000;
    /// What is run of a bench at most: its samples, and a few before them.
    const FREED_COUNT: u32 = (SAMPLES + 5) * PAIRS;

    fn deep(allocator: &CachingAllocator, depth: usize) -> Vec<Scope> {
        (0..depth).map(|_| Scope::open(allocator, "around", None)).collect()
    }

    fn close(scopes: Vec<Scope>) {
        scopes.into_iter().rev().for_each(drop);
    }

    /// For comparison: the block that is freed is the innermost scope's own.
    #[divan::bench(args = DEPTHS, sample_size = 2000)]
    fn own_block_freed(bencher: Bencher<'_, '_>, depth: usize) {
        let allocator = allocator();
        let around = deep(&allocator, depth);
        bencher.bench_local(|| drop(black_box(Buffer::<u8>::uninit(&allocator, black_box(512)).unwrap())));
        close(around);
    }

    /// As a backward pass does: each allocation is followed by the free of a block of a scope that is closed.
    #[divan::bench(args = DEPTHS, sample_size = PAIRS, sample_count = SAMPLES)]
    fn block_of_another_scope_freed(bencher: Bencher<'_, '_>, depth: usize) {
        let allocator = allocator();
        let around = deep(&allocator, depth - 1);
        let mut held: VecDeque<Buffer<u8>> = VecDeque::new();
        let take = || Buffer::<u8>::uninit(&allocator, black_box(512)).unwrap();
        let forward = Scope::open(&allocator, "forward", None);
        // More than are freed, so that none of the backward pass's own are.
        held.extend((0..FREED_COUNT).map(|_| take()));
        drop(forward);
        let backward = Scope::open(&allocator, "backward", None);
        bencher.bench_local(|| {
            held.push_back(take());
            drop(held.pop_front());
        });
        drop(backward);
        drop(held);
        close(around);
    }

    /// A scope opens inside so many less one, holds the pair, and closes.
    #[divan::bench(args = DEPTHS, sample_size = 2000)]
    fn scope_around_it(bencher: Bencher<'_, '_>, depth: usize) {
        let allocator = allocator();
        let around = deep(&allocator, depth - 1);
        bencher.bench_local(|| {
            let _inner = black_box(Scope::open(&allocator, "inner", None));
            drop(black_box(Buffer::<u8>::uninit(&allocator, black_box(512)).unwrap()));
        });
        close(around);
    }
}

/// Three scopes in each other.
#[divan::bench(sample_size = 2000)]
fn three_nested(bencher: Bencher<'_, '_>) {
    let allocator = allocator();
    bencher.bench_local(|| {
        let _outer = black_box(Scope::open(&allocator, "outer", None));
        let _middle = black_box(Scope::open(&allocator, "middle", None));
        let _inner = black_box(Scope::open(&allocator, "inner", None));
    });
}

/// `scope` and its drop, on the default allocator.
#[divan::bench(sample_size = 2000)]
fn scope_on_default() {
    drop(black_box(memtrack::scope("work")));
}

/// `phase` and its drop, on the default allocator.
#[divan::bench(sample_size = 2000)]
fn phase_on_default() {
    drop(black_box(memtrack::phase("forward")));
}

/// `phase` and its drop, on an allocator made current on this thread.
#[divan::bench(sample_size = 2000)]
fn phase_on_thread_current(bencher: Bencher<'_, '_>) {
    let allocator = allocator();
    let current = allocator.make_current();
    bencher.bench_local(|| drop(black_box(memtrack::phase("forward"))));
    drop(current);
}

/// `phase` with measuring off.
#[divan::bench(sample_size = 2000)]
fn phase_while_off(bencher: Bencher<'_, '_>) {
    memtrack::set_enabled(false);
    bencher.bench_local(|| drop(black_box(memtrack::phase("forward"))));
    memtrack::set_enabled(true);
}

/// A thread enters a scope that is open, and leaves it.
#[divan::bench(sample_size = 2000)]
fn attach_and_detach(bencher: Bencher<'_, '_>) {
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "shared", None);
    bencher.bench_local(|| drop(black_box(scope.attach())));
}

/// The yardstick.
#[divan::bench(sample_size = 2000)]
fn reference_mutex_lock_and_unlock(bencher: Bencher<'_, '_>) {
    let mutex = Mutex::new(0_u64);
    bencher.bench_local(|| *black_box(&mutex).lock().unwrap() += 1);
}
