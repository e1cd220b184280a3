//! The sums of a snapshot.

use std::collections::BTreeMap;

use super::encode::pool_name;
use super::snapshot::{BlockStatus, Segment, Snapshot};
use crate::device::Stream;
use crate::stats::PoolKind;

/// Sums over some segments, in bytes and counts, as `memory_stats` has them for the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// Segments.
    pub segment_count: u64,
    /// Blocks of any state.
    pub block_count: u64,
    /// Allocated blocks.
    pub allocation_count: u64,
    /// Bytes of the segments.
    pub reserved_bytes: u64,
    /// Rounded bytes of allocated blocks.
    pub allocated_bytes: u64,
    /// Rounded bytes of blocks that are allocated or wait for a stream.
    pub active_bytes: u64,
    /// Bytes asked for of active blocks.
    pub requested_bytes: u64,
    /// Bytes of inactive blocks.
    pub inactive_bytes: u64,
    /// Of these, bytes in segments that hold other blocks too, as `inactive_split_bytes`: expandable segments are left out.
    pub inactive_split_bytes: u64,
    /// The largest inactive block.
    pub largest_inactive_bytes: u64,
}

impl MemoryUsage {
    fn add(&mut self, segment: &Segment) {
        self.segment_count += 1;
        self.reserved_bytes = self.reserved_bytes.saturating_add(segment.total_size);
        for block in &segment.blocks {
            self.block_count += 1;
            if block.state == BlockStatus::Inactive {
                self.inactive_bytes = self.inactive_bytes.saturating_add(block.size);
                if segment.blocks.len() > 1 && !segment.is_expandable {
                    self.inactive_split_bytes = self.inactive_split_bytes.saturating_add(block.size);
                }
                self.largest_inactive_bytes = self.largest_inactive_bytes.max(block.size);
                continue;
            }
            self.active_bytes = self.active_bytes.saturating_add(block.size);
            self.requested_bytes = self.requested_bytes.saturating_add(block.requested_size);
            if block.state == BlockStatus::ActiveAllocated {
                self.allocation_count += 1;
                self.allocated_bytes = self.allocated_bytes.saturating_add(block.size);
            }
        }
    }
}

/// The sums of the segments that one pool of one stream has on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsageGroup {
    /// The device's number.
    pub device: i32,
    /// The pool.
    pub segment_type: PoolKind,
    /// The private pool, `(0, 0)` for none.
    pub segment_pool_id: (u64, u64),
    /// The stream.
    pub stream: Stream,
    /// Whether the segments are expandable ones.
    pub is_expandable: bool,
    /// The sums.
    pub usage: MemoryUsage,
}

impl Snapshot {
    /// The sums of all segments, from their blocks.
    pub fn usage(&self) -> MemoryUsage {
        sum(&self.segments)
    }

    /// The sums of all segments of one kind of pool.
    pub fn usage_of(&self, pool: PoolKind) -> MemoryUsage {
        sum(self.segments.iter().filter(|segment| segment.segment_type == pool))
    }

    /// The sums by device, kind of pool (small before large), private pool, stream and kind of segment, in this order.
    pub fn usage_groups(&self) -> Vec<UsageGroup> {
        let mut groups: BTreeMap<_, UsageGroup> = BTreeMap::new();
        for segment in &self.segments {
            let &Segment { device, segment_type, segment_pool_id, stream, is_expandable, .. } = segment;
            // Small first.
            let key = (device, segment_type == PoolKind::Large, segment_pool_id, stream, is_expandable);
            let empty = MemoryUsage::default();
            let group = UsageGroup { device, segment_type, segment_pool_id, stream, is_expandable, usage: empty };
            groups.entry(key).or_insert(group).usage.add(segment);
        }
        groups.into_values().collect()
    }
}

impl UsageGroup {
    /// The pool's name in files: `small` or `large`.
    pub fn pool_name(&self) -> &'static str {
        pool_name(self.segment_type)
    }
}

fn sum<'a>(segments: impl IntoIterator<Item = &'a Segment>) -> MemoryUsage {
    let mut usage = MemoryUsage::default();
    segments.into_iter().for_each(|segment| usage.add(segment));
    usage
}
