//! Which figures a span shows and of which calls: `only`, `sample` and `min_delta`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::{SpanLog, Spans};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap_or_else(|error| panic!("{error}"))
}

fn recorded(span: &SpanLog) -> Vec<String> {
    assert_eq!(span.records.len(), 1, "{}", span.name);
    let values = &span.records[0];
    span.declared.iter().filter_map(|name| values.get(name).map(|value| format!("{name}={value:?}"))).collect()
}

#[test]
fn only_self_shows_the_calls_own_figures() {
    #[track_memory(only(self), device = allocator, phase = "forward")]
    fn f(allocator: &CachingAllocator, given: Buffer<u8>) -> Buffer<u8> {
        std::thread::scope(|threads| {
            threads.spawn(|| drop(take(allocator, 1 << 20)));
        });
        drop(given);
        drop(take(allocator, 3000));
        take(allocator, 1000)
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let given = take(&allocator, 8192);
    let _kept = f(&allocator, given);
    let span = spans.one("f");
    assert_eq!(
        span.declared,
        ["mem.device", "mem.phase", "mem.outcome", "mem.self.delta", "mem.self.peak", "mem.self.allocs"]
    );
    assert_eq!(
        recorded(&span),
        [
            "mem.device=Str(\"host\")",
            "mem.outcome=Str(\"ok\")",
            "mem.self.delta=I64(1000)",
            "mem.self.peak=I64(3000)",
            "mem.self.allocs=I64(2)",
        ]
    );
}

#[test]
fn both_views_come_with_what_sets_them_apart() {
    #[track_memory(only(device, self), device = allocator)]
    fn f(allocator: &CachingAllocator) -> Buffer<u8> {
        std::thread::scope(|threads| {
            threads.spawn(|| drop(take(allocator, 4096)));
        });
        take(allocator, 1000)
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let _kept = f(&allocator);
    let span = spans.one("f");
    assert_eq!(span.declared.len(), 17);
    assert_eq!(
        recorded(&span),
        [
            "mem.device=Str(\"host\")",
            "mem.before=I64(0)",
            "mem.after=I64(1024)",
            "mem.delta=I64(1024)",
            "mem.peak=I64(4096)",
            "mem.peak_delta=I64(4096)",
            "mem.allocs=I64(2)",
            "mem.frees=I64(1)",
            "mem.retries=I64(0)",
            "mem.ooms=I64(0)",
            "mem.outcome=Str(\"ok\")",
            "mem.self.delta=I64(1000)",
            "mem.self.peak=I64(1000)",
            "mem.self.allocs=I64(1)",
            "mem.foreign=I64(8192)",
            "mem.reserved.delta=I64(2097152)",
        ]
    );
}

#[test]
fn one_call_of_so_many_gets_a_span_that_says_so() {
    #[track_memory(sample = 3, device = allocator)]
    fn f(allocator: &CachingAllocator) {
        drop(take(allocator, 512));
    }
    #[track_memory(sample = rate, device = allocator)]
    async fn g(allocator: &CachingAllocator, rate: u64) {
        yield_now().await;
        drop(take(allocator, 512));
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    for _ in 0..7 {
        f(&allocator);
    }
    let found = spans.all();
    assert_eq!(found.len(), 3, "calls 1, 4 and 7");
    assert!(found.iter().all(|span| span.number("mem.sampled") == 3 && span.number("mem.allocs") == 1));
    for _ in 0..4 {
        block_on(g(&allocator, 2));
    }
    block_on(g(&allocator, 0));
    let found = spans.all();
    assert_eq!(found[3..].iter().map(|span| span.number("mem.sampled")).collect::<Vec<_>>(), [2, 2, 1]);
}

#[test]
fn calls_without_a_span_count_for_their_phase_and_their_budget() {
    thread_local! {
        static BREACHES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    fn breach(_: &memtrack::Exceeded) {
        BREACHES.set(BREACHES.get() + 1);
    }
    #[track_memory(sample = 100, phase = "forward", device = allocator)]
    fn f(allocator: &CachingAllocator) {
        drop(take(allocator, 512));
    }
    #[track_memory(sample = 100, max_allocs = 0, on_exceed = breach, device = allocator)]
    fn g(allocator: &CachingAllocator) {
        drop(take(allocator, 512));
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let epoch = allocator.epoch(1);
    for _ in 0..10 {
        f(&allocator);
        g(&allocator);
    }
    let summary = epoch.finish().expect("an epoch");
    let forward = summary.phases.iter().find(|phase| phase.name == "forward").expect("the phase");
    assert_eq!((forward.entered_count, forward.allocation_count), (10, 10));
    assert_eq!(BREACHES.get(), 10);
    assert_eq!(spans.all().iter().filter(|span| span.name == "f" || span.name == "g").count(), 2);
}

#[test]
fn a_call_that_changed_too_little_is_silent() {
    #[track_memory(min_delta = "1KiB", device = allocator, err)]
    fn f(allocator: &CachingAllocator, bytes: usize, fails: bool) -> Result<Buffer<u8>, ()> {
        let taken = take(allocator, bytes);
        if fails { Err(()) } else { Ok(taken) }
    }
    #[track_memory(min_delta = 1024, device = allocator)]
    fn g(allocator: &CachingAllocator, given: Option<Buffer<u8>>) {
        drop(given);
        assert!(!allocator.device().name().is_empty());
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let small = f(&allocator, 512, false);
    let large = f(&allocator, 1024, false);
    assert!(f(&allocator, 1, true).is_err());
    g(&allocator, None);
    g(&allocator, large.ok());
    drop(small);
    let counts: Vec<usize> = spans.all().iter().map(|span| span.records.len()).collect();
    assert_eq!(counts, [0, 1, 1, 0, 1], "spans without a record are silent; failures and frees are not");
}

#[test]
fn a_panic_is_not_silent() {
    #[track_memory(min_delta = "1GiB")]
    fn f() {
        panic!("{}", "here");
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let _current = allocator.make_current();
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
    assert_eq!(spans.one("f").text("mem.outcome"), "panic");
}

/// Case R18: of a call that is suspended, another task's memory is no figure of its own.
#[test]
fn a_suspended_call_shows_its_own_peak_and_not_what_ran_meanwhile() {
    const MIB: usize = 1 << 20;
    #[track_memory(only(device, self), device = allocator)]
    async fn suspended(allocator: &CachingAllocator) {
        let first = take(allocator, 100 * MIB);
        yield_now().await;
        let second = take(allocator, 50 * MIB);
        drop((first, second));
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let mut future = std::pin::pin!(suspended(&allocator));
    assert!(memtrack_tests::futures::poll_once(future.as_mut()).is_pending());
    drop(take(&allocator, 200 * MIB));
    assert!(memtrack_tests::futures::poll_once(future.as_mut()).is_ready());
    let span = spans.one("suspended");
    let mib = |name: &str| span.number(name) / (MIB as i64);
    assert_eq!([mib("mem.self.peak"), mib("mem.self.delta"), span.number("mem.self.allocs")], [150, 0, 2]);
    assert_eq!([mib("mem.peak"), mib("mem.foreign"), span.number("mem.allocs")], [300, 400, 3]);
}
