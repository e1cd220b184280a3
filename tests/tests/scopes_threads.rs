//! Scopes on real threads: overlap, hand-over, and frees far from their allocation.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use memtrack::device::Simulated;
use memtrack::scope::{OpenScope, Outcome, Scope};
use memtrack::{Buffer, CachingAllocator};

const KIB: i64 = 1 << 10;

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

/// So many KiB.
fn take(allocator: &CachingAllocator, kibibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, kibibytes << 10).unwrap()
}

#[test]
fn overlapping_scopes_of_two_threads_have_exact_peaks() {
    let allocator = allocator();
    // At every barrier one of the two has moved on: the order of events is fixed.
    let turn = Barrier::new(2);
    let (first, second) = std::thread::scope(|threads| {
        let first = threads.spawn(|| {
            let scope = Scope::open(&allocator, "first", None);
            let kept = take(&allocator, 100);
            turn.wait(); // 1: live 100
            turn.wait(); // 2: the other opened and took 50: 150
            drop(kept); // 50
            let record = scope.close(Outcome::Ok);
            turn.wait(); // 3
            turn.wait(); // 4
            record
        });
        let second = threads.spawn(|| {
            turn.wait(); // 1
            let scope = Scope::open(&allocator, "second", None);
            let kept = take(&allocator, 50);
            turn.wait(); // 2
            turn.wait(); // 3: first is closed
            drop(take(&allocator, 70)); // 120, below what was live when the other closed
            drop(kept);
            let record = scope.close(Outcome::Ok);
            turn.wait(); // 4
            record
        });
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!((first.before_bytes, first.peak_bytes, first.after_bytes), (0, 150 * KIB, 50 * KIB));
    assert_eq!((first.own_delta_bytes, first.own_peak_bytes, first.foreign_bytes), (0, 100 * KIB, 50 * KIB));
    assert_eq!((first.allocation_count, first.free_count, first.own_allocation_count), (2, 1, 1));
    assert_eq!((second.before_bytes, second.peak_bytes, second.after_bytes), (100 * KIB, 150 * KIB, 0));
    assert_eq!((second.own_delta_bytes, second.own_peak_bytes, second.foreign_bytes), (0, 120 * KIB, 100 * KIB));
    assert_eq!((second.allocation_count, second.free_count, second.own_allocation_count), (2, 3, 2));
}

#[test]
fn a_scope_sent_to_another_thread_owns_what_is_allocated_where_it_is_attached() {
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "task", Some("forward"));
    // Opened, but entered nowhere: this is nobody's.
    let unowned = take(&allocator, 1);
    let (record, kept) = std::thread::scope(|threads| {
        threads
            .spawn(|| {
                let outside = take(&allocator, 2);
                let attached = scope.attach();
                let kept = take(&allocator, 4);
                let inner = Scope::open(&allocator, "inner", None);
                assert_eq!(inner.close(Outcome::Ok).phase, Some("forward"), "inherited by what is opened inside");
                drop(attached);
                drop((outside, take(&allocator, 8)));
                (scope.close(Outcome::Err), kept)
            })
            .join()
            .unwrap()
    });
    assert_eq!((record.name, record.outcome.as_str(), record.phase), ("task", "err", Some("forward")));
    assert_eq!((record.own_delta_bytes, record.own_allocation_count), (4 * KIB, 1));
    assert_eq!((record.before_bytes, record.peak_bytes, record.after_bytes), (0, 15 * KIB, 5 * KIB));
    assert_eq!(record.foreign_bytes, (1 + 2 + 8 + 2 + 8) * KIB);
    drop((unowned, kept));
}

#[test]
fn one_scope_can_be_attached_to_several_threads_at_once() {
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "shared", None);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let _attached = scope.attach();
                for _ in 0..100 {
                    drop(take(&allocator, 1));
                }
            });
        }
    });
    let record = scope.close(Outcome::Ok);
    assert_eq!((record.own_allocation_count, record.own_delta_bytes, record.foreign_bytes), (400, 0, 0));
    assert!((1..=4).contains(&(record.own_peak_bytes / KIB)));
    assert_eq!(record.own_peak_bytes, record.peak_bytes);
}

#[test]
fn a_free_on_another_thread_is_credited_to_the_scope_that_allocated() {
    let allocator = allocator();
    let (sender, receiver) = channel::<Buffer<u8>>();
    std::thread::scope(|threads| {
        let allocator = &allocator;
        let freeing = threads.spawn(move || {
            let scope = Scope::open(allocator, "frees", None);
            receiver.iter().for_each(drop);
            scope.close(Outcome::Ok)
        });
        let scope = Scope::open(allocator, "allocates", None);
        for _ in 0..10 {
            sender.send(take(allocator, 3)).unwrap();
        }
        drop(sender);
        let freed = freeing.join().unwrap();
        let record = scope.close(Outcome::Ok);
        assert_eq!((record.own_delta_bytes, record.own_allocation_count), (0, 10));
        assert_eq!(record.foreign_bytes, 30 * KIB, "the frees were the other thread's");
        assert_eq!((freed.own_delta_bytes, freed.own_peak_bytes, freed.own_allocation_count), (0, 0, 0));
    });
}

