//! Snapshots of an allocator and the recording of its history.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::block::{BlockIndex, BlockState, NO_BLOCK};
use super::inner::{Growth, Inner};
use super::memory_pool::MemoryPool;
use super::pools::StreamPools;
use super::private_pools::PoolId;
use super::shard::Shard;
use super::{CachingAllocator, events};
use crate::history::recording::{self, DeviceState, SegmentState};
use crate::history::{BlockStatus, HistoryOptions, Segment, Snapshot, WriteError};
use crate::sync::{BiasedGuard, lock};

impl Inner {
    /// Runs with every lock under which blocks change, so that what is seen fits together.
    pub(super) fn at_rest<R>(
        &self,
        look: impl FnOnce(&Growth, &[(&Arc<Shard>, BiasedGuard<'_, StreamPools>)]) -> R,
    ) -> R {
        let growth = lock(&self.growth);
        self.at_rest_in(&growth, |shards| look(&growth, shards))
    }

    /// As [`at_rest`](Self::at_rest), where the growth is held already.
    pub(super) fn at_rest_in<R>(
        &self,
        _growth: &Growth,
        look: impl FnOnce(&[(&Arc<Shard>, BiasedGuard<'_, StreamPools>)]) -> R,
    ) -> R {
        // With growth held no shard is made, and nobody else ever holds more than one.
        let shards = self.shards();
        let held: Vec<_> = shards.iter().map(|shard| (shard, shard.pools())).collect();
        look(&held)
    }

    /// The number in the device's name, 0 without one.
    fn ordinal(&self) -> i32 {
        self.name.rsplit_once(':').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
    }

    pub(super) fn snapshot(&self, with_trace: bool, pool: Option<PoolId>) -> Snapshot {
        let (state, settings) = self.at_rest(|growth, shards| {
            let of_pool = shards.iter().filter(|(shard, _)| pool.is_none_or(|pool| pool == shard.pool_id()));
            // The driver's own pool has blocks, but no segments that anybody could show.
            let of_pool = of_pool.filter(|_| !self.is_stream_ordered);
            let segments = of_pool.flat_map(|(shard, pools)| segments_of(shard, pools)).collect();
            let recording = if with_trace {
                let active_bytes = self.ledger().active_bytes();
                self.history.read_for_snapshot(active_bytes as u64)
            } else {
                self.history.read(false)
            };
            let state = DeviceState { device: self.ordinal(), segments, recording };
            (state, growth.config.allocator_settings())
        });
        recording::assemble(vec![state], settings)
    }
}

/// The segments of one shard: whole plain ones, and the unbroken mapped ranges of expandable ones.
fn segments_of(shard: &Shard, pools: &StreamPools) -> Vec<SegmentState> {
    let heads = pools.blocks.indices().into_iter().filter(|index| pools.blocks[*index].prev == NO_BLOCK);
    let mut segments = Vec::new();
    for head in heads {
        let mut at = head;
        while at != NO_BLOCK {
            if pools.blocks[at].state == BlockState::Unmapped {
                at = pools.blocks[at].next;
                continue;
            }
            let (segment, next) = range_from(shard, pools, at);
            segments.push(segment);
            at = next;
        }
    }
    segments
}

/// The mapped range that begins with a block, and the block behind it.
fn range_from(shard: &Shard, pools: &StreamPools, first: BlockIndex) -> (SegmentState, BlockIndex) {
    let PoolId(major, minor) = shard.pool_id();
    let head = &pools.blocks[first];
    let mut segment = SegmentState {
        address: head.address,
        stream: shard.stream,
        pool: head.pool,
        pool_id: (major, minor),
        is_expandable: head.is_expandable(),
        stack: head.segment_stack,
        blocks: Vec::new(),
    };
    let mut at = first;
    while at != NO_BLOCK {
        let block = &pools.blocks[at];
        let status = match block.state {
            BlockState::Allocated => BlockStatus::ActiveAllocated,
            BlockState::PendingFree => BlockStatus::ActivePendingFree,
            BlockState::Free => BlockStatus::Inactive,
            BlockState::Unmapped => break,
        };
        segment.blocks.push(recording::BlockState {
            size_bytes: block.size_bytes,
            requested_bytes: block.requested_bytes,
            status,
            stack: if status == BlockStatus::Inactive { recording::StackId::NONE } else { block.stack },
        });
        at = block.next;
    }
    (segment, at)
}

impl CachingAllocator {
    /// Switches the recording of events on with these options, or off and forgets all that was recorded; as PyTorch's
    /// `_record_memory_history`. New options keep what was recorded, unless they say otherwise.
    ///
    /// With the backend `cudaMallocAsync` nothing is recorded, and a warning says so.
    ///
    /// Off, it costs an allocation one load; on without call sites, less than the allocation itself.
    pub fn record_memory_history(&self, options: Option<&HistoryOptions>) {
        let inner = self.inner();
        if inner.is_stream_ordered {
            events::log_no_history_with_backend(inner);
            return;
        }
        inner.at_rest(|_, _| {
            let allocated_bytes = inner.ledger().live_bytes();
            inner.history.configure(options, allocated_bytes as u64);
        });
    }

    /// Segments with their blocks, the recorded events and the settings, as PyTorch's `_snapshot`.
    ///
    /// Allocations and frees wait while blocks are copied; names of call sites are looked up afterwards.
    pub fn snapshot(&self) -> Snapshot {
        self.inner().snapshot(true, None)
    }

    /// The segments with their blocks alone, by address, as PyTorch's `memory_snapshot`. What it costs does not depend on how
    /// much was recorded.
    pub fn memory_snapshot(&self) -> Vec<Segment> {
        self.inner().snapshot(false, None).segments
    }

    /// Writes a [`snapshot`](Self::snapshot) as the pickle that PyTorch's `_dump_snapshot` writes, or as JSON when the file's
    /// name ends in `.json`. pytorch.org/memory_viz opens both.
    ///
    /// Logs a warning when nothing was recorded: such a file shows live blocks, and no events.
    ///
    /// # Errors
    ///
    /// [`WriteError`] when the file cannot be written.
    pub fn dump_snapshot(&self, path: impl AsRef<Path>) -> Result<(), WriteError> {
        self.inner().dump_snapshot(path.as_ref())
    }
}

impl Inner {
    /// See [`CachingAllocator::dump_snapshot`].
    pub(crate) fn dump_snapshot(&self, path: &Path) -> Result<(), WriteError> {
        if !self.history.is_on() {
            events::log_no_history(self);
        }
        let snapshot = self.snapshot(true, None);
        let file = File::create(path)?;
        match path.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("json") => snapshot.write_json(file),
            _ => snapshot.write_pickle(file),
        }
    }
}

impl MemoryPool {
    /// The pool's segments with their blocks, by address.
    pub fn memory_snapshot(&self) -> Vec<Segment> {
        self.inner().snapshot(false, Some(self.id())).segments
    }
}
