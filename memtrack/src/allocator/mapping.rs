//! Mapping and unmapping the pages of expandable segments.

use super::block::{BlockIndex, BlockState};
use super::error::Refusal;
use super::expandable::{ExpandableSegment, PageRange};
use super::free_set::FreeBlock;
use super::grow::Request;
use super::inner::{Growth, Inner};
use super::pools::StreamPools;
use super::shard::{Grant, Shard};
use crate::context;
use crate::device::{DeviceError, PhysicalMemory, VirtualMemory};
use crate::history::TraceAction;
use crate::stats::PoolKind;

impl Inner {
    fn memory(&self) -> Result<&dyn VirtualMemory, DeviceError> {
        self.device.virtual_memory().ok_or_else(|| DeviceError::InvalidSize {
            device: self.device.name().to_owned(),
            bytes: 0,
            reason: "the device has no virtual memory",
        })
    }

    /// Serves a request by mapping what it lacks. The inner error is a refusal that giving memory back may mend; what was
    /// mapped before it stays, as in PyTorch, and is cached.
    pub(super) fn map_memory(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
    ) -> Result<Result<Grant, Refusal>, DeviceError> {
        let Request { shard, size_bytes, requested_bytes, pool, origin, .. } = *request;
        let mut pools = shard.pools();
        let mut index = match pools.find_growable(pool, size_bytes) {
            Some(index) => index,
            None => self.reserve(&mut pools, pool)?,
        };
        loop {
            let block = &pools.blocks[index];
            let (unmapped, missing_bytes) = match block.state {
                BlockState::Unmapped => (index, size_bytes),
                _ if block.size_bytes < size_bytes => (block.next, size_bytes - block.size_bytes),
                _ => break,
            };
            // A range of addresses too short for the request: the device has not as much.
            let Some(at_most_bytes) = pools.unmapped_bytes(unmapped) else { return Ok(Err(Refusal::Device)) };
            if !self.map_pages(growth, shard, &mut pools, unmapped, missing_bytes.min(at_most_bytes))? {
                return Ok(Err(Refusal::Device));
            }
            index = unmapped;
        }
        let request = shard.sized_request(&pools.rules, requested_bytes);
        pools.take_out(index);
        let split = pools.serve_with(index, &request);
        Ok(Ok(shard.enter(&mut pools, index, split, origin)))
    }

    /// Addresses for an eighth more than the device has, as one unmapped block.
    fn reserve(&self, pools: &mut StreamPools, pool: PoolKind) -> Result<BlockIndex, DeviceError> {
        let page_bytes = pools.rules.page_bytes(pool);
        let total_bytes = self.device.total_bytes();
        let bytes = total_bytes.saturating_add(total_bytes / 8).div_ceil(page_bytes).saturating_mul(page_bytes);
        let address = self.memory()?.reserve(bytes)?;
        Ok(pools.add_expandable(pool, ExpandableSegment::new(address, bytes, page_bytes)))
    }

    /// Puts memory behind the first bytes of an unmapped block, in whole pages. `false` when the device has none; nothing is changed then.
    fn map_pages(
        &self,
        growth: &mut Growth,
        shard: &Shard,
        pools: &mut StreamPools,
        index: BlockIndex,
        bytes: u64,
    ) -> Result<bool, DeviceError> {
        let (address, pool, segment) = {
            let block = &pools.blocks[index];
            (block.address, block.pool, block.segment)
        };
        let Some(range) = pools.segments.get(segment).map(|segment| segment.pages_for(address, bytes)) else {
            return Ok(false);
        };
        let memory = match self.create_and_map(&range) {
            Ok(memory) => memory,
            Err(error) if error.is_out_of_memory() => return Ok(false),
            Err(error) => return Err(error),
        };
        if let Some(segment) = pools.segments.get_mut(segment) {
            segment.set_mapped(&range, memory);
        }
        pools.blocks[index].segment_stack = growth.asked_at;
        pools.enter_mapped(index, range.bytes, shard.inner.search_count(pool));
        growth.reserved_bytes += range.bytes;
        self.record_segment(growth, TraceAction::SegmentMap, range.address, range.bytes, shard.stream);
        self.ledger().pages_mapped(pool, range.bytes as i64, context::current(self.id));
        Ok(true)
    }

