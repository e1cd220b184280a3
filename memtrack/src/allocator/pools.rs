//! The small and the large pool of one stream: best fit, splitting, merging. Plain data, no lock, no device.

use super::block::{Block, BlockIndex, BlockState, BlockTable, NO_BLOCK};
use super::free_set::{FreeBlock, FreeSet};
use super::rounding::SizeRules;
use crate::ledger::{BlockEntry, SplitChange};
use crate::stats::PoolKind;

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

    /// Takes the best fit out of the free set, if the rules let it serve this size.
    #[inline]
    pub(crate) fn find(&mut self, rules: &SizeRules, pool: PoolKind, size_bytes: u64) -> Option<BlockIndex> {
        // The best fit alone is looked at: when it may not serve, PyTorch opens a new segment instead of searching on.
        let may_serve = |found: &FreeBlock| rules.may_serve(found.size_bytes, size_bytes);
        let found = self.free_mut(pool).take_best_fit(size_bytes, may_serve)?;
        Some(found.index)
    }

    /// A new segment, not in the free set.
    pub(crate) fn add_segment(&mut self, address: u64, size_bytes: u64, pool: PoolKind) -> BlockIndex {
        self.blocks.insert(Block::segment(address, size_bytes, pool))
    }

    /// Forgets a segment that went back to the device; it is a whole block out of the free set.
    pub(crate) fn remove_segment(&mut self, index: BlockIndex) {
        debug_assert!(!self.blocks[index].is_split(), "a segment is released whole");
        self.blocks.remove(index);
    }

    /// Hands out a block that is out of the free set, split if the rules say so. The front is handed out, the rest is
    /// free. Returns the block (at the same index) and what happened to the inactive split counters.
    #[inline]
    pub(crate) fn hand_out(
        &mut self,
        rules: &SizeRules,
        index: BlockIndex,
        size_bytes: u64,
        requested_bytes: u64,
        search_count: u64,
    ) -> SplitChange {
        let block = &mut self.blocks[index];
        let was_split = block.is_split();
        let rest_bytes = block.size_bytes - size_bytes;
        let pool = block.pool;
        let splits = rules.should_split(pool, block.size_bytes, size_bytes);
        block.state = BlockState::Allocated;
        block.requested_bytes = requested_bytes;
        let whole_bytes = block.size_bytes as i64;
        if splits {
            block.size_bytes = size_bytes;
            let rest = Block {
                prev: index,
                next: block.next,
                freed_at_search: search_count,
                ..Block::segment(block.address + size_bytes, rest_bytes, pool)
            };
            let (after, address) = (rest.next, rest.address);
            let rest = self.blocks.insert(rest);
            self.blocks[index].next = rest;
            if after != NO_BLOCK {
                self.blocks[after].prev = rest;
            }
            self.free_mut(pool).insert(FreeBlock { size_bytes: rest_bytes, address, index: rest });
        }
        match (was_split, splits) {
            (false, false) => SplitChange::default(),
            (false, true) => SplitChange { count: 1, bytes: rest_bytes as i64 },
            (true, true) => SplitChange { count: 0, bytes: -(size_bytes as i64) },
            (true, false) => SplitChange { count: -1, bytes: -whole_bytes },
        }
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
    #[inline]
    pub(crate) fn take_back(&mut self, index: BlockIndex, search_count: u64) -> SplitChange {
        let mut change = SplitChange::default();
        let (prev, next) = (self.blocks[index].prev, self.blocks[index].next);
        if let Some(bytes) = self.absorb(index, prev) {
            change.count -= 1;
            change.bytes -= bytes as i64;
        }
        if let Some(bytes) = self.absorb(index, next) {
            change.count -= 1;
            change.bytes -= bytes as i64;
        }
        let block = &mut self.blocks[index];
        block.state = BlockState::Free;
        block.freed_at_search = search_count;
        if block.is_split() {
            change.count += 1;
            change.bytes += block.size_bytes as i64;
        }
        let free = FreeBlock { size_bytes: block.size_bytes, address: block.address, index };
        let pool = block.pool;
        self.free_mut(pool).insert(free);
        change
    }

    /// Merges a free neighbour into a block; returns the neighbour's size, `None` when it is none or not free.
    #[inline]
    fn absorb(&mut self, index: BlockIndex, neighbour: BlockIndex) -> Option<u64> {
        if neighbour == NO_BLOCK || self.blocks[neighbour].state != BlockState::Free {
            return None;
        }
        let Block { address, size_bytes, prev, next, pool, .. } = self.blocks[neighbour];
        self.free_mut(pool).remove(&FreeBlock { size_bytes, address, index: neighbour });
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
        Some(size_bytes)
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
