//! The options that say more about a call, on `track_memory_block!` and inherited from whole blocks.
#![deny(warnings, clippy::all, clippy::pedantic)]

use memtrack::{Budget, Exceeded, track_memory, track_memory_block};
use memtrack_tests::bench::Bench;
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::{Probe, host_allocator};
use memtrack_tests::spans::Value;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::{Span, info_span};

thread_local! {
    static REPORTED: RefCell<Vec<(&'static str, Budget, i64)>> = const { RefCell::new(Vec::new()) };
}

fn report(exceeded: &Exceeded) {
    REPORTED.with_borrow_mut(|reported| reported.push((exceeded.function, exceeded.budget, exceeded.measured)));
}

fn reported() -> Vec<(&'static str, Budget, i64)> {
    REPORTED.take()
}

mod blocks {
    use super::*;

    #[test]
    fn budgets_are_held_against_what_the_block_did() {
        let bench = Bench::new();
        let _before = bench.probe("before");
        let kept = track_memory_block!("b", max_delta = 0, max_allocs = 1, on_exceed = report, { bench.probe("kept") });
        assert_eq!(reported(), [("b", Budget::MaxDelta, 1024)]);
        drop(kept);
        track_memory_block!("c", max_peak = "1KiB", on_exceed = report, {
            drop((bench.probe("one"), bench.probe("two")));
        });
        assert_eq!(reported(), [("c", Budget::MaxPeak, 2048)]);
    }

    #[test]
    fn a_budget_that_panics_lets_the_value_be_dropped() {
        let bench = Bench::new();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _never: Probe = track_memory_block!("b", max_delta = 0, on_exceed = "panic", { bench.probe("value") });
            panic!("not reached");
        }));
        let text = unwound.unwrap_err().downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(text.contains("max_delta"), "{text}");
        assert_eq!(bench.spans.journal().last().unwrap(), "drop value");
        assert_eq!(bench.allocator.memory_allocated(), 0);
        assert_eq!(bench.spans.one("b").text("mem.outcome"), "ok");
    }

    #[test]
    fn a_block_left_early_is_held_against_its_budget_too() {
        let bench = Bench::new();
        let mut kept = Vec::new();
        for _ in 0..2 {
            track_memory_block!("b", max_delta = 0, on_exceed = report, {
                kept.push(bench.probe("kept"));
                if kept.len() == 1 {
                    continue;
                }
                break;
            });
        }
        assert_eq!(reported(), [("b", Budget::MaxDelta, 1024), ("b", Budget::MaxDelta, 1024)]);
    }

    #[test]
    #[allow(clippy::items_after_statements, clippy::needless_return)]
    fn a_block_that_never_ends_adds_no_lint() {
        fn f(bench: &Bench) -> Result<u32, u32> {
            track_memory_block!("b", err, ret, max_delta = 0, on_exceed = report, {
                let mut kept = Vec::new();
                loop {
                    kept.push(bench.probe("kept"));
                    if kept.len() == 3 {
                        kept.into_iter().for_each(std::mem::forget);
                        return Err(1);
                    }
                }
            });
        }
        let bench = Bench::new();
        assert_eq!(f(&bench), Err(1));
        assert_eq!(reported(), [("b", Budget::MaxDelta, 3072)]);
        assert_eq!(bench.spans.one("b").text("mem.outcome"), "ok");
        fn g() -> u32 {
            // SAFETY: nothing is asked.
            track_memory_block!("c", ret, unsafe { return one() })
        }
        /// # Safety
        ///
        /// None is needed.
        unsafe fn one() -> u32 {
            1
        }
        assert_eq!(g(), 1);
    }

    #[test]
    fn an_async_block_is_held_against_its_budget() {
        let bench = Bench::new();
        let kept = block_on(track_memory_block!("b", max_delta = 0, on_exceed = report, async {
            yield_now().await;
            bench.probe("kept")
        }));
        assert_eq!((reported(), kept.len()), (vec![("b", Budget::MaxDelta, 1024)], 1024));
    }

    #[test]
    fn ret_and_err_tell_the_blocks_value() {
        let bench = Bench::new();
        let _ = track_memory_block!("a", ret, { 1 + 1 });
        let _ = track_memory_block!("b", ret, err(Display), { "1".parse::<u8>() });
        let _ = track_memory_block!("c", ret, err(Display), { "".parse::<u8>() });
        let _ = block_on(track_memory_block!("d", ret, async { 3 }));
        let told: Vec<_> =
            bench.spans.events_of(module_path!()).into_iter().map(|event| (event.span, event.fields)).collect();
        let debug = |text: &str| Some(Value::Debug(text.to_owned()));
        let value = |index: usize, key: &str| {
            let (span, fields): &(Option<&str>, _) = &told[index];
            (span.unwrap_or("none").to_owned(), fields.get(key).cloned())
        };
        assert_eq!(value(0, "return"), ("a".to_owned(), debug("2")));
        assert_eq!(value(1, "return"), ("b".to_owned(), debug("1")));
        assert_eq!(value(2, "error"), ("c".to_owned(), debug("cannot parse integer from empty string")));
        assert_eq!(value(3, "return"), ("d".to_owned(), debug("3")));
    }

    #[test]
    fn options_are_evaluated_where_the_block_stands() {
        fn f(parent: Option<&Span>) -> Option<u32> {
            // What leaves an option leaves the function, before anything is measured.
            let value = track_memory_block!("b", parent = parent?, sample = u64::from(parent.is_some()), { 1 });
            Some(value)
        }
        let bench = Bench::new();
        let elsewhere = info_span!("elsewhere");
        assert_eq!((f(None), f(Some(&elsewhere))), (None, Some(1)));
        bench.assert_names(&["elsewhere", "b"]);
        assert_eq!(bench.spans.one("b").parent, Some(0));
    }

    #[test]
    fn several_devices_and_own_columns() {
        let bench = Bench::new();
        let other = host_allocator();
        track_memory_block!("b", devices = [&bench.allocator, &other], only(self, device), {
            let _one = bench.probe("one");
            let _other = Probe::new("other", &bench.spans, &other, 512);
        });
        let span = bench.spans.one("b");
        assert_eq!((span.number("mem.peak_delta"), span.number("mem.self.peak")), (1536, 1536));
    }
}

