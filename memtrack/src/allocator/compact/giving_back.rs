//! Giving pages and addresses back to the device.

use std::collections::BTreeSet;

use super::super::block::BlockIndex;
use super::super::free_set::FreeBlock;
use super::super::inner::{Growth, Inner};
use super::super::pools::StreamPools;
use super::super::shard::Shard;
use super::PAGE_BYTES;
use super::books::slots_in;
use super::places::{slot_count, whole_slots};
use crate::device::{DeviceError, Stream};
use crate::history::TraceAction;
use crate::stats::PoolKind;

impl Inner {
    /// Gives the pages back that lie wholly in free blocks of a pool, takes the old mappings away that are in its ranges, and gives back
    /// the ranges that are left with nothing. No graph is captured.
    ///
    /// After a failure the rest stays as it is.
    pub(in super::super) fn give_back_pages(
        &self,
        growth: &mut Growth,
        shard: &Shard,
        pools: &mut StreamPools,
        pool: PoolKind,
    ) -> Result<(), DeviceError> {
        let has_pages = |free: &FreeBlock| !whole_slots(free.address, free.size_bytes).is_empty();
        let free: Vec<FreeBlock> = pools.free_blocks(pool).filter(has_pages).collect();
        self.take_old_mappings(growth, shard.stream, pools, pool, &free)?;
        for free in free {
            self.give_back_block(growth, shard.stream, pools, &free)?;
        }
        let holes: Vec<BlockIndex> = pools.unmapped(pool).values().copied().collect();
        for hole in holes {
            let Some((address, bytes)) = pools.wholly_unmapped(hole) else { continue };
            if growth.compact.books.is_bare(address..address + bytes) {
                self.pages()?.unreserve(address, bytes)?;
                pools.remove_expandable(hole);
                growth.compact.books.remove_range(address);
            }
        }
        Ok(())
    }

    /// Takes away the old mappings of the pages that are to go, wherever they are, and those of other pages in the pool's ranges, after waiting
    /// for the stream.
    fn take_old_mappings(
        &self,
        growth: &mut Growth,
        stream: Stream,
        pools: &StreamPools,
        pool: PoolKind,
        free: &[FreeBlock],
    ) -> Result<(), DeviceError> {
        let compact = &mut growth.compact;
        let mut old: BTreeSet<u64> = BTreeSet::new();
        for range in compact.books.ranges_of(stream, pool) {
            old.extend(compact.books.old_mappings(range).map(|(slot, ..)| slot));
        }
        for slot in free.iter().flat_map(|free| slots_in(whole_slots(free.address, free.size_bytes))) {
            let mapped_at = compact.books.owned_by(slot).map(|page| page.mapped_at.as_slice()).unwrap_or_default();
            old.extend(mapped_at.iter().filter(|at| **at != slot));
        }
        // A page came from another stream only when the work at its slot there was over, or before this stream's later work.
        if !old.is_empty() || !free.is_empty() {
            compact.work.synchronize(&*self.device, stream, pools.clock())?;
        }
        for slot in old {
            self.unmap_slot(slot)?;
            compact.books.forget_mapping(slot);
            compact.stats.unmapped_count += 1;
        }
        Ok(())
    }

    /// Gives back the whole pages of a free block, which are mapped there alone.
    fn give_back_block(
        &self,
        growth: &mut Growth,
        stream: Stream,
        pools: &mut StreamPools,
        free: &FreeBlock,
    ) -> Result<(), DeviceError> {
        let mut slots = whole_slots(free.address, free.size_bytes);
        let (mut end, mut outcome) = (slots.start, Ok(()));
        // Page by page, so that the books are right also when the device fails on the way.
        for slot in slots_in(slots.clone()) {
            outcome = self.unmap_slot(slot);
            if outcome.is_err() {
                break;
            }
            end += PAGE_BYTES;
        }
        slots.end = end;
        if slots.is_empty() {
            return outcome;
        }
        pools.enter_hole_in(free, &slots);
        growth.compact.stats.released_page_count += slot_count(&slots) as u64;
        self.record_segment(growth, TraceAction::SegmentUnmap, slots.start, slots.end - slots.start, stream);
        growth.reserved_bytes -= slots.end - slots.start;
        for created_for in [PoolKind::Small, PoolKind::Large] {
            let books = &mut growth.compact.books;
            let is_of = |slot: &u64| books.owned_by(*slot).is_some_and(|page| page.pool == created_for);
            let of_pool: Vec<u64> = slots_in(slots.clone()).filter(is_of).collect();
            let gone = of_pool.iter().filter_map(|slot| books.remove_owned(*slot)).map(|page| page.memory);
            growth.unmapped.extend(gone);
            if !of_pool.is_empty() {
                self.ledger().pages_unmapped(created_for, (of_pool.len() as u64 * PAGE_BYTES) as i64);
            }
        }
        outcome.and(self.release_unmapped(growth))
    }
}
