//! The options that say more about a call: parents, causes, arguments, returned values and errors.
#![allow(clippy::non_minimal_cfg, clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::{EventLog, Spans, Value};
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use tracing::{Level, Span, info_span};

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap_or_else(|error| panic!("{error}"))
}

/// An error that can be shown, or not.
#[derive(Debug, PartialEq)]
struct Refused(u32);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused {}", self.0)
    }
}

/// Has neither `Debug` nor `Display`.
struct Opaque;

fn said(events: &[EventLog]) -> Vec<(Level, Option<&'static str>, String)> {
    let text = |event: &EventLog| event.fields.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    events.iter().map(|event| (event.level, event.span, text(event))).collect()
}

#[test]
fn parent_puts_the_span_elsewhere_than_where_the_call_is() {
    #[track_memory(parent = parent)]
    fn f(parent: &Span) {}
    #[track_memory(parent = None)]
    fn root() {}
    let (spans, _installed) = Spans::install();
    let elsewhere = info_span!("elsewhere");
    info_span!("around").in_scope(|| {
        f(&elsewhere);
        root();
    });
    let names: Vec<&str> = spans.all().iter().map(|span| span.name).collect();
    let parent = |name| spans.one(name).parent.map(|parent| names[parent]);
    assert_eq!(parent("f"), Some("elsewhere"));
    assert_eq!(parent("root"), None);
    assert_eq!(parent("around"), None);
}

#[test]
fn follows_from_names_every_cause() {
    #[track_memory(follows_from = causes)]
    fn f(causes: &[Span]) {}
    #[track_memory(follows_from = [&cause])]
    async fn g(cause: Span) {
        yield_now().await;
    }
    let (spans, _installed) = Spans::install();
    let causes = [info_span!("first"), info_span!("second")];
    f(&causes);
    let [_, second] = causes;
    block_on(g(second));
    assert_eq!(spans.one("f").follows, [0, 1]);
    assert_eq!(spans.one("g").follows, [1]);
}

#[test]
fn arguments_are_recorded_as_what_they_are() {
    type Rows = usize;
    #[derive(Debug)]
    struct Shape {
        #[expect(dead_code, reason = "shown by `Debug`")]
        rows: u8,
    }
    #[track_memory(args)]
    #[expect(clippy::too_many_arguments, reason = "one of each kind")]
    fn f(rows: Rows, big: u64, rate: f32, label: &str, owned: String, shape: &Shape, flag: bool, r#type: i8) {
        drop(owned);
    }
    let (spans, _installed) = Spans::install();
    f(3, u64::MAX, 0.5, "a", "b".to_owned(), &Shape { rows: 1 }, true, -1);
    let span = spans.one("f");
    let given: Vec<(&str, Value)> = span.at_creation.clone().into_iter().collect();
    assert_eq!(
        given,
        [
            ("big", Value::U64(u64::MAX)),
            ("flag", Value::Bool(true)),
            ("label", Value::Str("a".to_owned())),
            ("owned", Value::Str("b".to_owned())),
            ("rate", Value::Debug("0.5".to_owned())),
            ("rows", Value::I64(3)),
            ("shape", Value::Debug("Shape { rows: 1 }".to_owned())),
            ("type", Value::I64(-1)),
        ]
    );
}

#[test]
fn arguments_are_chosen_by_name_wherever_a_pattern_binds_them() {
    #[track_memory(args(a, d))]
    fn named((a, _b): (u8, Opaque), [_, d, ..]: [u16; 3], _e: Opaque) {}
    #[track_memory(skip(_b, _e))]
    fn others((a, _b): (u8, Opaque), c @ (_, d): (i32, i32), _e: Opaque) -> i32 {
        c.0 + d + i32::from(a)
    }
    let (spans, _installed) = Spans::install();
    named((1, Opaque), [2, 3, 4], Opaque);
    others((1, Opaque), (5, 6), Opaque);
    let given = |name| spans.one(name).at_creation.into_iter().map(|(key, value)| format!("{key}={value:?}"));
    assert_eq!(given("named").collect::<Vec<_>>(), ["a=U64(1)", "d=U64(3)"]);
    assert_eq!(given("others").collect::<Vec<_>>(), ["a=U64(1)", "c=Debug(\"(5, 6)\")", "d=I64(6)"]);
}

#[test]
fn the_receiver_is_recorded_where_it_is_named_and_a_field_goes_before_an_argument() {
    #[derive(Debug)]
    struct Model {
        width: usize,
    }
    impl Model {
        #[track_memory(args(self, rows), fields(rows = rows * 10))]
        fn f(&self, rows: i64) -> usize {
            self.width + usize::try_from(rows).unwrap_or(0)
        }
        #[track_memory(args)]
        async fn g(&self, generic: impl fmt::Debug) {
            yield_now().await;
            drop(generic);
        }
    }
    let (spans, _installed) = Spans::install();
    let model = Model { width: 1 };
    model.f(2);
    block_on(model.g("x"));
    let span = spans.one("f");
    assert_eq!(span.value("rows"), Some(Value::I64(20)));
    assert_eq!(span.value("self"), Some(Value::Debug("Model { width: 1 }".to_owned())));
    assert_eq!(
        spans.one("g").at_creation.into_iter().collect::<Vec<_>>(),
        [("generic", Value::Debug("\"x\"".to_owned()))]
    );
}

