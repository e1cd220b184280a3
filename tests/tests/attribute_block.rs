//! `track_memory_block!`: a part of a body is measured in place, and behaves as the same code without it.
#![deny(warnings, clippy::all, clippy::pedantic, rust_2024_compatibility)]
#![allow(clippy::items_after_statements, reason = "the shapes stand where they are used")]

use memtrack::{CachingAllocator, track_memory, track_memory_block};
use memtrack_tests::bench::Bench;
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::memory::{Probe, host_allocator};
use memtrack_tests::spans::Value;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

/// What a block called `b` did: its events between the opening of the span and its record, the change of memory, and how
/// it ended.
#[track_caller]
fn assert_measured(bench: &Bench, lines: &[&str], delta_bytes: i64, outcome: &str) {
    let expected = [&["new b", "enter b"], lines, &["record b", "exit b", "close b"]].concat();
    let journal = bench.spans.journal();
    assert_eq!(journal[..expected.len()], expected);
    let span = bench.spans.one("b");
    assert_eq!((span.number("mem.delta"), span.text("mem.outcome").as_str()), (delta_bytes, outcome));
}

mod values {
    use super::*;

    #[test]
    fn the_value_is_the_blocks() {
        let bench = Bench::new();
        let two = 2;
        let value = track_memory_block!("b", {
            let one = 1;
            one + two
        });
        assert_eq!(value, 3);
        let kept: Probe = track_memory_block!("c", phase = "forward", { bench.probe("x") });
        bench.assert_spans(&[("b", ""), ("c", "forward")]);
        assert_eq!(bench.spans.one("c").number("mem.delta"), 1024);
        drop(kept);
    }

    #[test]
    fn the_name_may_be_the_phases() {
        const PHASE: &str = "backward";
        let bench = Bench::new();
        track_memory_block!(phase = "forward", {});
        track_memory_block!(phase = PHASE, {});
        track_memory_block!(phase = PHASE, name = concat!("a", "b"), {});
        bench.assert_spans(&[("forward", "forward"), ("backward", "backward"), ("ab", "backward")]);
    }

    #[test]
    fn the_type_that_is_wanted_of_it_reaches_a_closure() {
        fn first() -> impl Fn(&str) -> &str {
            track_memory_block!("b", { |text| text })
        }
        fn second() -> (impl Fn(&str) -> Box<dyn Debug>, u8) {
            track_memory_block!("b", max_peak = "1GiB", { (|text| Box::new(text.len()), 2) })
        }
        let bench = Bench::new();
        let (second, number) = second();
        assert_eq!((first()("a"), format!("{:?}", second("bc")), number), ("a", "2".to_owned(), 2));
        bench.assert_spans(&[("b", ""), ("b", "")]);
    }

    #[test]
    fn a_temporary_that_is_borrowed_lives_on() {
        let bench = Bench::new();
        let plain: &mut dyn Debug = track_memory_block!("a", { &mut 3 });
        let with_budget: &mut dyn Debug = track_memory_block!("b", max_peak = "1GiB", { &mut 4 });
        assert_eq!(format!("{plain:?} {with_budget:?}"), "3 4");
        bench.assert_spans(&[("a", ""), ("b", "")]);
    }

    #[test]
    fn every_option_of_a_function_without_arguments() {
        let bench = Bench::new();
        let other = host_allocator();
        let (rows, name) = (3_u64, "n");
        let value: Result<u8, u8> = track_memory_block!(
            "b",
            phase = "forward",
            device = &other,
            fields(rows, rows.twice = 2 * rows, %name, later),
            level = "debug",
            target = "t",
            err,
            {
                tracing::Span::current().record("later", 1);
                let _probe = Probe::new("x", &bench.spans, &other, 512);
                Err(1)
            }
        );
        assert_eq!(value, Err(1));
        let span = bench.spans.one("b");
        assert_eq!((span.level, span.target, span.text("mem.outcome").as_str()), (tracing::Level::DEBUG, "t", "err"));
        assert_eq!((span.number("mem.allocs"), span.number("mem.delta")), (1, 0));
        assert_eq!((span.value("rows.twice"), span.text("name").as_str()), (Some(Value::U64(6)), "n"));
        assert_eq!(span.number("later"), 1);
    }

