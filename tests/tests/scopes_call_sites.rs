//! The bug class: totals by function that count recursion twice, lose calls, or do not add up to what was allocated.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::scope::{CallSite, CallSiteTable, CallSiteTotals, OpenScope, Outcome, Scope};
use memtrack::{Buffer, CachingAllocator};

const MIB: i64 = 1 << 20;

/// A site of a test's own: totals are per allocator, but unmeasured calls are counted per site.
macro_rules! sites {
    ($($site:ident = $name:literal;)*) => {$(
        static $site: CallSite = CallSite::new($name, module_path!(), file!(), line!());
    )*};
}

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

/// So many MiB.
fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

fn of(allocator: &CachingAllocator, site: &'static CallSite) -> CallSiteTotals {
    let all = allocator.call_sites();
    let found = all.iter().find(|totals| totals.site.is_some_and(|found| std::ptr::eq(found, site)));
    found.unwrap_or_else(|| panic!("no totals of {site:?}")).clone()
}

fn outside(allocator: &CachingAllocator) -> CallSiteTotals {
    allocator.call_sites().last().cloned().filter(|totals| totals.site.is_none()).unwrap()
}

/// Allocated in all, inclusive and exclusive, in MiB.
fn allocated(totals: &CallSiteTotals) -> (i64, i64) {
    (totals.inclusive_allocated_bytes / MIB, totals.exclusive_allocated_bytes / MIB)
}

/// Calls, and those that are outermost.
fn calls(totals: &CallSiteTotals) -> (u64, u64) {
    (totals.call_count, totals.outermost_call_count)
}

/// R20, the inner function called three times.
#[test]
fn what_a_function_allocates_is_told_from_what_the_functions_it_calls_allocate() {
    sites! { OUTER = "outer"; INNER = "inner"; }
    let allocator = allocator();
    let before = take(&allocator, 100);
    {
        let _outer = Scope::open_site(&allocator, &OUTER, None);
        drop(take(&allocator, 900));
        for _ in 0..3 {
            let _inner = Scope::open_site(&allocator, &INNER, None);
            drop(take(&allocator, 200));
        }
    }
    let (outer, inner) = (of(&allocator, &OUTER), of(&allocator, &INNER));
    assert_eq!((allocated(&outer), calls(&outer), outer.allocation_count), ((1500, 900), (1, 1), 4));
    assert_eq!((outer.own_peak_bytes, outer.peak_delta_bytes), (900 * MIB, 900 * MIB));
    assert_eq!((allocated(&inner), calls(&inner), inner.allocation_count), ((600, 600), (3, 3), 3));
    assert_eq!((inner.own_peak_bytes, inner.peak_delta_bytes), (200 * MIB, 200 * MIB));
    assert_eq!((inner.ok_count, inner.open_call_count, inner.net_bytes), (3, 0, 0));
    assert_eq!(allocated(&outside(&allocator)), (100, 100));
    let names: Vec<_> = allocator.call_sites().iter().map(CallSiteTotals::name).collect();
    assert_eq!(names, ["outer", "inner", "outside of tracked functions"]);
    drop(before);
}

/// R20, 50 MiB a level, held until return.
#[test]
fn recursion_counts_once_inclusively_and_each_level_exclusively() {
    sites! { RECURSIVE = "recursive"; }
    fn recurse(allocator: &CachingAllocator, depth: usize) {
        let _scope = Scope::open_site(allocator, &RECURSIVE, None);
        let _held = take(allocator, 50);
        if depth > 1 {
            recurse(allocator, depth - 1);
        }
    }
    let allocator = allocator();
    recurse(&allocator, 3);
    let totals = of(&allocator, &RECURSIVE);
    assert_eq!((allocated(&totals), calls(&totals), totals.allocation_count), ((150, 150), (3, 1), 3));
    assert_eq!((totals.own_peak_bytes, totals.peak_delta_bytes, totals.ok_count), (150 * MIB, 150 * MIB, 3));
    recurse(&allocator, 2);
    let totals = of(&allocator, &RECURSIVE);
    assert_eq!((allocated(&totals), calls(&totals)), ((250, 250), (5, 2)));
}

