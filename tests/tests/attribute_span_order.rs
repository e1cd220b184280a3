//! The order of calls that a subscriber sees, stated to tracing's own mock, which fails on any call more or less: for each
//! way a call can end, and for calls inside calls.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::spans::keep_interests_right;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tracing::Level;
use tracing_mock::field::ExpectedFields;
use tracing_mock::span::ExpectedSpan;
use tracing_mock::subscriber::{MockHandle, MockSubscriber};
use tracing_mock::{expect, subscriber};

fn mock() -> MockSubscriber<fn(&tracing::Metadata<'_>) -> bool> {
    keep_interests_right();
    subscriber::mock()
}

/// All that is recorded at the end of a call that frees what it takes; nothing else may be.
fn recorded(peak_bytes: i64, allocations: i64, outcome: &'static str) -> ExpectedFields {
    let zeros = ["mem.before", "mem.after", "mem.delta", "mem.retries", "mem.ooms"];
    let fields =
        expect::field("mem.device").with_value(&"simulated").and(expect::field("mem.outcome").with_value(&outcome));
    let fields = zeros.into_iter().fold(fields, |fields, name| fields.and(expect::field(name).with_value(&0_i64)));
    fields
        .and(expect::field("mem.peak").with_value(&peak_bytes))
        .and(expect::field("mem.peak_delta").with_value(&peak_bytes))
        .and(expect::field("mem.allocs").with_value(&allocations))
        .and(expect::field("mem.frees").with_value(&allocations))
        .only()
}

/// Runs `work` with an allocator under a subscriber that knows what is to come.
fn expecting(
    (subscriber, handle): (impl tracing::Subscriber + Send + Sync, MockHandle),
    work: impl FnOnce(&CachingAllocator),
) {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let _current = allocator.make_current();
    tracing::subscriber::with_default(subscriber, || work(&allocator));
    handle.assert_finished();
}

fn take(allocator: &CachingAllocator) -> Buffer<u8> {
    Buffer::uninit(allocator, 1024).unwrap()
}

#[test]
fn a_call_is_made_entered_recorded_once_exited_and_closed() {
    #[track_memory(phase = "forward", fields(n = n, later))]
    fn f(allocator: &CachingAllocator, n: i64) {
        drop(take(allocator));
        assert_eq!(n, 1);
    }
    let span = expect::span().named("f").at_level(Level::INFO).with_target(module_path!());
    let at_creation = expect::field("mem.phase").with_value(&"forward").and(expect::field("n").with_value(&1_i64));
    let expected = mock()
        .new_span(span.clone().with_fields(at_creation.only()))
        .enter(&span)
        .record(&span, recorded(1024, 1, "ok"))
        .exit(&span)
        .drop_span(&span)
        .only()
        .run_with_handle();
    expecting(expected, |allocator| f(allocator, 1));
}

#[test]
fn an_async_call_is_entered_at_each_poll_and_recorded_at_the_last() {
    #[track_memory(err)]
    async fn f(allocator: &CachingAllocator) -> Result<(), ()> {
        let _kept = take(allocator);
        yield_now().await;
        Err(())
    }
    let span = expect::span().named("f");
    let expected = mock()
        .new_span(span.clone())
        .enter(&span)
        .exit(&span)
        .enter(&span)
        .record(&span, recorded(1024, 1, "err"))
        .exit(&span)
        .drop_span(&span)
        .only()
        .run_with_handle();
    expecting(expected, |allocator| assert!(block_on(f(allocator)).is_err()));
}

#[test]
fn a_call_that_panics() {
    #[track_memory]
    fn f(allocator: &CachingAllocator) {
        let _kept = take(allocator);
        panic!("on purpose");
    }
    let span = expect::span().named("f");
    // The mock does not look at an exit while the thread unwinds.
    let expected = mock()
        .new_span(span.clone())
        .enter(&span)
        .record(&span, recorded(1024, 1, "panic"))
        .drop_span(&span)
        .only()
        .run_with_handle();
    expecting(expected, |allocator| {
        assert!(catch_unwind(AssertUnwindSafe(|| f(allocator))).is_err());
    });
}

#[track_memory]
async fn f(allocator: &CachingAllocator) {
    let _kept = take(allocator);
    yield_now().await;
    yield_now().await;
}

/// Cancelled before its end: it is entered once more to be dropped, and recorded before it is left.
#[test]
fn a_call_that_is_cancelled() {
    let span = expect::span().named("f");
    let expected = mock()
        .new_span(span.clone())
        .enter(&span)
        .exit(&span)
        .enter(&span)
        .exit(&span)
        .enter(&span)
        .record(&span, recorded(1024, 1, "cancelled"))
        .exit(&span)
        .drop_span(&span)
        .only()
        .run_with_handle();
    expecting(expected, |allocator| {
        let mut future = Box::pin(f(allocator));
        assert!(poll_once(future.as_mut()).is_pending());
        assert!(poll_once(future.as_mut()).is_pending());
    });
}

#[test]
fn a_call_that_is_never_polled() {
    let expected = mock().only().run_with_handle();
    expecting(expected, |allocator| drop(f(allocator)));
}

