//! Calls inside calls: the peak of each is exact, whatever happens inside it.
//!
//! The bug class: one shared peak that an inner measurement resets, so that the outer one reports only what came after.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::{Bench, Probe, figures};
use memtrack_tests::spans::SpanLog;
use std::sync::Arc;

const MIB: i64 = 1 << 20;

fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

fn bench() -> Bench {
    Bench::with_allocator(CachingAllocator::new(Arc::new(Simulated::new())))
}

/// The absolute peak and the rise above entry, in MiB.
fn peaks(span: &SpanLog) -> (i64, i64) {
    (span.number("mem.peak") / MIB, span.number("mem.peak_delta") / MIB)
}

#[track_memory(phase = "inner")]
fn inner(allocator: &CachingAllocator) {
    drop(take(allocator, 200));
}

#[track_memory(phase = "outer")]
fn outer(allocator: &CachingAllocator, inner_calls: usize, between: fn()) {
    drop(take(allocator, 900));
    for _ in 0..inner_calls {
        between();
        inner(allocator);
    }
}

#[test]
fn inner_measurement_destroys_the_outer_peak() {
    let bench = bench();
    let _before = take(&bench.allocator, 100);
    outer(&bench.allocator, 1, || {});
    assert_eq!(peaks(&bench.spans.one("outer")), (1000, 900));
    assert_eq!(peaks(&bench.spans.one("inner")), (300, 200));
}

#[test]
fn inner_measurement_three_times() {
    let bench = bench();
    let _before = take(&bench.allocator, 100);
    let epoch = memtrack::epoch(1);
    outer(&bench.allocator, 3, || {});
    let summary = epoch.finish().unwrap();
    let inner: Vec<_> = bench.spans.all().iter().filter(|span| span.name == "inner").map(peaks).collect();
    assert_eq!(inner, [(300, 200); 3]);
    assert_eq!(peaks(&bench.spans.one("outer")), (1000, 900));
    assert_eq!(bench.spans.one("outer").number("mem.allocs"), 1 + 3, "inclusive");
    // A phase's row is what it allocated itself: 900, and 1500 with the calls inside.
    let rows: Vec<_> = summary
        .phases
        .iter()
        .map(|row| (row.name, row.entered_count, row.allocated_bytes >> 20, row.rise_max_bytes / MIB, row.net_bytes))
        .collect();
    assert_eq!(rows, [("outer", 1, 900, 900, 0), ("inner", 3, 600, 200, 0), ("other", 0, 0, 0, 0)], "{summary}");
}

#[test]
fn public_peak_reset_inside_a_call() {
    let bench = bench();
    let _before = take(&bench.allocator, 100);
    assert_eq!(bench.allocator.max_memory_allocated(), 100 * MIB);
    outer(&bench.allocator, 1, memtrack::reset_peak_memory_stats);
    assert_eq!(peaks(&bench.spans.one("outer")), (1000, 900), "a call's peak is its own");
    assert_eq!(peaks(&bench.spans.one("inner")), (300, 200));
    assert_eq!(bench.allocator.max_memory_allocated(), 300 * MIB, "the global peak is what was reset");
}

#[test]
fn recursion_of_depth_three() {
    #[track_memory(phase = "recursive")]
    fn f(allocator: &CachingAllocator, depth: u8) {
        let _held = take(allocator, 50);
        if depth > 1 {
            f(allocator, depth - 1);
        }
    }
    #[track_memory(phase = "recursive")]
    async fn g(allocator: &CachingAllocator, depth: u8) {
        let _held = take(allocator, 50);
        yield_now().await;
        if depth > 1 {
            Box::pin(g(allocator, depth - 1)).await;
        }
    }
    let calls: [fn(&CachingAllocator); 2] = [|allocator| f(allocator, 3), |allocator| block_on(g(allocator, 3))];
    for call in calls {
        let bench = bench();
        let _before = take(&bench.allocator, 100);
        let epoch = memtrack::epoch(1);
        call(&bench.allocator);
        let summary = epoch.finish().unwrap();
        let spans = bench.spans.all();
        let found: Vec<_> = spans.iter().map(|span| (peaks(span), span.number("mem.allocs"))).collect();
        // From the outside in. What is counted is inclusive; each level allocated one block of 50 itself.
        assert_eq!(found, [((250, 150), 3), ((250, 100), 2), ((250, 50), 1)]);
        let parents: Vec<_> = spans.iter().map(|span| span.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(1)]);
        let row = &summary.phases[0];
        assert_eq!((row.entered_count, row.allocated_bytes >> 20, row.rise_max_bytes / MIB), (3, 150, 150));
    }
}