#[test]
fn functions_that_call_each_other_in_turn_each_count_once() {
    sites! { EVEN = "even"; ODD = "odd"; }
    fn descend(allocator: &CachingAllocator, depth: usize) {
        let site: &'static CallSite = if depth.is_multiple_of(2) { &EVEN } else { &ODD };
        let _scope = Scope::open_site(allocator, site, None);
        let _held = take(allocator, 10);
        if depth > 0 {
            descend(allocator, depth - 1);
        }
    }
    let allocator = allocator();
    descend(&allocator, 4);
    let (even, odd) = (of(&allocator, &EVEN), of(&allocator, &ODD));
    assert_eq!((allocated(&even), calls(&even)), ((50, 30), (3, 1)));
    assert_eq!((allocated(&odd), calls(&odd)), ((40, 20), (2, 1)));
}

#[test]
fn calls_at_the_same_time_on_two_threads_are_both_outermost() {
    sites! { WORK = "work"; }
    let allocator = allocator();
    let _here = Scope::open_site(&allocator, &WORK, None);
    let kept = take(&allocator, 3);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _there = Scope::open_site(&allocator, &WORK, None);
            drop(take(&allocator, 5));
        });
    });
    let totals = of(&allocator, &WORK);
    assert_eq!((allocated(&totals), calls(&totals)), ((8, 8), (2, 2)));
    assert_eq!((totals.open_call_count, totals.ok_count, totals.net_bytes), (1, 1, 3 * MIB), "the open one counts");
    drop(kept);
}

/// R18: one task suspended while another, of no site, allocates; then two calls at once.
#[test]
fn what_happens_while_a_call_is_suspended_is_in_the_untracked_bucket() {
    sites! { TASK = "task"; }
    let allocator = allocator();
    let mut held = Vec::new();
    let first = OpenScope::open_site(&allocator, &TASK, None);
    {
        let _attached = first.attach();
        held.push(take(&allocator, 100));
    }
    drop(take(&allocator, 200));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let attached = first.attach();
            held.push(take(&allocator, 50));
            held.clear();
            drop(attached);
            first.close(Outcome::Ok);
        });
    });
    let task = of(&allocator, &TASK);
    assert_eq!((allocated(&task), task.own_peak_bytes, task.net_bytes, task.call_count), ((150, 150), 150 * MIB, 0, 1));
    let elsewhere = outside(&allocator);
    assert_eq!((allocated(&elsewhere), elsewhere.allocation_count), ((200, 200), 1));
}

#[test]
fn exclusive_bytes_of_all_sites_and_outside_add_up_to_all_that_was_allocated() {
    sites! { OUTER = "outer"; INNER = "inner"; }
    let allocator = allocator();
    let all_requested = || allocator.memory_stats().requested_bytes.all.allocated;
    let sum = || allocator.call_sites().iter().map(|totals| totals.exclusive_allocated_bytes).sum::<i64>();
    let work = |kept: &mut Vec<Buffer<u8>>| {
        let take_odd = |bytes| Buffer::<u8>::uninit(&allocator, bytes).unwrap();
        kept.push(take_odd(1));
        let outer = Scope::open_site(&allocator, &OUTER, Some("forward"));
        kept.push(take_odd(20));
        let plain = Scope::open(&allocator, "no site", None);
        kept.push(take_odd(300));
        let inner = Scope::open_site(&allocator, &INNER, None);
        kept.push(take_odd(4_000));
        // Closed from the outside in.
        drop(outer);
        kept.push(take_odd(50_000));
        drop(plain);
        kept.push(take_odd(600_000));
        drop(inner);
        kept.push(take_odd(7_000_000));
    };
    let mut kept = Vec::new();
    work(&mut kept);
    assert_eq!(sum(), all_requested());
    assert_eq!(of(&allocator, &OUTER).exclusive_allocated_bytes, 320, "a scope that is no site takes nothing away");
    assert_eq!(of(&allocator, &INNER).exclusive_allocated_bytes, 654_000);
    assert_eq!(outside(&allocator).exclusive_allocated_bytes, 7_000_001);
    let before = all_requested();
    let across = Scope::open_site(&allocator, &OUTER, None);
    kept.clear();
    allocator.reset_call_sites();
    work(&mut kept);
    assert_eq!(sum(), all_requested() - before, "since the reset, with a call open all the while");
    drop(across);
    assert_eq!(sum(), all_requested() - before);
}

