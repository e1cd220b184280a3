//! What findings are made from: plain figures of one allocator at one moment.

use std::cmp::Reverse;

use super::sums::total;
use crate::device::Stream;
use crate::history::BlockStatus;
use crate::stats::PoolKind;

/// A piece of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// Rounded.
    pub size_bytes: u64,
    /// What it is doing.
    pub status: BlockStatus,
    /// Of a live block: the place in [`AllocatorView::live`] of those that came from the same line and scope.
    pub group: Option<u32>,
}

/// Memory that came from the device in one piece, or one mapped range of an expandable segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentView {
    /// The stream it serves.
    pub stream: Stream,
    /// The pool it belongs to.
    pub pool: PoolKind,
    /// The private pool, `None` for the default ones.
    pub private_pool: Option<(u64, u64)>,
    /// The private pool has an owner, a captured graph or somebody whose allocations are led into it: what is free in it stays with it.
    pub is_kept: bool,
    /// Whether it is part of an expandable segment.
    pub is_expandable: bool,
    /// What it is cut into, in order of addresses.
    pub blocks: Vec<BlockView>,
}

impl SegmentView {
    /// Its bytes.
    pub fn size_bytes(&self) -> u64 {
        total(self.blocks.iter().map(|block| block.size_bytes))
    }

    /// Its free bytes.
    pub fn idle_bytes(&self) -> u64 {
        total(self.holes())
    }

    /// Its free pieces.
    pub fn holes(&self) -> impl Iterator<Item = u64> {
        let inactive = |block: &&BlockView| block.status == BlockStatus::Inactive;
        self.blocks.iter().filter(inactive).map(|block| block.size_bytes)
    }

    /// Nothing of it is in use.
    pub fn is_idle(&self) -> bool {
        self.blocks.iter().all(|block| block.status == BlockStatus::Inactive)
    }
}

/// Live blocks that one line of the program allocated in one scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveGroup {
    /// The line, such as `src/model.rs:31:20`; empty when it is unknown.
    pub place: String,
    /// The name of the innermost scope; empty outside of all.
    pub scope: String,
    /// So many blocks.
    pub block_count: u64,
    /// Their bytes as asked for.
    pub requested_bytes: u64,
    /// Their bytes rounded.
    pub size_bytes: u64,
}

impl std::fmt::Display for LiveGroup {
    /// As `10.00 GiB in 10 blocks, allocated at src/model.rs:31:20 in forward`, in bytes as asked for.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, scope, block_count, requested_bytes, .. } = self;
        let blocks = if *block_count == 1 { "block" } else { "blocks" };
        write!(f, "{} in {block_count} {blocks}", crate::units::Bytes::unsigned(*requested_bytes))?;
        if !place.is_empty() {
            write!(f, ", allocated at {place}")?;
        }
        if !scope.is_empty() {
            write!(f, " in {scope}")?;
        }
        Ok(())
    }
}

/// What an attempt that ran out of memory allocated and is still live.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailedAttemptView {
    /// The name of the function or scope that ended.
    pub scope: String,
    /// What it had asked for when it failed.
    pub requested_bytes: u64,
    /// Its blocks that are live, by line and scope.
    pub alive: Vec<LiveGroup>,
}

/// The settings that advice depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SettingsView {
    /// Expandable segments are in force.
    pub expandable_segments: bool,
    /// The device could have them.
    pub expandable_possible: bool,
    /// Blocks of at least this size are never split.
    pub max_split_size_bytes: Option<u64>,
    /// The segment for requests above 1 MiB and below 10 MiB.
    pub large_segment_size_bytes: u64,
}

/// What is on the device and is not this allocator's, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutsideView {
    /// All of it, when it was first looked at.
    pub before_bytes: Option<u64>,
    /// The context, by the driver's view.
    pub context_bytes: Option<u64>,
    /// Other processes, by the driver's list.
    pub other_processes_bytes: Option<u64>,
    /// So many of them.
    pub process_count: Option<u64>,
    /// What this process took outside the allocator since the context was measured.
    pub own_growth_bytes: Option<i64>,
    /// The device is one that no GPU driver knows: a simulated one, or the host.
    pub without_driver: bool,
}

