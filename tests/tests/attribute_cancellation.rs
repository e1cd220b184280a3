//! A call that is given up before its end is recorded as cancelled, after its memory is freed.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use futures::future::{self, AbortHandle, Abortable, FutureExt as _, select};
use futures::stream::{FuturesUnordered, StreamExt as _};
use memtrack::{CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, poll_once, wait, yield_now};
use memtrack_tests::memory::{Bench, Probe, figures};
use memtrack_tests::spans::Spans;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Never ends by itself; says that it was entered.
#[track_memory(name = "f", device = allocator)]
async fn f(spans: Spans, allocator: CachingAllocator, _argument: Probe, begun: Arc<Notify>) {
    let _local = Probe::new("local", &spans, &allocator, 1024);
    begun.notify_one();
    future::pending::<()>().await;
}

fn call(bench: &Bench, begun: &Arc<Notify>) -> impl Future<Output = ()> + Send + use<> {
    f(bench.spans.clone(), bench.allocator.clone(), bench.probe("argument"), Arc::clone(begun))
}

/// Polled so often, then dropped.
#[track_caller]
fn assert_cancelled_after(polls: usize, bench: &Bench) {
    let mut lines = ["exit f", "enter f"].repeat(polls);
    lines.extend(["drop local", "drop argument"]);
    bench.assert_freed_inside(&lines, -1024, "cancelled");
}

