//! The small and the large pool of one stream: best fit, splitting, merging. Plain data, no lock, no device.
//!
//! The steps of an allocation and of a free are compiled into one piece each (`inline(always)`): results of three words or
//! more that pass through memory between them cost more than the steps themselves.

use super::block::{Block, BlockIndex, BlockState, BlockTable, NO_BLOCK};
use super::free_set::{FreeBlock, FreeSet};
use super::rounding::SizeRules;
use crate::ledger::{BlockEntry, SplitChange};
use crate::stats::PoolKind;

/// What is asked of the pools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizedRequest {
    /// Rounded.
    pub(crate) size_bytes: u64,
    pub(crate) requested_bytes: u64,
    /// The pool's search count, for the age of what is left over.
    pub(crate) search_count: u64,
}

/// One stream's pools and all of its blocks.
#[derive(Debug, Default)]
pub(crate) struct StreamPools {
    pub(crate) blocks: BlockTable,
    small: FreeSet,
    large: FreeSet,
}

impl StreamPools {
    #[inline]
    pub(crate) fn free(&self, pool: PoolKind) -> &FreeSet {
        match pool {
            PoolKind::Small => &self.small,
            PoolKind::Large => &self.large,
        }
    }

    #[inline]
    fn free_mut(&mut self, pool: PoolKind) -> &mut FreeSet {
        match pool {
            PoolKind::Small => &mut self.small,
            PoolKind::Large => &mut self.large,
        }
    }

    /// Serves a request with the best fit, if the rules let it. Returns the block and what happened to the inactive split
    /// counters.
    #[inline(always)]
    pub(crate) fn serve(&mut self, rules: &SizeRules, request: &SizedRequest) -> Option<(BlockIndex, SplitChange)> {
        let pool = rules.pool(request.size_bytes);
        // The best fit alone is looked at: when it may not serve, PyTorch opens a new segment instead of searching on.
        let (position, found) = self.free(pool).best_fit(request.size_bytes)?;
        if !rules.may_serve(found.size_bytes, request.size_bytes) {
            return None;
        }
        let (change, rest) = self.hand_out(rules, found.index, request);
        match rest {
            Some(rest) => self.free_mut(pool).replace_at(position, rest),
            None => self.free_mut(pool).remove_at(position),
        }
        Some((found.index, change))
    }

    /// Serves a request with a segment new from the device; as [`serve`](Self::serve).
    pub(crate) fn serve_with_segment(
        &mut self,
        rules: &SizeRules,
        address: u64,
        segment_bytes: u64,
        request: &SizedRequest,
    ) -> (BlockIndex, SplitChange) {
        let pool = rules.pool(request.size_bytes);
        let index = self.blocks.insert(Block::segment(address, segment_bytes, pool));
        let (change, rest) = self.hand_out(rules, index, request);
        if let Some(rest) = rest {
            self.free_mut(pool).insert(rest);
        }
        (index, change)
    }

    /// Forgets a segment that went back to the device; it is a whole block out of the free set.
    pub(crate) fn remove_segment(&mut self, index: BlockIndex) {
        debug_assert!(!self.blocks[index].is_split(), "a segment is released whole");
        self.blocks.remove(index);
    }

