//! What arrives at an OpenTelemetry exporter: numbers as numbers, each attribute once, spans in their tree.
//!
//! The bug class: `tracing-opentelemetry` turns unsigned numbers into text, and a field that is recorded twice into two
//! attributes.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{poll_once, yield_now};
use memtrack_tests::spans::keep_interests_right;
use opentelemetry::trace::{SpanId, Status, TracerProvider as _};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;

/// Runs `work` and returns the spans that were exported, in the order they ended in.
fn exported(allocator: &CachingAllocator, work: impl FnOnce()) -> Vec<SpanData> {
    keep_interests_right();
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("tests"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false);
    let _current = allocator.make_current();
    tracing::subscriber::with_default(Registry::default().with(layer), work);
    exporter.get_finished_spans().unwrap()
}

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap()
}

/// Attributes by their keys, none of which may come twice.
fn by_key<'a>(attributes: impl IntoIterator<Item = &'a KeyValue>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for KeyValue { key, value, .. } in attributes {
        let former = found.insert(key.to_string(), value.clone());
        assert_eq!(former, None, "{key} comes twice");
    }
    found
}

fn one<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "spans named {name}");
    found[0]
}

#[track_memory(phase = "forward", fields(rows = rows, share = 0.5, dry = true, label = %"a b", later, never))]
fn outer(allocator: &CachingAllocator, rows: i64) -> Buffer<u8> {
    tracing::Span::current().record("later", "now");
    drop(inner(allocator));
    take(allocator, 1024)
}

#[track_memory]
fn inner(allocator: &CachingAllocator) -> Buffer<u8> {
    take(allocator, 4096)
}

#[test]
fn each_field_is_one_attribute_of_its_type() {
    let allocator = allocator();
    let spans = exported(&allocator, || drop(outer(&allocator, 7)));
    let text = |text: &'static str| Value::String(text.into());
    let expected = [
        ("rows", Value::I64(7)),
        ("share", Value::F64(0.5)),
        ("dry", Value::Bool(true)),
        ("label", text("a b")),
        ("later", text("now")),
        ("mem.phase", text("forward")),
        ("mem.device", text("simulated")),
        ("mem.before", Value::I64(0)),
        ("mem.after", Value::I64(1024)),
        ("mem.delta", Value::I64(1024)),
        ("mem.peak", Value::I64(4096)),
        ("mem.peak_delta", Value::I64(4096)),
        ("mem.allocs", Value::I64(2)),
        ("mem.frees", Value::I64(1)),
        ("mem.retries", Value::I64(0)),
        ("mem.ooms", Value::I64(0)),
        ("mem.outcome", text("ok")),
    ];
    let expected: BTreeMap<_, _> = expected.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    assert_eq!(by_key(&one(&spans, "outer").attributes), expected);
    let inner = by_key(&one(&spans, "inner").attributes);
    assert_eq!((inner["mem.delta"].clone(), inner["mem.phase"].clone()), (Value::I64(4096), text("forward")));
    assert_eq!(inner.len(), 12);
}

#[test]
fn spans_form_the_tree_of_calls_and_end_from_the_inside_out() {
    let allocator = allocator();
    let spans = exported(&allocator, || drop(outer(&allocator, 7)));
    let names: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["inner", "outer"]);
    let (inner, outer) = (&spans[0], &spans[1]);
    assert_eq!((inner.parent_span_id, outer.parent_span_id), (outer.span_context.span_id(), SpanId::INVALID));
    assert_eq!(inner.span_context.trace_id(), outer.span_context.trace_id());
    assert!(outer.start_time <= inner.start_time && inner.end_time <= outer.end_time);
    assert_eq!((&inner.status, &outer.status), (&Status::Unset, &Status::Unset));
}

/// All four ways to end, one span each, and none before its end.
#[test]
fn outcomes_are_attributes() {
    #[track_memory(name = "call", err)]
    async fn call(allocator: &CachingAllocator, way: u8) -> Result<(), u8> {
        let _kept = take(allocator, 1024);
        yield_now().await;
        match way {
            0 => Ok(()),
            1 => Err(1),
            _ => panic!("on purpose"),
        }
    }
    let allocator = allocator();
    let spans = exported(&allocator, || {
        for way in 0..4 {
            let mut future = Box::pin(call(&allocator, way));
            assert!(poll_once(future.as_mut()).is_pending());
            if way < 3 {
                let _ = catch_unwind(AssertUnwindSafe(|| poll_once(future.as_mut())));
            }
        }
    });
    let found: Vec<_> = spans.iter().map(|span| by_key(&span.attributes)).collect();
    let outcomes: Vec<_> = found.iter().map(|attributes| attributes["mem.outcome"].to_string()).collect();
    assert_eq!(outcomes, ["ok", "err", "panic", "cancelled"]);
    for attributes in &found {
        assert_eq!(attributes["mem.delta"], Value::I64(0));
        assert_eq!(attributes["mem.peak_delta"], Value::I64(1024));
        assert_eq!(attributes.len(), 11, "all but the phase, of which there is none: {attributes:?}");
    }
}

/// A call's own figures do not wait for a child that outlives it; only the end of its span does.
#[test]
fn figures_are_final_when_the_call_ends_even_if_the_span_lives_on() {
    #[track_memory]
    fn parent(allocator: &CachingAllocator) -> tracing::Span {
        drop(take(allocator, 1024));
        tracing::info_span!("lives on")
    }
    let allocator = allocator();
    let spans = exported(&allocator, || {
        let child = parent(&allocator);
        drop(take(&allocator, 9 << 10));
        drop(child);
    });
    assert_eq!(by_key(&one(&spans, "parent").attributes)["mem.peak_delta"], Value::I64(1024));
    assert_eq!(one(&spans, "lives on").parent_span_id, one(&spans, "parent").span_context.span_id());
}

/// What the allocator says inside a call is an event of the call's span, with numbers as numbers.
#[test]
fn events_of_a_call_have_typed_attributes() {
    #[track_memory(err)]
    fn too_much(allocator: &CachingAllocator) -> Result<Buffer<u8>, memtrack::AllocationError> {
        Buffer::uninit(allocator, 64 << 20)
    }
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(32 << 20)));
    drop(take(&allocator, 16 << 20));
    let spans = exported(&allocator, || {
        assert!(too_much(&allocator).is_err());
        tracing::info_span!("epochs").in_scope(|| drop(memtrack::epoch(1)));
    });
    let too_much = one(&spans, "too_much");
    let attributes = by_key(&too_much.attributes);
    assert_eq!((&attributes["mem.retries"], &attributes["mem.ooms"]), (&Value::I64(1), &Value::I64(1)));
    let events: Vec<_> = too_much.events.iter().chain(one(&spans, "epochs").events.iter()).collect();
    // A retry, an out of memory; the epoch, and its one row.
    assert_eq!(events.len(), 4, "{events:#?}");
    let texts = [
        "level",
        "target",
        "mem.device",
        "mem.phase",
        "outcome",
        "peak_phase",
        "message",
        "error",
        "exception.message",
        "exception.stacktrace",
        "findings",
    ];
    for event in events {
        for (key, value) in by_key(&event.attributes) {
            let is_text = matches!(value, Value::String(_));
            assert_eq!(is_text, texts.contains(&key.as_str()), "{key} = {value:?} of {}", event.name);
            assert!(is_text || matches!(value, Value::I64(_)), "{key} = {value:?} of {}", event.name);
        }
    }
}
