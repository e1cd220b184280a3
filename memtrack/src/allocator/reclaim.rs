//! The path of an allocation that finds no cached block: grow, and when that fails give back and try again.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::block::BlockIndex;
use super::error::{AllocationError, OutOfMemory, Refusal};
use super::events;
use super::free_set::FreeBlock;
use super::inner::{Growth, Inner};
use super::pools::StreamPools;
use super::shard::{Grant, Lease, Shard};
use crate::context;
use crate::device::DeviceError;
use crate::stats::PoolKind;
use crate::sync::lock;

/// What giving cached memory back and asking again came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    pub(super) requested_bytes: u64,
    pub(super) segment_bytes: u64,
    /// Given back to the device.
    pub(super) returned_bytes: u64,
    pub(super) took: Duration,
    pub(super) served: bool,
}

/// One request on its way through the slow path.
struct Request<'a> {
    shard: &'a Shard,
    size_bytes: u64,
    requested_bytes: u64,
    pool: PoolKind,
    segment_bytes: u64,
}

impl Inner {
    /// Serves a request that no cached block fits, in PyTorch's order of attempts.
    #[cold]
    pub(super) fn grow(
        &self,
        shard: Arc<Shard>,
        size_bytes: u64,
        requested_bytes: u64,
    ) -> Result<Lease, AllocationError> {
        let request = Request {
            shard: &shard,
            size_bytes,
            requested_bytes,
            pool: self.rules.pool(size_bytes),
            segment_bytes: self.rules.segment_size(size_bytes),
        };
        let mut retry = None;
        let outcome = self.attempts(&request, &mut retry);
        let stream = shard.stream;
        // A lease already: a subscriber that panics must not lose the block.
        let outcome = outcome.map(|grant| Lease::new(shard, grant));
        // Both logged here, where no lock is held: a subscriber may ask for statistics.
        if let Some(retry) = &retry {
            events::log_retry(self, stream, retry);
        }
        if let Err(AllocationError::OutOfMemory(error)) = &outcome {
            events::log_out_of_memory(error);
        }
        outcome
    }

    fn attempts(&self, request: &Request<'_>, retry: &mut Option<Retry>) -> Result<Grant, AllocationError> {
        let Request { shard, size_bytes, requested_bytes, segment_bytes, .. } = *request;
        let mut growth = lock(&self.growth);
        // Whoever held the lock may have freed or brought in what fits; so may any other thread since the search.
        if let Some(grant) = shard.serve_cached(size_bytes, requested_bytes) {
            return Ok(grant);
        }
        let started = Instant::now();
        let reserved_bytes = growth.reserved_bytes;
        self.collect_garbage(&mut growth)?;
        if let Ok(grant) = self.take_segment(&mut growth, request)? {
            return Ok(grant);
        }
        if self.release_oversize(&mut growth, request)?
            && let Ok(grant) = self.take_segment(&mut growth, request)?
        {
            return Ok(grant);
        }

        self.synchronize_pending()?;
        self.release_cached(&mut growth)?;
        let returned_bytes = reserved_bytes - growth.reserved_bytes;
        self.ledger().retried(context::current(self.id));
        // Counted, so it is to be logged, however it ends.
        let mut log = |served| {
            *retry = Some(Retry { requested_bytes, segment_bytes, returned_bytes, took: started.elapsed(), served });
        };
        let mut outcome = self.take_segment(&mut growth, request).inspect_err(|_| log(false))?;
        if outcome.is_err() {
            // The wait may have freed a block inside a segment that could not be given back. PyTorch does not look and
            // reports an out of memory that the same call a moment later would not meet.
            outcome = shard.serve_cached(size_bytes, requested_bytes).ok_or(()).or(outcome);
        }
        log(outcome.is_ok());
        outcome.map_err(|refused_by| {
            let error = self.out_of_memory(&growth, request, refused_by, returned_bytes);
            AllocationError::OutOfMemory(Box::new(error))
        })
    }

    /// Asks the device for the request's segment. The inner error is a refusal that giving memory back may mend.
    fn take_segment(&self, growth: &mut Growth, request: &Request<'_>) -> Result<Result<Grant, Refusal>, DeviceError> {
        let Request { shard, size_bytes, requested_bytes, pool, segment_bytes } = *request;
        if growth.limit_bytes.is_some_and(|limit| growth.reserved_bytes.saturating_add(segment_bytes) > limit) {
            return Ok(Err(Refusal::Limit));
        }
        let address = match self.device.allocate(segment_bytes) {
            Ok(address) => address,
            Err(error) if error.is_out_of_memory() => return Ok(Err(Refusal::Device)),
            Err(error) => return Err(error),
        };
        growth.reserved_bytes += segment_bytes;
        let oversize = self.rules.is_oversize(segment_bytes);
        self.ledger().segment_allocated(pool, segment_bytes as i64, oversize, context::current(self.id));
        Ok(Ok(shard.serve_with_segment(address, segment_bytes, size_bytes, requested_bytes)))
    }

