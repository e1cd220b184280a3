//! Every way out of an asynchronous function leaves one record, taken after what the call owned is freed.
#![allow(clippy::needless_return, reason = "early returns are what is tested")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::track_memory;
use memtrack_tests::futures::{block_on, drive, poll_once, wait, yield_now};
use memtrack_tests::memory::{Bench, Probe, figures};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

fn panics<T>(call: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

/// The text a panic came with.
fn panic_text<T>(call: impl FnOnce() -> T) -> String {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(_) => "no panic".to_owned(),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap()
        }
    }
}

#[track_memory(name = "f", err)]
async fn f(bench: &Bench, way: u8, _argument: Probe) -> Result<usize, std::num::ParseIntError> {
    let local = bench.probe("local");
    if way == 0 {
        return Ok(local.len());
    }
    yield_now().await;
    let _later = bench.probe("later");
    for n in 0..4 {
        match n {
            3 if way == 1 => return Ok(n),
            _ => yield_now().await,
        }
    }
    assert!(way != 2, "on purpose");
    let number = if way == 3 { "x" } else { "5" }.parse::<usize>()?;
    // A temporary of the last expression.
    Ok(number + bench.probe("temporary").len())
}

#[test]
fn every_way_out() {
    for (way, polls, lines, outcome) in [
        (0, 1, &["drop local", "drop argument"][..], "ok"),
        (1, 5, &["drop later", "drop local", "drop argument"][..], "ok"),
        (2, 6, &["drop later", "drop local", "drop argument"][..], "panic"),
        (3, 6, &["drop later", "drop local", "drop argument"][..], "err"),
        (4, 6, &["drop later", "drop local", "drop argument"][..], "ok"),
    ]
    .iter()
    {
        let bench = Bench::new();
        let argument = bench.probe("argument");
        let ended = catch_unwind(AssertUnwindSafe(|| block_on(f(&bench, *way, argument))));
        assert_eq!(ended.is_err(), *outcome == "panic");
        let mut expected = vec!["new f"];
        expected.extend(["enter f", "exit f"].repeat(polls - 1));
        expected.push("enter f");
        let journal = bench.spans.journal();
        assert_eq!(journal[..expected.len()], expected[..], "way {}", way);
        let mut rest: Vec<_> = journal[expected.len()..].iter().map(String::as_str).collect();
        if *outcome == "panic" {
            // Unwinding leaves the span of the poll, and the drop of the future enters it once more to record.
            rest.retain(|line| *line != "enter f");
            let exit = rest.iter().position(|line| *line == "exit f").unwrap();
            rest.remove(exit);
        }
        if *way == 4 {
            // Before the locals or after them, as the edition has it, but before the record.
            let temporary = rest.iter().position(|line| *line == "drop temporary").unwrap();
            assert!(temporary < rest.iter().position(|line| *line == "record f").unwrap());
            rest.remove(temporary);
        }
        assert_eq!(rest, [*lines, &["record f", "exit f", "close f"]].concat(), "way {}", way);
        let (found, delta_bytes, _) = bench.call("f");
        assert_eq!((found.as_str(), delta_bytes), (*outcome, -1024), "way {}", way);
    }
}

#[test]
fn a_panic_in_the_first_poll() {
    #[track_memory]
    async fn f(bench: &Bench, _argument: Probe) {
        let _local = bench.probe("local");
        panic!("on purpose");
    }
    let bench = Bench::new();
    let argument = bench.probe("argument");
    assert_eq!(panic_text(|| block_on(f(&bench, argument))), "on purpose");
    assert_eq!(bench.call("f"), ("panic".to_owned(), -1024, 1024));
}

#[test]
fn a_completed_future_that_is_polled_again_panics_and_records_nothing_more() {
    #[track_memory]
    async fn f(_argument: Probe) -> u8 {
        yield_now().await;
        3
    }
    let bench = Bench::new();
    let mut future = Box::pin(f(bench.probe("x")));
    assert!(poll_once(future.as_mut()).is_pending());
    assert!(poll_once(future.as_mut()).is_ready());
    let journal = bench.spans.journal();
    for _ in 0..2 {
        let text = panic_text(|| poll_once(future.as_mut()));
        assert!(text.contains("after completion"), "{}", text);
    }
    drop(future);
    assert_eq!(bench.spans.journal(), journal);
    assert_eq!(bench.call("f"), ("ok".to_owned(), -1024, 0));
}

#[test]
fn a_future_that_panicked_and_is_polled_again_panics_and_records_nothing_more() {
    #[track_memory]
    async fn f(argument: Probe) {
        yield_now().await;
        assert!(argument.is_empty(), "on purpose");
    }
    let bench = Bench::new();
    let mut future = Box::pin(f(bench.probe("x")));
    assert!(poll_once(future.as_mut()).is_pending());
    assert_eq!(panic_text(|| poll_once(future.as_mut())), "on purpose");
    let journal = bench.spans.journal();
    assert!(journal.contains(&"close f".to_owned()), "the record does not wait for the future's end");
    let text = panic_text(|| poll_once(future.as_mut()));
    assert!(text.contains("after panicking"), "{}", text);
    drop(future);
    assert_eq!(bench.spans.journal(), journal);
    assert_eq!(bench.call("f"), ("panic".to_owned(), -1024, 0));
}

