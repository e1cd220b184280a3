//! The bug class: a measurement inside another one that spoils the outer one's figures, or is counted twice.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::scope::{OpenScope, Outcome, Scope, ScopeRecord};
use memtrack::{Buffer, CachingAllocator};

const MIB: i64 = 1 << 20;

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

/// So many MiB.
fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

/// Allocated in all, inclusive and exclusive, in MiB.
fn allocated(record: &ScopeRecord) -> (i64, i64) {
    (record.own_allocated_bytes / MIB, record.exclusive_allocated_bytes / MIB)
}

fn inner(allocator: &CachingAllocator) -> ScopeRecord {
    let scope = Scope::open(allocator, "inner", None);
    drop(take(allocator, 200));
    scope.close(Outcome::Ok)
}

/// R20.
#[test]
fn an_inner_scope_leaves_the_peak_of_the_outer_one_alone() {
    let allocator = allocator();
    let _before = take(&allocator, 100);
    let outer = Scope::open(&allocator, "outer", None);
    drop(take(&allocator, 900));
    let within = inner(&allocator);
    let outer = outer.close(Outcome::Ok);
    assert_eq!((outer.peak_bytes, outer.peak_delta_bytes(), outer.own_peak_bytes), (1000 * MIB, 900 * MIB, 900 * MIB));
    assert_eq!((within.peak_bytes, within.peak_delta_bytes()), (300 * MIB, 200 * MIB));
    assert_eq!(allocated(&outer), (1100, 900));
    assert_eq!(allocated(&within), (200, 200));
}

/// R20, the inner function called three times.
#[test]
fn what_inner_scopes_allocate_is_in_the_outer_ones_total_and_not_in_its_exclusive_one() {
    let allocator = allocator();
    let _before = take(&allocator, 100);
    let outer = Scope::open(&allocator, "outer", None);
    drop(take(&allocator, 900));
    let calls = [inner(&allocator), inner(&allocator), inner(&allocator)];
    let outer = outer.close(Outcome::Ok);
    assert!(calls.iter().all(|call| allocated(call) == (200, 200) && call.peak_delta_bytes() == 200 * MIB));
    assert_eq!(allocated(&outer), (1500, 900));
    assert_eq!((outer.own_allocation_count, outer.own_free_count, outer.own_delta_bytes), (4, 4, 0));
}

/// R20, 50 MiB a level, held until return; the outermost record last.
#[test]
fn a_recursive_function_counts_its_inner_calls_once_and_itself_exclusively() {
    fn recurse(allocator: &CachingAllocator, depth: usize, records: &mut Vec<ScopeRecord>) {
        let scope = Scope::open(allocator, "recursive", None);
        let held = take(allocator, 50);
        if depth > 1 {
            recurse(allocator, depth - 1, records);
        }
        drop(held);
        records.push(scope.close(Outcome::Ok));
    }
    let allocator = allocator();
    let mut records = Vec::new();
    recurse(&allocator, 3, &mut records);
    records.reverse();
    let figures: Vec<_> = records.iter().map(|record| (record.peak_delta_bytes() / MIB, allocated(record))).collect();
    assert_eq!(figures, [(150, (150, 50)), (100, (100, 50)), (50, (50, 50))]);
}

/// R20, with a reset by the user.
#[test]
fn a_reset_of_the_public_peak_inside_a_scope_changes_the_public_peak_only() {
    let allocator = allocator();
    let _before = take(&allocator, 100);
    let outer = Scope::open(&allocator, "outer", None);
    drop(take(&allocator, 900));
    let within = Scope::open(&allocator, "inner", None);
    drop(take(&allocator, 150));
    allocator.reset_peak_memory_stats();
    drop(take(&allocator, 120));
    assert_eq!(allocator.max_memory_allocated(), 220 * MIB);
    let within = within.close(Outcome::Ok);
    let outer = outer.close(Outcome::Ok);
    assert_eq!((within.peak_bytes, outer.peak_bytes), (250 * MIB, 1000 * MIB));
    assert_eq!(allocator.max_memory_allocated(), 220 * MIB, "and scopes do not change it");
}

#[test]
fn phases_take_from_the_exclusive_total_of_the_function_around_and_steps_and_epochs_do_not() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let outer = Scope::open(&allocator, "outer", None);
    let epoch = memtrack::epoch(1);
    drop(take(&allocator, 1));
    let step = memtrack::step(0);
    drop(take(&allocator, 2));
    let phase = memtrack::phase("forward");
    drop(take(&allocator, 4));
    let innermost = Scope::open(&allocator, "innermost", None);
    drop(take(&allocator, 8));
    assert_eq!(allocated(&innermost.close(Outcome::Ok)), (8, 8));
    assert_eq!(allocated(&phase.finish().unwrap()), (12, 4));
    assert_eq!(allocated(&step.finish().unwrap()), (14, 2));
    drop(epoch);
    assert_eq!(allocated(&outer.close(Outcome::Ok)), (15, 3));
}

/// R18: a task that is suspended is in no scope of the thread.
#[test]
fn what_others_allocate_while_a_task_is_suspended_is_not_in_its_totals() {
    let allocator = allocator();
    let task = OpenScope::open(&allocator, "task", None);
    let first = {
        let _attached = task.attach();
        take(&allocator, 100)
    };
    drop(take(&allocator, 200));
    let record = std::thread::scope(|threads| {
        threads
            .spawn(|| {
                let attached = task.attach();
                let second = take(&allocator, 50);
                drop((first, second));
                drop(attached);
                task.close(Outcome::Ok)
            })
            .join()
            .unwrap()
    });
    assert_eq!(allocated(&record), (150, 150));
    assert_eq!((record.own_peak_bytes, record.own_delta_bytes), (150 * MIB, 0));
    assert_eq!((record.peak_bytes, record.foreign_bytes), (300 * MIB, 400 * MIB), "the device saw all");
}

#[test]
fn retries_and_failures_belong_to_the_scopes_that_asked() {
    let device = Arc::new(Simulated::with_capacity(64 << 20));
    let allocator = CachingAllocator::new(device.clone());
    let outer = Scope::open(&allocator, "outer", None);
    let other = OpenScope::open(&allocator, "elsewhere", None);
    drop(take(&allocator, 40));
    let within = Scope::open(&allocator, "inner", None);
    // Its 40 MiB are cached and must go first.
    let kept = take(&allocator, 60);
    let within = within.close(Outcome::Ok);
    assert!(Buffer::<u8>::uninit(&allocator, 60 << 20).is_err());
    let (outer, other) = (outer.close(Outcome::Ok), other.close(Outcome::Ok));
    let own = |record: &ScopeRecord| (record.own_retry_count, record.own_oom_count);
    assert_eq!((own(&within), own(&outer), own(&other)), ((1, 0), (2, 1), (0, 0)));
    assert_eq!((other.retry_count, other.oom_count), (2, 1), "the device's, whoever asked");
    drop(kept);
}
