//! Annotated functions over sources: what their spans and events say, and budgets.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::panic::catch_unwind;
use std::sync::Arc;

use memtrack::device::Host;
use memtrack::source::{SourceError, SourceRegistration, register_source};
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::block_on;
use memtrack_tests::sources::{Pool, turn};
use memtrack_tests::spans::{EventLog, SpanLog, Spans};

fn registered(name: &str) -> (Arc<Pool>, SourceRegistration) {
    let pool = Arc::new(Pool::new(name));
    let registration = register_source(pool.clone()).unwrap();
    (pool, registration)
}

fn recorded(span: &SpanLog) -> Vec<String> {
    assert_eq!(span.records.len(), 1, "{}", span.name);
    let values = &span.records[0];
    span.declared.iter().filter_map(|name| values.get(name).map(|value| format!("{name}={value:?}"))).collect()
}

fn fields(event: &EventLog) -> Vec<String> {
    event.fields.iter().map(|(name, value)| format!("{name}={value:?}")).collect()
}

#[track_memory(phase = "forward")]
fn forward(pool: &Pool) {
    pool.change(3000);
    pool.change(-1000);
}

#[test]
fn a_span_has_the_source_in_the_columns_of_an_allocator() {
    let _turn = turn();
    let (spans, _installed) = Spans::install();
    let (pool, _registered) = registered("pool");
    forward(&pool);
    let figures = [
        "mem.device=Str(\"pool\")",
        "mem.before=I64(0)",
        "mem.after=I64(2000)",
        "mem.delta=I64(2000)",
        "mem.peak=I64(3000)",
        "mem.peak_delta=I64(3000)",
        "mem.retries=I64(1)",
        "mem.outcome=Str(\"ok\")",
    ];
    // How often it allocated nobody counts, and so does not say.
    assert_eq!(recorded(&spans.one("forward")), figures);
    assert!(spans.events().is_empty(), "{:?}", spans.events());
}

#[test]
fn an_async_call_has_them_too_with_what_is_reserved_if_asked_for() {
    #[track_memory(only(device, self))]
    async fn step(pool: &Pool) {
        pool.change(500);
    }
    let _turn = turn();
    let (spans, _installed) = Spans::install();
    let (pool, _registered) = registered("pool");
    block_on(step(&pool));
    let span = spans.one("step");
    assert_eq!((span.number("mem.peak"), span.number("mem.reserved.delta")), (500, 1000));
    assert_eq!(span.value("mem.self.delta"), None);
}

#[test]
fn the_second_source_is_an_event_inside_the_span() {
    let _turn = turn();
    let (spans, _installed) = Spans::install();
    let (pool, _first) = registered("pool");
    let (other, _second) = registered("other");
    other.change(64);
    forward(&pool);
    assert_eq!(spans.one("forward").number("mem.delta"), 2000);
    let events = spans.events_of("memtrack::source");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].span, Some("forward"));
    assert_eq!(
        fields(&events[0]),
        [
            "function=Str(\"forward\")",
            "mem.after=I64(64)",
            "mem.before=I64(64)",
            "mem.delta=I64(0)",
            "mem.peak=I64(64)",
            "mem.peak_delta=I64(0)",
            "mem.peak_kind=Str(\"exact\")",
            "mem.phase=Str(\"forward\")",
            "mem.reserved.delta=I64(0)",
            "mem.retries=I64(1)",
            "mem.source=Str(\"other\")",
        ]
    );
}

#[test]
fn beside_an_allocator_each_source_is_an_event() {
    let _turn = turn();
    let (spans, _installed) = Spans::install();
    let (pool, _registered) = registered("pool");
    let allocator = CachingAllocator::new(Arc::new(Host::new()));
    let _current = allocator.make_current();
    let _kept = allocate(&allocator, &pool);
    let span = spans.one("allocate");
    assert_eq!((span.text("mem.device").as_str(), span.number("mem.delta")), ("host", 512));
    let events = spans.events_of("memtrack::source");
    assert_eq!(events.len(), 1);
    assert!(fields(&events[0]).contains(&"mem.delta=I64(9)".to_owned()), "{events:?}");
}

#[track_memory]
fn allocate(allocator: &CachingAllocator, pool: &Pool) -> Buffer<u8> {
    pool.change(9);
    Buffer::uninit(allocator, 1).unwrap()
}

#[test]
fn a_source_that_fails_leaves_its_columns_out_and_one_warning_says_why() {
    let _turn = turn();
    let (spans, _installed) = Spans::install();
    let (pool, _registered) = registered("pool");
    for _ in 0..2 {
        pool.fail_once(SourceError::new("the driver is gone"));
        forward(&pool);
    }
    for span in spans.all() {
        assert_eq!(recorded(&span), ["mem.device=Str(\"pool\")", "mem.outcome=Str(\"ok\")"]);
    }
    let warnings = spans.events_of("memtrack::source");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(fields(&warnings[0]), ["error=Debug(\"the driver is gone\")", "source=Str(\"pool\")"]);
}

#[test]
fn budgets_are_held_against_the_source() {
    #[track_memory(max_peak = "1 KiB", on_exceed = "panic")]
    fn peaks(pool: &Pool, bytes: i64) {
        pool.change(bytes);
        pool.change(-bytes);
    }
    let _turn = turn();
    let (pool, _registered) = registered("pool");
    pool.change(5000);
    peaks(&pool, 1024);
    let message = *catch_unwind(|| peaks(&pool, 1025)).unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("max_peak on pool"), "{message}");
    assert!(message.contains("1025 bytes"), "{message}");
}

#[test]
fn a_budget_of_allocations_beside_it_does_not_switch_the_others_off() {
    #[track_memory(max_allocs = 1_000_000, max_peak = "1 KiB", on_exceed = "panic")]
    fn peaks(pool: &Pool, bytes: i64) {
        pool.change(bytes);
        pool.change(-bytes);
    }
    let _turn = turn();
    let (pool, _registered) = registered("pool");
    peaks(&pool, 1024);
    let message = *catch_unwind(|| peaks(&pool, 1025)).unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("max_peak on pool"), "{message}");
    // A strict test must not pass because nobody counted, or nothing could be read.
    let _strict = memtrack::testing::strict();
    let message = *catch_unwind(|| peaks(&pool, 1024)).unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("has max_allocs and was not measured: pool counts bytes"), "{message}");
    pool.fail_once(SourceError::new("the driver is busy"));
    let message = *catch_unwind(|| peaks(&pool, 1024)).unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("was not measured: pool said: the driver is busy"), "{message}");
}
