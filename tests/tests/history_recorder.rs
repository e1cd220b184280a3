//! What the recorder keeps and since when.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use memtrack::PoolKind;
use memtrack::device::Stream;
use memtrack::history::recording::{
    BlockState, DeviceState, Event, Recorder, Recording, SegmentState, StackId, assemble,
};
use memtrack::history::{
    AllocatorSettings, BlockStatus, ContextLevel, Enabled, HistoryOptions, ReadLimits, Snapshot, Stage, TraceAction,
    TraceEntry, memory_metadata, set_memory_metadata,
};

fn without_stacks() -> HistoryOptions {
    HistoryOptions::new().context(ContextLevel::None)
}

fn on(options: &HistoryOptions) -> Recorder {
    let recorder = Recorder::new();
    recorder.configure(Some(options), 0);
    recorder
}

fn event(action: TraceAction, address: u64) -> Event {
    Event { action, address, size_bytes: 500, stream: Stream(7), stack: StackId::NONE }
}

fn alloc(recorder: &Recorder, addresses: std::ops::Range<u64>) {
    addresses.for_each(|address| recorder.record([event(TraceAction::Alloc, address)]));
}

fn snapshot(recording: Recording) -> Snapshot {
    let device = DeviceState { device: 0, segments: Vec::new(), recording };
    assemble(vec![device], AllocatorSettings::torch_defaults(""))
}

fn trace(recorder: &Recorder) -> Vec<TraceEntry> {
    snapshot(recorder.read(true)).device_traces.remove(0)
}

fn addresses(recorder: &Recorder) -> Vec<u64> {
    trace(recorder).iter().map(|entry| entry.addr).collect()
}

fn epoch_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64
}

#[test]
fn events_are_kept_with_all_their_parts() {
    let before = epoch_us();
    let recorder = on(&without_stacks());
    let largest = (1 << 60) - 1;
    for action in TraceAction::ALL {
        recorder.record([Event { size_bytes: largest, ..event(action, u64::MAX) }]);
    }
    recorder.record([event(TraceAction::FreeRequested, 1), event(TraceAction::FreeCompleted, 1)]);
    let trace = trace(&recorder);
    for (entry, action) in trace.iter().zip(TraceAction::ALL) {
        assert_eq!((entry.action.known(), entry.addr, entry.size), (Some(action), u64::MAX, largest));
        assert_eq!((entry.stream, &*entry.compile_context, &*entry.user_metadata), (Stream(7), "N/A", ""));
        assert_eq!(entry.frames, None);
    }
    assert_eq!(trace.len(), 11);
    assert_eq!(trace[9].time_us, trace[10].time_us, "one free, one read of the clock");
    assert!(trace.is_sorted_by_key(|entry| entry.time_us));
    // A millisecond for a system clock that is being adjusted.
    assert!(before - 1000 <= trace[0].time_us && trace[10].time_us <= epoch_us() + 1000);
}

#[test]
fn the_oldest_events_give_way() {
    let recorder = on(&without_stacks().max_entries(10));
    alloc(&recorder, 0..5000);
    assert_eq!(addresses(&recorder), (4990..5000).collect::<Vec<_>>());
    let history = &snapshot(recorder.read(true)).history[0];
    assert_eq!((history.recorded_entries, history.enabled), (5000, Some(Enabled::All)));
    let state = on(&without_stacks().enabled(Enabled::State));
    alloc(&state, 0..100);
    assert_eq!(addresses(&state), [99]);
}

#[test]
fn skipped_actions_are_absent() {
    let recorder = on(&without_stacks().skip_actions([TraceAction::FreeRequested, TraceAction::Snapshot]));
    for action in TraceAction::ALL {
        recorder.record([event(action, 1)]);
    }
    let kept: Vec<_> = trace(&recorder).iter().filter_map(|entry| entry.action.known()).collect();
    assert_eq!(kept.len(), 7);
    assert!(!kept.contains(&TraceAction::FreeRequested) && !kept.contains(&TraceAction::Snapshot));
}

