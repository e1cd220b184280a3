//! What `#[track_memory]` records on its spans, and the options that choose it.

use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::{Spans, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use tracing::Level;

const OWN_FIELDS: [&str; 12] = [
    "mem.device",
    "mem.phase",
    "mem.before",
    "mem.after",
    "mem.delta",
    "mem.peak",
    "mem.peak_delta",
    "mem.allocs",
    "mem.frees",
    "mem.retries",
    "mem.ooms",
    "mem.outcome",
];

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap_or_else(|error| panic!("{}", error))
}

#[test]
fn figures_of_a_call() {
    #[track_memory]
    fn f(allocator: &CachingAllocator) -> Buffer<u8> {
        drop(take(allocator, 4096));
        take(allocator, 1024)
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let _current = allocator.make_current();
    let _before = take(&allocator, 2048);
    let _kept = f(&allocator);
    let span = spans.one("f");
    assert_eq!(span.declared, OWN_FIELDS);
    assert!(span.at_creation.is_empty(), "{:?}", span.at_creation);
    assert_eq!(span.records.len(), 1, "one call of record");
    assert_eq!(span.text("mem.device"), allocator.device().name());
    let figures = ["before", "after", "delta", "peak", "peak_delta", "allocs", "frees", "retries", "ooms"]
        .map(|name| span.number(&format!("mem.{name}")));
    assert_eq!(figures, [2048, 3072, 1024, 6144, 4096, 2, 1, 0, 0]);
    assert_eq!(span.value("mem.outcome"), Some(Value::Str("ok".to_owned())));
    assert_eq!(span.value("mem.phase"), None);
}

#[test]
fn defaults_are_those_of_instrument() {
    #[track_memory]
    fn r#match() {}
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    r#match();
    let span = spans.one("match");
    assert_eq!((span.level, span.target), (Level::INFO, module_path!()));
}

mod options {
    pub(super) const NAME: &str = "named by a constant";
    pub(super) const TARGET: &str = "target by a constant";
    pub(super) const PHASE: &str = "phase by a constant";
    pub(super) const FIELD: &str = "field by a constant";
}

#[test]
fn name_target_and_level() {
    #[track_memory(name = "one", target = "somewhere", level = "debug")]
    fn one() {}
    #[track_memory(level = 5, target = options::TARGET, name = options::NAME)]
    fn two() {}
    #[track_memory("three", level = tracing::Level::WARN)]
    fn three_() {}
    #[track_memory(level = "TRACE", "four")]
    async fn four_() {}
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    one();
    two();
    three_();
    block_on(four_());
    let found: Vec<_> = spans.all().iter().map(|span| (span.name, span.target, span.level)).collect();
    let here = module_path!();
    assert_eq!(
        found,
        [
            ("one", "somewhere", Level::DEBUG),
            (options::NAME, options::TARGET, Level::ERROR),
            ("three", here, Level::WARN),
            ("four", here, Level::TRACE)
        ]
    );
}

#[test]
fn fields_in_the_words_of_tracing() {
    struct Shown;
    impl std::fmt::Display for Shown {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("shown")
        }
    }
    #[track_memory(fields(
        rows = values.len() as i64,
        shape.width = width,
        text = %shown,
        debug = ?values,
        %shown,
        ?width,
        "a name" = true,
        { options::FIELD } = 7_i64,
        later,
        never
    ))]
    fn f(values: Vec<u8>, (width, _): (i64, u8), shown: Shown) {
        assert_eq!(shown.to_string(), "shown");
        tracing::Span::current().record("later", 5_i64);
        assert_eq!((values.len(), width), (2, 9));
    }
    #[track_memory(fields(rows = values.len() as i64, later, ?width))]
    async fn g(values: Vec<u8>, (width, _): (i64, u8)) {
        yield_now().await;
        assert_eq!((values.len(), width), (2, 9));
    }
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    f(vec![1, 2], (9, 0), Shown);
    let span = spans.one("f");
    assert_eq!(span.declared[..12], OWN_FIELDS);
    assert_eq!(
        span.declared[12..],
        ["rows", "shape.width", "text", "debug", "shown", "width", "a name", options::FIELD, "later", "never"]
    );
    assert_eq!((span.number("rows"), span.number("shape.width"), span.number(options::FIELD)), (2, 9, 7));
    assert_eq!(
        (span.text("text"), span.text("debug"), span.text("shown")),
        ("shown".into(), "[1, 2]".into(), "shown".into())
    );
    assert_eq!(span.value("a name"), Some(Value::Bool(true)));
    assert_eq!((span.number("later"), span.value("never")), (5, None));
    block_on(g(vec![1, 2], (9, 0)));
    let span = spans.one("g");
    assert_eq!((span.number("rows"), span.text("mem.outcome").as_str()), (2, "ok"));
}

