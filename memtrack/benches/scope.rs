//! What scopes, phases and attaching cost, with nothing allocated in them.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops and says why")]

use std::hint::black_box;
use std::sync::{Arc, Mutex};

use divan::Bencher;
use memtrack::CachingAllocator;
use memtrack::device::Simulated;
use memtrack::scope::{OpenScope, Outcome, Scope};

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