#[test]
fn a_snapshot_shows_in_the_next_one() {
    let recorder = on(&without_stacks());
    alloc(&recorder, 0..1);
    assert_eq!(snapshot(recorder.read_for_snapshot(4096)).device_traces[0].len(), 1);
    let trace = trace(&recorder);
    assert_eq!((trace[1].action.known(), trace[1].size), (Some(TraceAction::Snapshot), 4096));
    assert_eq!((trace[1].addr, trace[1].stream), (0, Stream::DEFAULT));
}

#[test]
fn a_dump_without_recording_says_so_and_holds_the_blocks() {
    let recorder = Recorder::new();
    alloc(&recorder, 0..10);
    let block = |size_bytes, status| BlockState { size_bytes, requested_bytes: 500, status, stack: StackId::NONE };
    let segment = |address, blocks| SegmentState {
        address,
        stream: Stream(7),
        pool: PoolKind::Large,
        pool_id: (0, 3),
        is_expandable: false,
        stack: StackId::NONE,
        blocks,
    };
    let blocks = vec![
        block(512, BlockStatus::ActiveAllocated),
        block(1024, BlockStatus::ActivePendingFree),
        block(2048, BlockStatus::Inactive),
    ];
    let segments = vec![segment(1 << 20, blocks), segment(4096, vec![block(512, BlockStatus::Inactive)])];
    let device = DeviceState { device: 1, segments, recording: recorder.read(true) };
    assert!(!device.recording.is_on());
    let snapshot = assemble(vec![device], AllocatorSettings::torch_defaults(""));
    let second = &snapshot.segments[1];
    assert_eq!((snapshot.segments[0].address, second.address, second.device), (4096, 1 << 20, 1));
    assert_eq!(
        (second.total_size, second.allocated_size, second.active_size, second.requested_size),
        (3584, 512, 1536, 1000)
    );
    assert_eq!(second.blocks[2].address, (1 << 20) + 1536);
    // The page shows a device only if it has a list, if an empty one.
    assert_eq!(snapshot.device_traces, [vec![], vec![]]);
    snapshot.check_consistency().unwrap();
    let history = &snapshot.history[0];
    assert_eq!((history.device, history.enabled, history.start), (1, None, None));
    let mut json = Vec::new();
    snapshot.write_json(&mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["memtrack_history"][0]["history"], "off");
    let mut pickle = Vec::new();
    snapshot.write_pickle(&mut pickle).unwrap();
    assert_eq!(Snapshot::from_pickle(&pickle, &ReadLimits::default()).unwrap(), snapshot);
}

#[test]
fn a_change_of_detail_keeps_what_was_recorded() {
    let recorder = on(&without_stacks());
    for iteration in 0..5 {
        if iteration == 3 {
            recorder.configure(Some(&HistoryOptions::new()), 999);
        }
        for number in 0..10 {
            let stack = recorder.capture_allocation();
            recorder.record([Event { stack, ..event(TraceAction::Alloc, iteration * 10 + number) }]);
        }
    }
    let snapshot = snapshot(recorder.read(true));
    let trace = &snapshot.device_traces[0];
    assert_eq!(trace.len(), 50);
    assert!(trace[..30].iter().all(|entry| entry.frames.is_none()));
    assert!(trace[30..].iter().all(|entry| entry.frames.as_ref().is_some_and(|frames| !frames.is_empty())));
    assert_eq!(snapshot.history[0].start.unwrap().allocated_bytes, 0, "not begun anew");
}

