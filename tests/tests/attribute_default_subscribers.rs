//! The global default subscriber and those of single threads. A process of its own: the default is the process's.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{poll_once, yield_now};
use memtrack_tests::memory::figures;
use memtrack_tests::spans::Spans;
use std::sync::Arc;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap()
}

#[track_memory(device = allocator)]
fn call(allocator: &CachingAllocator) {
    drop(take(allocator, 1024));
}

#[track_memory(device = allocator)]
async fn call_async(allocator: CachingAllocator) {
    call(&allocator);
    yield_now().await;
    call(&allocator);
    let _kept = take(&allocator, 2048);
    yield_now().await;
}

/// Names with the outcomes of those that have ended.
fn ended(spans: &Spans) -> Vec<(&'static str, String)> {
    spans.all().iter().map(|span| (span.name, span.text("mem.outcome"))).collect()
}

#[test]
fn a_call_belongs_to_the_subscriber_it_began_under() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let (global, scoped, other) = (Spans::default(), Spans::default(), Spans::default());
    let ok = || "ok".to_owned();

    // Before there is any subscriber: the call site is met, and must be heard of later all the same.
    call(&allocator);

    tracing::subscriber::set_global_default(Registry::default().with(global.clone())).unwrap();
    call(&allocator);
    std::thread::scope(|threads| threads.spawn(|| call(&allocator)).join().unwrap());
    assert_eq!(ended(&global), vec![("call", ok()); 2], "the global default hears every thread");

    tracing::subscriber::with_default(Registry::default().with(scoped.clone()), || {
        call(&allocator);
        // A thread begun here does not inherit the scoped one.
        std::thread::scope(|threads| threads.spawn(|| call(&allocator)).join().unwrap());
    });
    assert_eq!((ended(&scoped).len(), ended(&global).len()), (1, 3));

    tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || call(&allocator));
    assert_eq!((ended(&scoped).len(), ended(&global).len()), (1, 3), "a thread that wants to hear nothing");

    // A future polled under three subscribers: its span is the first one's, what it calls is the current one's.
    let mut future = Box::pin(call_async(allocator.clone()));
    let under_scoped = Registry::default().with(scoped.clone());
    let scoped_dispatch = tracing::Dispatch::new(under_scoped);
    tracing::dispatcher::with_default(&scoped_dispatch, || assert!(poll_once(future.as_mut()).is_pending()));
    tracing::subscriber::with_default(Registry::default().with(other.clone()), || {
        assert!(poll_once(future.as_mut()).is_pending());
    });
    assert!(poll_once(future.as_mut()).is_ready());
    assert_eq!(ended(&scoped), [("call", ok()), ("call_async", ok()), ("call", ok())]);
    assert_eq!(ended(&other), [("call", ok())]);
    assert_eq!(ended(&global).len(), 3);
    let span = scoped.one("call_async");
    assert_eq!(figures(&span), (ok(), 0, 2048));
    let of_the_future: Vec<_> = scoped.journal().into_iter().filter(|line| line.ends_with("call_async")).collect();
    let entered = ["enter call_async", "exit call_async"].repeat(3);
    assert_eq!(of_the_future[0], "new call_async");
    assert_eq!(of_the_future.len(), 1 + entered.len() + 2);
    assert_eq!(of_the_future[of_the_future.len() - 3..], ["record call_async", "exit call_async", "close call_async"]);
}
