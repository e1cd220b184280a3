//! What can be seen of the allocator, and whether it is consistent.

use super::state::{Activity, BlockState, Segment, SegmentState};
use super::{Counter, Counters, PoolId, ReferenceAllocator, TraceEntry};

impl ReferenceAllocator {
    /// All statistics.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Everything that happened, in order.
    pub fn trace(&self) -> &[TraceEntry] {
        &self.trace
    }

    /// Segments from the device as (address, bytes) in address order, without expandable ones.
    pub fn segments(&self) -> Vec<(u64, u64)> {
        let segments = self.segments.iter().filter(|segment| segment.page.is_none());
        let mut segments: Vec<_> = segments.map(|segment| (segment.address, segment.mapped_bytes())).collect();
        segments.sort_unstable();
        segments
    }

    /// Bytes with memory behind them.
    pub fn reserved_bytes(&self) -> u64 {
        self.segments.iter().map(Segment::mapped_bytes).sum()
    }

    /// The largest free block of any stream and pool.
    pub fn largest_free_block_bytes(&self) -> u64 {
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.is_free()).map(|block| block.size).max().unwrap_or(0)
    }

    /// The limit in force.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.limit
    }

    /// Frees that are put off until nothing is routed any more.
    pub fn deferred_count(&self) -> usize {
        self.deferred.len()
    }

    /// The pool that a request would go to.
    pub fn routed_pool(&self, thread: usize, stream: u64) -> PoolId {
        self.route(thread, stream)
    }

    /// All segments, and of expandable ones each range that has memory, in address order.
    pub fn snapshot(&self) -> Vec<SegmentState> {
        let mut ranges = Vec::new();
        for segment in &self.segments {
            for blocks in segment.blocks.split(|block| !block.mapped).filter(|blocks| !blocks.is_empty()) {
                ranges.push(SegmentState {
                    address: blocks[0].address,
                    stream: segment.stream,
                    kind: segment.pool.kind,
                    pool: segment.pool.owner,
                    expandable: segment.page.is_some(),
                    blocks: blocks
                        .iter()
                        .map(|block| BlockState {
                            address: block.address,
                            size: block.size,
                            requested: block.requested,
                            activity: match (block.allocated, block.is_idle()) {
                                (true, _) => Activity::Allocated,
                                (false, false) => Activity::Pending,
                                (false, true) => Activity::Inactive,
                            },
                        })
                        .collect(),
                });
            }
        }
        ranges.sort_unstable_by_key(|range| range.address);
        ranges
    }

    /// Blocks tile their segments, free neighbours are merged, and the sums are what the counters say.
    pub fn check(&self) {
        let mut sums = [0_i64; 3];
        for segment in &self.segments {
            let mut at = segment.address;
            for pair in segment.blocks.windows(2) {
                let differ = pair[0].mapped != pair[1].mapped;
                assert!(differ || !pair[0].is_idle() || !pair[1].is_idle(), "neighbours that should be one");
            }
            let counts_splits = segment.page.is_none() && segment.is_split();
            for block in &segment.blocks {
                assert_eq!(block.address, at, "a gap or an overlap");
                at += block.size;
                let size = block.size as i64;
                sums[0] += if block.allocated { size } else { 0 };
                sums[1] += if block.is_idle() { 0 } else { size };
                sums[2] += if block.is_free() && counts_splits { size } else { 0 };
            }
            assert_eq!(at, segment.end(), "blocks tile the segment");
            assert!(segment.page.is_none_or(|page| segment.mapped_bytes() % page == 0), "whole pages");
        }
        assert_eq!(self.counters.current(Counter::AllocatedBytes), sums[0]);
        assert_eq!(self.counters.current(Counter::ActiveBytes), sums[1]);
        assert_eq!(self.counters.current(Counter::InactiveSplitBytes), sums[2]);
        assert_eq!(self.counters.current(Counter::ReservedBytes), self.reserved_bytes() as i64);
    }
}
