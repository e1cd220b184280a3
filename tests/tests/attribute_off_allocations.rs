//! memtrack switched off at run time takes no heap memory, opens no scope and makes no span, whatever the options. A process
//! of its own: the switch is the process's.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::counting::{Counting, allocations};
use memtrack_tests::futures::{block_on, drive, poll_once, wait, yield_now};
use memtrack_tests::spans::Spans;
use std::pin::pin;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Owner(u64);

impl Owner {
    #[track_memory(phase = "forward")]
    fn by_value(self) -> u64 {
        self.0
    }
}

#[track_memory(phase = "forward", fields(m = unreachable(), %n))]
fn with_fields(n: u64) -> u64 {
    n
}

#[track_memory(phase = "forward", err, device = { unreachable(); allocator })]
fn of_a_device(allocator: &CachingAllocator) -> Result<usize, usize> {
    Err(Buffer::<u8>::uninit(allocator, 1024).map_or(0, |buffer| buffer.len()))
}

#[track_memory(phase = "forward", fields(n = unreachable()), device = { unreachable(); allocator })]
async fn later(allocator: &CachingAllocator) -> usize {
    yield_now().await;
    Buffer::<u8>::uninit(allocator, 1024).map_or(0, |buffer| buffer.len())
}

#[track_memory(phase = "forward")]
async fn waits(times: u32) -> u32 {
    wait(times).await;
    times
}

/// What is never evaluated while memtrack is off.
fn unreachable() -> i64 {
    panic!("evaluated")
}

fn calls(allocator: &CachingAllocator) {
    assert_eq!(with_fields(3), 3);
    assert_eq!(Owner(4).by_value(), 4);
    assert_eq!(of_a_device(allocator), Err(1024));
    assert_eq!(block_on(later(allocator)), 1024);
    let cancelled = pin!(later(allocator));
    assert!(poll_once(cancelled).is_pending());
}

#[test]
fn a_call_is_the_plain_function_while_switched_off() {
    let (spans, _installed) = Spans::install();
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let _current = allocator.make_current();
    drop(Buffer::<u8>::uninit(&allocator, 1024).unwrap());
    // Begun on the allocator itself, which the switch does not concern: it sees every scope.
    let epoch = allocator.epoch(1);
    memtrack::set_enabled(false);
    calls(&allocator);
    let count = allocations(|| (0..100).for_each(|_| calls(&allocator)));
    assert_eq!(count, 0);
    for times in [0, 3] {
        let (value, driven) = drive(waits(times));
        assert_eq!((value, driven.polls, driven.wakes), (times, times + 1, times));
    }
    memtrack::set_enabled(true);

    assert!(spans.journal().is_empty() && spans.all().is_empty(), "no span");
    let summary = epoch.finish().unwrap();
    let rows: Vec<_> = summary.phases.iter().map(|row| (row.name, row.allocation_count)).collect();
    // Three buffers in each of 101 rounds, less those of the cancelled calls.
    assert_eq!(rows, [("other", 202)], "no scope: {summary}");
    assert_eq!(summary.phases[0].entered_count, 0);

    // Switched on again, the same calls are measured.
    block_on(waits(1));
    assert_eq!(spans.one("waits").text("mem.outcome"), "ok");
}
