//! A process with one subscriber, as most are: tracing caches what that one wants, and does not even ask below it.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::spans::Spans;
use std::cell::Cell;
use std::sync::Arc;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

thread_local! {
    static EVALUATED: Cell<u32> = const { Cell::new(0) };
}

#[track_memory(phase = "forward", level = "debug")]
fn forward(allocator: &CachingAllocator) {
    drop(Buffer::<u8>::uninit(allocator, 1024).unwrap());
    without_phase();
}

#[track_memory(level = "info", fields(n = { EVALUATED.set(EVALUATED.get() + 1); 1_i64 }))]
fn without_phase() {}

/// Runs an epoch of one call; gives the rows, and how often a field was evaluated.
fn run(allocator: &CachingAllocator) -> (Vec<(&'static str, u64, u64)>, u32) {
    let epoch = memtrack::epoch(1);
    forward(allocator);
    let summary = epoch.finish().unwrap();
    let rows = summary.phases.iter().map(|row| (row.name, row.entered_count, row.allocation_count)).collect();
    (rows, EVALUATED.replace(0))
}

#[test]
fn phases_are_booked_whatever_the_highest_level_is() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let _current = allocator.make_current();
    let rows = vec![("forward", 1, 1), ("other", 0, 0)];
    assert_eq!(LevelFilter::current(), LevelFilter::OFF, "no subscriber yet");
    assert_eq!(run(&allocator), (rows.clone(), 0));

    let spans = Spans::default();
    let (filter, handle) = reload::Layer::new(LevelFilter::OFF);
    tracing::subscriber::set_global_default(Registry::default().with(spans.clone().with_filter(filter))).unwrap();
    for (level, evaluated, expected) in [
        (LevelFilter::OFF, 0, &[][..]),
        (LevelFilter::WARN, 0, &[][..]),
        (LevelFilter::INFO, 1, &["without_phase"][..]),
        (LevelFilter::TRACE, 1, &["without_phase", "forward", "without_phase"][..]),
        (LevelFilter::ERROR, 0, &["without_phase", "forward", "without_phase"][..]),
    ] {
        handle.reload(level).unwrap();
        assert_eq!(LevelFilter::current(), level);
        assert_eq!(run(&allocator), (rows.clone(), evaluated), "{level}");
        let names: Vec<_> = spans.all().iter().map(|span| span.name).collect();
        assert_eq!(names, expected, "{level}");
    }
}
