//! The options `devices`: several devices as one, with the peak of their sum.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use memtrack::{Budget, Buffer, CachingAllocator, Exceeded, track_memory};
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::{SpanLog, Spans, Value};
use std::cell::RefCell;

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap_or_else(|error| panic!("{error}"))
}

fn figures(span: &SpanLog) -> [i64; 6] {
    ["before", "after", "delta", "peak", "peak_delta", "devices"].map(|name| span.number(&format!("mem.{name}")))
}

#[track_memory(devices = devices)]
fn moves(devices: &[CachingAllocator]) -> Buffer<u8> {
    let [first, second, ..] = devices else { panic!("two devices") };
    let there = take(first, 4096);
    let here = take(second, 2048);
    drop(there);
    drop(take(second, 1024));
    here
}

#[test]
fn the_peak_is_that_of_the_sum() {
    let (spans, _installed) = Spans::install();
    let devices = [host_allocator(), host_allocator(), host_allocator()];
    let _before = take(&devices[2], 512);
    let _kept = moves(&devices);
    let span = spans.one("moves");
    // Not 4096 + 3072, the sum of their peaks.
    assert_eq!(figures(&span), [512, 2560, 2048, 512 + 6144, 6144, 2]);
    assert_eq!((span.number("mem.allocs"), span.number("mem.frees")), (3, 2));
    assert_eq!(span.text("mem.device"), "host,host,host");
    let events = spans.events_of("memtrack::devices");
    assert_eq!(events.len(), 2, "the third did nothing");
    let field = |index: usize, name: &str| match events[index].fields.get(name) {
        Some(Value::I64(number)) => *number,
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!([field(0, "mem.delta"), field(0, "mem.peak"), field(0, "mem.frees")], [0, 4096, 1]);
    assert_eq!([field(1, "mem.delta"), field(1, "mem.peak"), field(1, "mem.frees")], [2048, 3072, 1]);
    assert!(events.iter().all(|event| event.span == Some("moves")));
}

#[test]
fn lists_of_many_kinds_name_devices_and_one_named_twice_counts_once() {
    #[track_memory(devices = [first, second, first])]
    fn array(first: &CachingAllocator, second: &CachingAllocator) {
        drop((take(first, 512), take(second, 512)));
    }
    #[track_memory(devices = devices)]
    fn vector(devices: Vec<CachingAllocator>) {
        drop(devices.iter().map(|device| take(device, 512)).collect::<Vec<_>>());
    }
    #[track_memory(devices = &devices[1..])]
    fn slice(devices: &[CachingAllocator]) {
        drop(devices.iter().map(|device| take(device, 512)).collect::<Vec<_>>());
    }
    #[track_memory(devices = devices)]
    fn nothing(devices: &[CachingAllocator]) {
        assert!(devices.is_empty());
    }
    let (spans, _installed) = Spans::install();
    let devices = vec![host_allocator(), host_allocator()];
    array(&devices[0], &devices[1]);
    vector(devices.clone());
    slice(&devices);
    nothing(&[]);
    assert_eq!(
        ["array", "vector", "slice"].map(|name| figures(&spans.one(name))[3..].to_vec()),
        [vec![1024, 1024, 2], vec![1024, 1024, 2], vec![512, 512, 1]]
    );
    assert_eq!(spans.one("nothing").text("mem.outcome"), "ok");
}

#[test]
fn all_devices_are_measured_by_one_word() {
    #[track_memory(devices(all), leak_check)]
    async fn f(devices: &[CachingAllocator]) -> Vec<Buffer<u8>> {
        let first = take(&devices[0], 1024);
        yield_now().await;
        vec![first, take(&devices[1], 512)]
    }
    let (spans, _installed) = Spans::install();
    let devices = [host_allocator(), host_allocator()];
    let kept = block_on(f(&devices));
    let span = spans.one("f");
    // Other tests of this program have devices too, and may be at work: the call's own figures do not see them.
    assert!(span.number("mem.devices") >= 2);
    let leaks = spans.events_of("memtrack::leak");
    assert_eq!(leaks.len(), 1, "allowed with several devices");
    assert_eq!(leaks[0].fields.get("measured"), Some(&Value::I64(1536)));
    drop(kept);
}

thread_local! {
    static REPORTED: RefCell<Vec<(Budget, i64)>> = const { RefCell::new(Vec::new()) };
}

fn report(exceeded: &Exceeded) {
    REPORTED.with_borrow_mut(|reported| reported.push((exceeded.budget, exceeded.measured)));
}

#[test]
fn budgets_are_held_against_the_sum() {
    #[track_memory(devices = [first, second], max_peak = 1500, max_allocs = 1, on_exceed = report)]
    fn one_after_the_other(first: &CachingAllocator, second: &CachingAllocator, at_once: bool) {
        let there = take(first, 1000);
        let kept = at_once.then_some(there);
        drop(take(second, 1000));
        drop(kept);
    }
    let (first, second) = (host_allocator(), host_allocator());
    one_after_the_other(&first, &second, false);
    assert_eq!(REPORTED.take(), [(Budget::MaxAllocs, 2)]);
    one_after_the_other(&first, &second, true);
    assert_eq!(REPORTED.take(), [(Budget::MaxPeak, 2000), (Budget::MaxAllocs, 2)]);
}