#[test]
fn skip_all_records_no_argument_which_is_the_default() {
    #[track_memory(skip_all)]
    fn f(_a: Opaque) {}
    let (spans, _installed) = Spans::install();
    f(Opaque);
    assert!(spans.one("f").at_creation.is_empty());
}

#[test]
fn an_error_is_told_when_asked_and_not_consumed() {
    #[track_memory(err(Display))]
    fn shown(n: u32) -> Result<u32, Refused> {
        if n == 0 {
            return Err(Refused(n));
        }
        Ok(n)
    }
    #[track_memory(err(Debug, level = "warn"))]
    async fn debugged(n: u32) -> Result<u32, Refused> {
        yield_now().await;
        shown(n)?;
        Ok(n)
    }
    #[track_memory(err)]
    fn untold(fails: bool) -> Result<(), Opaque> {
        if fails { Err(Opaque) } else { Ok(()) }
    }
    let (spans, _installed) = Spans::install();
    assert_eq!((shown(0), shown(1)), (Err(Refused(0)), Ok(1)));
    assert_eq!(
        said(&spans.events_of(module_path!())),
        [(Level::ERROR, Some("shown"), "error=Debug(\"refused 0\")".to_owned())]
    );
    assert_eq!(block_on(debugged(0)), Err(Refused(0)));
    let last = said(&spans.events_of(module_path!())).pop();
    assert_eq!(last, Some((Level::WARN, Some("debugged"), "error=Debug(\"Refused(0)\")".to_owned())));
    assert!(untold(true).is_err() && untold(false).is_ok());
    assert_eq!(spans.events_of(module_path!()).len(), 3, "the word alone tells nothing");
    assert_eq!(spans.one("debugged").text("mem.outcome"), "err");
}