#[test]
fn off_and_on_begins_anew_and_says_when() {
    let recorder = on(&without_stacks());
    alloc(&recorder, 0..30);
    recorder.configure(None, 0);
    assert!(!recorder.is_on());
    alloc(&recorder, 30..40);
    assert!(addresses(&recorder).is_empty());
    let before = epoch_us();
    recorder.configure(Some(&without_stacks()), 123_456);
    alloc(&recorder, 40..50);
    let snapshot = snapshot(recorder.read(true));
    assert_eq!(
        snapshot.device_traces[0].iter().map(|entry| entry.addr).collect::<Vec<_>>(),
        (40..50).collect::<Vec<_>>()
    );
    let start = snapshot.history[0].start.unwrap();
    assert_eq!((start.entry, start.allocated_bytes, snapshot.history[0].recorded_entries), (30, 123_456, 10));
    assert!(before - 1000 <= start.time_us && start.time_us <= snapshot.device_traces[0][0].time_us);
    recorder.configure(Some(&without_stacks().clear_history(true)), 77);
    let cleared = &self::snapshot(recorder.read(true)).history[0];
    let start = cleared.start.unwrap();
    assert_eq!((start.entry, start.allocated_bytes, cleared.recorded_entries), (40, 77, 0));
}

#[test]
fn each_thread_s_metadata_is_attached() {
    let recorder = on(&without_stacks());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let recorder = &recorder;
            scope.spawn(move || {
                alloc(recorder, thread..thread + 1);
                set_memory_metadata(&format!("worker {thread}"));
                assert_eq!(*memory_metadata(), *format!("worker {thread}"));
                alloc(recorder, 100 + thread..101 + thread);
                set_memory_metadata("");
                alloc(recorder, thread..thread + 1);
            });
        }
    });
    let trace = trace(&recorder);
    assert_eq!(trace.len(), 12);
    for entry in trace {
        let expected = entry.addr.checked_sub(100).map_or(String::new(), |thread| format!("worker {thread}"));
        assert_eq!(*entry.user_metadata, *expected);
    }
}

#[test]
fn annotations_have_their_times_and_limits() {
    let recorder = Recorder::new();
    recorder.annotate(Stage::Start, "nobody listens");
    recorder.configure(Some(&without_stacks().max_entries(4)), 0);
    for name in ["forward", "backward", "step"] {
        recorder.annotate(Stage::Start, name);
        recorder.annotate(Stage::End, name);
    }
    let annotations = snapshot(recorder.read(true)).external_annotations;
    let shown: Vec<_> = annotations.iter().map(|annotation| (annotation.stage, &*annotation.name)).collect();
    let (start, end) = (Stage::Start, Stage::End);
    assert_eq!(shown, [(start, "backward"), (end, "backward"), (start, "step"), (end, "step")]);
    assert!(annotations.is_sorted_by_key(|annotation| annotation.time_us));
}

#[test]
fn two_allocators_of_a_device_share_its_trace_in_order() {
    let recorders = [on(&without_stacks()), on(&without_stacks())];
    for number in 0..6 {
        alloc(&recorders[number as usize % 2], number..number + 1);
        std::thread::sleep(Duration::from_millis(2));
    }
    let states = recorders.iter().map(|recorder| DeviceState {
        device: 0,
        segments: Vec::new(),
        recording: recorder.read(true),
    });
    let snapshot = assemble(states.collect(), AllocatorSettings::default());
    assert_eq!(snapshot.device_traces[0].iter().map(|entry| entry.addr).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(snapshot.history.len(), 2);
}

#[test]
fn nothing_is_lost_while_snapshots_are_taken() {
    let recorder = on(&without_stacks());
    let per_thread = 20_000;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|thread| {
                let recorder = &recorder;
                scope.spawn(move || alloc(recorder, thread * per_thread..(thread + 1) * per_thread))
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            let seen = addresses(&recorder);
            for thread in 0..2 {
                let own: Vec<u64> = seen.iter().copied().filter(|address| address / per_thread == thread).collect();
                assert!(own.is_sorted() && own.iter().zip(thread * per_thread..).all(|(found, sent)| *found == sent));
            }
        }
    });
    assert_eq!(trace(&recorder).len(), 2 * per_thread as usize);
}
