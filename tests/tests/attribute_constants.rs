//! Options whose value is a constant, or a static that leads to an allocator.
#![allow(clippy::unwrap_used, reason = "a failure is the test's own")]

use memtrack::{CachingAllocator, track_memory};
use memtrack_tests::futures::block_on;
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::{Spans, Value};
use std::cell::LazyCell;
use std::sync::LazyLock;
use tracing::Level;

const PREFIX: &str = "prefixed";
static LOSS: &str = "loss";

trait Part {
    const PHASE: &'static str;
    const LEVEL: Level = Level::WARN;

    #[track_memory(phase = Self::PHASE)]
    fn provided(&self) {}
}

struct Encoder;

impl Part for Encoder {
    const PHASE: &'static str = "encode";
}

impl Encoder {
    const NAME: &'static str = "encoder";

    #[track_memory(name = Encoder::NAME, phase = Self::PHASE, level = <Encoder as Part>::LEVEL)]
    fn by_self(&self) {}

    #[track_memory(phase = <Self as Part>::PHASE)]
    async fn by_self_later(self) {}
}

struct Layer<P>(P);

impl<P: Part> Layer<P> {
    #[track_memory(phase = P::PHASE, err)]
    fn by_parameter<Q: Part>(&self, other: &Q) -> Result<(), String> {
        let _ = (&self.0, other);
        of_both(other)
    }
}

#[track_memory(phase = Q::PHASE, err)]
fn of_both<Q: Part>(_: &Q) -> Result<(), String> {
    Ok(())
}

#[test]
fn a_phase_can_depend_on_self_and_on_type_parameters() {
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    Encoder.provided();
    Encoder.by_self();
    block_on(Encoder.by_self_later());
    Layer(Encoder).by_parameter(&Encoder).unwrap();
    let all = spans.all();
    assert_eq!(all.iter().map(|span| span.text("mem.phase")).collect::<Vec<_>>(), ["encode"; 5]);
    assert_eq!(all[1].name, "encoder");
    assert_eq!(all[1].level, Level::WARN);
}

#[track_memory(name = concat!("pre", "fixed"), target = concat!("of ", 1), phase = stringify!(loss))]
fn by_macros() {}

#[track_memory(name = PREFIX, phase = LOSS)]
fn by_static() {}

#[test]
fn a_text_can_be_a_macro_that_gives_a_literal_or_a_static() {
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    by_macros();
    by_static();
    let all = spans.all();
    assert_eq!(all[0].target, "of 1");
    for span in all {
        assert_eq!((span.name, span.text("mem.phase")), ("prefixed", "loss".to_owned()));
    }
}

static SHARED: LazyLock<CachingAllocator> = LazyLock::new(host_allocator);

#[track_memory(device = SHARED)]
fn on_a_static() {
    drop(memtrack::Buffer::<u8>::zeros(&SHARED, 512).unwrap());
}

#[track_memory(device = allocator)]
async fn on_a_cell(allocator: LazyCell<CachingAllocator>) {
    drop(memtrack::Buffer::<u8>::zeros(&allocator, 512).unwrap());
}

#[track_memory(device = *allocator.lock().unwrap())]
fn behind_a_lock(allocator: &std::sync::Mutex<CachingAllocator>) {
    drop(memtrack::Buffer::<u8>::zeros(&allocator.lock().unwrap(), 512).unwrap());
}

#[test]
fn a_lazy_allocator_stands_for_itself() {
    let (spans, _installed) = Spans::install();
    on_a_static();
    block_on(on_a_cell(LazyCell::new(host_allocator)));
    behind_a_lock(&std::sync::Mutex::new(host_allocator()));
    let counts: Vec<_> = spans.all().iter().map(|span| span.value("mem.allocs")).collect();
    assert_eq!(counts, [Some(Value::I64(1)), Some(Value::I64(1)), Some(Value::I64(1))]);
}

struct Point {
    x: u8,
}

#[track_memory(fields(
    %text, star = %*text, ?point.x, sum = point.x + 1, negative = -1, nothing = None::<u8>,
    error = &std::fmt::Error as &(dyn std::error::Error + 'static), empty = tracing::field::Empty,
))]
fn values(text: &str, point: &Point) {}

#[test]
fn values_are_recorded_as_by_span() {
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    values("words", &Point { x: 1 });
    let span = spans.one("values");
    assert_eq!(
        (span.text("text"), span.text("star"), span.text("point.x")),
        ("words".into(), "words".into(), "1".into())
    );
    assert_eq!((span.value("sum"), span.value("negative")), (Some(Value::U64(2)), Some(Value::I64(-1))));
    assert_eq!((span.value("nothing"), span.value("empty")), (None, None));
    assert!(span.value("error").is_some());
}