#[test]
fn current_span_of_the_body_is_the_calls_own() {
    #[track_memory(fields(later))]
    async fn f() {
        yield_now().await;
        tracing::Span::current().record("later", 5_i64);
    }
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    block_on(f());
    assert_eq!(spans.one("f").number("later"), 5);
}

#[test]
fn phase_of_its_own_is_given_at_creation_and_only_there() {
    #[track_memory(phase = "forward")]
    fn f() {
        inner();
    }
    #[track_memory]
    fn inner() {
        constant();
        without();
    }
    #[track_memory(phase = options::PHASE)]
    fn constant() {}
    #[track_memory]
    fn without() {}
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    f();
    without();
    let all = spans.all();
    let phases: Vec<_> = all.iter().map(|span| (span.name, span.value("mem.phase"))).collect();
    let text = |text: &str| Some(Value::Str(text.to_owned()));
    assert_eq!(
        phases,
        [
            ("f", text("forward")),
            ("inner", text("forward")),
            ("constant", text(options::PHASE)),
            ("without", text("forward")),
            ("without", None)
        ]
    );
    assert!(all[0].at_creation.contains_key("mem.phase"));
    assert!(!all[1].at_creation.contains_key("mem.phase"), "an inherited phase is known at the end");
}

#[test]
fn a_suspended_call_lends_its_phase_to_nobody() {
    #[track_memory]
    fn called() {}
    #[track_memory(phase = "forward")]
    async fn f() {
        called();
        yield_now().await;
        called();
    }
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    let mut future = Box::pin(f());
    assert!(poll_once(future.as_mut()).is_pending());
    called();
    assert!(poll_once(future.as_mut()).is_ready());
    called();
    let phases: Vec<_> =
        spans.all().iter().filter(|span| span.name == "called").map(|span| span.text("mem.phase")).collect();
    assert_eq!(phases, ["forward", "", "forward", ""]);
}

#[test]
fn a_call_that_moves_between_threads_is_one_scope() {
    #[track_memory(phase = "forward")]
    async fn f(allocator: CachingAllocator) -> Buffer<u8> {
        let first = take(&allocator, 1024);
        yield_now().await;
        drop(first);
        called();
        take(&allocator, 4096)
    }
    #[track_memory]
    fn called() {}
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let _current = allocator.make_current();
    let mut future = Box::pin(f(allocator.clone()));
    assert!(poll_once(future.as_mut()).is_pending());
    let (spans_there, allocator_there) = (spans.clone(), allocator.clone());
    std::thread::spawn(move || {
        let _installed = spans_there.install_here();
        let _current = allocator_there.make_current();
        assert!(poll_once(future.as_mut()).is_ready());
        called();
    })
    .join()
    .unwrap();
    let span = spans.one("f");
    assert_eq!((span.number("mem.delta"), span.number("mem.peak"), span.number("mem.frees")), (4096, 4096, 1));
    let phases: Vec<_> =
        spans.all().iter().filter(|span| span.name == "called").map(|span| span.text("mem.phase")).collect();
    assert_eq!(phases, ["forward", ""]);
}

struct Model {
    allocator: CachingAllocator,
}

impl Model {
    #[track_memory(device = self.allocator)]
    fn by_place(&self) -> Buffer<u8> {
        take(&self.allocator, 1024)
    }
    #[track_memory(device = &self.allocator)]
    async fn by_reference(&self) -> Buffer<u8> {
        yield_now().await;
        take(&self.allocator, 1024)
    }
    #[track_memory(device = self.allocator)]
    fn consumed(self) -> Buffer<u8> {
        take(&self.allocator, 1024)
    }
}

