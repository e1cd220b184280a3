//! How much heap memory the attribute itself takes for a call: counted, so exact.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::counting::{Counting, allocations};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use std::pin::pin;
use std::sync::Arc;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CALLS: u64 = 100;

struct Owner(u64);

impl Owner {
    #[track_memory]
    fn by_value(self) -> u64 {
        self.0
    }
    #[track_memory(phase = "forward")]
    fn by_value_in_a_phase(self) -> u64 {
        self.0
    }
}

#[track_memory]
fn plain(n: u64, (a, _): (u64, u8)) -> u64 {
    n + a
}

#[track_memory(err, fields(n = n, shown = %n, debug = ?n, text = "text"))]
fn with_fields(n: u64) -> Result<u64, u64> {
    if n == 0 { Err(n) } else { Ok(n) }
}

#[track_memory(phase = "forward")]
fn in_a_phase(n: u64) -> Result<u64, u64> {
    nested(n)
}

#[track_memory(phase = "backward", err)]
fn nested(n: u64) -> Result<u64, u64> {
    Ok(n)
}

#[track_memory(device = allocator)]
fn of_a_device(allocator: &CachingAllocator) -> usize {
    Buffer::<u8>::uninit(allocator, 1024).map_or(0, |buffer| buffer.len())
}

#[track_memory(fields(n = n), err)]
async fn plain_async(n: u64) -> Result<u64, u64> {
    yield_now().await;
    Ok(n)
}

#[track_memory(phase = "forward")]
async fn in_a_phase_async(n: u64) -> u64 {
    yield_now().await;
    yield_now().await;
    n
}

/// Allocations of a hundred calls, after some that let tables grow to their size.
fn of_calls(call: impl Fn()) -> u64 {
    for _ in 0..10 {
        call();
    }
    allocations(|| (0..CALLS).for_each(|_| call()))
}

fn synchronous(allocator: &CachingAllocator) -> [(&'static str, u64); 6] {
    [
        ("plain", of_calls(|| assert_eq!(plain(1, (2, 3)), 3))),
        ("with fields", of_calls(|| assert!(with_fields(0).is_err() && with_fields(1).is_ok()))),
        ("self by value", of_calls(|| assert_eq!(Owner(1).by_value(), 1))),
        ("in a phase", of_calls(|| assert_eq!(in_a_phase(1), Ok(1)))),
        ("in a phase, self by value", of_calls(|| assert_eq!(Owner(1).by_value_in_a_phase(), 1))),
        ("of a device", of_calls(|| assert_eq!(of_a_device(allocator), 1024))),
    ]
}

fn asynchronous() -> [(&'static str, u64); 3] {
    let cancelled = || {
        let future = pin!(plain_async(1));
        assert!(poll_once(future).is_pending());
    };
    [
        ("plain async", of_calls(|| assert_eq!(block_on(plain_async(1)), Ok(1)))),
        ("in a phase async", of_calls(|| assert_eq!(block_on(in_a_phase_async(1)), 1))),
        ("cancelled async", of_calls(cancelled)),
    ]
}

/// A subscriber that wants everything and keeps nothing, so that what is counted is the attribute's.
struct Heedless;

impl Subscriber for Heedless {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// One test, since what tracing remembers of call sites is the process's.
#[test]
fn calls_take_no_heap_memory_of_their_own() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the counter counts");
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let _current = allocator.make_current();

    // The allocator's own cached path takes none either, so what a call does inside is not seen here.
    for (what, count) in synchronous(&allocator) {
        assert_eq!(count, 0, "{what}, nobody listening");
    }
    for (what, count) in asynchronous() {
        // A measured future keeps its scope in a box, which the thread keeps for the next one.
        assert_eq!(count, 0, "{what}, nobody listening");
    }

    tracing::subscriber::with_default(Heedless, || {
        for (what, count) in synchronous(&allocator) {
            assert_eq!(count, 0, "{what}, with a subscriber");
        }
        for (what, count) in asynchronous() {
            assert_eq!(count, 0, "{what}, with a subscriber");
        }
    });
}
