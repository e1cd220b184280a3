//! Whether a snapshot's traces lead to its segments and blocks.
//!
//! PyTorch's page shows the past by undoing a trace from its end, starting at the final state. A trace and a state that do
//! not fit make it fail. The same is done here, more strictly: the page leaves a wrong address be where it can.

use std::collections::BTreeMap;

use super::action::TraceAction;
use super::snapshot::{BlockStatus, Segment, Snapshot, TraceEntry};
use crate::device::Stream;

/// The first thing found that does not fit. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Inconsistency {
    /// A block does not start where the one before it, or the segment, says.
    #[error("segment {segment:#x}: a block starts at {found:#x}, not at {expected:#x}")]
    BlockAddress {
        /// The segment.
        segment: u64,
        /// Where the block should start.
        expected: u64,
        /// Where it does.
        found: u64,
    },
    /// The blocks do not cover the segment, or more than it.
    #[error("segment {segment:#x}: its blocks have {blocks} bytes and it has {total}")]
    Coverage {
        /// The segment.
        segment: u64,
        /// Bytes of its blocks.
        blocks: u128,
        /// Its bytes.
        total: u64,
    },
    /// More was asked for than the block has.
    #[error("block {address:#x}: {requested} bytes were asked for and it has {size}")]
    RequestedSize {
        /// The block.
        address: u64,
        /// As asked for.
        requested: u64,
        /// Its bytes.
        size: u64,
    },
    /// A sum of the segment is not that of its blocks.
    #[error("segment {segment:#x}: {name} is {found} and its blocks have {expected}")]
    SegmentSum {
        /// The segment.
        segment: u64,
        /// Of the sum.
        name: &'static str,
        /// The segment's sum.
        found: u64,
        /// That of its blocks.
        expected: u64,
    },
    /// Two segments of a device share memory.
    #[error("device {device}: segments overlap at {address:#x}")]
    SegmentOverlap {
        /// The device.
        device: usize,
        /// Where.
        address: u64,
    },
    /// An event that cannot have led to what follows.
    #[error("device {device}, event {entry}, {action} of {size} bytes at {address:#x}: {problem}")]
    Event {
        /// The device.
        device: usize,
        /// Which event of its trace, from 0.
        entry: usize,
        /// What it says happened.
        action: TraceAction,
        /// Its address.
        address: u64,
        /// Its bytes.
        size: u64,
        /// Why it cannot be.
        problem: &'static str,
    },
}

impl Snapshot {
    /// Checks that blocks cover their segments without gaps, that sums add up, that no block was asked for more than it has,
    /// and that each device's trace, undone from its end, fits the final state: what PyTorch's page and
    /// `_memory_viz stats` take for granted. Events of unknown kinds are passed over. Takes time by the number of events.
    ///
    /// # Errors
    ///
    /// The first [`Inconsistency`]. Traces that were recorded with `skip_actions` or merged from allocators that share a
    /// device's addresses may well have one.
    pub fn check_consistency(&self) -> Result<(), Inconsistency> {
        self.segments.iter().try_for_each(check_segment)?;
        for device in self.device_numbers() {
            let segments = self.segments.iter().filter(|segment| usize::try_from(segment.device) == Ok(device));
            let mut state = State::new(device, segments)?;
            let trace = self.device_traces.get(device).map_or(&[][..], Vec::as_slice);
            for (index, entry) in trace.iter().enumerate().rev() {
                if let Some(action) = entry.action.known() {
                    state.undo(action, entry).map_err(|problem| Inconsistency::Event {
                        device,
                        entry: index,
                        action,
                        address: entry.addr,
                        size: entry.size,
                        problem,
                    })?;
                }
            }
        }
        Ok(())
    }

