//! What the text and JSON formatters of `tracing-subscriber` show of a call: each field once, numbers as numbers, and
//! nothing of fields that have no value.
//!
//! The bug class: formatters append at each `record`, so what is recorded in pieces, or twice, is shown in pieces or twice;
//! a value recorded as `None` leaves a stray blank; unsigned numbers become text.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::spans::keep_interests_right;
use serde_json::Value;
use std::fmt;
use std::io::Write;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::{DefaultFields, FmtSpan, Writer};
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::{LookupSpan, Registry};

const KIB: usize = 1 << 10;

/// Where a formatter writes; clones share the text.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }

    /// The line that a formatter writes when a span of this name closes.
    fn closing(&self, name: &str) -> String {
        let lines = self.lines();
        let mut found = lines.iter().filter(|line| line.contains("close") && line.contains(name));
        let line = found.next().unwrap_or_else(|| panic!("no closing line of {name} in {lines:#?}")).clone();
        assert_eq!(found.next(), None, "closing lines of {name}");
        line
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Page {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn text<S: Subscriber + for<'a> LookupSpan<'a>>(page: &Page) -> impl Layer<S> + use<S> {
    tracing_subscriber::fmt::layer()
        .with_writer(page.clone())
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .with_span_events(FmtSpan::CLOSE)
}

fn json<S: Subscriber + for<'a> LookupSpan<'a>>(page: &Page) -> impl Layer<S> + use<S> {
    tracing_subscriber::fmt::layer().json().with_writer(page.clone()).with_span_events(FmtSpan::CLOSE)
}

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

/// Runs `work` with an allocator under a subscriber.
fn under(subscriber: impl Subscriber + Send + Sync, work: impl FnOnce(&CachingAllocator)) {
    keep_interests_right();
    let allocator = allocator();
    let _current = allocator.make_current();
    tracing::subscriber::with_default(subscriber, || work(&allocator));
}

#[track_memory(phase = "forward", fields(rows = rows, label = %"a b", empty))]
fn with_fields(allocator: &CachingAllocator, rows: i64) -> Buffer<u8> {
    tracing::info!("inside");
    drop(Buffer::<u8>::uninit(allocator, 3 * KIB).unwrap());
    Buffer::uninit(allocator, KIB).unwrap()
}

#[track_memory(err)]
async fn plain_async(allocator: &CachingAllocator) -> Result<(), u8> {
    let _kept = Buffer::<u8>::uninit(allocator, KIB).unwrap();
    yield_now().await;
    Err(1)
}

const WITH_FIELDS: &str = "with_fields{mem.phase=\"forward\" rows=7 label=a b mem.device=\"simulated\" mem.before=0 \
                           mem.after=1024 mem.delta=1024 mem.peak=3072 mem.peak_delta=3072 mem.allocs=2 mem.frees=1 \
                           mem.retries=0 mem.ooms=0 mem.outcome=\"ok\"}: close";

const PLAIN_ASYNC: &str = "plain_async{mem.device=\"simulated\" mem.before=0 mem.after=0 mem.delta=0 mem.peak=1024 \
                           mem.peak_delta=1024 mem.allocs=1 mem.frees=1 mem.retries=0 mem.ooms=0 mem.outcome=\"err\"}: \
                           close";

#[test]
fn text_has_each_field_once_and_nothing_of_empty_ones() {
    let page = Page::default();
    under(Registry::default().with(text(&page)), |allocator| {
        drop(with_fields(allocator, 7));
        assert_eq!(block_on(plain_async(allocator)), Err(1));
    });
    let start = |line: String| line.trim_start().trim_start_matches("INFO ").to_owned();
    assert!(start(page.closing("with_fields")).starts_with(WITH_FIELDS), "{:#?}", page.lines());
    assert!(start(page.closing("plain_async")).starts_with(PLAIN_ASYNC), "{:#?}", page.lines());
    // What is known when the span is made is on the lines inside it, and no more.
    let inside = page.lines().into_iter().find(|line| line.ends_with("inside")).unwrap();
    assert_eq!(start(inside), "with_fields{mem.phase=\"forward\" rows=7 label=a b}: inside");
}

#[test]
fn text_of_cancelled_and_panicked_calls() {
    #[track_memory]
    fn panicked() {
        panic!("on purpose");
    }
    let page = Page::default();
    under(Registry::default().with(text(&page)), |allocator| {
        let mut cancelled = Box::pin(plain_async(allocator));
        assert!(poll_once(cancelled.as_mut()).is_pending());
        drop(cancelled);
        assert!(catch_unwind(panicked).is_err());
    });
    for (name, outcome) in [("plain_async", "cancelled"), ("panicked", "panic")] {
        let line = page.closing(name);
        assert_eq!(line.matches("mem.outcome=").count(), 1, "{line}");
        assert!(line.contains(&format!("mem.ooms=0 mem.outcome=\"{outcome}\"}}: close")), "{line}");
    }
}

/// Without an allocator there is one field, and no blank for the others.
#[test]
fn text_of_a_call_that_was_not_measured() {
    #[track_memory]
    fn unmeasured() {}
    let page = Page::default();
    keep_interests_right();
    tracing::subscriber::with_default(Registry::default().with(text(&page)), unmeasured);
    let line = page.closing("unmeasured");
    assert!(line.contains("unmeasured{mem.outcome=\"ok\"}: close"), "{line}");
}

/// The span of a closing line, checked to have each field once in the raw text too: a parser keeps the last of two.
fn json_span(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap();
    let span = value["span"].clone();
    for field in span.as_object().unwrap().keys() {
        assert_eq!(line.matches(&format!("\"{field}\":")).count(), 1, "{field} in {line}");
    }
    span
}

#[test]
fn json_has_each_field_once_with_its_type() {
    let page = Page::default();
    under(Registry::default().with(json(&page)), |allocator| {
        drop(with_fields(allocator, 7));
        assert_eq!(block_on(plain_async(allocator)), Err(1));
    });
    let expected = serde_json::json!({
        "name": "with_fields", "mem.phase": "forward", "rows": 7, "label": "a b", "mem.device": "simulated",
        "mem.before": 0, "mem.after": 1024, "mem.delta": 1024, "mem.peak": 3072, "mem.peak_delta": 3072,
        "mem.allocs": 2, "mem.frees": 1, "mem.retries": 0, "mem.ooms": 0, "mem.outcome": "ok",
    });
    assert_eq!(json_span(&page.closing("with_fields")), expected);
    let expected = serde_json::json!({
        "name": "plain_async", "mem.device": "simulated", "mem.before": 0, "mem.after": 0, "mem.delta": 0,
        "mem.peak": 1024, "mem.peak_delta": 1024, "mem.allocs": 1, "mem.frees": 1, "mem.retries": 0, "mem.ooms": 0,
        "mem.outcome": "err",
    });
    assert_eq!(json_span(&page.closing("plain_async")), expected);
}

#[test]
fn negative_and_large_numbers_are_whole_in_json() {
    #[track_memory]
    fn consumes(buffer: Buffer<u8>) {
        drop(buffer);
    }
    let page = Page::default();
    let large = 70_usize << 30;
    under(Registry::default().with(json(&page)), |allocator| {
        consumes(Buffer::uninit(allocator, large).unwrap());
    });
    let span = json_span(&page.closing("consumes"));
    let numbers = ["mem.before", "mem.after", "mem.delta", "mem.peak", "mem.peak_delta"].map(|field| &span[field]);
    let large = large as i64;
    assert_eq!(numbers.map(Value::as_i64), [Some(large), Some(0), Some(-large), Some(large), Some(0)]);
}

/// Fields of a formatter's own type, so that two formatters do not share one text.
#[derive(Default)]
struct OwnFields(DefaultFields);

impl<'writer> FormatFields<'writer> for OwnFields {
    fn format_fields<R: tracing_subscriber::field::RecordFields>(
        &self,
        writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        self.0.format_fields(writer, fields)
    }
}

#[test]
fn two_formatters_with_fields_of_their_own_show_each_field_once() {
    let (first, second, third) = (Page::default(), Page::default(), Page::default());
    let own = tracing_subscriber::fmt::layer()
        .fmt_fields(OwnFields::default())
        .with_writer(second.clone())
        .with_ansi(false)
        .with_target(false)
        .with_span_events(FmtSpan::CLOSE);
    under(Registry::default().with(text(&first)).with(own).with(json(&third)), |allocator| {
        drop(with_fields(allocator, 7));
    });
    for page in [&first, &second] {
        assert!(page.closing("with_fields").contains(WITH_FIELDS), "{:#?}", page.lines());
    }
    assert_eq!(json_span(&third.closing("with_fields"))["mem.delta"], 1024);
}

/// Two text formatters share one text for each span and append to it twice, whoever records (tokio-rs/tracing#1372). This is
/// not the attribute's doing: a span that records one late field by hand shows it as often.
#[test]
fn two_formatters_that_share_their_fields_treat_ours_like_any_others() {
    let (first, second) = (Page::default(), Page::default());
    under(Registry::default().with(text(&first)).with(text(&second)), |allocator| {
        drop(with_fields(allocator, 7));
        let span = tracing::info_span!("by hand", early = 1, late = tracing::field::Empty);
        span.record("late", 2);
    });
    for page in [first, second] {
        let (ours, by_hand) = (page.closing("with_fields"), page.closing("by hand"));
        assert_eq!((ours.matches("rows=7").count(), by_hand.matches("early=1").count()), (1, 1));
        let late = by_hand.matches("late=2").count();
        for field in ["mem.device", "mem.delta", "mem.peak", "mem.outcome"] {
            assert_eq!(ours.matches(&format!("{field}=")).count(), late, "{field} in {ours}");
        }
    }
}

/// The events of a call that runs out of memory stand inside its span, before the span has figures.
#[test]
fn an_out_of_memory_is_told_inside_the_call() {
    #[track_memory(phase = "forward", err)]
    fn too_much(allocator: &CachingAllocator) -> Result<Buffer<u8>, memtrack::AllocationError> {
        Buffer::uninit(allocator, 64 << 20)
    }
    let page = Page::default();
    keep_interests_right();
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(32 << 20)));
    let _current = allocator.make_current();
    drop(Buffer::<u8>::uninit(&allocator, 16 << 20).unwrap());
    tracing::subscriber::with_default(Registry::default().with(json(&page)), || {
        assert!(too_much(&allocator).is_err());
    });
    let lines: Vec<Value> = page.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [retry, oom, close] = &lines[..] else { panic!("{lines:#?}") };
    assert_eq!((&retry["level"], &oom["level"]), (&Value::from("WARN"), &Value::from("ERROR")));
    for event in [retry, oom] {
        assert_eq!(event["span"]["name"], "too_much");
        assert!(event["span"].get("mem.outcome").is_none(), "not over yet");
        assert!(event["fields"]["requested_bytes"].is_i64());
    }
    assert_eq!(oom["fields"]["mem.phase"], "forward");
    let span = &close["span"];
    let found = (&span["mem.retries"], &span["mem.ooms"], &span["mem.outcome"]);
    assert_eq!(found, (&Value::from(1), &Value::from(1), &Value::from("err")));
}
