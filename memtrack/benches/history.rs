//! What recording an event costs, beside a read of the system's clock and an uncontended lock of the same run.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use divan::Bencher;
use memtrack::device::Stream;
use memtrack::history::recording::{Event, Recorder, StackId};
use memtrack::history::{ContextLevel, HistoryOptions, TraceAction};

fn main() {
    divan::main();
}

fn recorder(max_entries: usize) -> Recorder {
    let recorder = Recorder::new();
    recorder.configure(Some(&HistoryOptions::new().context(ContextLevel::None).max_entries(max_entries)), 0);
    recorder
}

fn event(action: TraceAction) -> Event {
    Event { action, address: 0x7f00_0000, size_bytes: 4096, stream: Stream::DEFAULT, stack: StackId::NONE }
}

/// One event into a ring that is full and one that never is; memory that the process touches for the first time is in the
/// second figure.
#[divan::bench(args = [100_000, usize::MAX], sample_size = 10_000)]
fn record(bencher: Bencher<'_, '_>, max_entries: usize) {
    let recorder = recorder(max_entries);
    if max_entries < usize::MAX {
        (0..2 * max_entries).for_each(|_| recorder.record([event(TraceAction::Alloc)]));
    }
    bencher.bench_local(|| recorder.record([black_box(event(TraceAction::Alloc))]));
}

/// A free's two events at once.
#[divan::bench(sample_size = 10_000)]
fn record_free(bencher: Bencher<'_, '_>) {
    let recorder = recorder(100_000);
    (0..100_000).for_each(|_| recorder.record([event(TraceAction::Alloc), event(TraceAction::Alloc)]));
    bencher.bench_local(|| {
        recorder.record(black_box([event(TraceAction::FreeRequested), event(TraceAction::FreeCompleted)]));
    });
}

#[divan::bench(sample_size = 10_000)]
fn switched_off(bencher: Bencher<'_, '_>) {
    let recorder = Recorder::new();
    bencher.bench_local(|| recorder.record([black_box(event(TraceAction::Alloc))]));
}

/// The copy that allocations wait for when a snapshot is taken.
#[divan::bench(args = [0, 1000, 100_000, 1_000_000])]
fn read(bencher: Bencher<'_, '_>, events: usize) {
    let recorder = recorder(usize::MAX);
    (0..events).for_each(|_| recorder.record([event(TraceAction::Alloc)]));
    bencher.bench_local(|| recorder.read(true));
}

/// With a call site, at the depth of a benchmark.
#[cfg(feature = "backtrace")]
#[divan::bench]
fn capture(bencher: Bencher<'_, '_>) {
    let recorder = Recorder::new();
    recorder.configure(Some(&HistoryOptions::new()), 0);
    bencher.bench_local(|| recorder.capture_allocation());
}

/// What the figures above can be told against.
mod reference {
    use super::*;

    #[divan::bench(sample_size = 10_000)]
    fn clock() -> Instant {
        Instant::now()
    }

    #[divan::bench(sample_size = 10_000)]
    fn lock(bencher: Bencher<'_, '_>) {
        let mutex = Mutex::new(0_u64);
        bencher.bench_local(|| {
            if let Ok(mut number) = black_box(&mutex).lock() {
                *number += 1;
            }
        });
    }
}