#[test]
fn two_functions_that_call_each_other() {
    #[track_memory]
    fn even(allocator: &CachingAllocator, n: u8) -> bool {
        let _held = take(allocator, 2);
        n == 0 || odd(allocator, n - 1)
    }
    #[track_memory]
    fn odd(allocator: &CachingAllocator, n: u8) -> bool {
        let _held = take(allocator, 3);
        n != 0 && even(allocator, n - 1)
    }
    let bench = bench();
    assert!(even(&bench.allocator, 4));
    let found: Vec<_> = bench.spans.all().iter().map(|span| (span.name, peaks(span).1)).collect();
    assert_eq!(found, [("even", 12), ("odd", 10), ("even", 7), ("odd", 5), ("even", 2)]);
    assert!(bench.spans.all().iter().all(|span| figures(span).1 == 0));
}

/// An argument that calls the function it is an argument of, when it is dropped.
struct Again<'a> {
    bench: &'a Bench,
    depth: u8,
    _memory: Probe,
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        if self.depth > 0 {
            reentrant(again(self.bench, self.depth - 1));
        }
    }
}

fn again(bench: &Bench, depth: u8) -> Again<'_> {
    Again { bench, depth, _memory: bench.probe("argument") }
}

#[track_memory(name = "f")]
fn reentrant(argument: Again<'_>) -> u8 {
    let _local = argument.bench.probe("local");
    argument.depth
}

#[test]
fn a_function_called_by_the_destructor_of_its_own_argument() {
    let bench = Bench::new();
    assert_eq!(reentrant(again(&bench, 2)), 2);
    let spans = bench.spans.all();
    let parents: Vec<_> = spans.iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1)], "inside the call whose argument it is");
    // Each call frees its argument. The outermost also saw the arguments of the inner ones come and go.
    let found: Vec<_> = spans.iter().map(figures).collect();
    let ok = |delta_bytes, peak_delta_bytes| ("ok".to_owned(), delta_bytes, peak_delta_bytes);
    // At the highest point all three arguments are live, and the innermost local.
    assert_eq!(found, [ok(-1024, 3 * 1024), ok(-1024, 2 * 1024), ok(-1024, 1024)]);
    let frees: Vec<_> = spans.iter().map(|span| span.number("mem.frees")).collect();
    assert_eq!(frees, [6, 4, 2]);
    assert_eq!(bench.allocator.memory_allocated(), 0);
}

/// A value handed in and returned is freed by neither call.
#[test]
fn what_a_call_passes_on_is_still_there() {
    #[track_memory]
    fn outer(bench: &Bench, argument: Probe) -> Probe {
        let passed_on = inner(bench, argument);
        drop(bench.probe("other"));
        passed_on
    }
    #[track_memory]
    fn inner(bench: &Bench, argument: Probe) -> Probe {
        let _local = bench.probe("local");
        argument
    }
    let bench = Bench::new();
    let kept = outer(&bench, bench.probe("argument"));
    assert_eq!(bench.call("inner"), ("ok".to_owned(), 0, 1024));
    assert_eq!(bench.call("outer"), ("ok".to_owned(), 0, 1024));
    drop(kept);
    let drops: Vec<_> = bench.spans.journal().into_iter().filter(|line| line.starts_with("drop")).collect();
    assert_eq!(drops, ["drop local", "drop other", "drop argument"]);
}
