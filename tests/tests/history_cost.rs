//! The bug class: a look at the present takes longer the more of the past is recorded.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memtrack::device::Stream;
use memtrack::history::recording::{DeviceState, Event, Recorder, Recording, StackId, assemble};
use memtrack::history::{AllocatorSettings, ContextLevel, HistoryOptions, Snapshot, TraceAction};

/// Tests of one program run side by side; those that measure do not.
static MEASURING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn recorded(events: u64) -> Recorder {
    let recorder = Recorder::new();
    recorder.configure(Some(&HistoryOptions::new().context(ContextLevel::None)), 0);
    let (action, size_bytes, stream, stack) = (TraceAction::Alloc, 500, Stream::DEFAULT, StackId::NONE);
    (0..events).for_each(|address| recorder.record([Event { action, address, size_bytes, stream, stack }]));
    recorder
}

fn snapshot(recording: Recording) -> Snapshot {
    assemble(vec![DeviceState { device: 0, segments: Vec::new(), recording }], AllocatorSettings::default())
}

/// The quickest of several runs.
fn quickest(runs: usize, mut run: impl FnMut()) -> Duration {
    let timed = (0..runs).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    timed.min().unwrap()
}

#[test]
fn a_look_at_the_state_does_not_depend_on_the_history() {
    let _alone = alone();
    let looked = |events| {
        let recorder = recorded(events);
        // Many at a time, since one is below the clock's precision.
        quickest(15, || (0..2000).for_each(|_| drop(black_box(recorder.read(false)))))
    };
    let (none, many) = (looked(0), looked(100_000));
    assert!(many <= none * 2, "{none:?} without history, {many:?} with 100,000 events");
}

#[test]
fn a_full_dump_takes_time_in_proportion() {
    let _alone = alone();
    // As many events in all, so that both take long enough to be interrupted as often on a busy machine.
    let dumped = |events, times| {
        let recorder = recorded(events);
        let dump = || snapshot(recorder.read(true)).write_pickle(std::io::sink()).unwrap();
        quickest(5, || (0..times).for_each(|_| dump()))
    };
    let (few, many) = (dumped(1000, 100), dumped(100_000, 1));
    assert!(many <= few * 2, "{few:?} for 1000 events 100 times, {many:?} for 100,000 once");
}

#[test]
fn allocations_wait_for_a_copy_of_the_latest_events_alone() {
    let _alone = alone();
    let recorder = recorded(200_000);
    let read = quickest(15, || drop(black_box(recorder.read(true))));
    let named = quickest(3, || drop(black_box(snapshot(recorder.read(true)))));
    assert!(read * 50 < named, "{read:?} under the lock, {named:?} in all");
}