    /// Hands out a block, split if the rules say so: the front is handed out, the rest is free and still to be put into
    /// the free set.
    #[inline(always)]
    fn hand_out(
        &mut self,
        rules: &SizeRules,
        index: BlockIndex,
        request: &SizedRequest,
    ) -> (SplitChange, Option<FreeBlock>) {
        let size_bytes = request.size_bytes;
        let block = &mut self.blocks[index];
        let was_split = block.is_split();
        let whole_bytes = block.size_bytes;
        let rest_bytes = whole_bytes - size_bytes;
        block.state = BlockState::Allocated;
        block.requested_bytes = request.requested_bytes;
        if !rules.should_split(block.pool, whole_bytes, size_bytes) {
            let change = SplitChange { count: -1, bytes: -(whole_bytes as i64) };
            return (if was_split { change } else { SplitChange::default() }, None);
        }
        block.size_bytes = size_bytes;
        let (address, after) = (block.address + size_bytes, block.next);
        let rest = Block {
            prev: index,
            next: after,
            freed_at_search: request.search_count,
            ..Block::segment(address, rest_bytes, block.pool)
        };
        let rest = self.blocks.insert(rest);
        self.blocks[index].next = rest;
        if after != NO_BLOCK {
            self.blocks[after].prev = rest;
        }
        let change = if was_split {
            SplitChange { count: 0, bytes: -(size_bytes as i64) }
        } else {
            SplitChange { count: 1, bytes: rest_bytes as i64 }
        };
        (change, Some(FreeBlock { size_bytes: rest_bytes, address, index: rest }))
    }

    /// A block as the ledger enters it.
    #[inline]
    pub(crate) fn entry(&self, rules: &SizeRules, index: BlockIndex) -> BlockEntry {
        let block = &self.blocks[index];
        BlockEntry {
            pool: block.pool,
            size_bytes: block.size_bytes as i64,
            requested_bytes: block.requested_bytes as i64,
            oversize: rules.is_oversize(block.size_bytes),
        }
    }

    /// Puts a block into the free set, merged with its free neighbours. Returns the one net change of the inactive
    /// split counters that PyTorch makes of it.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, index: BlockIndex, search_count: u64) -> SplitChange {
        let (prev, next) = (self.blocks[index].prev, self.blocks[index].next);
        let absorbed = [self.absorb(index, prev), self.absorb(index, next)];
        let mut change = SplitChange::default();
        for neighbour in absorbed.iter().flatten() {
            change.count -= 1;
            change.bytes -= neighbour.size_bytes as i64;
        }
        let block = &mut self.blocks[index];
        block.state = BlockState::Free;
        block.freed_at_search = search_count;
        if block.is_split() {
            change.count += 1;
            change.bytes += block.size_bytes as i64;
        }
        let merged = FreeBlock { size_bytes: block.size_bytes, address: block.address, index };
        let pool = block.pool;
        let free = self.free_mut(pool);
        match absorbed {
            [None, None] => free.insert(merged),
            [Some(neighbour), None] | [None, Some(neighbour)] => free.replace(&neighbour, merged),
            [Some(prev), Some(next)] => {
                free.remove(&prev);
                free.replace(&next, merged);
            }
        }
        change
    }

    /// Merges a free neighbour into a block and returns what is still to be taken out of the free set; `None` when there
    /// is no such neighbour or it is not free.
    #[inline(always)]
    fn absorb(&mut self, index: BlockIndex, neighbour: BlockIndex) -> Option<FreeBlock> {
        if neighbour == NO_BLOCK || self.blocks[neighbour].state != BlockState::Free {
            return None;
        }
        let Block { address, size_bytes, prev, next, .. } = self.blocks[neighbour];
        let block = &mut self.blocks[index];
        block.size_bytes += size_bytes;
        if block.prev == neighbour {
            block.address = address;
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
        Some(FreeBlock { size_bytes, address, index: neighbour })
    }

    /// The free blocks that are whole segments, in search order.
    pub(crate) fn whole_free(&self, pool: PoolKind) -> Vec<FreeBlock> {
        self.free(pool).iter().filter(|free| !self.blocks[free.index].is_split()).collect()
    }

    /// Takes a block out of the free set.
    pub(crate) fn take_out(&mut self, pool: PoolKind, free: &FreeBlock) {
        self.free_mut(pool).remove(free);
    }

    /// The largest free block of both pools in bytes, 0 without any.
    pub(crate) fn largest_free_bytes(&self) -> u64 {
        let largest = |set: &FreeSet| set.largest().map_or(0, |free| free.size_bytes);
        largest(&self.small).max(largest(&self.large))
    }
}