    /// The devices that have a segment or an event.
    fn device_numbers(&self) -> Vec<usize> {
        let with_segments = self.segments.iter().filter_map(|segment| usize::try_from(segment.device).ok());
        let with_events = self.device_traces.iter().enumerate().filter(|(_, trace)| !trace.is_empty());
        let mut devices: Vec<usize> = with_segments.chain(with_events.map(|(device, _)| device)).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }
}

fn check_segment(segment: &Segment) -> Result<(), Inconsistency> {
    let mut covered = 0_u128;
    let mut sums = [0_u128; 3];
    for block in &segment.blocks {
        let expected = u128::from(segment.address) + covered;
        if u128::from(block.address) != expected {
            let expected = u64::try_from(expected).unwrap_or(u64::MAX);
            return Err(Inconsistency::BlockAddress { segment: segment.address, expected, found: block.address });
        }
        covered += u128::from(block.size);
        if block.state == BlockStatus::Inactive {
            continue;
        }
        if block.requested_size > block.size {
            let (address, requested, size) = (block.address, block.requested_size, block.size);
            return Err(Inconsistency::RequestedSize { address, requested, size });
        }
        if block.state == BlockStatus::ActiveAllocated {
            sums[0] += u128::from(block.size);
        }
        sums[1] += u128::from(block.size);
        sums[2] += u128::from(block.requested_size);
    }
    if covered != u128::from(segment.total_size) {
        return Err(Inconsistency::Coverage { segment: segment.address, blocks: covered, total: segment.total_size });
    }
    let found = [
        ("allocated_size", segment.allocated_size),
        ("active_size", segment.active_size),
        ("requested_size", segment.requested_size),
    ];
    for ((name, found), expected) in found.into_iter().zip(sums) {
        if u128::from(found) != expected {
            // No more than the segment has, which was just found to be a 64-bit number.
            let expected = u64::try_from(expected).unwrap_or(u64::MAX);
            return Err(Inconsistency::SegmentSum { segment: segment.address, name, found, expected });
        }
    }
    Ok(())
}

/// A piece of the device's memory.
struct Range {
    end: u128,
    stream: Stream,
    /// Whether it grows and shrinks: a range of an expandable segment.
    is_expandable: bool,
}

/// A block in use.
struct Live {
    requested: u64,
    end: u128,
    free_requested: bool,
}

/// A device's memory at some moment. All ends are exclusive.
struct State {
    segments: BTreeMap<u64, Range>,
    blocks: BTreeMap<u64, Live>,
}