#[test]
fn a_call_that_is_open_at_a_reset_counts_from_there() {
    sites! { OUTER = "outer"; INNER = "inner"; }
    let allocator = allocator();
    let outer = Scope::open_site(&allocator, &OUTER, None);
    let inner = Scope::open_site(&allocator, &OUTER, None);
    let kept = take(&allocator, 7);
    drop(Scope::open_site(&allocator, &INNER, None));
    drop(take(&allocator, 20));
    allocator.reset_call_sites();
    let totals = of(&allocator, &OUTER);
    assert_eq!((allocated(&totals), calls(&totals), totals.open_call_count), ((0, 0), (2, 1), 2));
    assert_eq!(allocator.call_sites().len(), 2, "a site that was not called since is left out");
    drop(take(&allocator, 30));
    drop(kept);
    drop(inner);
    drop(outer);
    let totals = of(&allocator, &OUTER);
    assert_eq!((allocated(&totals), calls(&totals), totals.ok_count), ((30, 30), (2, 1), 2));
    assert_eq!((totals.net_bytes, totals.allocation_count), (-7 * MIB, 1), "what it gave back it had before");
    assert_eq!(totals.own_peak_bytes, 37 * MIB, "a peak is the whole call's");
}

#[test]
fn a_call_that_outlives_the_call_of_the_same_site_around_it_goes_on_counting() {
    sites! { SAME = "same"; }
    let allocator = allocator();
    let open = || OpenScope::open_site(&allocator, &SAME, None);
    let outer = open();
    let attached = outer.attach();
    let (left, right) = (open(), open());
    let within = {
        let _attached = left.attach();
        open()
    };
    drop(attached);
    let allocate_in = |scope: &OpenScope, mebibytes| {
        let _attached = scope.attach();
        drop(take(&allocator, mebibytes));
    };
    allocate_in(&within, 1);
    outer.close(Outcome::Ok);
    allocate_in(&within, 2);
    allocate_in(&left, 4);
    allocate_in(&right, 8);
    left.close(Outcome::Ok);
    allocate_in(&within, 16);
    assert_eq!(allocated(&of(&allocator, &SAME)), (31, 31));
    within.close(Outcome::Ok);
    right.close(Outcome::Ok);
    let totals = of(&allocator, &SAME);
    assert_eq!((allocated(&totals), calls(&totals), totals.allocation_count), ((31, 31), (4, 1), 5));
}

#[test]
fn calls_are_counted_by_how_they_end() {
    sites! { ENDS = "ends"; }
    let allocator = allocator();
    drop(Scope::open_site(&allocator, &ENDS, None));
    Scope::open_site(&allocator, &ENDS, None).close(Outcome::Err);
    Scope::open_site(&allocator, &ENDS, None).close(Outcome::Err);
    for _ in 0..3 {
        let panics = || {
            let _scope = Scope::open_site(&allocator, &ENDS, None);
            panic!("on purpose");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    }
    (0..4).for_each(|_| drop(OpenScope::open_site(&allocator, &ENDS, None)));
    let open = Scope::open_site(&allocator, &ENDS, None);
    let totals = of(&allocator, &ENDS);
    let ended = [totals.ok_count, totals.err_count, totals.panic_count, totals.cancelled_count];
    assert_eq!((ended, totals.open_call_count, totals.call_count), ([1, 2, 3, 4], 1, 11));
    drop(open);
}

#[test]
fn calls_that_are_not_measured_are_counted_from_the_reset_on() {
    sites! { SAMPLED = "sampled"; NEVER = "never"; }
    (0..7).for_each(|_| SAMPLED.count_unmeasured());
    let allocator = allocator();
    drop(Scope::open_site(&allocator, &SAMPLED, None));
    NEVER.count_unmeasured();
    (0..5).for_each(|_| SAMPLED.count_unmeasured());
    let totals = of(&allocator, &SAMPLED);
    assert_eq!((totals.call_count, totals.unmeasured_call_count), (1, 5), "since there is the allocator");
    assert_eq!(SAMPLED.unmeasured_call_count(), 12);
    assert_eq!(allocator.call_sites().len(), 2, "a site that was never measured here is left out");
    allocator.reset_call_sites();
    assert_eq!(allocator.call_sites().len(), 1);
    SAMPLED.count_unmeasured();
    let totals = of(&allocator, &SAMPLED);
    assert_eq!((totals.call_count, totals.unmeasured_call_count), (0, 1));
}

#[test]
fn all_types_of_a_generic_function_are_one_site() {
    fn generic<T>(allocator: &CachingAllocator) -> &'static CallSite {
        static SITE: CallSite = CallSite::new("generic", module_path!(), file!(), line!());
        let _scope = Scope::open_site(allocator, &SITE, None);
        drop(Buffer::<u8>::uninit(allocator, size_of::<T>()).unwrap());
        &SITE
    }
    let allocator = allocator();
    generic::<u8>(&allocator);
    let site = generic::<[u64; 8]>(&allocator);
    let totals = of(&allocator, site);
    assert_eq!((totals.call_count, totals.inclusive_allocated_bytes), (2, 65));
}