#[test]
fn blocks_outlive_their_scope_and_do_not_count_for_another_in_its_place() {
    let allocator = allocator();
    let scope = Scope::open(&allocator, "gone", None);
    let kept = take(&allocator, 6);
    assert_eq!(scope.close(Outcome::Ok).own_delta_bytes, 6 * KIB);
    let next = Scope::open(&allocator, "next", None);
    drop(kept);
    let record = next.close(Outcome::Ok);
    assert_eq!((record.delta_bytes(), record.own_delta_bytes, record.foreign_bytes), (-6 * KIB, 0, 0));
    assert_eq!((record.peak_bytes, record.peak_delta_bytes()), (6 * KIB, 0), "the peak was at the start");
}

#[test]
fn an_outer_scope_may_close_first() {
    let allocator = allocator();
    let outer = Scope::open(&allocator, "outer", Some("forward"));
    let inner = Scope::open(&allocator, "inner", None);
    let kept = take(&allocator, 1);
    assert_eq!(outer.close(Outcome::Ok).own_delta_bytes, KIB);
    let more = take(&allocator, 2);
    let record = inner.close(Outcome::Ok);
    assert_eq!((record.own_delta_bytes, record.phase), (3 * KIB, Some("forward")));
    let after = Scope::open(&allocator, "after", None);
    assert_eq!(after.close(Outcome::Ok).phase, None, "nothing of either is left on this thread");
    drop((kept, more));
}

#[test]
fn scopes_of_two_devices_on_one_thread_do_not_mix() {
    let (here, there) = (allocator(), allocator());
    let outer = Scope::open(&here, "here", Some("forward"));
    let inner = Scope::open(&there, "there", None);
    let kept = take(&here, 5);
    let other = take(&there, 7);
    let record = inner.close(Outcome::Ok);
    assert_eq!((record.own_delta_bytes, record.delta_bytes(), record.phase), (7 * KIB, 7 * KIB, None));
    let record = outer.close(Outcome::Ok);
    assert_eq!((record.own_delta_bytes, record.delta_bytes(), record.foreign_bytes), (5 * KIB, 5 * KIB, 0));
    drop((kept, other));
}

#[test]
fn a_scope_dropped_in_a_panic_leaves_the_thread_as_it_was() {
    let allocator = allocator();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _scope = Scope::open(&allocator, "panics", Some("backward"));
        let _buffer = take(&allocator, 1);
        panic!("on purpose");
    }));
    assert!(outcome.is_err());
    assert_eq!(allocator.memory_allocated(), 0);
    let after = Scope::open(&allocator, "after", None);
    assert_eq!(after.close(Outcome::Ok).phase, None);
}

#[test]
fn scopes_ten_thousand_deep_are_exact_and_quick() {
    const DEPTH: usize = 10_000;
    let allocator = allocator();
    let started = std::time::Instant::now();
    let mut scopes = Vec::new();
    let mut kept = Vec::new();
    for level in 0..DEPTH {
        scopes.push(Scope::open(&allocator, "level", None));
        // An allocation walks all scopes around it, so not one at every level.
        if level % 100 == 0 {
            kept.push(take(&allocator, 1));
        }
    }
    let all = kept.len() as i64 * KIB;
    drop(kept);
    for (closed, scope) in scopes.into_iter().rev().enumerate() {
        let record = scope.close(Outcome::Ok);
        let level = DEPTH - 1 - closed;
        let inside = DEPTH / 100 - level.div_ceil(100);
        assert_eq!((record.own_allocation_count, record.own_delta_bytes), (inside as i64, 0), "level {level}");
        assert_eq!(record.peak_bytes, all, "level {level}");
    }
    assert!(started.elapsed().as_secs() < 10, "took {:?}", started.elapsed());
}

#[test]
fn recursion_ten_thousand_deep_needs_no_more_stack_than_its_guards() {
    fn recurse(allocator: &CachingAllocator, depth: usize) {
        let _scope = Scope::open(allocator, "recursive", None);
        if depth > 0 {
            recurse(allocator, depth - 1);
        } else {
            drop(take(allocator, 1));
        }
    }
    let allocator = allocator();
    let outer = Scope::open(&allocator, "outer", None);
    let worker = {
        let allocator = allocator.clone();
        std::thread::Builder::new().stack_size(16 << 20).spawn(move || recurse(&allocator, 10_000)).unwrap()
    };
    worker.join().unwrap();
    let record = outer.close(Outcome::Ok);
    assert_eq!((record.peak_bytes, record.own_allocation_count, record.foreign_bytes), (KIB, 0, 2 * KIB));
}

/// A forgotten attachment would hide the scopes around it for as long as the thread lives.
#[test]
fn a_forgotten_attachment_ends_with_its_scope() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let outer = Scope::open(&allocator, "outer", None);
    let inner = OpenScope::open(&allocator, "inner", None);
    std::mem::forget(inner.attach());
    inner.close(Outcome::Ok);
    let kept = Buffer::<u8>::uninit(&allocator, 512).unwrap();
    let record = outer.close(Outcome::Ok);
    assert_eq!((record.own_allocation_count, record.foreign_bytes), (1, 0));
    drop(kept);
}
