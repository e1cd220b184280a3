//! Budgets: held against what the call itself did, whatever listens and whatever runs beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use memtrack::{Budget, Buffer, CachingAllocator, Exceeded, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::{Spans, Value};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::Level;

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap_or_else(|error| panic!("{error}"))
}

/// As a program's own code, so that a breach names its line and not this one.
#[track_caller]
fn keep(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    match Buffer::uninit(allocator, bytes) {
        Ok(buffer) => buffer,
        Err(error) => panic!("{error}"),
    }
}

/// The panic's message.
fn message(result: std::thread::Result<()>) -> String {
    let payload = result.expect_err("a panic");
    payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "no text".to_owned())
}

thread_local! {
    static REPORTED: RefCell<Vec<(Budget, i64, i64)>> = const { RefCell::new(Vec::new()) };
}

fn report(exceeded: &Exceeded) {
    REPORTED.with_borrow_mut(|reported| reported.push((exceeded.budget, exceeded.limit, exceeded.measured)));
}

fn reported() -> Vec<(Budget, i64, i64)> {
    REPORTED.take()
}

const LIMIT: u64 = 1 << 10;

#[track_memory(max_delta = "0", max_peak = "1KiB", max_allocs = 1, on_exceed = report, device = allocator)]
fn watched(allocator: &CachingAllocator, sizes: &[usize], keeps: bool) -> Vec<Buffer<u8>> {
    let taken = sizes.iter().map(|size| take(allocator, *size)).collect();
    if keeps { taken } else { Vec::new() }
}

#[test]
fn each_budget_is_held_against_requested_bytes_and_allocations_of_the_call() {
    let allocator = host_allocator();
    drop(watched(&allocator, &[1000], false));
    assert_eq!(reported(), []);
    drop(watched(&allocator, &[1024], false));
    assert_eq!(reported(), [], "the limit itself is allowed");
    drop(watched(&allocator, &[1025], false));
    assert_eq!(reported(), [(Budget::MaxPeak, 1024, 1025)]);
    drop(watched(&allocator, &[1, 1], false));
    assert_eq!(reported(), [(Budget::MaxAllocs, 1, 2)]);
    drop(watched(&allocator, &[700, 700], true));
    assert_eq!(reported(), [(Budget::MaxDelta, 0, 1400), (Budget::MaxPeak, 1024, 1400), (Budget::MaxAllocs, 1, 2)]);
}

#[test]
fn limits_can_be_constants_of_any_integer() {
    const COUNT: i8 = 0;
    mod limits {
        pub(super) const PEAK: usize = 100;
    }
    #[track_memory(max_peak = limits::PEAK * 2 - (100), max_allocs = COUNT, max_delta = LIMIT, on_exceed = report)]
    fn f(allocator: &CachingAllocator) -> Buffer<u8> {
        take(allocator, 2000)
    }
    let allocator = host_allocator();
    let _current = allocator.make_current();
    let _kept = f(&allocator);
    assert_eq!(reported(), [(Budget::MaxDelta, 1024, 2000), (Budget::MaxPeak, 100, 2000), (Budget::MaxAllocs, 0, 1)]);
}

#[test]
fn limits_can_be_computed_of_numbers() {
    #[track_memory(max_peak = (1 << 10) - 1, max_delta = 2 * 1024, max_allocs = 0x1 + 1, on_exceed = report)]
    fn f(allocator: &CachingAllocator) -> Buffer<u8> {
        take(allocator, 1024)
    }
    let allocator = host_allocator();
    let _current = allocator.make_current();
    let _kept = f(&allocator);
    assert_eq!(reported(), [(Budget::MaxPeak, 1023, 1024)]);
}

#[test]
fn what_other_threads_do_breaches_nothing() {
    #[track_memory(max_delta = 0, max_peak = 0, max_allocs = 0, leak_check, on_exceed = report, device = allocator)]
    fn idle(allocator: &CachingAllocator) -> Vec<Buffer<u8>> {
        std::thread::scope(|threads| {
            let other = threads.spawn(|| vec![take(allocator, 4096), take(allocator, 4096)]);
            other.join().unwrap_or_default()
        })
    }
    let allocator = host_allocator();
    let kept = idle(&allocator);
    assert_eq!((kept.len(), reported()), (2, vec![]));
}

#[test]
fn what_a_call_frees_of_others_does_not_make_room() {
    #[track_memory(max_delta = 0, on_exceed = report, device = allocator)]
    fn f(allocator: &CachingAllocator, given: Buffer<u8>) -> Buffer<u8> {
        drop(given);
        take(allocator, 512)
    }
    let allocator = host_allocator();
    let given = take(&allocator, 4096);
    let _kept = f(&allocator, given);
    assert_eq!(reported(), [(Budget::MaxDelta, 0, 512)]);
}