    #[test]
    fn statements_expressions_and_delimiters() {
        let bench = Bench::new();
        track_memory_block! { "a", {} }
        track_memory_block!["b", { assert_eq!(1, 1) }];
        let _ = 1 + track_memory_block!("c", { 2 }) * track_memory_block!("d", { 3 },);
        assert_eq!(if track_memory_block!("e", { true }) { 1 } else { 2 }, 1);
        match track_memory_block!("f", { Some(1) }) {
            Some(n) if track_memory_block!("g", { n == 1 }) => (),
            _ => panic!("not one"),
        }
        let closure = |n: u32| track_memory_block!("h", { n + 1 });
        assert_eq!(closure(1), 2);
        bench.assert_names(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    }

    #[test]
    #[allow(unsafe_code)]
    fn labels_and_unsafe() {
        let bench = Bench::new();
        let found = track_memory_block!("b", 'search: {
            for n in 1.. {
                if n * n > 50 {
                    break 'search n;
                }
            }
            0
        });
        assert_eq!(found, 8);
        /// # Safety
        ///
        /// None is needed.
        unsafe fn one() -> u32 {
            1
        }
        // SAFETY: nothing is asked.
        assert_eq!(track_memory_block!("c", unsafe { one() }), 1);
        bench.assert_names(&["b", "c"]);
    }

    #[test]
    fn the_wanted_type_reaches_the_block() {
        let boxed: Box<dyn Debug> = track_memory_block!("a", { Box::new(1) });
        let slice: &[u8] = track_memory_block!("b", { if boxed_is_one(&*boxed) { &[1] } else { &[1, 2] } });
        let function: fn(&u8) -> &u8 = track_memory_block!("c", { |x| x });
        let judged: Result<Box<dyn Debug>, u8> = track_memory_block!("d", err, { Ok(Box::new(2)) });
        let extended: &String = track_memory_block!("f", { &String::from("kept") });
        assert_eq!(extended, "kept");
        let parsed: u64 = track_memory_block!("e", { "7".parse().unwrap() });
        assert_eq!((slice, function(&3), parsed, judged.is_ok()), (&[1][..], &3, 7, true));
        fn boxed_is_one(value: &dyn Debug) -> bool {
            format!("{value:?}") == "1"
        }
    }

    #[test]
    fn generic_functions() {
        trait Named {
            const PHASE: &'static str;
        }
        impl Named for u8 {
            const PHASE: &'static str = "of u8";
        }
        fn f<T: Named + Clone>(value: &T) -> T {
            track_memory_block!("b", phase = T::PHASE, { value.clone() })
        }
        let bench = Bench::new();
        assert_eq!(f(&1), 1);
        bench.assert_spans(&[("b", "of u8")]);
    }

    #[test]
    fn a_block_that_a_macro_was_given() {
        macro_rules! measured {
            (block $block:block) => {
                track_memory_block!("a", $block)
            };
            (expression $block:expr_2021) => {
                track_memory_block!("b", $block)
            };
            (future $block:block) => {
                track_memory_block!("c", async move $block)
            };
        }
        let bench = Bench::new();
        assert_eq!((measured!(block { 1 }), measured!(expression { 2 }), block_on(measured!(future { 3 }))), (1, 2, 3));
        assert_eq!(block_on(measured!(expression async { 4 })), 4);
        bench.assert_names(&["a", "b", "c", "b"]);
    }
}

mod what_is_freed_before_the_end {
    use super::*;

    #[test]
    fn locals() {
        let bench = Bench::new();
        let outside = bench.probe("outside");
        track_memory_block!("b", {
            let moved = outside;
            let _first = bench.probe("first");
            let _ = moved.len();
        });
        assert_measured(&bench, &["drop first", "drop outside"], -1024, "ok");
    }

    #[test]
    fn temporaries_of_the_last_expression() {
        let bench = Bench::new();
        let length = track_memory_block!("b", { bench.probe("temporary").len() });
        assert_eq!(length, 1024);
        assert_measured(&bench, &["drop temporary"], 0, "ok");
        assert_eq!(bench.spans.one("b").number("mem.peak_delta"), 1024);
    }

    #[test]
    fn temporaries_of_the_last_expression_of_a_judged_block() {
        let bench = Bench::new();
        let length: Result<usize, ()> = track_memory_block!("b", err, { Ok(bench.probe("temporary").len()) });
        assert_eq!(length, Ok(1024));
        assert_measured(&bench, &["drop temporary"], 0, "ok");
    }

    #[test]
    fn at_a_panic() {
        let bench = Bench::new();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            track_memory_block!("b", {
                let _probe = bench.probe("x");
                panic!("as it should");
            });
        }));
        assert!(unwound.is_err());
        assert_measured(&bench, &["drop x"], 0, "panic");
    }

    #[test]
    fn at_a_return() {
        fn f(bench: &Bench) -> u32 {
            let _outside = bench.probe("outside");
            track_memory_block!("b", {
                let _inside = bench.probe("inside");
                if bench.allocator.memory_allocated() > 0 {
                    return 1;
                }
            });
            2
        }
        let bench = Bench::new();
        assert_eq!(f(&bench), 1);
        assert_measured(&bench, &["drop inside"], 0, "ok");
        assert_eq!(bench.spans.journal().last().unwrap(), "drop outside");
    }
}