#[test]
fn allocators_have_totals_of_their_own() {
    sites! { BOTH = "both"; }
    let (here, there) = (allocator(), allocator());
    let scope = Scope::open_site(&here, &BOTH, None);
    drop(take(&here, 1));
    drop(take(&there, 2));
    drop(scope);
    assert_eq!(allocated(&of(&here, &BOTH)), (1, 1));
    assert_eq!((there.call_sites().len(), allocated(&outside(&there))), (1, (2, 2)));
}

#[test]
fn retries_and_failures_belong_to_the_calls_that_asked() {
    sites! { OUTER = "outer"; INNER = "inner"; ELSEWHERE = "elsewhere"; }
    let device = Arc::new(Simulated::with_capacity(64 << 20));
    let allocator = CachingAllocator::new(device);
    let outer = Scope::open_site(&allocator, &OUTER, None);
    let elsewhere = OpenScope::open_site(&allocator, &ELSEWHERE, None);
    drop(take(&allocator, 40));
    let kept = {
        let _inner = Scope::open_site(&allocator, &INNER, None);
        take(&allocator, 60)
    };
    drop(outer);
    assert!(Buffer::<u8>::uninit(&allocator, 60 << 20).is_err());
    drop(elsewhere);
    let figures = |totals: CallSiteTotals| (totals.retry_count, totals.oom_count);
    assert_eq!((figures(of(&allocator, &OUTER)), figures(of(&allocator, &INNER))), ((1, 0), (1, 0)));
    assert_eq!((figures(of(&allocator, &ELSEWHERE)), figures(outside(&allocator))), ((0, 0), (1, 1)));
    drop(kept);
}

/// The next call out says which call is the outermost, so depth costs nothing.
#[test]
fn recursion_ten_thousand_deep_is_counted_quickly() {
    sites! { DEEP = "deep"; }
    let allocator = allocator();
    let started = std::time::Instant::now();
    let mut scopes: Vec<Scope> = (0..10_000).map(|_| Scope::open_site(&allocator, &DEEP, None)).collect();
    drop(take(&allocator, 1));
    while let Some(innermost) = scopes.pop() {
        drop(innermost);
    }
    let totals = of(&allocator, &DEEP);
    assert_eq!((allocated(&totals), calls(&totals), totals.ok_count), ((1, 1), (10_000, 1), 10_000));
    assert!(started.elapsed().as_secs() < 10, "took {:?}", started.elapsed());
}

#[test]
fn totals_are_shown_as_a_table() {
    static TRAIN: CallSite = CallSite::new("train", "example", "src/train.rs", 10);
    static FORWARD: CallSite = CallSite::new("forward", "example", "src/model.rs", 207);
    let allocator = allocator();
    let train = Scope::open_site(&allocator, &TRAIN, None);
    let mut kept = vec![take(&allocator, 3)];
    for outcome in [Outcome::Ok, Outcome::Err, Outcome::Err] {
        let scope = Scope::open_site(&allocator, &FORWARD, None);
        kept.push(take(&allocator, 1));
        scope.close(outcome);
    }
    FORWARD.count_unmeasured();
    drop(kept.pop());
    let expected = "\
call sites  simulated
    function                      calls  unmeasured  inclusive  exclusive        net  own peak  rise max  allocs  retries  ooms
    train                             1           0   6.00 MiB   3.00 MiB  +5.00 MiB  6.00 MiB  6.00 MiB       4        0     0  src/train.rs:10, 1 open
    forward                           3           1   3.00 MiB   3.00 MiB  +3.00 MiB  1.00 MiB  1.00 MiB       3        0     0  src/model.rs:207, 2 err
    outside of tracked functions      -           -        0 B        0 B          -         -         -       0        0     0
    total                             4           1              6.00 MiB";
    assert_eq!(CallSiteTable(&allocator.call_sites()).to_string(), expected);
    drop(train);
}

#[test]
fn the_switch_that_measures_all_leaves_the_other_one_alone() {
    use memtrack::scope::{measure_all, set_measure_all};
    assert!((memtrack::enabled(), measure_all()) == (true, false));
    set_measure_all(true);
    memtrack::set_enabled(false);
    assert!((memtrack::enabled(), measure_all()) == (false, true));
    memtrack::set_enabled(true);
    set_measure_all(false);
    assert!((memtrack::enabled(), measure_all()) == (true, false));
}
