//! When an epoch's peak was: between two moments at which somebody looked at a clock, never at a clock of its own.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator};

const WHILE: Duration = Duration::from_millis(3);

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 30)))
}

fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

#[test]
fn the_peak_was_within_the_step_that_reached_it() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let asked = Instant::now();
    let epoch = memtrack::epoch(1);
    let begun = Instant::now();
    let (mut before, mut after) = (begun, begun);
    for number in 0..5 {
        std::thread::sleep(WHILE);
        let at_step = Instant::now();
        let step = memtrack::step(number);
        std::thread::sleep(WHILE);
        drop(take(&allocator, if number == 2 { 64 } else { 8 }));
        std::thread::sleep(WHILE);
        drop(step);
        if number == 2 {
            (before, after) = (at_step, Instant::now());
        }
    }
    let summary = epoch.finish().unwrap();
    assert_eq!((summary.peak_step, summary.peak_bytes), (Some(2), 64 << 20));
    // The epoch's own clock began between `asked` and `begun`.
    let (earliest, latest) = (summary.peak_earliest, summary.peak_latest);
    assert!(earliest >= before - begun && latest <= after - asked, "{earliest:?} to {latest:?}");
    assert!(latest - earliest >= 2 * WHILE, "the whole step: {earliest:?} to {latest:?}");
    let text = summary.to_string();
    assert!(text.contains(" in other, step 2, between ") && text.contains(" s into the epoch, of "), "{text}");
}

#[test]
fn what_rises_between_two_steps_was_between_them_and_an_equal_peak_later_is_none() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let asked = Instant::now();
    let epoch = memtrack::epoch(1);
    let begun = Instant::now();
    drop(memtrack::step(0));
    let stepped = Instant::now();
    std::thread::sleep(WHILE);
    {
        let _eval = memtrack::phase("eval");
        drop(take(&allocator, 32));
    }
    let evaluated = Instant::now();
    for number in 1..4 {
        std::thread::sleep(WHILE);
        let _step = memtrack::step(number);
        drop(take(&allocator, 32));
    }
    let summary = epoch.finish().unwrap();
    assert_eq!((summary.peak_phase, summary.peak_step), ("eval", None));
    let (earliest, latest) = (summary.peak_earliest, summary.peak_latest);
    assert!(earliest <= stepped - asked, "{earliest:?}");
    assert!(latest >= evaluated - begun && latest < summary.lasted - 2 * WHILE, "{latest:?} of {:?}", summary.lasted);
}

#[test]
fn without_steps_it_was_in_the_epoch_and_without_a_rise_at_its_beginning() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    std::thread::sleep(WHILE);
    let kept = take(&allocator, 4);
    let summary = epoch.finish().unwrap();
    assert_eq!((summary.peak_earliest, summary.peak_latest), (Duration::ZERO, summary.lasted));
    assert!(!summary.to_string().contains("into the epoch"), "{summary}");

    let epoch = memtrack::epoch(2);
    std::thread::sleep(WHILE);
    drop(kept);
    drop(memtrack::step(0));
    let summary = epoch.finish().unwrap();
    assert_eq!((summary.peak_earliest, summary.peak_latest), (Duration::ZERO, Duration::ZERO));
    assert!(summary.to_string().contains("  peak      4.00 MiB in other, at the beginning, of 1.00 GiB"), "{summary}");
}

/// A sample at a phase boundary reads the clock anyhow. The first boundary always takes one; after that there is a rest.
#[test]
fn a_sample_at_a_phase_boundary_tells_it_closer() {
    let allocator = allocator();
    let _current = allocator.make_current();
    allocator.sample_at_phase_boundaries(true);
    let asked = Instant::now();
    let epoch = memtrack::epoch(1);
    std::thread::sleep(WHILE);
    drop(memtrack::phase("before"));
    let bounded = Instant::now();
    let kept = take(&allocator, 16);
    let summary = epoch.finish().unwrap();
    assert!(summary.peak_earliest >= WHILE && summary.peak_earliest <= bounded - asked, "{summary}");
    drop(kept);
}

#[test]
fn the_line_of_the_run_file_has_the_window_and_what_was_cached_then() {
    let allocator = allocator();
    let epoch = allocator.epoch(1);
    drop(take(&allocator, 50));
    let kept = take(&allocator, 60);
    let summary = epoch.finish().unwrap();
    let line: serde_json::Value = serde_json::from_str(&summary.to_json()).unwrap();
    let peak = &line["peak"];
    assert_eq!((&peak["earliest_ns"], peak["latest_ns"].as_u64()), (&0.into(), line["lasted_ns"].as_u64()));
    assert_eq!((&peak["reserved_bytes"], &peak["cached_bytes"]), (&(110 << 20).into(), &(50 << 20).into()));
    assert_eq!(summary.peak_cached_share(), Some(50.0 / 110.0));
    assert!(summary.to_string().contains("; at the peak 110.00 MiB, of it 50.00 MiB cached (45.5 %)\n"), "{summary}");
    drop(kept);
}
