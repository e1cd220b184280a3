//! What becomes of blocks when pages come to holes and leave free blocks, wherever within them. Plain data, no device.

use std::ops::Range;

use super::super::block::{Block, BlockIndex, BlockState};
use super::super::expandable::ExpandableSegment;
use super::super::free_set::FreeBlock;
use super::super::pools::{SizedRequest, StreamPools};
use super::PAGE_BYTES;
use crate::history::recording::StackId;
use crate::ledger::SplitChange;
use crate::stats::PoolKind;

impl StreamPools {
    /// Adds a range of addresses as one hole.
    pub(super) fn add_range(&mut self, pool: PoolKind, address: u64, bytes: u64) {
        self.add_expandable(pool, ExpandableSegment::new(address, bytes, PAGE_BYTES));
    }

    /// The free block of at least this size that an address lies in. Smaller ones are not looked at, of which there may be many.
    fn free_containing(&self, pool: PoolKind, address: u64, size_bytes: u64) -> Option<FreeBlock> {
        let contains = |free: &FreeBlock| free.address <= address && address - free.address < free.size_bytes;
        self.free_blocks_from(pool, size_bytes).find(contains)
    }

    /// Enters that slots within a hole have pages now: they are a free block, merged with its free neighbours.
    pub(super) fn enter_pages(&mut self, pool: PoolKind, slots: &Range<u64>, stack: StackId) {
        let Some((_, &hole)) = self.unmapped(pool).range(..=slots.start).next_back() else { return };
        let Block { address, size_bytes, next, segment, .. } = self.blocks[hole];
        debug_assert!(slots.end <= address + size_bytes, "the slots lie within one hole");
        let before_bytes = slots.start - address;
        let mut index = hole;
        if before_bytes > 0 {
            let rest = Block {
                prev: hole,
                next,
                segment,
                state: BlockState::Unmapped,
                ..Block::segment(slots.start, size_bytes - before_bytes, pool)
            };
            self.blocks[hole].size_bytes = before_bytes;
            index = self.insert_after(hole, rest);
            self.unmapped_mut(pool).insert(slots.start, index);
        }
        self.blocks[index].segment_stack = stack;
        self.enter_mapped(index, slots.end - slots.start, 0);
    }

    /// Enters that slots within a free block lost their pages: they are a hole. Returns when the block was freed, `None` if there is no such
    /// block.
    pub(super) fn enter_hole(&mut self, pool: PoolKind, slots: &Range<u64>) -> Option<u64> {
        self.settle_spares();
        let (size_bytes, address) =
            self.spare_blocks.containing(slots.start).map(|block| (block.size_bytes, block.address))?;
        let free = self.free_before(pool, (size_bytes, address + 1)).filter(|free| free.address == address)?;
        self.enter_hole_in(&free, slots)
    }

    /// As [`enter_hole`](Self::enter_hole), for slots within this free block.
    pub(super) fn enter_hole_in(&mut self, free: &FreeBlock, slots: &Range<u64>) -> Option<u64> {
        debug_assert!(slots.end <= free.address + free.size_bytes, "the slots lie within one free block");
        let Block { freed_at_search, segment, .. } = self.blocks[free.index];
        let pages = self.segments.get(segment)?.pages_for(slots.start, slots.end - slots.start);
        // What is left of it is as old as it was.
        self.enter_unmapped(free, &pages, freed_at_search);
        Some(freed_at_search)
    }

    /// Serves a request at an address, where there is a free block for all of it; what is before and behind stays free.
    pub(super) fn serve_at(
        &mut self,
        pool: PoolKind,
        start: u64,
        request: &SizedRequest,
    ) -> Option<(BlockIndex, SplitChange)> {
        let free = self.free_containing(pool, start, request.size_bytes)?;
        let before_bytes = start - free.address;
        if free.size_bytes - before_bytes < request.size_bytes {
            return None;
        }
        self.take_out(free.index);
        self.spare_blocks.went(free.address, free.size_bytes);
        let mut index = free.index;
        if before_bytes > 0 {
            let Block { next, segment, freed_at_search, .. } = self.blocks[free.index];
            let rest = Block {
                prev: free.index,
                next,
                segment,
                freed_at_search,
                ..Block::segment(start, free.size_bytes - before_bytes, pool)
            };
            self.blocks[free.index].size_bytes = before_bytes;
            self.insert_free(free.index);
            self.note_came(free.index);
            index = self.insert_after(free.index, rest);
        }
        let split = self.serve_with(index, request);
        Some((index, split))
    }
}
