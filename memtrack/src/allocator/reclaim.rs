//! Giving cached memory back to the device: whole plain segments, and the pages of expandable ones.

use std::sync::Arc;

use super::block::BlockIndex;
use super::events;
use super::free_set::FreeBlock;
use super::grow::Request;
use super::inner::{Growth, Inner};
use super::pools::StreamPools;
use super::private_pools::{PoolId, PrivatePool};
use super::shard::Shard;
use crate::device::{DeviceError, Stream};
use crate::history::TraceAction;
use crate::history::recording::StackId;
use crate::stats::PoolKind;
use crate::sync::lock;

impl Inner {
    /// With a limit and a threshold: gives back large segments that have been free for long, the older half first, until
    /// the threshold is met.
    pub(super) fn collect_garbage(&self, growth: &mut Growth) -> Result<(), DeviceError> {
        let (Some(limit_bytes), Some(threshold)) = (growth.limit_bytes, growth.config.garbage_collection_threshold)
        else {
            return Ok(());
        };
        let threshold_bytes = (threshold * limit_bytes as f64) as u64;
        if growth.reserved_bytes <= threshold_bytes {
            return Ok(());
        }
        let target_bytes = growth.reserved_bytes - threshold_bytes;
        let now = self.search_count(PoolKind::Large);
        let shards = self.shards_of(PoolId::DEFAULT);
        // Other threads go on searching and freeing: a block may be younger than `now`, and each pass may see others.
        let age = |pools: &StreamPools, index: BlockIndex| now.saturating_sub(pools.blocks[index].freed_at_search);
        let mut reclaimed_bytes = 0;
        while reclaimed_bytes < target_bytes {
            let (mut total_age, mut block_count) = (0_u64, 0_u64);
            for shard in &shards {
                let pools = shard.pools();
                for free in pools.whole_free(PoolKind::Large) {
                    total_age += age(&pools, free.index);
                    block_count += 1;
                }
            }
            // Not a number without any block; then nothing is old enough and the loop ends.
            let limit_age = total_age as f64 / block_count as f64;
            let mut freed_some = false;
            for shard in &shards {
                let mut pools = shard.pools();
                for free in pools.whole_free(PoolKind::Large) {
                    if age(&pools, free.index) as f64 >= limit_age {
                        self.release_segment(growth, shard.stream, &mut pools, PoolKind::Large, free)?;
                        freed_some = true;
                        reclaimed_bytes += free.size_bytes;
                    }
                }
            }
            if !freed_some {
                break;
            }
        }
        Ok(())
    }

    /// With a split limit: gives back oversize segments of the request's stream, enough for the request.
    pub(super) fn release_oversize(&self, growth: &mut Growth, request: &Request<'_>) -> Result<bool, DeviceError> {
        let max_split_size_bytes = growth.rules.max_split_size_bytes;
        // PyTorch does not look: a graph that is launched later would use memory that is not there any more.
        if max_split_size_bytes == u64::MAX || request.shard.private.as_ref().is_some_and(|pool| pool.serves_graphs()) {
            return Ok(false);
        }
        let key_bytes = request.size_bytes.max(max_split_size_bytes);
        let mut pools = request.shard.pools();
        let pool = request.pool;
        if let Some(fit) = pools.best_fit(pool, key_bytes)
            && self.may_release(&pools, &fit)?
        {
            self.release_segment(growth, request.shard.stream, &mut pools, pool, fit)?;
            return Ok(true);
        }
        let mut released_bytes = 0_u64;
        let mut limit = (key_bytes, 0);
        while released_bytes < key_bytes {
            let Some(free) = pools.free_before(pool, limit) else { break };
            if free.size_bytes < max_split_size_bytes {
                break;
            }
            limit = (free.size_bytes, free.address);
            if self.may_release(&pools, &free)? {
                self.release_segment(growth, request.shard.stream, &mut pools, pool, free)?;
                released_bytes += free.size_bytes;
            }
        }
        Ok(released_bytes >= key_bytes)
    }

    /// Whether a free block is a whole segment. PyTorch does not look and asks the device to release a part of one: its numbers
    /// and an error come out where they are wanted, and the part stays where it is.
    fn may_release(&self, pools: &StreamPools, free: &FreeBlock) -> Result<bool, DeviceError> {
        let block = &pools.blocks[free.index];
        if block.is_split() && !block.is_expandable() && pools.rules.torch_exact {
            self.ledger().release_refused();
            return Err(DeviceError::InvalidAddress {
                device: self.device.name().to_owned(),
                address: free.address,
                reason: "a part of a segment that is in use cannot be given back (PyTorch 2.11 tries when max_split_size_mb has been \
                         lowered; without torch_exact it is left alone)",
            });
        }
        Ok(pools.is_whole_segment(free))
    }

    /// Waits for all streams that still use freed blocks; with `pool`, blocks of that pool.
    pub(super) fn synchronize_pending(&self, pool: Option<PoolId>) -> Result<(), DeviceError> {
        self.ledger().synchronized();
        self.pending.wait(self, pool)
    }

