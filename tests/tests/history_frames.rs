//! Call sites: where a program allocates is in its snapshot, each stack stored once and each address named once.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::PoolKind;
use memtrack::device::Stream;
use memtrack::history::recording::{BlockState, DeviceState, Event, Recorder, SegmentState, StackId, assemble};
use memtrack::history::{
    AllocatorSettings, BlockStatus, ContextLevel, Frames, HistoryOptions, Snapshot, Stacks, TraceAction,
};

fn on(options: &HistoryOptions) -> Recorder {
    let recorder = Recorder::new();
    recorder.configure(Some(options), 0);
    recorder
}

fn event(action: TraceAction, stack: StackId) -> Event {
    Event { action, address: 4096, size_bytes: 500, stream: Stream::DEFAULT, stack }
}

#[inline(never)]
fn allocate_somewhere(recorder: &Recorder) -> StackId {
    let stack = recorder.capture_allocation();
    recorder.record([event(TraceAction::Alloc, stack)]);
    std::hint::black_box(stack)
}

#[inline(never)]
fn free_elsewhere(recorder: &Recorder, allocated_at: StackId) -> StackId {
    let stack = recorder.capture_free(allocated_at);
    recorder.record([event(TraceAction::FreeRequested, stack), event(TraceAction::FreeCompleted, stack)]);
    std::hint::black_box(stack)
}

fn snapshot(recorder: &Recorder, segments: Vec<SegmentState>) -> Snapshot {
    assemble(vec![DeviceState { device: 0, segments, recording: recorder.read(true) }], AllocatorSettings::default())
}

fn shows(frames: &Frames, function: &str) -> bool {
    frames.iter().any(|frame| frame.name.contains(function))
}

#[test]
fn a_frame_tells_function_file_and_line() {
    let recorder = on(&HistoryOptions::new());
    allocate_somewhere(&recorder);
    let snapshot = snapshot(&recorder, Vec::new());
    let frames = snapshot.device_traces[0][0].frames.clone().unwrap();
    let first = &frames[0];
    assert!(first.name.ends_with("allocate_somewhere"), "{frames:?}");
    assert!(first.filename.ends_with("history_frames.rs"), "{first:?}");
    assert!((1..100).contains(&first.line), "{first:?}");
    assert!(frames.iter().all(|frame| !frame.name.contains("__rust_begin_short_backtrace")), "{frames:?}");
    assert!(frames.iter().all(|frame| !frame.name.starts_with("memtrack::")), "{frames:?}");
}

#[test]
fn levels_decide_what_has_frames() {
    let seen = |level| {
        let recorder = on(&HistoryOptions::new().context(level));
        let allocated_at = allocate_somewhere(&recorder);
        free_elsewhere(&recorder, allocated_at);
        let block =
            BlockState { size_bytes: 512, requested_bytes: 500, status: BlockStatus::Inactive, stack: allocated_at };
        let segment = SegmentState {
            address: 4096,
            stream: Stream::DEFAULT,
            pool: PoolKind::Small,
            pool_id: (0, 0),
            is_expandable: false,
            stack: allocated_at,
            blocks: vec![block],
        };
        let snapshot = snapshot(&recorder, vec![segment]);
        let trace = &snapshot.device_traces[0];
        let segment = &snapshot.segments[0];
        let block = &segment.blocks[0];
        let frees: Vec<_> = trace[1..].iter().map(|entry| entry.frames.clone()).collect();
        assert_eq!(frees[0], frees[1]);
        (!block.frames.is_empty() && !segment.frames.is_empty(), trace[0].frames.clone(), frees[0].clone())
    };
    assert_eq!(seen(ContextLevel::None), (false, None, None));
    assert_eq!(seen(ContextLevel::State), (true, None, None));
    let (in_state, at_alloc, at_free) = seen(ContextLevel::Alloc);
    assert!(in_state && shows(at_alloc.as_ref().unwrap(), "allocate_somewhere"));
    assert_eq!(at_free, at_alloc, "a free shows where its block came from");
    let (_, at_alloc, at_free) = seen(ContextLevel::All);
    assert!(shows(&at_alloc.unwrap(), "allocate_somewhere"));
    assert!(shows(at_free.as_ref().unwrap(), "free_elsewhere") && !shows(&at_free.unwrap(), "allocate_somewhere"));
}

#[test]
fn the_standard_library_can_be_left_out() {
    let frames = |stacks| {
        let recorder = on(&HistoryOptions::new().stacks(stacks));
        std::hint::black_box(vec![1]).iter().for_each(|_| {
            allocate_somewhere(&recorder);
        });
        snapshot(&recorder, Vec::new()).device_traces[0][0].frames.clone().unwrap()
    };
    let is_standard = |frames: &Frames| frames.iter().any(|frame| frame.filename.starts_with("/rustc/"));
    assert!(is_standard(&frames(Stacks::All)));
    assert!(!is_standard(&frames(Stacks::Application)));
    assert!(shows(&frames(Stacks::Application), "the_standard_library_can_be_left_out"));
}

#[inline(never)]
fn nested(recorder: &Recorder, depth: u32) {
    match depth {
        0 => drop(allocate_somewhere(recorder)),
        _ => nested(recorder, depth - 1),
    }
    std::hint::black_box(depth);
}

#[test]
fn each_address_is_named_once_whatever_the_number_of_events() {
    let recorder = on(&HistoryOptions::new());
    for number in 0..20_000 {
        nested(&recorder, number % 100);
    }
    assert_eq!(recorder.resolved_address_count(), 0, "nothing is named while recording");
    let first = snapshot(&recorder, Vec::new());
    let named = recorder.resolved_address_count();
    assert!((5..1000).contains(&named), "{named} look-ups for 20,000 events from 100 places");
    let stacks: std::collections::HashSet<_> =
        first.device_traces[0].iter().map(|entry| entry.frames.as_ref().unwrap().as_ptr()).collect();
    assert_eq!(stacks.len(), 100, "events from one place share its frames");
    snapshot(&recorder, Vec::new());
    assert_eq!(recorder.resolved_address_count(), named);
}