/// Made once, in the first poll, with what is known then; the figures come in one more call and nothing follows.
#[test]
fn what_is_known_at_the_beginning_and_what_at_the_end() {
    #[track_memory(phase = "forward", fields(rows = 3_i64, %text), level = "debug", target = "model", name = "call")]
    async fn named(allocator: &CachingAllocator, text: &str) {
        let _kept = take(allocator);
        yield_now().await;
    }
    let span = expect::span().named("call").at_level(Level::DEBUG).with_target("model");
    let known = expect::field("mem.phase")
        .with_value(&"forward")
        .and(expect::field("rows").with_value(&3_i64))
        .and(expect::field("text").with_value(&tracing::field::display("words")));
    let expected = mock()
        .new_span(span.clone().with_fields(known.only()))
        .enter(&span)
        .exit(&span)
        .enter(&span)
        .record(&span, recorded(1024, 1, "ok"))
        .exit(&span)
        .drop_span(&span)
        .only()
        .run_with_handle();
    expecting(expected, |allocator| block_on(named(allocator, "words")));
}

/// The inner call is over, its span closed, before the outer one is recorded.
#[test]
fn a_call_inside_a_call() {
    #[track_memory]
    fn outer(allocator: &CachingAllocator) {
        drop(take(allocator));
        inner(allocator);
    }
    #[track_memory]
    fn inner(allocator: &CachingAllocator) {
        drop(take(allocator));
        tracing::info!("inside");
    }
    let (outer_span, inner_span) = (expect::span().named("outer"), expect::span().named("inner"));
    let expected = mock()
        .new_span(outer_span.clone())
        .enter(&outer_span)
        .new_span(inner_span.clone())
        .enter(&inner_span)
        .event(expect::event())
        .record(&inner_span, recorded(1024, 1, "ok"))
        .exit(&inner_span)
        .drop_span(&inner_span)
        .record(&outer_span, recorded(1024, 2, "ok"))
        .exit(&outer_span)
        .drop_span(&outer_span)
        .only()
        .run_with_handle();
    expecting(expected, outer);
}

/// Each call is inside the one that made it or awaits it, also after a pause.
#[test]
fn parents_of_calls() {
    #[track_memory]
    async fn outer(allocator: &CachingAllocator) {
        first(allocator).await;
        yield_now().await;
        second(allocator);
        tracing::info!("at the end");
    }
    #[track_memory]
    async fn first(allocator: &CachingAllocator) {
        second(allocator);
        yield_now().await;
    }
    #[track_memory]
    fn second(allocator: &CachingAllocator) {
        drop(take(allocator));
    }
    let around = expect::span().named("around");
    let (outer_span, first_span) = (expect::span().named("outer"), expect::span().named("first"));
    let second_span = expect::span().named("second");
    let inside = |span: &ExpectedSpan| expect::has_contextual_parent(span.clone());
    let expected = mock()
        .new_span(around.clone().with_ancestry(expect::is_contextual_root()))
        .enter(&around)
        .new_span(outer_span.clone().with_ancestry(inside(&around)))
        .enter(&outer_span)
        .new_span(first_span.clone().with_ancestry(inside(&outer_span)))
        .enter(&first_span)
        .new_span(second_span.clone().with_ancestry(inside(&first_span)))
        .enter(&second_span)
        .record(&second_span, recorded(1024, 1, "ok"))
        .exit(&second_span)
        .drop_span(&second_span)
        .exit(&first_span)
        .exit(&outer_span)
        .enter(&outer_span)
        .enter(&first_span)
        .record(&first_span, recorded(1024, 1, "ok"))
        .exit(&first_span)
        .drop_span(&first_span)
        .exit(&outer_span)
        .enter(&outer_span)
        .new_span(second_span.clone().with_ancestry(inside(&outer_span)))
        .enter(&second_span)
        .record(&second_span, recorded(1024, 1, "ok"))
        .exit(&second_span)
        .drop_span(&second_span)
        .event(expect::event().with_ancestry(inside(&outer_span)))
        .record(&outer_span, recorded(1024, 2, "ok"))
        .exit(&outer_span)
        .drop_span(&outer_span)
        .exit(&around)
        .drop_span(&around)
        .only()
        .run_with_handle();
    expecting(expected, |allocator| {
        tracing::info_span!("around").in_scope(|| block_on(outer(allocator)));
    });
}

/// What an allocator that is short of memory says comes inside the call, before the call's figures.
#[test]
fn a_call_that_runs_out_of_memory() {
    #[track_memory(name = "f", err)]
    fn too_much(allocator: &CachingAllocator) -> Result<Buffer<u8>, memtrack::AllocationError> {
        Buffer::uninit(allocator, 64 << 20)
    }
    let span = expect::span().named("f");
    let figures = expect::field("mem.retries")
        .with_value(&1_i64)
        .and(expect::field("mem.ooms").with_value(&1_i64))
        .and(expect::field("mem.allocs").with_value(&0_i64))
        .and(expect::field("mem.outcome").with_value(&"err"));
    let expected = mock()
        .new_span(span.clone())
        .enter(&span)
        .event(expect::event().with_target("memtrack::alloc_retry").at_level(Level::WARN))
        .event(expect::event().with_target("memtrack::oom").at_level(Level::ERROR))
        .record(&span, figures)
        .exit(&span)
        .drop_span(&span)
        .only()
        .run_with_handle();
    expecting(expected, |_| {
        let small = CachingAllocator::new(Arc::new(Simulated::with_capacity(32 << 20)));
        let _current = small.make_current();
        assert!(too_much(&small).is_err());
    });
}
