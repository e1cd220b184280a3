//! A trace as a program that can be run again: allocations by number instead of by address.

use std::collections::{HashMap, HashSet};

use super::action::TraceAction;
use super::snapshot::{BlockStatus, Snapshot, TraceEntry};
use crate::device::Stream;

/// The events of one device's trace, and what was allocated before the first of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Replay {
    /// Allocations that were live when the trace begins, by address; their numbers count from 0. Known because the trace
    /// frees them or because they are still there at its end.
    pub initial: Vec<ReplayedAllocation>,
    /// The events in order. Numbers of allocations go on where `initial` ends.
    pub events: Vec<ReplayEvent>,
}

/// An allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayedAllocation {
    /// Its number in this replay, never used again.
    pub id: u64,
    /// Where it was.
    pub address: u64,
    /// As asked for.
    pub requested_bytes: u64,
    /// The stream it was for.
    pub stream: Stream,
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayEvent {
    /// Which entry of the trace, from 0.
    pub entry: usize,
    /// When, in microseconds since 1970.
    pub time_us: i64,
    /// What happened.
    pub kind: ReplayKind,
}

/// What happened. Sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayKind {
    /// A block was handed out.
    Alloc(ReplayedAllocation),
    /// The program gave an allocation back.
    FreeRequested {
        /// The allocation.
        id: u64,
        /// As the entry has it.
        stream: Stream,
    },
    /// An allocation's block could be handed out again. Later than [`FreeRequested`](Self::FreeRequested) by more than one
    /// event when another stream used it.
    FreeCompleted {
        /// The allocation.
        id: u64,
        /// As the entry has it.
        stream: Stream,
    },
    /// Memory came from the device: a segment, or with `mapped` a range of an expandable one.
    SegmentTaken {
        /// Where.
        address: u64,
        /// Its bytes.
        bytes: u64,
        /// The stream it serves.
        stream: Stream,
        /// Whether it is a range of an expandable segment.
        mapped: bool,
    },
    /// Memory went back to the device.
    SegmentReturned {
        /// Where.
        address: u64,
        /// Its bytes.
        bytes: u64,
        /// The stream it served.
        stream: Stream,
        /// Whether it was a range of an expandable segment.
        mapped: bool,
    },
    /// A request failed.
    OutOfMemory {
        /// Rounded.
        bytes: u64,
        /// What the device had left.
        device_free_bytes: u64,
        /// The stream.
        stream: Stream,
    },
    /// A snapshot was taken.
    Snapshot {
        /// All active bytes at that moment.
        active_bytes: u64,
    },
}

impl Snapshot {
    /// The trace of a device as numbered events; empty for a device that has none. Entries of unknown kinds are left out,
    /// and so is a second free of what has been freed.
    pub fn replay(&self, device: usize) -> Replay {
        let trace = self.device_traces.get(device).map_or(&[][..], Vec::as_slice);
        let mut initial = self.initial(device, trace);
        initial.sort_by_key(|allocation| allocation.address);
        for (id, allocation) in (0..).zip(&mut initial) {
            allocation.id = id;
        }
        let mut next_id = initial.len() as u64;
        let mut live: HashMap<u64, u64> =
            initial.iter().map(|allocation| (allocation.address, allocation.id)).collect();
        let mut events = Vec::with_capacity(trace.len());
        for (index, entry) in trace.iter().enumerate() {
            let Some(action) = entry.action.known() else { continue };
            if let Some(kind) = kind(action, entry, &mut live, &mut next_id) {
                events.push(ReplayEvent { entry: index, time_us: entry.time_us, kind });
            }
        }
        Replay { initial, events }
    }

    /// What must have been live before the trace, not numbered yet.
    fn initial(&self, device: usize, trace: &[TraceEntry]) -> Vec<ReplayedAllocation> {
        let mut found = Vec::new();
        let mut named: HashSet<u64> = HashSet::new();
        for entry in trace {
            let is_free = match entry.action.known() {
                Some(TraceAction::Alloc) => false,
                Some(TraceAction::FreeRequested | TraceAction::FreeCompleted) => true,
                _ => continue,
            };
            // The first event of an address tells: freed before it was allocated.
            if named.insert(entry.addr) && is_free {
                found.push(unnumbered(entry.addr, entry.size, entry.stream));
            }
        }
        for segment in self.segments.iter().filter(|segment| usize::try_from(segment.device) == Ok(device)) {
            for block in segment.blocks.iter().filter(|block| block.state != BlockStatus::Inactive) {
                if !named.contains(&block.address) {
                    found.push(unnumbered(block.address, block.requested_size, segment.stream));
                }
            }
        }
        found
    }
}

fn unnumbered(address: u64, requested_bytes: u64, stream: Stream) -> ReplayedAllocation {
    ReplayedAllocation { id: 0, address, requested_bytes, stream }
}

fn kind(
    action: TraceAction,
    entry: &TraceEntry,
    live: &mut HashMap<u64, u64>,
    next_id: &mut u64,
) -> Option<ReplayKind> {
    let &TraceEntry { addr: address, size: bytes, stream, .. } = entry;
    Some(match action {
        TraceAction::Alloc => {
            let id = *next_id;
            *next_id += 1;
            live.insert(address, id);
            ReplayKind::Alloc(ReplayedAllocation { id, address, requested_bytes: bytes, stream })
        }
        TraceAction::FreeRequested => ReplayKind::FreeRequested { id: *live.get(&address)?, stream },
        TraceAction::FreeCompleted => ReplayKind::FreeCompleted { id: live.remove(&address)?, stream },
        TraceAction::SegmentAlloc | TraceAction::SegmentMap => {
            ReplayKind::SegmentTaken { address, bytes, stream, mapped: action == TraceAction::SegmentMap }
        }
        TraceAction::SegmentFree | TraceAction::SegmentUnmap => {
            ReplayKind::SegmentReturned { address, bytes, stream, mapped: action == TraceAction::SegmentUnmap }
        }
        TraceAction::Snapshot => ReplayKind::Snapshot { active_bytes: bytes },
        TraceAction::Oom => ReplayKind::OutOfMemory { bytes, device_free_bytes: address, stream },
    })
}
