//! Traces that cannot have led to their final state are found out, and consistent ones become programs.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::HashMap;

use memtrack::device::Stream;
use memtrack::history::{
    Block, BlockStatus, EntryAction, Inconsistency, ReadLimits, ReplayKind, ReplayedAllocation, Segment, Snapshot,
    TraceAction, TraceEntry,
};

use TraceAction::{Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};

const PAGE: u64 = 4096;

fn entry(action: TraceAction, addr: u64, size: u64) -> TraceEntry {
    let mut entry = TraceEntry::default();
    (entry.action, entry.addr, entry.size) = (action.into(), addr, size);
    entry
}

fn segment(address: u64, blocks: &[(u64, u64, BlockStatus)]) -> Segment {
    let mut segment = Segment::default();
    segment.address = address;
    for &(size, requested_size, state) in blocks {
        let mut block = Block::default();
        (block.address, block.size) = (address + segment.total_size, size);
        (block.requested_size, block.state) = (requested_size, state);
        segment.total_size += size;
        if state == BlockStatus::ActiveAllocated {
            segment.allocated_size += size;
        }
        if state != BlockStatus::Inactive {
            segment.active_size += size;
            segment.requested_size += requested_size;
        }
        segment.blocks.push(block);
    }
    segment
}

fn snapshot(segments: Vec<Segment>, trace: &[(TraceAction, u64, u64)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.segments = segments;
    snapshot.device_traces = vec![trace.iter().map(|&(action, addr, size)| entry(action, addr, size)).collect()];
    snapshot
}

/// One allocated block and the rest of its segment.
fn one_block() -> Segment {
    segment(PAGE, &[(512, 500, BlockStatus::ActiveAllocated), (3584, 0, BlockStatus::Inactive)])
}

fn event_problem(snapshot: &Snapshot) -> (usize, &'static str) {
    match snapshot.check_consistency() {
        Err(Inconsistency::Event { entry, problem, .. }) => (entry, problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_life_is_consistent() {
    let pending = segment(2 * PAGE, &[(4096, 4000, BlockStatus::ActivePendingFree)]);
    let trace = [
        (SegmentAlloc, PAGE, PAGE),
        (Alloc, PAGE, 100),
        (FreeRequested, PAGE, 100),
        (FreeCompleted, PAGE, 100),
        (Alloc, PAGE, 500),
        (SegmentAlloc, 9 * PAGE, PAGE),
        (Oom, 77, 1 << 50),
        (SegmentFree, 9 * PAGE, PAGE),
        (SegmentAlloc, 2 * PAGE, PAGE),
        (Alloc, 2 * PAGE, 4000),
        (FreeRequested, 2 * PAGE, 4000),
    ];
    let snapshot = snapshot(vec![one_block(), pending], &trace);
    snapshot.check_consistency().unwrap();
    // A ring that forgot the oldest events is consistent too.
    for forgotten in 0..trace.len() {
        let mut later = snapshot.clone();
        later.device_traces[0].drain(..forgotten);
        later.check_consistency().unwrap();
    }
}

#[test]
fn events_that_cannot_have_happened_are_found() {
    let found = |trace: &[(TraceAction, u64, u64)]| event_problem(&snapshot(vec![one_block()], trace));
    assert_eq!(found(&[(Alloc, PAGE + 512, 10)]), (0, "no block is there afterwards"));
    assert_eq!(found(&[(Alloc, PAGE, 499)]), (0, "the block there has another requested size"));
    assert_eq!(found(&[(FreeRequested, 0, 1)]), (0, "no block is there afterwards"));
    assert_eq!(found(&[(FreeRequested, PAGE, 500)]), (0, "the block is allocated afterwards"));
    assert_eq!(found(&[(FreeCompleted, PAGE, 500)]), (0, "another block is there afterwards"));
    assert_eq!(found(&[(FreeCompleted, PAGE - 200, 300)]), (0, "no segment holds it"));
    assert_eq!(found(&[(FreeCompleted, PAGE + 4000, 500)]), (0, "no segment holds it"));
    let forgotten_request = [(Alloc, PAGE + 1024, 10), (FreeCompleted, PAGE + 1024, 10)];
    assert_eq!(found(&forgotten_request), (0, "its free was completed without being requested"));
    assert_eq!(found(&[(SegmentAlloc, PAGE, PAGE)]), (0, "a block was in it before"));
    assert_eq!(found(&[(SegmentAlloc, PAGE, 512), (Oom, 0, 1)]), (0, "no segment of this size is there afterwards"));
    assert_eq!(found(&[(SegmentMap, PAGE, PAGE)]), (0, "no expandable segment holds the range afterwards"));
    assert_eq!(found(&[(SegmentFree, PAGE + 512, PAGE)]), (0, "a segment is there afterwards"));
    assert_eq!(found(&[(Alloc, PAGE, 500), (FreeRequested, PAGE, 500), (Alloc, PAGE, 500)]).0, 1);
    let error = snapshot(vec![one_block()], &[(Alloc, PAGE, 499)]).check_consistency().unwrap_err().to_string();
    let expected = "device 0, event 0, alloc of 499 bytes at 0x1000: the block there has another requested size";
    assert_eq!(error, expected);
}

#[test]
fn expandable_segments_grow_shrink_and_join() {
    let mut mapped =
        segment(PAGE, &[(512, 500, BlockStatus::ActiveAllocated), (3 * PAGE - 512, 0, BlockStatus::Inactive)]);
    mapped.is_expandable = true;
    let trace = [
        (SegmentMap, PAGE, PAGE),
        (SegmentMap, 3 * PAGE, PAGE),
        (SegmentMap, 2 * PAGE, PAGE),
        (Alloc, PAGE, 500),
        (SegmentMap, 4 * PAGE, 2 * PAGE),
        (SegmentUnmap, 5 * PAGE, PAGE),
        (SegmentUnmap, 4 * PAGE, PAGE),
    ];
    snapshot(vec![mapped.clone()], &trace).check_consistency().unwrap();
    let found = |trace: &[(TraceAction, u64, u64)]| event_problem(&snapshot(vec![mapped.clone()], trace));
    assert_eq!(found(&[(SegmentMap, 3 * PAGE, 2 * PAGE)]), (0, "no expandable segment holds the range afterwards"));
    assert_eq!(found(&[(SegmentMap, PAGE, PAGE)]), (0, "a block was in it before"));
    assert_eq!(found(&[(SegmentUnmap, 3 * PAGE, PAGE)]), (0, "a segment is there afterwards"));
    assert_eq!(found(&[(SegmentAlloc, PAGE, 3 * PAGE)]), (0, "no segment of this size is there afterwards"));
}

#[test]
fn segments_must_be_covered_and_add_up() {
    let refused = |change: fn(&mut Segment)| {
        let mut changed = one_block();
        change(&mut changed);
        snapshot(vec![changed], &[]).check_consistency().unwrap_err()
    };
    let gap = refused(|segment| segment.blocks[1].address += 512);
    assert_eq!(gap, Inconsistency::BlockAddress { segment: PAGE, expected: PAGE + 512, found: PAGE + 1024 });
    let short = refused(|segment| segment.total_size += 512);
    assert_eq!(short, Inconsistency::Coverage { segment: PAGE, blocks: 4096, total: 4608 });
    let more = refused(|segment| segment.blocks[0].requested_size = 513);
    assert_eq!(more, Inconsistency::RequestedSize { address: PAGE, requested: 513, size: 512 });
    let sum = refused(|segment| segment.active_size = 0);
    assert_eq!(sum, Inconsistency::SegmentSum { segment: PAGE, name: "active_size", found: 0, expected: 512 });
    let overlap = snapshot(vec![one_block(), segment(PAGE + 512, &[(512, 0, BlockStatus::Inactive)])], &[]);
    assert_eq!(overlap.check_consistency(), Err(Inconsistency::SegmentOverlap { device: 0, address: PAGE + 512 }));
    // The same addresses on another device are other memory.
    let mut elsewhere = one_block();
    elsewhere.device = 1;
    snapshot(vec![one_block(), elsewhere], &[]).check_consistency().unwrap();
    // Stale requests of inactive blocks may be any size.
    let stale = segment(PAGE, &[(512, 99_999, BlockStatus::Inactive)]);
    snapshot(vec![stale], &[]).check_consistency().unwrap();
}

#[test]
fn every_dropped_or_swapped_event_of_a_real_trace_is_noticed_or_harmless() {
    let path = format!("{}/fixtures/torch-2.11/snapshots/default.pickle", env!("CARGO_MANIFEST_DIR"));
    let whole = Snapshot::read_file(path, &ReadLimits::default()).unwrap();
    let mut noticed = 0;
    for index in 0..whole.device_traces[0].len() {
        let mut damaged = whole.clone();
        let removed = damaged.device_traces[0].remove(index);
        match damaged.check_consistency() {
            Err(_) => noticed += 1,
            // What nothing later or earlier in the trace depends on: a failure, or the first event of something.
            Ok(()) => assert!(
                matches!(removed.action.known(), Some(Oom | Alloc | SegmentAlloc | SegmentFree)),
                "event {index}, {:?}",
                removed.action
            ),
        }
    }
    assert!(noticed > 300, "{noticed}");
}

#[test]
fn a_trace_becomes_a_program_of_numbered_allocations() {
    let trace = [
        (FreeRequested, 64, 7),
        (Alloc, PAGE, 500),
        (FreeCompleted, 64, 7),
        (Alloc, 64, 8),
        (FreeRequested, 64, 8),
        (FreeCompleted, 64, 8),
        (FreeCompleted, 64, 8),
        (Oom, 77, 1 << 50),
        (SegmentMap, 1, 2),
    ];
    let survivor = segment(16 * PAGE, &[(512, 9, BlockStatus::ActiveAllocated)]);
    let mut snapshot = snapshot(vec![one_block(), survivor], &trace);
    snapshot.device_traces[0][1].stream = Stream(5);
    let mut newer = TraceEntry::default();
    newer.action = EntryAction::Other("user_defined".into());
    snapshot.device_traces[0].insert(0, newer);
    let replay = snapshot.replay(0);
    let initial: Vec<_> = replay
        .initial
        .iter()
        .map(|allocation| (allocation.id, allocation.address, allocation.requested_bytes))
        .collect();
    assert_eq!(initial, [(0, 64, 7), (1, 16 * PAGE, 9)]);
    let kinds: Vec<_> = replay.events.iter().map(|event| (event.entry, event.kind)).collect();
    let stream = Stream::DEFAULT;
    let is_alloc = |kind: ReplayKind, expected: (u64, u64, u64, Stream)| {
        let ReplayKind::Alloc(ReplayedAllocation { id, address, requested_bytes, stream, .. }) = kind else {
            return false;
        };
        (id, address, requested_bytes, stream) == expected
    };
    assert_eq!(kinds[0], (1, ReplayKind::FreeRequested { id: 0, stream }));
    assert!(is_alloc(kinds[1].1, (2, PAGE, 500, Stream(5))));
    assert_eq!(kinds[2], (3, ReplayKind::FreeCompleted { id: 0, stream }));
    assert!(is_alloc(kinds[3].1, (3, 64, 8, stream)));
    assert_eq!(kinds[4], (5, ReplayKind::FreeRequested { id: 3, stream }));
    assert_eq!(kinds[5], (6, ReplayKind::FreeCompleted { id: 3, stream }));
    assert_eq!(kinds[6], (8, ReplayKind::OutOfMemory { bytes: 1 << 50, device_free_bytes: 77, stream }));
    assert_eq!(kinds[7], (9, ReplayKind::SegmentTaken { address: 1, bytes: 2, stream, mapped: true }));
    assert_eq!(kinds.len(), 8);
    assert_eq!(snapshot.replay(3), memtrack::history::Replay::default());
}

#[test]
fn torch_s_traces_replay_to_what_is_live_at_their_end() {
    for name in ["default", "expandable"] {
        let path = format!("{}/fixtures/torch-2.11/snapshots/{name}.pickle", env!("CARGO_MANIFEST_DIR"));
        let snapshot = Snapshot::read_file(path, &ReadLimits::default()).unwrap();
        let replay = snapshot.replay(0);
        assert_eq!((replay.initial.len(), replay.events.len()), (0, snapshot.device_traces[0].len()));
        let mut live = HashMap::new();
        for event in &replay.events {
            match event.kind {
                ReplayKind::Alloc(allocation) => {
                    assert!(live.insert(allocation.id, allocation.requested_bytes).is_none());
                }
                ReplayKind::FreeCompleted { id, .. } => assert!(live.remove(&id).is_some()),
                _ => {}
            }
        }
        assert_eq!(live.len() as u64, snapshot.usage().allocation_count);
        assert_eq!(live.values().sum::<u64>(), snapshot.usage().requested_bytes);
    }
}