    /// With a limit and a threshold: gives back large segments that have been free for long, the older half first, until
    /// the threshold is met.
    fn collect_garbage(&self, growth: &mut Growth) -> Result<(), DeviceError> {
        let (Some(limit_bytes), Some(threshold)) = (growth.limit_bytes, self.config.garbage_collection_threshold)
        else {
            return Ok(());
        };
        let threshold_bytes = (threshold * limit_bytes as f64) as u64;
        if growth.reserved_bytes <= threshold_bytes {
            return Ok(());
        }
        let target_bytes = growth.reserved_bytes - threshold_bytes;
        let now = self.search_count(PoolKind::Large);
        let shards = self.shards();
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
                        self.release_segment(growth, &mut pools, PoolKind::Large, free)?;
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
    fn release_oversize(&self, growth: &mut Growth, request: &Request<'_>) -> Result<bool, DeviceError> {
        let max_split_size_bytes = self.rules.max_split_size_bytes;
        if max_split_size_bytes == u64::MAX {
            return Ok(false);
        }
        let key_bytes = request.size_bytes.max(max_split_size_bytes);
        let mut pools = request.shard.pools();
        let pool = request.pool;
        if let Some((_, fit)) = pools.free(pool).best_fit(key_bytes)
            && !pools.blocks[fit.index].is_split()
        {
            self.release_segment(growth, &mut pools, pool, fit)?;
            return Ok(true);
        }
        let mut released_bytes = 0;
        let mut position = FreeBlock { size_bytes: key_bytes, address: 0, index: 0 };
        while released_bytes < key_bytes {
            let Some(free) = pools.free(pool).before(&position) else { break };
            if free.size_bytes < max_split_size_bytes {
                break;
            }
            position = free;
            // A block that is part of a segment in use cannot be given back (PyTorch does not check).
            if !pools.blocks[free.index].is_split() {
                self.release_segment(growth, &mut pools, pool, free)?;
                released_bytes += free.size_bytes;
            }
        }
        Ok(released_bytes >= key_bytes)
    }

    /// Waits for all streams that still use freed blocks.
    pub(super) fn synchronize_pending(&self) -> Result<(), DeviceError> {
        self.ledger().synchronized();
        self.pending.wait(&*self.device)
    }

    /// Gives every whole free segment back: large ones first, streams in the order of their handles.
    pub(super) fn release_cached(&self, growth: &mut Growth) -> Result<(), DeviceError> {
        let shards = self.shards();
        for pool in [PoolKind::Large, PoolKind::Small] {
            for shard in &shards {
                let mut pools = shard.pools();
                for free in pools.whole_free(pool) {
                    self.release_segment(growth, &mut pools, pool, free)?;
                }
            }
        }
        Ok(())
    }

    /// Gives one whole free segment back; it stays cached when the device refuses to take it.
    #[expect(unsafe_code, reason = "the one place where the allocator lets memory go")]
    fn release_segment(
        &self,
        growth: &mut Growth,
        pools: &mut MutexGuard<'_, StreamPools>,
        pool: PoolKind,
        free: FreeBlock,
    ) -> Result<(), DeviceError> {
        // SAFETY: the block is a whole segment in the free set of pools that are locked here: no lease of it exists and none
        // can be made, so nobody uses it from now on. Work that its own stream was given before may still run; the device
        // promises not to take the memory away under it. (Other streams were done before the block came here.)
        unsafe { self.device.release(free.address, free.size_bytes) }?;
        pools.take_out(pool, &free);
        pools.remove_segment(free.index);
        growth.reserved_bytes -= free.size_bytes;
        let oversize = self.rules.is_oversize(free.size_bytes);
        self.ledger().segment_released(pool, free.size_bytes as i64, oversize);
        Ok(())
    }

    /// Gives one shard's whole free segments back, as far as the device takes them. Nobody is left to return an error to.
    pub(super) fn release_segments_of(&self, shard: &Shard) {
        let mut kept = None;
        {
            let mut growth = lock(&self.growth);
            let mut pools = shard.pools();
            for pool in [PoolKind::Large, PoolKind::Small] {
                for free in pools.whole_free(pool) {
                    kept = self.release_segment(&mut growth, &mut pools, pool, free).err().or(kept);
                }
            }
        }
        if let Some(error) = kept {
            events::log_kept_segments(self, &error);
        }
    }

    /// The largest free block of any stream, 0 without any.
    pub(crate) fn largest_free_block_bytes(&self) -> u64 {
        self.shards().iter().map(|shard| shard.pools().largest_free_bytes()).max().unwrap_or(0)
    }

    fn out_of_memory(
        &self,
        growth: &Growth,
        request: &Request<'_>,
        refused_by: Refusal,
        returned_bytes: u64,
    ) -> OutOfMemory {
        let context = context::current(self.id);
        let largest_usable_block_bytes = {
            let pools = request.shard.pools();
            pools.free(request.pool).largest().map_or(0, |free| free.size_bytes)
        };
        let (allocated_bytes, phase) = {
            let mut ledger = self.ledger();
            ledger.out_of_memory(context);
            (ledger.stats().allocated_bytes.all.current as u64, ledger.phase_name(context))
        };
        OutOfMemory {
            device: self.device.name().to_owned(),
            stream: request.shard.stream,
            requested_bytes: request.requested_bytes,
            rounded_bytes: request.size_bytes,
            segment_bytes: request.segment_bytes,
            refused_by,
            allocated_bytes,
            reserved_bytes: growth.reserved_bytes,
            largest_usable_block_bytes,
            largest_free_block_bytes: self.largest_free_block_bytes(),
            device_free_bytes: self.device.memory().ok().map(|memory| memory.free_bytes),
            device_total_bytes: self.device.total_bytes(),
            limit_bytes: growth.limit_bytes,
            returned_bytes,
            phase,
        }
    }
}
