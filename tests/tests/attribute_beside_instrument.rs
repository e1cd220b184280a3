//! What is freed before the span closes, under `#[tracing::instrument]` and under `#[track_memory]`.
//!
//! The first is why the second is expanded as it is: for a span that measures memory, what is freed after its end is not
//! measured. Arguments are freed after every local of a function, so after any guard that stands in its body.

use memtrack::track_memory;
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::memory::{Bench, Probe};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a journal says of the memory `name`.
#[derive(Debug, PartialEq, Eq)]
enum Freed {
    BeforeTheSpanCloses,
    AfterTheSpanClosed,
    WithoutASpan,
}
use Freed::{AfterTheSpanClosed, BeforeTheSpanCloses, WithoutASpan};

fn freed(journal: &[String], name: &str) -> Freed {
    let position = |line: &str| journal.iter().position(|found| found == line);
    let freed = position(&format!("drop {name}")).unwrap_or_else(|| panic!("{} is not freed in {:?}", name, journal));
    match position("close f") {
        None => WithoutASpan,
        Some(closed) if freed < closed => BeforeTheSpanCloses,
        Some(_) => AfterTheSpanClosed,
    }
}

/// The same functions with one attribute or the other, named `f`.
macro_rules! functions {
    ($module:ident, #[$($attribute:tt)*]) => {
        mod $module {
            use super::*;

            #[$($attribute)*]
            pub(super) fn argument(_x: Probe) {}
            #[$($attribute)*]
            pub(super) fn unnamed(_: Probe) {}
            #[$($attribute)*]
            pub(super) fn leftover((_kept, _): (u8, Probe)) {}
            #[$($attribute)*]
            pub(super) fn temporary(bench: &Bench) -> usize {
                bench.probe("x").len()
            }
            #[$($attribute)*]
            pub(super) fn panics(x: Probe) {
                assert!(x.is_empty(), "on purpose");
            }
            #[$($attribute)*]
            pub(super) async fn used(x: Probe) {
                yield_now().await;
                assert_eq!(x.len(), 1024);
            }
            #[$($attribute)*]
            pub(super) async fn unused(_x: Probe) {
                yield_now().await;
            }
            #[$($attribute)*]
            pub(super) async fn cancelled(bench: &Bench, _x: Probe) {
                let _local = bench.probe("local");
                yield_now().await;
            }
            #[$($attribute)*]
            pub(super) fn future(x: Probe) -> std::future::Ready<Probe> {
                std::future::ready(x)
            }

            pub(super) struct Owner(pub(super) Probe);

            impl Owner {
                #[$($attribute)*]
                pub(super) fn receiver(self) -> usize {
                    self.0.len()
                }
            }

            /// Every case by its name, with what became of its memory.
            pub(super) fn found() -> Vec<(&'static str, Freed)> {
                let run = |name: &'static str, memory: &str, call: &dyn Fn(&Bench)| {
                    let bench = Bench::new();
                    call(&bench);
                    (name, freed(&bench.spans.journal(), memory))
                };
                vec![
                    run("argument", "x", &|bench| argument(bench.probe("x"))),
                    run("unnamed argument", "x", &|bench| unnamed(bench.probe("x"))),
                    run("leftover of a pattern", "x", &|bench| leftover((1, bench.probe("x")))),
                    run("temporary of the last expression", "x", &|bench| assert_eq!(temporary(bench), 1024)),
                    run("receiver", "x", &|bench| assert_eq!(Owner(bench.probe("x")).receiver(), 1024)),
                    run("argument, panic", "x", &|bench| {
                        let x = bench.probe("x");
                        assert!(catch_unwind(AssertUnwindSafe(|| panics(x))).is_err());
                    }),
                    run("argument of an async function, used", "x", &|bench| block_on(used(bench.probe("x")))),
                    run("argument of an async function, unused", "x", &|bench| block_on(unused(bench.probe("x")))),
                    run("local of a cancelled call", "local", &|bench| {
                        let future = Box::pin(cancelled(bench, bench.probe("x")));
                        assert!(poll_once({ future }.as_mut()).is_pending());
                    }),
                    run("argument of a cancelled call", "x", &|bench| {
                        let future = Box::pin(cancelled(bench, bench.probe("x")));
                        assert!(poll_once({ future }.as_mut()).is_pending());
                    }),
                    run("argument of a call that was never polled", "x", &|bench| drop(unused(bench.probe("x")))),
                    run("what a returned future owns", "x", &|bench| drop(future(bench.probe("x")))),
                ]
            }
        }
    };
}

functions!(instrumented, #[tracing::instrument(skip_all, name = "f")]);
functions!(tracked, #[track_memory(name = "f")]);

#[test]
fn what_is_freed_before_the_span_closes() {
    let expected = vec![
        ("argument", AfterTheSpanClosed, BeforeTheSpanCloses),
        ("unnamed argument", AfterTheSpanClosed, BeforeTheSpanCloses),
        ("leftover of a pattern", AfterTheSpanClosed, BeforeTheSpanCloses),
        ("temporary of the last expression", AfterTheSpanClosed, BeforeTheSpanCloses),
        ("receiver", AfterTheSpanClosed, BeforeTheSpanCloses),
        ("argument, panic", AfterTheSpanClosed, BeforeTheSpanCloses),
        ("argument of an async function, used", BeforeTheSpanCloses, BeforeTheSpanCloses),
        ("argument of an async function, unused", AfterTheSpanClosed, BeforeTheSpanCloses),
        ("local of a cancelled call", BeforeTheSpanCloses, BeforeTheSpanCloses),
        ("argument of a cancelled call", AfterTheSpanClosed, BeforeTheSpanCloses),
        ("argument of a call that was never polled", WithoutASpan, WithoutASpan),
        ("what a returned future owns", AfterTheSpanClosed, AfterTheSpanClosed),
    ];
    let (instrumented, tracked) = (instrumented::found(), tracked::found());
    let found = instrumented.into_iter().zip(tracked).map(|((name, theirs), (_, ours))| (name, theirs, ours));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