    /// All pages of the range, or none.
    fn create_and_map(&self, range: &PageRange) -> Result<Vec<PhysicalMemory>, DeviceError> {
        let device = self.memory()?;
        let mut created = Vec::new();
        let outcome =
            range.addresses().try_for_each(|_| device.create(range.page_bytes).map(|memory| created.push(memory)));
        let Err(error) = outcome.and_then(|()| device.map_pieces(range.address, &created)) else { return Ok(created) };
        // What could not be unmapped again stays in use, but nobody ever knows its address.
        for memory in created {
            let _ = device.release_physical(memory);
        }
        Err(error)
    }

    #[expect(unsafe_code, reason = "one of the places where the allocator lets memory go")]
    fn unmap_page(&self, address: u64, page_bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller names a page that lies wholly in a free block of pools that it holds locked, after the stream of these pools
        // was synchronized; other streams were done with the block before it became free.
        unsafe { self.memory()?.unmap(address, page_bytes) }
    }

    /// Gives physical memory back that is mapped nowhere any more. What the device refuses is kept, to be tried again.
    pub(super) fn release_unmapped(&self, growth: &mut Growth) -> Result<(), DeviceError> {
        let device = self.memory()?;
        let mut outcome = Ok(());
        growth.unmapped.retain(|memory| {
            let released = device.release_physical(*memory);
            let is_kept = released.is_err();
            outcome = std::mem::replace(&mut outcome, Ok(())).and(released);
            is_kept
        });
        outcome
    }

    /// Gives the pages back that lie wholly in free blocks, and the addresses of segments without any.
    pub(super) fn unmap_free(
        &self,
        growth: &mut Growth,
        shard: &Shard,
        pools: &mut StreamPools,
        pool: PoolKind,
    ) -> Result<(), DeviceError> {
        // That needs the stream synchronized, which a capture forbids. PyTorch does it all the same, and breaks the capture.
        if self.routes.any_capture() {
            return Ok(());
        }
        if !growth.unmapped.is_empty() {
            self.release_unmapped(growth)?;
        }
        if pools.rules.is_compact && shard.private.is_none() {
            return self.give_back_pages(growth, shard, pools, pool);
        }
        let free: Vec<FreeBlock> =
            pools.free_blocks(pool).filter(|free| pools.blocks[free.index].is_expandable()).collect();
        for free in free {
            let Some(range) = pools.pages_of(&free) else { continue };
            self.unmap_pages(growth, shard, pools, &free, &range)?;
            if let Some((address, bytes)) = pools.wholly_unmapped(free.index) {
                self.memory()?.unreserve(address, bytes)?;
                pools.remove_expandable(free.index);
            }
        }
        Ok(())
    }

    /// Gives the addresses back behind which there never was memory: a first mapping that fails leaves them. For pools that nobody
    /// uses any more.
    pub(super) fn unreserve_unused(&self, pools: &mut StreamPools, pool: PoolKind) -> Result<(), DeviceError> {
        let unmapped: Vec<BlockIndex> = pools.unmapped(pool).values().copied().collect();
        for index in unmapped {
            if let Some((address, bytes)) = pools.wholly_unmapped(index) {
                self.memory()?.unreserve(address, bytes)?;
                pools.remove_expandable(index);
            }
        }
        Ok(())
    }

    fn unmap_pages(
        &self,
        growth: &mut Growth,
        shard: &Shard,
        pools: &mut StreamPools,
        free: &FreeBlock,
        range: &PageRange,
    ) -> Result<(), DeviceError> {
        let (pool, segment) = (pools.blocks[free.index].pool, pools.blocks[free.index].segment);
        // Unlike the release of a plain segment, unmapping waits for nobody.
        self.device.synchronize_stream(shard.stream)?;
        // Page by page, so that the books are right also when the device fails on the way.
        let (mut unmapped_count, mut outcome) = (0, Ok(()));
        for address in range.addresses() {
            outcome = self.unmap_page(address, range.page_bytes);
            if outcome.is_err() {
                break;
            }
            unmapped_count += 1;
        }
        if unmapped_count == 0 {
            return outcome;
        }
        let range = &range.first_pages(unmapped_count);
        let memory = pools.segments.get_mut(segment).map(|segment| segment.set_unmapped(range)).unwrap_or_default();
        pools.enter_unmapped(free, range, self.search_count(pool));
        growth.reserved_bytes -= range.bytes;
        self.record_segment(growth, TraceAction::SegmentUnmap, range.address, range.bytes, shard.stream);
        self.ledger().pages_unmapped(pool, range.bytes as i64);
        growth.unmapped.extend(memory);
        outcome.and(self.release_unmapped(growth))
    }
}