#[test]
fn device_names_the_allocator_to_measure() {
    #[track_memory(device = allocator)]
    fn shared(allocator: Arc<CachingAllocator>) -> Buffer<u8> {
        take(&allocator, 1024)
    }
    #[track_memory(device = pair)]
    #[allow(clippy::redundant_allocation, reason = "a pointer to a pointer is the case")]
    fn from_a_pattern((pair, _): (Rc<&CachingAllocator>, u8)) -> Buffer<u8> {
        take(&pair, 1024)
    }
    #[track_memory(device = pair)]
    async fn from_a_pattern_later((pair, _): (Box<CachingAllocator>, u8)) -> Buffer<u8> {
        yield_now().await;
        take(&pair, 1024)
    }
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    let measured = host_allocator();
    let model = Model { allocator: measured.clone() };
    let _buffers = [
        model.by_place(),
        block_on(model.by_reference()),
        model.consumed(),
        shared(Arc::new(measured.clone())),
        from_a_pattern((Rc::new(&measured), 0)),
        block_on(from_a_pattern_later((Box::new(measured.clone()), 0))),
    ];
    let deltas: Vec<_> = spans.all().iter().map(|span| span.number("mem.delta")).collect();
    assert_eq!(deltas, [1024; 6]);
}

#[test]
fn device_is_evaluated_once_and_before_the_body() {
    #[track_memory(device = { order.push("device"); allocator })]
    fn f(allocator: &CachingAllocator, mut order: Vec<&'static str>) -> Vec<&'static str> {
        order.push("body");
        order
    }
    let (_spans, _installed) = Spans::install();
    assert_eq!(f(&host_allocator(), vec![]), ["device", "body"]);
}

#[test]
fn outcomes() {
    #[track_memory(err)]
    fn f(n: u8) -> Result<u8, String> {
        if n == 0 {
            return Ok(0);
        }
        let n = n.checked_sub(2).ok_or_else(|| "one".to_owned())?;
        assert!(n < 9, "too large");
        Ok(n)
    }
    #[track_memory(err)]
    async fn g(n: u8) -> Result<u8, String> {
        yield_now().await;
        f(n)
    }
    #[track_memory]
    fn without_err() -> Result<u8, String> {
        Err("ignored".to_owned())
    }
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    let outcome = |name: &str| {
        spans.all().iter().rev().find(|span| span.name == name).map(|span| span.text("mem.outcome")).unwrap()
    };
    for (argument, expected) in [(0, "ok"), (1, "err"), (2, "ok"), (200, "panic")] {
        let _ = catch_unwind(AssertUnwindSafe(|| f(argument)));
        assert_eq!(outcome("f"), expected, "{argument}");
        let _ = catch_unwind(AssertUnwindSafe(|| block_on(g(argument))));
        assert_eq!(outcome("g"), expected, "{argument}");
    }
    let _ = without_err();
    assert_eq!(outcome("without_err"), "ok");
}

#[test]
fn outcomes_with_track_caller() {
    #[track_memory(err)]
    #[track_caller]
    fn f(n: u8) -> Result<u8, String> {
        if n == 0 {
            return Ok(0);
        }
        let closure = || {
            if n == 3 {
                return Err("three".to_owned());
            }
            Ok(n)
        };
        let n = closure()?;
        if n == 1 {
            return Err("one".to_owned());
        }
        Ok(n)
    }
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    for argument in 0..=3 {
        let _ = f(argument);
    }
    let outcomes: Vec<_> = spans.all().iter().map(|span| span.text("mem.outcome")).collect();
    assert_eq!(outcomes, ["ok", "err", "ok", "err"]);
}

#[test]
fn a_call_made_while_unwinding_is_not_a_panic() {
    #[track_memory]
    fn cleanup() {}
    struct Cleans;
    impl Drop for Cleans {
        fn drop(&mut self) {
            cleanup();
        }
    }
    #[track_memory]
    fn f() {
        let _cleans = Cleans;
        panic!("as it should");
    }
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    assert!(catch_unwind(f).is_err());
    assert_eq!(spans.one("cleanup").text("mem.outcome"), "ok");
    assert_eq!(spans.one("f").text("mem.outcome"), "panic");
}

#[test]
fn a_future_dropped_while_unwinding_was_cancelled() {
    #[track_memory]
    async fn f() {
        yield_now().await;
    }
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut future = Box::pin(f());
        assert!(poll_once(future.as_mut()).is_pending());
        panic!("elsewhere");
    }));
    assert!(result.is_err());
    assert_eq!(spans.one("f").text("mem.outcome"), "cancelled");
}