mod ways_out {
    use super::*;

    fn question_mark(bench: &Bench) -> Result<u32, std::num::ParseIntError> {
        let one: u32 = track_memory_block!("b", {
            let _inside = bench.probe("inside");
            "one".parse::<u32>()?
        });
        Ok(one)
    }

    #[test]
    fn a_question_mark_leaves_the_function() {
        let bench = Bench::new();
        assert!(question_mark(&bench).is_err());
        assert_measured(&bench, &["drop inside"], 0, "ok");
    }

    #[test]
    fn only_the_blocks_own_value_is_judged() {
        fn f(leave: bool) -> Result<u32, u32> {
            let value: Result<u32, u32> = track_memory_block!("b", err, {
                if leave {
                    return Err(1);
                }
                Err(2)
            });
            assert_eq!(value, Err(2));
            Ok(3)
        }
        let bench = Bench::new();
        assert_eq!((f(true), f(false)), (Err(1), Ok(3)));
        let outcomes: Vec<String> = bench.spans.all().iter().map(|span| span.text("mem.outcome")).collect();
        assert_eq!(outcomes, ["ok", "err"]);
    }

    #[test]
    fn break_and_continue_are_of_the_loop_around() {
        let bench = Bench::new();
        let mut passed = Vec::new();
        'outer: for i in 0..5 {
            for j in 0..3 {
                track_memory_block!("b", {
                    let _probe = bench.probe("x");
                    match (i, j) {
                        (0, _) => continue 'outer,
                        (1, 0) => continue,
                        (1, 2) => break,
                        (3, 0) => break 'outer,
                        _ => {}
                    }
                });
                passed.push((i, j));
            }
        }
        assert_eq!(passed, [(1, 1), (2, 0), (2, 1), (2, 2)]);
        let mut count = 0;
        let found = loop {
            count += 1;
            track_memory_block!("b", {
                if count == 2 {
                    break 7;
                }
            });
        };
        assert_eq!(found, 7);
        let spans = bench.spans.all();
        assert_eq!(spans.len(), 10);
        assert!(spans.iter().all(|span| span.text("mem.outcome") == "ok"));
        assert!(spans.iter().all(|span| span.number("mem.delta") == 0));
        assert_eq!(bench.spans.journal().iter().filter(|line| *line == "close b").count(), 10);
    }

    #[test]
    fn a_block_that_never_ends_has_every_type() {
        #[allow(clippy::needless_return)]
        fn f() -> u32 {
            track_memory_block!("b", { return 1 })
        }
        fn g() -> ! {
            track_memory_block!("b", { panic!("as it should") })
        }
        assert_eq!(f(), 1);
        assert!(catch_unwind(|| g()).is_err());
    }
}

mod nesting {
    use super::*;

    #[track_memory(phase = "train")]
    fn annotated(bench: &Bench) -> usize {
        let kept: Vec<Probe> =
            (0..3).map(|n| track_memory_block!("step", fields(n = n), { bench.probe("x") })).collect();
        track_memory_block!("outer", phase = "backward", {
            let one = bench.probe("y");
            track_memory_block!("inner", { bench.probe("z").len() + one.len() + kept.len() })
        })
    }

    #[test]
    fn blocks_nest_in_functions_and_in_each_other() {
        let bench = Bench::new();
        assert_eq!(annotated(&bench), 2051);
        let step = ("step", "train");
        bench.assert_spans(&[("annotated", "train"), step, step, step, ("outer", "backward"), ("inner", "backward")]);
        let spans = bench.spans.all();
        let parents: Vec<Option<usize>> = spans.iter().map(|span| span.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(0), Some(0), Some(4)]);
        assert_eq!(spans[5].number("mem.peak"), 5 * 1024);
        assert_eq!(spans[0].number("mem.peak_delta"), 5 * 1024);
    }

    #[test]
    fn a_block_borrows_and_changes_what_is_around() {
        let mut list = Vec::new();
        for n in 0..3 {
            let pushed = track_memory_block!("b", {
                list.push(n);
                list.last_mut().unwrap()
            });
            *pushed += 1;
        }
        assert_eq!(list, [1, 2, 3]);
    }
}

mod asynchronous {
    use super::*;

    async fn load(bench: &Bench) -> usize {
        let probe = bench.probe("x");
        track_memory_block!("b", phase = "load", async move {
            yield_now().await;
            probe.len()
        })
        .await
    }

    #[test]
    fn an_async_block_is_a_future_that_is_measured_at_each_poll() {
        let bench = Bench::new();
        assert_eq!(block_on(load(&bench)), 1024);
        let journal = ["new b", "enter b", "exit b", "enter b", "drop x", "record b", "exit b", "close b"];
        assert_eq!(bench.spans.journal(), journal);
        let span = bench.spans.one("b");
        assert_eq!((span.number("mem.delta"), span.text("mem.phase").as_str()), (-1024, "load"));
    }