/// Polled once, then dropped.
#[track_caller]
fn assert_cancelled(bench: &Bench) {
    assert_cancelled_after(1, bench);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn dropped_inside_tokios_select() {
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    block_on(async {
        tokio::select! {
            biased;
            () = call(&bench, &begun) => unreachable!("it never ends"),
            () = yield_now() => {}
        }
    });
    assert_cancelled_after(2, &bench);
}

#[test]
fn dropped_inside_the_other_select() {
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    block_on(async {
        let either = select(Box::pin(call(&bench, &begun)), Box::pin(yield_now())).await;
        assert!(matches!(either, future::Either::Right(_)));
    });
    assert_cancelled_after(2, &bench);
}

#[test]
fn a_branch_of_select_that_was_never_polled_leaves_nothing() {
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    block_on(async {
        tokio::select! {
            biased;
            () = future::ready(()) => {}
            () = call(&bench, &begun) => unreachable!("it never ends"),
        }
    });
    assert_eq!(bench.spans.journal(), ["drop argument"]);
}

#[test]
fn a_task_of_tokio_that_is_aborted() {
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    runtime().block_on(async {
        let task = tokio::spawn(call(&bench, &begun));
        begun.notified().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    });
    assert_cancelled(&bench);
}

#[test]
fn a_task_of_tokio_that_is_aborted_before_it_ran() {
    let bench = Bench::new();
    runtime().block_on(async {
        let task = tokio::spawn(call(&bench, &Arc::new(Notify::new())));
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    });
    assert_eq!(bench.spans.journal(), ["drop argument"]);
}

#[test]
fn a_runtime_that_ends_before_its_tasks() {
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    let runtime = runtime();
    runtime.block_on(async {
        drop(tokio::spawn(call(&bench, &begun)));
        begun.notified().await;
    });
    drop(runtime);
    assert_cancelled(&bench);
}

#[test]
fn a_call_that_times_out() {
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    runtime().block_on(async {
        let ended = tokio::time::timeout(Duration::from_millis(1), call(&bench, &begun)).await;
        assert!(ended.is_err());
    });
    assert_cancelled_after(2, &bench);
}

#[test]
fn a_call_inside_an_abortable_future() {
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    let (handle, registration) = AbortHandle::new_pair();
    let mut future = Box::pin(Abortable::new(call(&bench, &begun), registration));
    assert!(poll_once(future.as_mut()).is_pending());
    handle.abort();
    assert!(block_on(future.as_mut()).is_err());
    // It keeps what it aborts until it is dropped itself.
    drop(future);
    assert_cancelled(&bench);
}

#[test]
fn a_set_of_futures_dropped_with_some_unfinished() {
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    block_on(async {
        let unfinished = call(&bench, &begun).boxed();
        let mut calls: FuturesUnordered<_> = vec![unfinished, wait(1).boxed()].into_iter().collect();
        calls.next().await;
    });
    assert_cancelled(&bench);
}

/// What a call awaits is cancelled with it, and before it.
#[test]
fn calls_that_await_each_other_are_cancelled_from_the_inside_out() {
    #[track_memory]
    async fn outer(bench: &Bench, _argument: Probe) {
        let _local = bench.probe("outer local");
        inner(bench, bench.probe("inner argument")).await;
    }
    #[track_memory]
    async fn inner(bench: &Bench, _argument: Probe) {
        let _local = bench.probe("inner local");
        future::pending::<()>().await;
    }
    let bench = Bench::new();
    let mut future = Box::pin(outer(&bench, bench.probe("outer argument")));
    assert!(poll_once(future.as_mut()).is_pending());
    drop(future);
    let journal = bench.spans.journal();
    let expected = ["new outer", "enter outer", "new inner", "enter inner", "exit inner", "exit outer"];
    assert_eq!(journal[..6], expected);
    let expected = ["enter outer", "enter inner", "drop inner local", "drop inner argument", "record inner"];
    assert_eq!(journal[6..11], expected);
    let expected = ["exit inner", "close inner", "drop outer local", "drop outer argument", "record outer"];
    assert_eq!(journal[11..16], expected);
    assert_eq!(journal[16..], ["exit outer", "close outer"]);
    assert_eq!(bench.call("inner"), ("cancelled".to_owned(), -1024, 1024));
    assert_eq!(bench.call("outer"), ("cancelled".to_owned(), -1024, 3072));
}

/// A call that gives up another goes on.
#[test]
fn a_call_that_cancels_another_is_not_cancelled() {
    #[track_memory]
    async fn outer(bench: &Bench) -> usize {
        let kept = bench.probe("kept");
        tokio::select! {
            biased;
            () = inner(bench) => unreachable!("it never ends"),
            () = yield_now() => {}
        }
        kept.len()
    }
    #[track_memory]
    async fn inner(bench: &Bench) {
        let _local = bench.probe("local");
        future::pending::<()>().await;
    }
    let bench = Bench::new();
    assert_eq!(block_on(outer(&bench)), 1024);
    assert_eq!(bench.call("inner"), ("cancelled".to_owned(), 0, 1024));
    assert_eq!(bench.call("outer"), ("ok".to_owned(), 0, 2048));
}

#[test]
fn polled_on_one_thread_and_dropped_on_another() {
    let bench = Bench::new();
    let mut future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(call(&bench, &Arc::default()));
    assert!(poll_once(future.as_mut()).is_pending());
    std::thread::spawn(move || drop(future)).join().unwrap();
    assert_cancelled(&bench);
}

/// A future that is never dropped never ends: it is not recorded, and holds nobody else's figures up.
#[test]
fn a_forgotten_call_is_not_recorded() {
    #[track_memory]
    fn other(bench: &Bench) {
        drop(bench.probe("other"));
    }
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    let mut future = Box::pin(call(&bench, &begun));
    assert!(poll_once(future.as_mut()).is_pending());
    std::mem::forget(future);
    other(&bench);
    assert_eq!(bench.spans.one("f").records.len(), 0);
    assert_eq!(bench.call("other"), ("ok".to_owned(), 0, 1024));
    assert_eq!(bench.spans.one("other").parent, None, "the span was left at the end of the poll");
}

#[test]
fn dropped_while_another_panic_unwinds_is_cancelled_and_freed() {
    let bench = Bench::new();
    let begun = Arc::new(Notify::new());
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let mut future = pin!(call(&bench, &begun));
        assert!(poll_once(future.as_mut()).is_pending());
        panic!("elsewhere");
    }));
    assert!(unwound.is_err());
    assert_cancelled(&bench);
}

/// Dropped at every point it can be suspended at, a call owns nothing afterwards.
#[test]
fn cancelled_at_every_await() {
    #[track_memory]
    async fn f(bench: &Bench, argument: Probe) -> Probe {
        let first = bench.probe("first");
        yield_now().await;
        let second = (bench.probe("second"), yield_now().await).0;
        drop(first);
        yield_now().await;
        drop(second);
        yield_now().await;
        argument
    }
    let peaks = [1024, 2048, 2048, 2048];
    for (polls, peak_delta_bytes) in (1..=4).zip(peaks) {
        let bench = Bench::new();
        let mut future = Box::pin(f(&bench, bench.probe("argument")));
        for _ in 0..polls {
            assert!(poll_once(future.as_mut()).is_pending());
        }
        drop(future);
        let span = bench.spans.one("f");
        assert_eq!(figures(&span), ("cancelled".to_owned(), -1024, peak_delta_bytes), "after {polls} polls");
        assert_eq!(bench.allocator.memory_allocated(), 0);
    }
}
