//! The order of calls that a subscriber sees, stated to tracing's own mock, which fails on any call more or less.

use memtrack::track_memory;
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::host_allocator;
use tracing_mock::{expect, subscriber};

fn recorded(outcome: &'static str) -> tracing_mock::field::ExpectedFields {
    expect::field("mem.device")
        .with_value(&host_allocator().device().name())
        .and(expect::field("mem.before").with_value(&0_i64))
        .and(expect::field("mem.after").with_value(&0_i64))
        .and(expect::field("mem.delta").with_value(&0_i64))
        .and(expect::field("mem.peak").with_value(&0_i64))
        .and(expect::field("mem.peak_delta").with_value(&0_i64))
        .and(expect::field("mem.allocs").with_value(&0_i64))
        .and(expect::field("mem.frees").with_value(&0_i64))
        .and(expect::field("mem.retries").with_value(&0_i64))
        .and(expect::field("mem.ooms").with_value(&0_i64))
        .and(expect::field("mem.outcome").with_value(&outcome))
        .only()
}

#[test]
fn a_call_is_made_entered_recorded_once_exited_and_closed() {
    #[track_memory(phase = "forward", fields(n = n))]
    fn f(n: i64) -> i64 {
        n
    }
    let span = expect::span().named("f").at_level(tracing::Level::INFO).with_target(module_path!());
    let at_creation = expect::field("mem.phase").with_value(&"forward").and(expect::field("n").with_value(&1_i64));
    let (subscriber, handle) = subscriber::mock()
        .new_span(span.clone().with_fields(at_creation.only()))
        .enter(&span)
        .record(&span, recorded("ok"))
        .exit(&span)
        .drop_span(&span)
        .only()
        .run_with_handle();
    let _current = host_allocator().make_current();
    tracing::subscriber::with_default(subscriber, || f(1));
    handle.assert_finished();
}

#[test]
fn an_async_call_is_entered_at_each_poll_and_recorded_at_the_last() {
    #[track_memory(err)]
    async fn f() -> Result<(), ()> {
        yield_now().await;
        Err(())
    }
    let span = expect::span().named("f");
    let (subscriber, handle) = subscriber::mock()
        .new_span(span.clone())
        .enter(&span)
        .exit(&span)
        .enter(&span)
        .record(&span, recorded("err"))
        .exit(&span)
        .drop_span(&span)
        .only()
        .run_with_handle();
    let _current = host_allocator().make_current();
    let result = tracing::subscriber::with_default(subscriber, || block_on(f()));
    assert!(result.is_err());
    handle.assert_finished();
}
