//! What a call owns is freed before its scope closes.
//!
//! The bug class: a guard declared in the body is dropped before the function's arguments, so a function that consumes
//! a buffer would seem to free nothing. Each test looks at the order of events and at the figures.

use memtrack::track_memory;
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::memory::{Bench, Probe};
use memtrack_tests::spans::Spans;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn argument_by_value() {
    #[track_memory]
    fn f(x: Probe) -> usize {
        x.len()
    }
    let bench = Bench::new();
    f(bench.probe("x"));
    bench.assert_freed_inside(&["drop x"], -1024, "ok");
}

#[test]
fn arguments_in_the_order_of_an_ordinary_function() {
    struct Local<'a>(&'a Spans);
    impl Drop for Local<'_> {
        fn drop(&mut self) {
            self.0.note("drop local");
        }
    }
    fn plain(spans: &Spans, _a: Probe, (_b, _): (Probe, Probe), _: Probe, _c: Probe) {
        let _local = Local(spans);
    }
    #[track_memory]
    fn f(spans: &Spans, _a: Probe, (_b, _): (Probe, Probe), _: Probe, _c: Probe) {
        let _local = Local(spans);
    }
    let bench = Bench::new();
    let arguments = || (bench.probe("a"), (bench.probe("b"), bench.probe("rest")), bench.probe("_"), bench.probe("c"));
    let (a, b, c, d) = arguments();
    plain(&bench.spans, a, b, c, d);
    let ordinary = bench.spans.journal();
    let (a, b, c, d) = arguments();
    f(&bench.spans, a, b, c, d);
    let tracked = bench.spans.journal();
    assert_eq!(ordinary.len(), 6);
    assert_eq!(tracked[8..14], ordinary);
    assert_eq!(tracked[14], "record f");
    assert_eq!(bench.spans.one("f").number("mem.delta"), -5 * 1024);
}

#[test]
fn unnamed_argument_and_leftovers_of_a_pattern() {
    #[track_memory]
    fn f(_: Probe, (_kept, _): (Probe, Probe)) {}
    let bench = Bench::new();
    f(bench.probe("unnamed"), (bench.probe("kept"), bench.probe("rest")));
    bench.assert_freed_inside(&["drop kept", "drop rest", "drop unnamed"], -3072, "ok");
}

#[test]
fn temporary_of_the_last_expression() {
    #[track_memory]
    fn f(bench: &Bench) -> usize {
        bench.probe("temporary").len()
    }
    let bench = Bench::new();
    assert_eq!(f(&bench), 1024);
    bench.assert_freed_inside(&["drop temporary"], 0, "ok");
    assert_eq!(bench.spans.one("f").number("mem.peak_delta"), 1024);
}

struct Owner {
    x: Probe,
    y: Probe,
}

impl Owner {
    #[track_memory(name = "f")]
    fn by_value(self) -> usize {
        self.x.len()
    }
    #[track_memory(name = "f")]
    fn unused(self) {}
    #[track_memory(name = "f")]
    fn boxed(self: Box<Self>) -> Probe {
        self.y
    }
    #[track_memory(name = "f")]
    async fn asynchronous(self) -> usize {
        yield_now().await;
        self.x.len()
    }
    #[track_memory(name = "f", err)]
    fn fallible(self) -> Result<usize, Probe> {
        Err(self.y)
    }
    #[track_memory(name = "f")]
    fn panics(self) -> usize {
        panic!("as it should")
    }
}

#[test]
fn receiver_by_value() {
    let bench = Bench::new();
    Owner { x: bench.probe("x"), y: bench.probe("y") }.by_value();
    bench.assert_freed_inside(&["drop x", "drop y"], -2048, "ok");
}

#[test]
fn receiver_by_value_that_the_body_does_not_use() {
    let bench = Bench::new();
    Owner { x: bench.probe("x"), y: bench.probe("y") }.unused();
    bench.assert_freed_inside(&["drop x", "drop y"], -2048, "ok");
}