mod whole_blocks {
    use super::*;
    use std::pin::Pin;

    struct Layer;

    #[track_memory(
        args,
        future,
        ret,
        max_delta = 0,
        on_exceed = report,
        follows_from = std::iter::empty::<Span>(),
        only(self),
    )]
    impl Layer {
        #[track_memory(skip_all)]
        fn keeps(probe: &mut Option<Probe>, bench: &Bench) {
            *probe = Some(bench.probe("kept"));
        }

        #[track_memory(args(rows), max_delta = "1MiB")]
        fn may_keep(rows: u32, bench: &Bench) -> u32 {
            std::mem::forget(bench.probe("kept"));
            rows
        }

        fn opaque(rows: u32) -> impl Future<Output = u32> {
            async move {
                yield_now().await;
                rows
            }
        }

        fn boxed(rows: u32) -> Pin<Box<dyn Future<Output = u32>>> {
            Box::pin(Self::asynchronous(rows))
        }

        async fn asynchronous(rows: u32) -> u32 {
            yield_now().await;
            rows
        }

        #[track_memory(skip(columns), name = "fewer")]
        fn fewer(rows: u32, columns: &NoDebug) -> u32 {
            let NoDebug = columns;
            rows
        }
    }

    struct NoDebug;

    #[track_memory(on_exceed = report)]
    mod without_a_budget_of_its_own {
        use super::{Bench, Probe, report};

        pub(super) fn free(bench: &Bench) -> Probe {
            bench.probe("kept")
        }

        #[super::track_memory(max_allocs = 0)]
        pub(super) fn held(bench: &Bench) -> Probe {
            bench.probe("kept")
        }
    }

    #[test]
    fn what_a_function_can_have_it_inherits() {
        let bench = Bench::new();
        let mut kept = None;
        Layer::keeps(&mut kept, &bench);
        assert_eq!(reported(), [("Layer::keeps", Budget::MaxDelta, 1024)]);
        assert_eq!((Layer::may_keep(1, &bench), Layer::fewer(2, &NoDebug)), (1, 2));
        assert_eq!((block_on(Layer::opaque(3)), block_on(Layer::boxed(4))), (3, 4));
        assert_eq!(reported(), []);
        let span = |name| bench.spans.one(name);
        assert_eq!(span("Layer::may_keep").value("rows"), Some(Value::U64(1)));
        assert!(!span("fewer").declared.contains(&"columns"));
        assert!(!span("Layer::keeps").declared.contains(&"mem.peak"), "`only(self)`");
        let polls = |name: &str| bench.spans.journal().iter().filter(|line| **line == format!("enter {name}")).count();
        assert_eq!((polls("Layer::opaque"), polls("Layer::boxed"), polls("Layer::asynchronous")), (3, 3, 2));
        let returned =
            bench.spans.events_of(module_path!()).into_iter().filter(|event| event.fields.contains_key("return"));
        let returned: Vec<_> = returned.map(|event| event.span.unwrap_or("none")).collect();
        assert_eq!(returned, ["Layer::may_keep", "fewer", "Layer::asynchronous"]);
    }

    #[test]
    fn a_reaction_waits_for_a_budget() {
        let bench = Bench::new();
        let _kept = (without_a_budget_of_its_own::free(&bench), without_a_budget_of_its_own::held(&bench));
        assert_eq!(reported(), [("held", Budget::MaxAllocs, 1)]);
    }
}