#[test]
fn nested_calls_have_nested_spans_and_their_own_figures() {
    #[track_memory]
    fn outer(allocator: &CachingAllocator) -> Buffer<u8> {
        let kept = take(allocator, 1024);
        inner(allocator);
        kept
    }
    #[track_memory]
    fn inner(allocator: &CachingAllocator) {
        drop(take(allocator, 8192));
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let _current = allocator.make_current();
    let _kept = outer(&allocator);
    let (outer, inner) = (spans.one("outer"), spans.one("inner"));
    assert_eq!(inner.parent, Some(0));
    assert_eq!((inner.number("mem.before"), inner.number("mem.delta"), inner.number("mem.peak")), (1024, 0, 9216));
    assert_eq!((outer.number("mem.before"), outer.number("mem.delta"), outer.number("mem.peak")), (0, 1024, 9216));
}

#[test]
fn every_activation_of_a_recursion_is_a_scope() {
    #[track_memory]
    fn f(allocator: &CachingAllocator, n: usize) {
        let _held = take(allocator, 1024);
        if n > 0 {
            f(allocator, n - 1);
        }
    }
    #[track_memory]
    async fn g(allocator: &CachingAllocator, n: usize) {
        let _held = take(allocator, 1024);
        yield_now().await;
        if n > 0 {
            Box::pin(g(allocator, n - 1)).await;
        }
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let _current = allocator.make_current();
    f(&allocator, 99);
    block_on(g(&allocator, 99));
    let peaks: Vec<_> = spans.all().iter().map(|span| span.number("mem.peak_delta")).collect();
    let expected: Vec<i64> = (1..=100).rev().map(|depth| depth * 1024).collect();
    assert_eq!(peaks, [expected.clone(), expected].concat());
    assert!(spans.all().iter().all(|span| span.records.len() == 1 && span.number("mem.delta") == 0));
}

#[test]
fn a_span_that_is_filtered_out_leaves_the_function_alone() {
    #[track_memory(level = "debug", fields(n = { *evaluated += 1; 1_i64 }))]
    fn f(evaluated: &mut u32) {
        *evaluated += 10;
    }
    #[track_memory(level = "debug", phase = "forward")]
    fn with_phase() {
        called();
    }
    #[track_memory]
    fn called() {}
    let (spans, _installed) = Spans::install_filtered(Level::INFO);
    let _current = host_allocator().make_current();
    let mut evaluated = 0;
    f(&mut evaluated);
    assert_eq!(evaluated, 10, "fields of a span that is off are not evaluated");
    with_phase();
    let names: Vec<_> = spans.all().iter().map(|span| span.name).collect();
    assert_eq!(names, ["called"]);
    assert_eq!(spans.one("called").text("mem.phase"), "forward", "a phase counts whatever the level");
}

#[test]
fn without_a_subscriber_a_phase_still_counts() {
    #[track_memory(phase = "forward")]
    fn f() {
        let (spans, _installed) = Spans::install();
        called();
        assert_eq!(spans.one("called").text("mem.phase"), "forward");
    }
    #[track_memory]
    fn called() {}
    let _current = host_allocator().make_current();
    f();
}

mod under_another_name {
    //! memtrack, reached through another crate's module.
    pub(super) mod reached {
        pub(crate) use memtrack::__private;
    }

    macro_rules! tracked {
        ($name:ident) => {
            #[memtrack::track_memory(crate = crate::under_another_name::reached)]
            pub(super) fn $name() {}
        };
    }
    tracked!(f);
}

#[test]
fn crate_says_where_memtrack_is() {
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    under_another_name::f();
    assert_eq!(spans.one("f").text("mem.outcome"), "ok");
}

#[test]
fn beside_instrument_in_both_orders() {
    // The attribute that stands lower is expanded last, and so is outside.
    #[track_memory(name = "ours")]
    #[tracing::instrument(name = "theirs", skip_all)]
    fn f(_x: Buffer<u8>) {}
    #[tracing::instrument(name = "theirs", skip_all)]
    #[track_memory(name = "ours")]
    async fn g(_x: Buffer<u8>) {}
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let _current = allocator.make_current();
    f(take(&allocator, 1024));
    block_on(g(take(&allocator, 1024)));
    let all = spans.all();
    let names: Vec<_> = all.iter().map(|span| (span.name, span.parent)).collect();
    assert_eq!(names, [("theirs", None), ("ours", Some(0)), ("ours", None), ("theirs", Some(2))]);
    assert_eq!((all[1].number("mem.delta"), all[2].number("mem.delta")), (-1024, -1024));
}