#[test]
fn boxed_receiver_of_which_a_part_is_returned() {
    let bench = Bench::new();
    let kept = Box::new(Owner { x: bench.probe("x"), y: bench.probe("y") }).boxed();
    bench.assert_freed_inside(&["drop x"], -1024, "ok");
    drop(kept);
}

#[test]
fn receiver_by_value_with_err() {
    let bench = Bench::new();
    let kept = Owner { x: bench.probe("x"), y: bench.probe("y") }.fallible();
    bench.assert_freed_inside(&["drop x"], -1024, "err");
    drop(kept);
}

#[test]
fn receiver_by_value_of_an_async_method() {
    let bench = Bench::new();
    block_on(Owner { x: bench.probe("x"), y: bench.probe("y") }.asynchronous());
    bench.assert_freed_inside(&["exit f", "enter f", "drop x", "drop y"], -2048, "ok");
}

#[test]
fn argument_when_the_body_panics() {
    #[track_memory]
    fn f(x: Probe) {
        assert!(x.is_empty(), "as it should");
    }
    let bench = Bench::new();
    let x = bench.probe("x");
    assert!(catch_unwind(AssertUnwindSafe(|| f(x))).is_err());
    bench.assert_freed_inside(&["drop x"], -1024, "panic");
}

#[test]
fn receiver_when_the_body_panics() {
    let bench = Bench::new();
    let owner = Owner { x: bench.probe("x"), y: bench.probe("y") };
    assert!(catch_unwind(AssertUnwindSafe(|| owner.panics())).is_err());
    bench.assert_freed_inside(&["drop x", "drop y"], -2048, "panic");
}

#[test]
fn async_arguments_used_and_unused() {
    #[track_memory]
    async fn f(used: Probe, _unused: Probe, _: Probe) -> usize {
        yield_now().await;
        used.len()
    }
    let bench = Bench::new();
    block_on(f(bench.probe("used"), bench.probe("unused"), bench.probe("_")));
    bench.assert_freed_inside(&["exit f", "enter f", "drop _", "drop unused", "drop used"], -3072, "ok");
}

#[test]
fn async_argument_when_the_body_panics() {
    #[track_memory]
    async fn f(x: Probe) {
        yield_now().await;
        assert!(x.is_empty(), "as it should");
    }
    let bench = Bench::new();
    let mut future = Box::pin(f(bench.probe("x")));
    assert!(poll_once(future.as_mut()).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| poll_once(future.as_mut()))).is_err());
    drop(future);
    let journal = bench.spans.journal();
    let expected = ["new f", "enter f", "exit f", "enter f", "drop x"];
    assert_eq!(journal[..5], expected);
    assert_eq!(journal.iter().filter(|line| *line == "record f").count(), 1);
    let span = bench.spans.one("f");
    assert_eq!((span.number("mem.delta"), span.text("mem.outcome").as_str()), (-1024, "panic"));
}

#[test]
fn async_call_cancelled_after_one_poll() {
    #[track_memory]
    async fn f(bench: &Bench, _x: Probe) {
        let _local = bench.probe("local");
        yield_now().await;
        yield_now().await;
    }
    let bench = Bench::new();
    let mut future = Box::pin(f(&bench, bench.probe("x")));
    assert!(poll_once(future.as_mut()).is_pending());
    drop(future);
    bench.assert_freed_inside(&["exit f", "enter f", "drop local", "drop x"], -1024, "cancelled");
}

#[test]
fn async_call_never_polled_leaves_nothing() {
    #[track_memory]
    async fn f(_x: Probe) {}
    let bench = Bench::new();
    drop(f(bench.probe("x")));
    assert_eq!(bench.spans.journal(), ["drop x"]);
}

#[test]
fn function_that_returns_a_future_is_only_the_call() {
    #[track_memory]
    fn f(x: Probe) -> std::future::Ready<Probe> {
        std::future::ready(x)
    }
    let bench = Bench::new();
    let future = f(bench.probe("x"));
    bench.assert_freed_inside(&[], 0, "ok");
    drop(future);
}