#[test]
fn a_returned_value_is_told_inside_the_span() {
    #[track_memory(ret)]
    fn number(early: bool) -> u32 {
        if early {
            return 1;
        }
        2
    }
    #[track_memory(ret(Display, level = "debug"), target = "elsewhere")]
    async fn text() -> &'static str {
        yield_now().await;
        "x"
    }
    #[track_memory(ret, err)]
    fn both(fails: bool) -> Result<u32, Opaque> {
        if fails { Err(Opaque) } else { Ok(7) }
    }
    #[track_memory(ret)]
    #[track_caller]
    fn here(early: bool) -> (u32, bool) {
        if early {
            return (0, early);
        }
        (std::panic::Location::caller().line(), early)
    }
    let (spans, _installed) = Spans::install();
    number(true);
    number(false);
    block_on(text());
    assert!(both(true).is_err() && both(false).is_ok());
    assert_eq!((here(true), here(false)), ((0, true), (line!(), false)));
    let line = line!() - 1;
    let info = |span, text: &str| (Level::INFO, Some(span), text.to_owned());
    assert_eq!(
        said(&spans.events_of(module_path!())),
        [
            info("number", "return=Debug(\"1\")"),
            info("number", "return=Debug(\"2\")"),
            info("both", "return=Debug(\"7\")"),
            info("here", "return=Debug(\"(0, true)\")"),
            info("here", &format!("return=Debug(\"({line}, false)\")")),
        ]
    );
    assert_eq!(said(&spans.events_of("elsewhere")), [(Level::DEBUG, Some("text"), "return=Debug(\"x\")".to_owned())]);
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[test]
fn future_measures_the_call_and_the_polls_of_what_it_returns() {
    #[track_memory(future, device = allocator)]
    fn opaque(allocator: &CachingAllocator, argument: Buffer<u8>) -> impl Future<Output = usize> {
        let eager = take(allocator, 1024);
        let allocator = allocator.clone();
        async move {
            let first = take(&allocator, 2048);
            yield_now().await;
            let second = take(&allocator, 4096);
            drop(argument);
            first.len() + second.len() + eager.len()
        }
    }
    #[track_memory(future, err, device = allocator)]
    fn boxed<'a>(allocator: &'a CachingAllocator, fails: &'a bool) -> Boxed<'a, Result<u32, Opaque>> {
        let eager = take(allocator, 1024);
        Box::pin(async move {
            let first = take(allocator, 2048);
            yield_now().await;
            drop((eager, first));
            if *fails { Err(Opaque) } else { Ok(1) }
        })
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    let argument = take(&allocator, 512);
    assert_eq!(block_on(opaque(&allocator, argument)), 1024 + 2048 + 4096);
    let span = spans.one("opaque");
    assert_eq!(
        ["before", "after", "peak", "allocs", "frees"].map(|name| span.number(&format!("mem.{name}"))),
        [512, 0, 512 + 1024 + 2048 + 4096, 3, 4]
    );
    assert!(block_on(boxed(&allocator, &true)).is_err());
    let span = spans.one("boxed");
    assert_eq!((span.text("mem.outcome"), span.number("mem.peak_delta")), ("err".to_owned(), 3072));
    assert_eq!(span.number("mem.delta"), 0);
}

#[test]
fn a_future_that_is_dropped_is_cancelled_with_all_it_holds_freed() {
    #[track_memory(future, device = allocator)]
    fn f(allocator: &CachingAllocator) -> impl Future<Output = ()> + use<> {
        let eager = take(allocator, 1024);
        async move {
            yield_now().await;
            drop(eager);
        }
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    {
        let mut future = pin!(f(&allocator));
        assert!(poll_once(future.as_mut()).is_pending());
        drop(take(&allocator, 8192));
    }
    let span = spans.one("f");
    assert_eq!((span.text("mem.outcome"), span.number("mem.delta")), ("cancelled".to_owned(), 0));
    assert_eq!(span.number("mem.allocs"), 2);
    drop(f(&allocator));
    let spans = spans.all();
    assert_eq!((spans.len(), spans[1].text("mem.outcome")), (2, "cancelled".to_owned()));
}

#[test]
fn a_panic_before_the_future_is_returned_is_a_panic() {
    #[track_memory(future)]
    fn f(panics: bool) -> impl Future<Output = u32> {
        assert!(!panics, "here");
        async { 1 }
    }
    let (spans, _installed) = Spans::install();
    assert!(std::panic::catch_unwind(|| drop(f(true))).is_err());
    assert_eq!(spans.one("f").text("mem.outcome"), "panic");
}

#[test]
fn future_works_on_ready_made_opaque_futures_and_keeps_auto_traits() {
    #[track_memory(future)]
    fn ready(n: u32) -> impl Future<Output = u32> {
        std::future::ready(n)
    }
    #[track_memory(future)]
    fn local(cell: &Cell<u32>) -> impl Future<Output = u32> {
        cell.set(1);
        async { cell.get() }
    }
    fn send<T: Send + Sync + Unpin>(value: T) -> T {
        value
    }
    let (spans, _installed) = Spans::install();
    assert_eq!(block_on(send(ready(3))), 3);
    assert_eq!(block_on(local(&Cell::new(0))), 1);
    assert_eq!(spans.all().len(), 2);
}

#[test]
fn a_method_of_async_trait_is_measured_to_its_completion() {
    #[async_trait::async_trait]
    trait Step {
        async fn step(&self, allocator: &CachingAllocator) -> Result<usize, Refused>;
    }
    struct Plain;
    #[async_trait::async_trait]
    impl Step for Plain {
        #[track_memory(err(Display), device = allocator)]
        async fn step(&self, allocator: &CachingAllocator) -> Result<usize, Refused> {
            let first = take(allocator, 1024);
            yield_now().await;
            let second = take(allocator, 1024);
            Err(Refused(u32::try_from(first.len() + second.len()).unwrap_or(0)))
        }
    }
    let (spans, _installed) = Spans::install();
    let allocator = host_allocator();
    assert_eq!(block_on(Plain.step(&allocator)), Err(Refused(2048)));
    let span = spans.one("step");
    assert_eq!((span.number("mem.peak"), span.number("mem.delta"), span.number("mem.allocs")), (2048, 0, 2));
    assert_eq!(span.text("mem.outcome"), "err");
    assert_eq!(
        said(&spans.events_of(module_path!())),
        [(Level::ERROR, Some("step"), "error=Debug(\"refused 2048\")".to_owned())]
    );
}

#[test]
fn futures_keep_the_traits_of_unwinding_and_parameters_under_a_condition_are_no_fields() {
    #[track_memory]
    async fn f(n: u8) -> u8 {
        std::future::ready(()).await;
        n
    }
    #[track_memory(args)]
    fn g(#[cfg(any())] missing: Nowhere, #[cfg(all())] there: u8, n: u8) -> u8 {
        there + n
    }
    fn unwind_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>(value: T) -> T {
        value
    }
    let (spans, _installed) = Spans::install();
    assert_eq!((block_on(unwind_safe(f(1))), g(1, 2)), (1, 3));
    assert_eq!(spans.one("g").at_creation.into_keys().collect::<Vec<_>>(), ["n"]);
}

#[test]
fn traits_of_the_user_do_not_come_between() {
    trait Everywhere {
        fn open(self) -> u8
        where
            Self: Sized,
        {
            1
        }
        fn ends_with(self) -> u8
        where
            Self: Sized,
        {
            1
        }
        fn samples(&self) -> u8 {
            1
        }
        fn finish(self) -> u8
        where
            Self: Sized,
        {
            1
        }
    }
    impl<T> Everywhere for T {}
    #[track_memory(err, sample = 1, max_allocs = 1)]
    fn f() -> Result<u8, u8> {
        Ok(1_u8.open() + 1_u8.samples())
    }
    #[track_memory(future)]
    fn g() -> impl Future<Output = u8> {
        std::future::ready(2_u8.finish() + 1_u8.ends_with())
    }
    let (_spans, _installed) = Spans::install();
    assert_eq!((f(), block_on(g())), (Ok(2), 2));
}