/// The outcome of a poll that panics is exact even while another panic unwinds.
#[test]
fn a_future_driven_by_a_destructor_while_unwinding() {
    #[track_memory]
    async fn inner(argument: Probe, fails: bool) {
        yield_now().await;
        assert!(!fails || argument.is_empty(), "in a destructor");
    }
    struct Drives<'a>(&'a Bench, bool);
    impl Drop for Drives<'_> {
        fn drop(&mut self) {
            let argument = self.0.probe("argument");
            assert_eq!(panics(|| block_on(inner(argument, self.1))), self.1);
        }
    }
    for (fails, outcome) in [(false, "ok"), (true, "panic")].iter() {
        let bench = Bench::new();
        let unwound = panics(|| {
            let _drives = Drives(&bench, *fails);
            panic!("on purpose");
        });
        assert!(unwound);
        assert_eq!(bench.call("inner"), ((*outcome).to_owned(), -1024, 0));
    }
}

#[test]
fn a_panic_goes_through_every_call_that_awaits() {
    #[track_memory]
    async fn outer(bench: &Bench, _argument: Probe) {
        let _local = bench.probe("local");
        middle(bench).await;
    }
    async fn middle(bench: &Bench) {
        yield_now().await;
        inner(bench, bench.probe("argument")).await;
    }
    #[track_memory]
    async fn inner(bench: &Bench, _argument: Probe) {
        let _local = bench.probe("local");
        yield_now().await;
        panic!("on purpose");
    }
    let bench = Bench::new();
    let argument = bench.probe("argument");
    assert_eq!(panic_text(|| block_on(outer(&bench, argument))), "on purpose");
    assert_eq!(bench.call("inner"), ("panic".to_owned(), -1024, 1024));
    assert_eq!(bench.call("outer"), ("panic".to_owned(), -1024, 3072));
}

/// Panics when it is dropped, having let go of memory first.
struct Bomb(Option<Probe>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0 = None;
        panic!("in a destructor");
    }
}

#[test]
fn a_panic_in_the_destructor_of_what_the_call_owns_is_the_calls() {
    #[track_memory]
    async fn f(bench: &Bench, _argument: Probe, _bomb: Bomb, ends: bool) {
        let _local = bench.probe("local");
        yield_now().await;
        if !ends {
            yield_now().await;
        }
    }
    // At the end of the body, and when the future is dropped before it.
    for ends in [true, false].iter() {
        let bench = Bench::new();
        let mut future = Box::pin(f(&bench, bench.probe("argument"), Bomb(Some(bench.probe("bomb"))), *ends));
        assert!(poll_once(future.as_mut()).is_pending());
        if *ends {
            assert_eq!(panic_text(|| poll_once(future.as_mut())), "in a destructor");
        }
        assert_eq!(panics(|| drop(future)), !ends);
        let drops: Vec<_> = bench.spans.journal().into_iter().filter(|line| line.starts_with("drop")).collect();
        assert_eq!(drops, ["drop local", "drop bomb", "drop argument"]);
        assert_eq!(bench.call("f"), ("panic".to_owned(), -2048, 1024));
    }
}

/// Nothing of the attribute's own makes an executor poll more or less often.
#[test]
fn polls_and_wakes_are_those_of_the_plain_function() {
    async fn plain(times: u32) -> u32 {
        wait(times).await;
        yield_once_by_itself().await;
        times
    }
    async fn yield_once_by_itself() {
        wait(1).await;
    }
    #[track_memory(phase = "p", err)]
    async fn tracked(times: u32) -> Result<u32, ()> {
        wait(times).await;
        tracked_inside().await;
        Ok(times)
    }
    #[track_memory]
    async fn tracked_inside() {
        wait(1).await;
    }
    let bench = Bench::new();
    for times in [0, 1, 7].iter() {
        let (value, driven) = drive(plain(*times));
        let measured = drive(tracked(*times));
        assert_eq!(measured, (Ok(value), driven), "{} waits", times);
        assert_eq!((driven.polls, driven.wakes), (times + 2, times + 1));
    }
    let entered = bench.spans.journal().iter().filter(|line| *line == "enter tracked").count();
    assert_eq!(entered, 2 + 3 + 9, "entered at each poll and at no other time");
    assert!(bench.spans.all().iter().all(|span| figures(span).0 == "ok"));
}

/// `device` and `fields` are evaluated in the first poll, and what they run may use measured futures itself.
#[test]
fn options_that_drive_measured_futures_themselves() {
    #[track_memory(fields(n = block_on(other())), device = { block_on(other()); &bench.allocator })]
    async fn f(bench: &Bench) {
        let _local = bench.probe("local");
        yield_now().await;
    }
    #[track_memory]
    async fn other() -> i64 {
        yield_now().await;
        7
    }
    let bench = Bench::new();
    block_on(f(&bench));
    assert_eq!(bench.call("f"), ("ok".to_owned(), 0, 1024));
    assert_eq!(bench.spans.one("f").number("n"), 7);
    let others: Vec<_> = bench.spans.all().iter().filter(|span| span.name == "other").map(figures).collect();
    assert_eq!(others, vec![("ok".to_owned(), 0, 0); 2]);
}

#[test]
fn a_call_that_awaits_nothing_is_one_poll() {
    #[track_memory]
    async fn f(_argument: Probe) -> u8 {
        3
    }
    let bench = Bench::new();
    let future = pin!(f(bench.probe("x")));
    assert!(poll_once(future).is_ready());
    bench.assert_freed_inside(&["drop x"], -1024, "ok");
}