impl State {
    fn new<'a>(device: usize, segments: impl Iterator<Item = &'a Segment>) -> Result<Self, Inconsistency> {
        let mut state = Self { segments: BTreeMap::new(), blocks: BTreeMap::new() };
        for segment in segments {
            let end = u128::from(segment.address) + u128::from(segment.total_size);
            let (stream, is_expandable) = (segment.stream, segment.is_expandable);
            if state.overlaps_segment(segment.address, end) {
                return Err(Inconsistency::SegmentOverlap { device, address: segment.address });
            }
            state.add_segment(segment.address, Range { end, stream, is_expandable });
            for block in segment.blocks.iter().filter(|block| block.state != BlockStatus::Inactive) {
                let live = Live {
                    requested: block.requested_size,
                    end: u128::from(block.address) + u128::from(block.size),
                    free_requested: block.state == BlockStatus::ActivePendingFree,
                };
                state.blocks.insert(block.address, live);
            }
        }
        Ok(state)
    }

    fn overlaps_segment(&self, start: u64, end: u128) -> bool {
        let mut before = u64::try_from(end).map_or_else(|_| self.segments.range(..), |end| self.segments.range(..end));
        before.next_back().is_some_and(|(_, last)| last.end > u128::from(start))
    }

    fn overlaps_block(&self, start: u64, end: u128) -> bool {
        let mut before = u64::try_from(end).map_or_else(|_| self.blocks.range(..), |end| self.blocks.range(..end));
        before.next_back().is_some_and(|(_, last)| last.end > u128::from(start))
    }

    /// The segment that holds a range.
    fn segment_around(&self, start: u64, end: u128) -> Option<(u64, &Range)> {
        let (address, segment) = self.segments.range(..=start).next_back()?;
        (end <= segment.end).then_some((*address, segment))
    }

    /// Ranges of expandable segments that touch are one, as in a snapshot, unless they serve different streams.
    fn add_segment(&mut self, start: u64, mut range: Range) {
        let mut first = start;
        if range.is_expandable {
            if let Ok(end) = u64::try_from(range.end)
                && self.segments.get(&end).is_some_and(|next| next.joins(&range))
                && let Some(next) = self.segments.remove(&end)
            {
                range.end = next.end;
            }
            if let Some((address, before)) = self.segments.range(..start).next_back()
                && before.end == u128::from(start)
                && before.joins(&range)
            {
                first = *address;
            }
        }
        self.segments.insert(first, range);
    }

    /// Undoes one event.
    fn undo(&mut self, action: TraceAction, entry: &TraceEntry) -> Result<(), &'static str> {
        let (start, end) = (entry.addr, u128::from(entry.addr) + u128::from(entry.size));
        match action {
            TraceAction::Alloc => match self.blocks.remove(&start) {
                None => Err("no block is there afterwards"),
                Some(block) if block.requested != entry.size => Err("the block there has another requested size"),
                Some(block) if block.free_requested => Err("its free was completed without being requested"),
                Some(_) => Ok(()),
            },
            TraceAction::FreeRequested => match self.blocks.get_mut(&start) {
                None => Err("no block is there afterwards"),
                Some(block) if block.requested != entry.size => Err("the block there has another requested size"),
                Some(block) if !block.free_requested => Err("the block is allocated afterwards"),
                Some(block) => {
                    block.free_requested = false;
                    Ok(())
                }
            },
            TraceAction::FreeCompleted => {
                if self.segment_around(start, end).is_none() {
                    return Err("no segment holds it");
                }
                if self.blocks.contains_key(&start) || self.overlaps_block(start, end) {
                    return Err("another block is there afterwards");
                }
                self.blocks.insert(start, Live { requested: entry.size, end, free_requested: true });
                Ok(())
            }
            TraceAction::SegmentAlloc => {
                let found =
                    self.segments.get(&start).is_some_and(|segment| segment.end == end && !segment.is_expandable);
                if !found {
                    return Err("no segment of this size is there afterwards");
                }
                if self.overlaps_block(start, end) {
                    return Err("a block was in it before");
                }
                self.segments.remove(&start);
                Ok(())
            }
            TraceAction::SegmentMap => self.unmap(start, end),
            TraceAction::SegmentFree | TraceAction::SegmentUnmap => {
                if self.overlaps_segment(start, end) {
                    return Err("a segment is there afterwards");
                }
                let is_expandable = action == TraceAction::SegmentUnmap;
                self.add_segment(start, Range { end, stream: entry.stream, is_expandable });
                Ok(())
            }
            TraceAction::Snapshot | TraceAction::Oom => Ok(()),
        }
    }

    fn unmap(&mut self, start: u64, end: u128) -> Result<(), &'static str> {
        let Some((address, &Range { end: segment_end, stream, is_expandable: true })) = self.segment_around(start, end)
        else {
            return Err("no expandable segment holds the range afterwards");
        };
        if self.overlaps_block(start, end) {
            return Err("a block was in it before");
        }
        self.segments.remove(&address);
        if address < start {
            self.segments.insert(address, Range { end: u128::from(start), stream, is_expandable: true });
        }
        if let Ok(rest) = u64::try_from(end)
            && end < segment_end
        {
            self.segments.insert(rest, Range { end: segment_end, stream, is_expandable: true });
        }
        Ok(())
    }
}

impl Range {
    fn joins(&self, other: &Self) -> bool {
        self.is_expandable && other.is_expandable && self.stream == other.stream
    }
}