    #[test]
    fn never_polled_it_leaves_no_span() {
        let bench = Bench::new();
        drop(track_memory_block!("b", async {}));
        bench.assert_names(&[]);
    }

    #[test]
    fn dropped_before_its_end_it_is_cancelled() {
        let bench = Bench::new();
        {
            let probe = bench.probe("x");
            let mut future = pin!(track_memory_block!("b", async move {
                let _probe = probe;
                yield_now().await;
            }));
            assert!(poll_once(future.as_mut()).is_pending());
        }
        let span = bench.spans.one("b");
        assert_eq!((span.number("mem.delta"), span.text("mem.outcome").as_str()), (-1024, "cancelled"));
    }

    #[test]
    fn a_question_mark_leaves_the_async_block_and_is_judged() {
        let bench = Bench::new();
        let text = String::from("one");
        let value: Result<u32, std::num::ParseIntError> = block_on(track_memory_block!("b", err, async {
            yield_now().await;
            let one: u32 = text.parse()?;
            Ok(one)
        }));
        assert!(value.is_err());
        assert_eq!(bench.spans.one("b").text("mem.outcome"), "err");
    }

    #[test]
    fn the_future_is_send_if_the_block_is() {
        fn send<T: Send>(value: T) -> T {
            value
        }
        let allocator: CachingAllocator = host_allocator();
        let value = block_on(send(track_memory_block!("b", device = allocator, fields(n = 1), async move {
            yield_now().await;
            5
        })));
        assert_eq!(value, 5);
    }

    #[test]
    fn a_plain_block_in_an_async_function_leaves_its_future_send() {
        fn send<T: Send>(value: T) -> T {
            value
        }
        async fn f() -> u32 {
            yield_now().await;
            let one = track_memory_block!("b", fields(n = 1), { 1 });
            yield_now().await;
            one
        }
        let bench = Bench::new();
        assert_eq!(block_on(send(f())), 1);
        assert_eq!(bench.spans.journal(), ["new b", "enter b", "record b", "exit b", "close b"]);
    }

    #[test]
    fn a_plain_block_may_hold_async_blocks() {
        let bench = Bench::new();
        let future = track_memory_block!("b", {
            let closure = async |n: u32| {
                yield_now().await;
                n
            };
            async move { closure(1).await + Box::pin(async { 1 }).await }
        });
        assert_eq!(block_on(future), 2);
        bench.assert_names(&["b"]);
    }
}

mod lints_and_hygiene {
    use super::*;

    fn fallible() -> Result<u32, std::num::ParseIntError> {
        "1".parse()
    }

    #[test]
    fn lints_fire_at_the_users_own_code() {
        #[expect(unused_variables)]
        {
            track_memory_block!("b", {
                let x = 1;
            });
        }
        #[expect(unused_must_use)]
        {
            track_memory_block!("b", {
                fallible();
            });
        }
        #[expect(unused_must_use)]
        {
            track_memory_block!("b", { fallible() });
        }
        #[expect(unreachable_code)]
        {
            let _ = || {
                track_memory_block!("b", {
                    return;
                    println!();
                });
            };
        }
        #[expect(clippy::needless_range_loop)]
        {
            track_memory_block!("b", {
                let list = [1, 2];
                for i in 0..2 {
                    assert!(list[i] > 0);
                }
            });
        }
    }

    #[deny(missing_docs, unsafe_code, single_use_lifetimes, elided_lifetimes_in_paths, unused_qualifications)]
    #[deny(let_underscore_drop, unused_lifetimes, unreachable_pub, rust_2018_idioms)]
    #[deny(unused_results, trivial_casts, variant_size_differences, clippy::nursery)]
    mod strict {
        use super::{Debug, block_on, track_memory_block};

        pub(super) fn f<T: Debug>(value: &T) -> String {
            let text = track_memory_block!("b", phase = "p", fields(?value), level = "debug", { format!("{value:?}") });
            let both = block_on(track_memory_block!("c", err, async move { text.parse::<u32>() }));
            both.map_or_else(|error| error.to_string(), |number| number.to_string())
        }
    }

    #[test]
    fn no_lint_is_added() {
        assert_eq!(strict::f(&12), "12");
    }

    #[test]
    fn names_of_the_user_stay_the_users() {
        mod memtrack {}
        #[allow(non_snake_case)]
        let (__guard, __span, __value, guard, span) = (1, 2, 3, 4, 5);
        let sum = track_memory_block!("b", fields(n = __guard + span), { __guard + __span + __value + guard + span });
        assert_eq!(sum, 15);
    }
}
