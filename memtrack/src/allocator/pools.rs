//! The small and the large pool of one stream: best fit, splitting, merging. Plain data, no lock, no device.
//!
//! The steps of an allocation and of a free are compiled into one piece each (`inline(always)`): results of three words or
//! more that pass through memory between them cost more than the steps themselves.

use std::collections::BTreeMap;

use super::block::{Block, BlockIndex, BlockState, BlockTable, NO_BLOCK};
use super::compact::{Giving, MiddleSizes, SpareBlocks};
use super::expandable::Segments;
use super::free_set::{FreeBlock, FreeSet};
use super::keeper::Keeper;
use super::rounding::SizeRules;
use crate::ledger::{self, BlockEntry, SplitChange};
use crate::stats::PoolKind;

/// What is asked of the pools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizedRequest {
    /// Rounded.
    pub(crate) size_bytes: u64,
    pub(crate) requested_bytes: u64,
    /// The pool's search count, for the age of what is left over.
    pub(crate) search_count: u64,
    /// Blocks of expandable segments may serve it.
    pub(crate) expandable: bool,
}

/// One stream's pools and all of its blocks.
#[derive(Debug)]
pub(crate) struct StreamPools {
    /// The settings in force; all shards of an allocator have the same.
    pub(crate) rules: SizeRules,
    /// Every block is a whole segment.
    pub(crate) no_split: bool,
    pub(crate) blocks: BlockTable,
    /// By pool.
    free: [FreeSet; 2],
    /// Stretches of expandable segments without memory, by address.
    unmapped: [BTreeMap<u64, BlockIndex>; 2],
    /// Where pages move: blocks that became free, ever. Their age is told by it in place of the search count.
    free_count: u64,
    middle_sizes: MiddleSizes,
    /// Where pages move.
    pub(super) spare_blocks: SpareBlocks,
    pub(super) giving: Giving,
    /// Where pages move, by pool: the address of the hole that is looked at next, where there are too many to look at all.
    pub(super) next_hole: [u64; 2],
    pub(super) segments: Segments,
    pub(super) keeper: Keeper,
}

impl StreamPools {
    pub(crate) fn new(rules: SizeRules, no_split: bool) -> Self {
        Self {
            rules,
            no_split,
            blocks: BlockTable::default(),
            free: Default::default(),
            unmapped: Default::default(),
            free_count: 0,
            middle_sizes: MiddleSizes::default(),
            spare_blocks: SpareBlocks::default(),
            giving: Giving::default(),
            next_hole: [0; 2],
            segments: Segments::default(),
            keeper: Keeper::default(),
        }
    }

    /// The pool that serves a rounded size now.
    #[inline(always)]
    pub(super) fn pool(&self, size_bytes: u64) -> PoolKind {
        match self.rules.pool(size_bytes) {
            PoolKind::Large if self.rules.is_middle(size_bytes) => self.middle_sizes.pool(),
            pool => pool,
        }
    }

    /// The free blocks of a pool in search order.
    pub(crate) fn free_blocks(&self, pool: PoolKind) -> impl Iterator<Item = FreeBlock> {
        self.free_blocks_from(pool, 0)
    }

    /// As [`free_blocks`](Self::free_blocks), of at least this size: smaller ones cost nothing.
    pub(crate) fn free_blocks_from(&self, pool: PoolKind, size_bytes: u64) -> impl Iterator<Item = FreeBlock> {
        self.free[pool as usize].iter_from(&self.blocks, size_bytes)
    }

    /// The last free block before this size and address in search order.
    pub(super) fn free_before(&self, pool: PoolKind, (size_bytes, address): (u64, u64)) -> Option<FreeBlock> {
        self.free[pool as usize].before(&self.blocks, size_bytes, address)
    }

    /// The smallest free block of at least this size.
    pub(super) fn best_fit(&self, pool: PoolKind, size_bytes: u64) -> Option<FreeBlock> {
        self.free[pool as usize].best_fit(&self.blocks, size_bytes).map(|index| self.blocks.free_block(index))
    }

    pub(super) fn largest_free(&self, pool: PoolKind) -> Option<FreeBlock> {
        self.free[pool as usize].largest(&self.blocks)
    }

    /// Puts a block into the free set of its pool, where it is in none.
    #[inline(always)]
    pub(super) fn insert_free(&mut self, index: BlockIndex) {
        let pool = self.blocks[index].pool;
        self.free[pool as usize].insert(self.blocks.records(), index);
    }

    /// Takes a block out of the free set; its size and address are those with which it came.
    #[inline(always)]
    pub(crate) fn take_out(&mut self, index: BlockIndex) {
        let pool = self.blocks[index].pool;
        self.free[pool as usize].remove(self.blocks.records(), index);
    }