    /// Gives cached memory back: that of the default pools, unless a pool is routed to, then that of private pools that nobody uses.
    pub(super) fn release_all(&self, growth: &mut Growth) -> Result<(), DeviceError> {
        if !self.routes.any() {
            self.synchronize_pending(None)?;
            return self.release_cached(growth);
        }
        self.release_freeable(growth)
    }

    /// Gives every whole free segment and page back: of the default pools large ones first, then of private pools that nobody uses.
    pub(super) fn release_cached(&self, growth: &mut Growth) -> Result<(), DeviceError> {
        let shards = self.shards_of(PoolId::DEFAULT);
        for pool in [PoolKind::Large, PoolKind::Small] {
            self.release_pool(growth, &shards, pool)?;
        }
        self.release_freeable(growth)
    }

    /// In the order in which they came out of use; PyTorch has none.
    pub(super) fn release_freeable(&self, growth: &mut Growth) -> Result<(), DeviceError> {
        let mut pools = self.private_pools();
        pools.retain(|pool| pool.is_freeable());
        pools.sort_by_key(|pool| pool.freeable_since());
        pools.iter().try_for_each(|pool| self.release_private(growth, pool))
    }

    /// Gives a private pool's cached memory back, if nobody uses it any more.
    pub(super) fn release_private_pool(&self, pool: &PrivatePool) -> Result<(), DeviceError> {
        if !pool.is_freeable() {
            return Ok(());
        }
        let stack = self.history.capture_free(StackId::NONE);
        let mut growth = lock(&self.growth);
        growth.asked_at = stack;
        if !self.routes.hold_events() {
            self.synchronize_pending(Some(pool.id))?;
        }
        self.release_private(&mut growth, pool)
    }

    fn release_private(&self, growth: &mut Growth, pool: &PrivatePool) -> Result<(), DeviceError> {
        let shards = self.shards_of(pool.id);
        for kind in [PoolKind::Small, PoolKind::Large] {
            self.release_pool(growth, &shards, kind)?;
            shards.iter().try_for_each(|shard| self.unreserve_unused(&mut shard.pools(), kind))?;
        }
        self.forget_if_empty(pool);
        Ok(())
    }

    /// Gives back what one pool has free on the given shards: plain segments first, then pages.
    fn release_pool(&self, growth: &mut Growth, shards: &[Arc<Shard>], pool: PoolKind) -> Result<(), DeviceError> {
        for shard in shards {
            let mut pools = shard.pools();
            for free in pools.whole_free(pool) {
                self.release_segment(growth, shard.stream, &mut pools, pool, free)?;
            }
        }
        shards.iter().try_for_each(|shard| self.unmap_free(growth, shard, &mut shard.pools(), pool))
    }

    /// Gives one whole free segment back; it stays cached when the device refuses to take it.
    #[expect(unsafe_code, reason = "one of the two places where the allocator lets memory go")]
    fn release_segment(
        &self,
        growth: &mut Growth,
        stream: Stream,
        pools: &mut StreamPools,
        pool: PoolKind,
        free: FreeBlock,
    ) -> Result<(), DeviceError> {
        // SAFETY: the block is a whole segment in the free set of pools that are locked here: no lease of it exists and none
        // can be made, so nobody uses it from now on. Work that its own stream was given before may still run; the device
        // promises not to take the memory away under it. (Other streams were done before the block came here.)
        unsafe { self.device.release(free.address, free.size_bytes) }?;
        self.record_segment(growth, TraceAction::SegmentFree, free.address, free.size_bytes, stream);
        pools.take_out(free.index);
        pools.remove_segment(free.index);
        growth.reserved_bytes -= free.size_bytes;
        let oversize = growth.rules.is_oversize(free.size_bytes);
        self.ledger().segment_released(pool, free.size_bytes as i64, oversize);
        Ok(())
    }

    /// Gives one shard's free segments and pages back, as far as the device takes them. Nobody is left to return an error to.
    pub(super) fn release_segments_of(&self, shard: &Shard) {
        if self.is_stream_ordered {
            return;
        }
        let mut kept = None;
        {
            let mut growth = lock(&self.growth);
            growth.asked_at = StackId::NONE;
            let mut pools = shard.pools();
            for pool in [PoolKind::Large, PoolKind::Small] {
                for free in pools.whole_free(pool) {
                    kept = self.release_segment(&mut growth, shard.stream, &mut pools, pool, free).err().or(kept);
                }
                kept = self.unmap_free(&mut growth, shard, &mut pools, pool).err().or(kept);
                // Where pages move, the ranges without any went just now.
                if !(pools.rules.is_compact && shard.private.is_none()) {
                    kept = self.unreserve_unused(&mut pools, pool).err().or(kept);
                }
            }
        }
        if let Some(error) = kept {
            events::log_kept_segments(self, &error);
        }
    }
}