#[test]
fn a_breach_is_a_warning_inside_the_span_by_default() {
    #[track_memory(max_peak = "1KiB", phase = "forward", device = allocator)]
    fn f(allocator: &CachingAllocator) {
        drop(take(allocator, 4096));
    }
    #[track_memory(leak_check = "1KiB", device = allocator)]
    fn g(allocator: &CachingAllocator) -> Buffer<u8> {
        take(allocator, 2048)
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    f(&allocator);
    let _kept = g(&allocator);
    let events = spans.events_of("memtrack::budget_exceeded");
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].level, events[0].span), (Level::WARN, Some("f")));
    let field = |name: &str| events[0].fields.get(name).cloned();
    assert_eq!(field("limit"), Some(Value::I64(1024)));
    assert_eq!(field("measured"), Some(Value::I64(4096)));
    assert_eq!(field("budget"), Some(Value::Str("max_peak".to_owned())));
    assert_eq!(field("mem.phase"), Some(Value::Str("forward".to_owned())));
    assert_eq!(field("function"), Some(Value::Str("f".to_owned())));
    let leaks = spans.events_of("memtrack::leak");
    assert_eq!((leaks.len(), leaks[0].span), (1, Some("g")));
    assert_eq!(leaks[0].fields.get("measured"), Some(&Value::I64(2048)));
    let text = spans.events().join("\n");
    assert!(text.contains("`f` at tests/tests/attribute_budgets.rs:"), "{text}");
    assert!(text.contains("it had 4.00 KiB (4096 bytes) allocated at once, allowed 1.00 KiB (1024 bytes)"), "{text}");
    assert!(text.contains("it ended with 2.00 KiB (2048 bytes) still allocated"), "{text}");
    assert!(text.contains(": 2.00 KiB in 1 block, allocated at tests/tests/attribute_budgets.rs:"), "{text}");
    assert!(text.ends_with(" in g"), "{text}");
}

#[test]
fn the_result_is_the_same_with_no_subscriber_and_with_every_level_filtered_out() {
    #[track_memory(max_peak = 0, level = "trace", on_exceed = report, device = allocator)]
    fn f(allocator: &CachingAllocator) {
        drop(take(allocator, 1));
    }
    let allocator = host_allocator();
    f(&allocator);
    assert_eq!(reported().len(), 1, "nobody listens");
    let (spans, _installed) = Spans::install_filtered(Level::ERROR);
    f(&allocator);
    assert_eq!((reported().len(), spans.all().len()), (1, 0));
}

#[track_memory(max_peak = "1KiB", max_allocs = 0, on_exceed = "panic", device = allocator)]
fn panics(allocator: &CachingAllocator, argument: Buffer<u8>, early: bool) -> Buffer<u8> {
    if early {
        return argument;
    }
    take(allocator, 4096)
}

#[test]
fn a_panic_names_all_breaches_and_forgets_no_memory() {
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let argument = take(&allocator, 512);
    let text = message(catch_unwind(AssertUnwindSafe(|| drop(panics(&allocator, argument, false)))));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("`panics` at tests/tests/attribute_budgets.rs:"), "{text}");
    assert!(lines[0].contains("exceeded max_peak"), "{text}");
    assert!(lines[1].ends_with("exceeded max_allocs on host: it made 1 allocation, allowed 0"), "{text}");
    assert_eq!(allocator.memory_stats().allocated_bytes.all.current, 0, "argument and value were dropped");
    assert_eq!(spans.one("panics").text("mem.outcome"), "ok", "the call itself did not panic");
    assert_eq!(spans.events_of("memtrack::budget_exceeded").len(), 0);
    let argument = take(&allocator, 512);
    assert_eq!(panics(&allocator, argument, true).len(), 512);
}