    /// Where pages move: what blocks that become free from now on are younger than.
    pub(super) fn clock(&self) -> u64 {
        self.free_count
    }

    pub(super) fn unmapped(&self, pool: PoolKind) -> &BTreeMap<u64, BlockIndex> {
        &self.unmapped[pool as usize]
    }

    pub(super) fn unmapped_mut(&mut self, pool: PoolKind) -> &mut BTreeMap<u64, BlockIndex> {
        &mut self.unmapped[pool as usize]
    }

    /// Serves a request with the best fit, if the rules let it. Returns the block and what happened to the inactive split
    /// counters.
    #[inline(always)]
    pub(crate) fn serve(&mut self, request: &SizedRequest) -> Option<(BlockIndex, SplitChange)> {
        let pool = self.pool(request.size_bytes);
        // The best fit alone is looked at: when it may not serve, PyTorch opens a new segment instead of searching on.
        let mut index = self.free[pool as usize].best_fit(&self.blocks, request.size_bytes)?;
        if self.blocks[index].is_expandable() && !(self.rules.is_compact && request.expandable) {
            index = self.step_over_expandable(pool, index, request.expandable)?;
        }
        if !self.rules.may_serve(self.blocks[index].size_bytes, request.size_bytes) {
            return None;
        }
        self.free[pool as usize].remove(self.blocks.records(), index);
        Some((index, self.serve_with(index, request)))
    }

    /// PyTorch's choice when the best fit is of an expandable segment. A block at the end that can grow counts as larger by
    /// what is not mapped yet, so that it is kept for larger requests; a request of the other mode gets none of them.
    #[cold]
    fn step_over_expandable(&self, pool: PoolKind, mut best: BlockIndex, expandable: bool) -> Option<BlockIndex> {
        let free = &self.free[pool as usize];
        if !expandable {
            while self.blocks[best].is_expandable() {
                best = free.after(&self.blocks, best)?;
            }
            return Some(best);
        }
        let growable_bytes = |index: BlockIndex| {
            let Block { next, size_bytes, .. } = self.blocks[index];
            let grows = self.is_in_state(next, BlockState::Unmapped);
            size_bytes + if grows { self.blocks[next].size_bytes } else { 0 }
        };
        while self.blocks[best].is_expandable() {
            match free.after(&self.blocks, best) {
                Some(next) if growable_bytes(next) < growable_bytes(best) => best = next,
                _ => break,
            }
        }
        Some(best)
    }

    /// Serves a request with a segment new from the device; as [`serve`](Self::serve).
    pub(crate) fn serve_with_segment(
        &mut self,
        address: u64,
        segment_bytes: u64,
        request: &SizedRequest,
    ) -> (BlockIndex, SplitChange) {
        let pool = self.pool(request.size_bytes);
        let index = self.blocks.insert(Block::segment(address, segment_bytes, pool));
        (index, self.serve_with(index, request))
    }

    /// Forgets a segment that went back to the device; it is a whole block out of the free set.
    pub(crate) fn remove_segment(&mut self, index: BlockIndex) {
        debug_assert!(!self.blocks[index].is_split(), "a segment is released whole");
        self.blocks.remove(index);
    }

    /// Serves a request with a block that is in no set, split if the rules say so: the front is handed out, the rest is free.
    #[inline(always)]
    pub(super) fn serve_with(&mut self, index: BlockIndex, request: &SizedRequest) -> SplitChange {
        let size_bytes = request.size_bytes;
        if self.rules.is_counted(size_bytes) {
            self.middle_sizes.allocated(self.rules.is_middle(size_bytes));
        }
        let block = &mut self.blocks[index];
        let was_split = block.is_split();
        let whole_bytes = block.size_bytes;
        let rest_bytes = whole_bytes - size_bytes;
        let stale_requested_bytes = std::mem::replace(&mut block.requested_bytes, request.requested_bytes);
        block.state = BlockState::Allocated;
        let counts = !block.is_expandable();
        if self.rules.is_compact && self.spare_blocks.is_kept() {
            self.note_served(index, size_bytes);
        }
        let block = &mut self.blocks[index];
        if self.no_split || !self.rules.should_split(block.pool, request.expandable, whole_bytes, size_bytes) {
            let change = SplitChange { count: -1, bytes: -(whole_bytes as i64) };
            return if was_split && counts { change } else { SplitChange::default() };
        }
        block.size_bytes = size_bytes;
        let (address, after, freed_at) = (block.address + size_bytes, block.next, block.freed_at_search);
        let rest = Block {
            prev: index,
            next: after,
            freed_at_search: if self.rules.is_compact { freed_at } else { request.search_count },
            // As PyTorch, which keeps the old object for the rest; a snapshot shows it.
            requested_bytes: stale_requested_bytes,
            segment: block.segment,
            segment_stack: block.segment_stack,
            ..Block::segment(address, rest_bytes, block.pool)
        };
        let rest = self.insert_after(index, rest);
        self.insert_free(rest);
        match (counts, was_split) {
            (false, _) => SplitChange::default(),
            (true, true) => SplitChange { count: 0, bytes: -(size_bytes as i64) },
            (true, false) => SplitChange { count: 1, bytes: rest_bytes as i64 },
        }
    }

