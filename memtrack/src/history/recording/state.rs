//! From what the allocator hands over to a snapshot.

use std::collections::HashMap;

use super::StackId;
use super::clock::Scale;
use super::recorder::Recording;
use crate::device::Stream;
use crate::history::settings::AllocatorSettings;
use crate::history::snapshot::{Block, BlockStatus, Frames, Segment, Snapshot};
use crate::stats::PoolKind;

/// A block, in its segment's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockState {
    /// Rounded.
    pub size_bytes: u64,
    /// As asked for; stale for inactive blocks.
    pub requested_bytes: u64,
    /// What it is doing.
    pub status: BlockStatus,
    /// Where it was allocated.
    pub stack: StackId,
}

/// A segment: memory of the device in one piece, or an unbroken mapped range of an expandable segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentState {
    /// Where its first block starts.
    pub address: u64,
    /// The stream it serves.
    pub stream: Stream,
    /// The pool it belongs to.
    pub pool: PoolKind,
    /// The private pool, `(0, 0)` for none.
    pub pool_id: (u64, u64),
    /// Whether it is part of an expandable segment.
    pub is_expandable: bool,
    /// Where it was allocated.
    pub stack: StackId,
    /// By address, without gaps.
    pub blocks: Vec<BlockState>,
}

/// One allocator at one moment. The segments and the recording are copied under the same locks: all those under which the
/// allocator's blocks change and its events are recorded.
#[derive(Debug)]
pub struct DeviceState {
    /// The device's number, not negative.
    pub device: i32,
    /// In any order.
    pub segments: Vec<SegmentState>,
    /// From the allocator's recorder.
    pub recording: Recording,
}

/// Makes a snapshot of allocators, with the names of call sites. Takes time by what they hand over; to be called with no
/// lock held.
pub fn assemble(devices: Vec<DeviceState>, allocator_settings: AllocatorSettings) -> Snapshot {
    let mut snapshot = Snapshot { allocator_settings, ..Snapshot::default() };
    for DeviceState { device, segments, recording } in devices {
        let scale = recording.scale();
        let mut names: HashMap<StackId, Option<Frames>> = HashMap::from([(StackId::NONE, None)]);
        let mut frames = |stack| names.entry(stack).or_insert_with(|| recording.frames(stack)).clone();
        snapshot.segments.extend(segments.into_iter().map(|segment| finish(device, segment, &mut frames)));
        let number = usize::try_from(device).unwrap_or(0);
        if snapshot.device_traces.len() <= number {
            snapshot.device_traces.resize_with(number + 1, Vec::new);
        }
        add_trace(&mut snapshot, number, &recording, scale, frames);
        snapshot.external_annotations.extend(recording.annotations(device, scale));
        snapshot.history.push(recording.history(device, scale));
    }
    snapshot.segments.sort_by_key(|segment| (segment.device, segment.address));
    snapshot.external_annotations.sort_by_key(|annotation| annotation.time_us);
    snapshot
}

/// Several allocators may share a device: their events are merged by time.
fn add_trace(
    snapshot: &mut Snapshot,
    number: usize,
    recording: &Recording,
    scale: Scale,
    frames: impl FnMut(StackId) -> Option<Frames>,
) {
    let trace = &mut snapshot.device_traces[number];
    let is_shared = !trace.is_empty();
    trace.extend(recording.trace(scale, frames));
    if is_shared {
        trace.sort_by_key(|entry| entry.time_us);
    }
}

fn finish(device: i32, segment: SegmentState, frames: &mut impl FnMut(StackId) -> Option<Frames>) -> Segment {
    let SegmentState { address, stream, pool, pool_id, is_expandable, stack, blocks } = segment;
    let mut finished = Segment {
        device,
        address,
        stream,
        segment_type: pool,
        segment_pool_id: pool_id,
        is_expandable,
        frames: frames(stack).unwrap_or_default(),
        blocks: Vec::with_capacity(blocks.len()),
        ..Segment::default()
    };
    for BlockState { size_bytes, requested_bytes, status, stack } in blocks {
        let block = Block {
            address: address + finished.total_size,
            size: size_bytes,
            requested_size: requested_bytes,
            state: status,
            frames: frames(stack).unwrap_or_default(),
        };
        finished.total_size += size_bytes;
        if status == BlockStatus::ActiveAllocated {
            finished.allocated_size += size_bytes;
        }
        if status != BlockStatus::Inactive {
            finished.active_size += size_bytes;
            finished.requested_size += requested_bytes;
        }
        finished.blocks.push(block);
    }
    finished
}