#[test]
fn a_future_panics_at_the_poll_that_completes_it_and_never_when_cancelled() {
    #[track_memory(max_peak = 0, on_exceed = "panic", device = allocator)]
    async fn f(allocator: &CachingAllocator) -> Buffer<u8> {
        let kept = take(allocator, 512);
        yield_now().await;
        kept
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let text = message(catch_unwind(AssertUnwindSafe(|| drop(block_on(f(&allocator))))));
    assert!(text.contains("`f` at") && text.contains("exceeded max_peak"), "{text}");
    assert_eq!(allocator.memory_stats().allocated_bytes.all.current, 0);
    {
        let mut future = pin!(f(&allocator));
        assert!(poll_once(future.as_mut()).is_pending());
    }
    let events = spans.events_of("memtrack::budget_exceeded");
    assert_eq!(events.len(), 1, "said, since it cannot panic");
    assert_eq!(spans.all()[1].text("mem.outcome"), "cancelled");
}

#[test]
fn a_breach_while_unwinding_is_said_and_does_not_panic() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    #[track_memory(max_peak = 0, on_exceed = "panic", device = allocator)]
    fn unwinds(allocator: &CachingAllocator) {
        let _taken = take(allocator, 512);
        panic!("{}", "its own");
    }
    #[track_memory(max_peak = 0, on_exceed = "panic", device = allocator)]
    fn in_a_destructor(allocator: &CachingAllocator) {
        drop(take(allocator, 512));
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
    struct Releases<'a>(&'a CachingAllocator);
    impl Drop for Releases<'_> {
        fn drop(&mut self) {
            in_a_destructor(self.0);
        }
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let text = message(catch_unwind(AssertUnwindSafe(|| {
        let _releases = Releases(&allocator);
        unwinds(&allocator);
    })));
    assert_eq!((text.as_str(), DROPPED.load(Ordering::Relaxed)), ("its own", 1));
    assert_eq!(spans.one("in_a_destructor").text("mem.outcome"), "ok");
    assert_eq!(spans.events_of("memtrack::budget_exceeded").len(), 2);
}

#[test]
fn a_function_that_never_returns_or_knows_its_caller_keeps_its_budget() {
    #[track_memory(max_allocs = 0, on_exceed = report, device = allocator)]
    fn never(allocator: &CachingAllocator) -> ! {
        drop(take(allocator, 512));
        panic!("{}", "never");
    }
    #[track_memory(max_allocs = 0, on_exceed = "panic", device = allocator)]
    #[track_caller]
    fn located(allocator: &CachingAllocator, early: bool) -> (u32, Buffer<u8>) {
        let line = std::panic::Location::caller().line();
        let kept = take(allocator, 512);
        if early {
            return (line, kept);
        }
        (line, kept)
    }
    let allocator = host_allocator();
    assert!(catch_unwind(AssertUnwindSafe(|| never(&allocator))).is_err());
    assert_eq!(reported(), [(Budget::MaxAllocs, 0, 1)]);
    for early in [true, false] {
        // As its last variable is dropped, where rustc forgets the value: said in the attribute's documentation.
        let text = message(catch_unwind(AssertUnwindSafe(|| drop(located(&allocator, early)))));
        assert!(text.contains("exceeded max_allocs"), "{text}");
    }
}

#[test]
fn under_strict_a_breach_that_would_be_said_panics_and_names_the_lines_that_keep_memory() {
    #[track_memory(leak_check, device = allocator)]
    fn step(allocator: &CachingAllocator, history: &mut Vec<Buffer<u8>>) {
        for bytes in [1000, 2000, 3000] {
            history.push(keep(allocator, bytes));
        }
        history.push(keep(allocator, 1));
        drop(take(allocator, 9000));
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let mut history = Vec::new();
    step(&allocator, &mut history);
    assert_eq!(spans.events_of("memtrack::leak").len(), 1);
    let strict = memtrack::testing::strict();
    let text = message(catch_unwind(AssertUnwindSafe(|| step(&allocator, &mut history))));
    drop(strict);
    let line = line!() - 13;
    let sites = format!(
        ": 5.86 KiB in 3 blocks, allocated at tests/tests/attribute_budgets.rs:{line}:26 in step; 1 B in 1 block, allocated \
         at tests/tests/attribute_budgets.rs:{}:22 in step",
        line + 2
    );
    assert!(text.ends_with(&sites), "{text}\n{sites}");
    assert_eq!(spans.events_of("memtrack::leak").len(), 1, "not said as well");
}

#[test]
fn under_strict_a_call_that_cannot_be_measured_does_not_pass() {
    #[track_memory(max_peak = 1)]
    fn unmeasured() {}
    unmeasured();
    let strict = memtrack::testing::strict();
    let text = message(catch_unwind(unmeasured));
    drop(strict);
    assert!(text.contains("has a budget and was not measured: no allocator is current"), "{text}");
}

#[test]
fn a_block_with_a_budget_may_tell_its_value() {
    fn f(allocator: &CachingAllocator) -> Result<usize, String> {
        memtrack::track_memory_block!("block", max_allocs = 0, err, ret, on_exceed = report, device = allocator, {
            Ok(take(allocator, 100).len())
        })
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    assert_eq!(f(&allocator), Ok(100));
    assert_eq!(reported(), [(Budget::MaxAllocs, 0, 1)]);
    assert_eq!(spans.events_of(module_path!()).len(), 1);
}