    /// Puts a block, which names its neighbours, into the chain behind `index`.
    #[inline(always)]
    pub(super) fn insert_after(&mut self, index: BlockIndex, block: Block) -> BlockIndex {
        let after = block.next;
        let inserted = self.blocks.insert(block);
        self.blocks[index].next = inserted;
        if after != NO_BLOCK {
            self.blocks[after].prev = inserted;
        }
        inserted
    }

    /// A block as the ledger enters it.
    #[inline]
    pub(crate) fn entry(&self, index: BlockIndex) -> BlockEntry {
        let block = &self.blocks[index];
        BlockEntry {
            pool: block.pool,
            size_bytes: block.size_bytes as i64,
            requested_bytes: block.requested_bytes as i64,
            oversize: self.rules.is_oversize(block.size_bytes),
            thread: ledger::current_thread(),
        }
    }

    /// Takes a block back from the program; as [`take_back`](Self::take_back).
    #[inline(always)]
    pub(crate) fn give_back(&mut self, index: BlockIndex, search_count: u64) -> SplitChange {
        let size_bytes = self.blocks[index].size_bytes;
        if self.rules.is_counted(size_bytes) {
            self.middle_sizes.freed(self.rules.is_middle(size_bytes));
        }
        self.take_back(index, search_count)
    }

    /// Puts a block into the free set, merged with its free neighbours. Returns the one net change of the inactive
    /// split counters that PyTorch makes of it.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, index: BlockIndex, search_count: u64) -> SplitChange {
        let (prev, next) = (self.blocks[index].prev, self.blocks[index].next);
        if self.rules.is_compact {
            self.free_count += 1;
            if !self.giving.is_counted() {
                self.note_giving(index);
            }
            if self.spare_blocks.is_kept() {
                self.note_free(index, search_count + self.free_count);
            }
        }
        let mut change = SplitChange::default();
        for neighbour in [prev, next] {
            if self.is_in_state(neighbour, BlockState::Free) {
                change.count -= 1;
                change.bytes -= self.blocks[neighbour].size_bytes as i64;
                self.take_out(neighbour);
                self.absorb(index, neighbour);
            }
        }
        let block = &mut self.blocks[index];
        block.state = BlockState::Free;
        block.freed_at_search = search_count + self.free_count;
        if block.is_split() {
            change.count += 1;
            change.bytes += block.size_bytes as i64;
        }
        if block.is_expandable() {
            change = SplitChange::default();
        }
        self.insert_free(index);
        change
    }

    /// Whether this is a block, in this state.
    #[inline(always)]
    pub(super) fn is_in_state(&self, index: BlockIndex, state: BlockState) -> bool {
        index != NO_BLOCK && self.blocks[index].state == state
    }

    /// Merges a neighbour, which is in no set any more, into a block.
    #[inline(always)]
    pub(super) fn absorb(&mut self, index: BlockIndex, neighbour: BlockIndex) {
        let Block { address, size_bytes, prev, next, segment_stack, .. } = self.blocks[neighbour];
        let block = &mut self.blocks[index];
        block.size_bytes += size_bytes;
        if block.prev == neighbour {
            block.address = address;
            block.segment_stack = segment_stack;
            block.prev = prev;
            if prev != NO_BLOCK {
                self.blocks[prev].next = index;
            }
        } else {
            block.next = next;
            if next != NO_BLOCK {
                self.blocks[next].prev = index;
            }
        }
        self.blocks.remove(neighbour);
    }

    /// The free blocks that are whole plain segments, in search order.
    pub(crate) fn whole_free(&self, pool: PoolKind) -> Vec<FreeBlock> {
        self.free_blocks(pool).filter(|free| self.is_whole_segment(free)).collect()
    }

    pub(crate) fn is_whole_segment(&self, free: &FreeBlock) -> bool {
        let block = &self.blocks[free.index];
        !block.is_split() && !block.is_expandable()
    }

    /// Whether there is no block at all.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The largest free block of both pools in bytes, 0 without any.
    pub(crate) fn largest_free_bytes(&self) -> u64 {
        let largest = |pool| self.largest_free(pool).map_or(0, |free| free.size_bytes);
        largest(PoolKind::Small).max(largest(PoolKind::Large))
    }
}