/// One allocator at one moment. All sizes are bytes, rounded unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllocatorView {
    /// The device's name.
    pub device: String,
    /// Handed to the program.
    pub allocated_bytes: u64,
    /// The same, and what was given back and waits for other streams.
    pub active_bytes: u64,
    /// What was asked for of the active.
    pub requested_bytes: u64,
    /// Taken from the device.
    pub reserved_bytes: u64,
    /// What may be reserved; `None` without a limit.
    pub limit_bytes: Option<u64>,
    /// Free on the device; `None` when it did not say.
    pub device_free_bytes: Option<u64>,
    /// What the device has.
    pub device_total_bytes: u64,
    /// The settings in force.
    pub settings: SettingsView,
    /// The segments; none where the driver's own pool serves.
    pub segments: Vec<SegmentView>,
    /// Whole free pages of expandable segments that also hold blocks in use, as far as they could be given back now without the rest.
    pub free_page_bytes: u64,
    /// Emptying the cache leaves the default pools alone now, as it does while allocations are led into a private pool.
    pub default_pools_kept: bool,
    /// The live blocks by line and scope, those with the most bytes first.
    pub live: Vec<LiveGroup>,
    /// What failed attempts left behind.
    pub failed_attempts: Vec<FailedAttemptView>,
    /// What others have.
    pub outside: OutsideView,
}

impl AllocatorView {
    /// Puts the groups with the most bytes first, and lets blocks name their new places.
    pub(crate) fn sort_live(&mut self) {
        let mut order: Vec<usize> = (0..self.live.len()).collect();
        order.sort_by_key(|index| {
            let LiveGroup { place, scope, requested_bytes, .. } = &self.live[*index];
            (Reverse(*requested_bytes), place.clone(), scope.clone())
        });
        let mut place_of = vec![0; order.len()];
        for (place, index) in order.iter().enumerate() {
            place_of[*index] = place as u32;
        }
        self.live = order.iter().map(|index| std::mem::take(&mut self.live[*index])).collect();
        for block in self.segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
            block.group = block.group.and_then(|index| place_of.get(index as usize).copied());
        }
    }

    /// Reserved and in no use.
    pub fn idle_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.active_bytes)
    }

    /// Given back by the program, and waiting for other streams.
    pub fn pending_bytes(&self) -> u64 {
        self.active_bytes.saturating_sub(self.allocated_bytes)
    }

    /// What emptying the cache would give back now: segments wholly free, and whole free pages of expandable ones. Not those of private
    /// pools in use, nor those of the default pools while allocations are led into a private one. What waits for other streams is
    /// not counted; emptying the cache waits for it.
    pub fn returnable_bytes(&self) -> u64 {
        self.whole_segment_bytes().saturating_add(self.free_page_bytes)
    }

    /// In segments wholly free that can be given back.
    pub(super) fn whole_segment_bytes(&self) -> u64 {
        total(self.segments.iter().filter(|segment| self.may_go_back(segment)).map(SegmentView::size_bytes))
    }

    /// Whether the segment is wholly free and nothing keeps it.
    pub(super) fn may_go_back(&self, segment: &SegmentView) -> bool {
        let is_kept = segment.is_kept || (self.default_pools_kept && segment.private_pool.is_none());
        segment.is_idle() && !is_kept
    }

    /// What can still be taken: by the limit and, if it says, by the device.
    pub fn room_bytes(&self) -> u64 {
        let within_limit_bytes = self.limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(self.reserved_bytes));
        self.device_free_bytes.unwrap_or(0).min(within_limit_bytes)
    }

    /// What may be reserved at all.
    pub fn capacity_bytes(&self) -> u64 {
        self.limit_bytes.map_or(self.device_total_bytes, |limit| limit.min(self.device_total_bytes))
    }

    /// On the device and not this allocator's; `None` when the device did not say.
    pub fn outside_bytes(&self) -> Option<u64> {
        let used_bytes = self.device_total_bytes.saturating_sub(self.device_free_bytes?);
        Some(used_bytes.saturating_sub(self.reserved_bytes))
    }
}

/// A request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// As asked for.
    pub requested_bytes: u64,
    /// The block that it was rounded to.
    pub rounded_bytes: u64,
    /// The segment that it would have opened.
    pub segment_bytes: u64,
    /// Its stream.
    pub stream: Stream,
    /// The pool that would have served it.
    pub pool: PoolKind,
    /// The private pool that it was led into, `None` for the default ones.
    pub private_pool: Option<(u64, u64)>,
    /// Whether the allocator's own limit refused, not the device.
    pub by_limit: bool,
}
