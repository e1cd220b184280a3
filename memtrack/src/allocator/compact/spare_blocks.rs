//! The free blocks of one stream that have a whole page, by address and by age. Plain data, no device.
//!
//! Pools change at every allocation and free, and spare pages are wanted only where pages move. So changes are noted, and entered when
//! somebody asks; where more are noted than there are blocks, they are forgotten, and the blocks are collected anew. Either takes
//! logarithmic time for each change. Before anybody asks for the first time nothing is noted.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::block::{BlockIndex, BlockState};
use super::super::pools::StreamPools;
use super::PAGE_BYTES;
use super::places::{slot_count, whole_slots};
use crate::stats::PoolKind;

/// So many changes are noted in any case.
const LEAST_CHANGES: usize = 1024;

/// A free block with a whole page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpareBlock {
    pub(super) address: u64,
    pub(super) size_bytes: u64,
    pub(super) pool: PoolKind,
    pub(super) freed_at: u64,
}

impl SpareBlock {
    pub(super) fn slots(&self) -> Range<u64> {
        whole_slots(self.address, self.size_bytes)
    }

    pub(super) fn page_count(&self) -> usize {
        slot_count(&self.slots())
    }

    pub(super) fn end(&self) -> u64 {
        self.address + self.size_bytes
    }

    /// Large ones before small ones, the one freed longest ago first.
    fn age(&self) -> (bool, u64, u64) {
        (self.pool == PoolKind::Small, self.freed_at, self.address)
    }
}

/// What a pool's free set came to at an address.
#[derive(Debug, Clone, Copy)]
enum Change {
    Came(SpareBlock),
    Went { address: u64 },
}

#[derive(Debug, Default)]
pub(in super::super) struct SpareBlocks {
    /// Whether changes are noted. Otherwise nothing is known.
    is_kept: bool,
    changes: Vec<Change>,
    most_changes: usize,
    by_address: BTreeMap<u64, SpareBlock>,
    by_age: BTreeMap<(bool, u64, u64), u64>,
    page_count: usize,
}

impl SpareBlocks {
    #[inline(always)]
    pub(in super::super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    fn note(&mut self, change: Change) {
        if !self.is_kept {
            return;
        }
        if self.changes.len() >= self.most_changes {
            *self = Self::default();
            return;
        }
        self.changes.push(change);
    }

    /// A block is in the free set now.
    pub(in super::super) fn came(&mut self, pool: PoolKind, address: u64, size_bytes: u64, freed_at: u64) {
        if size_bytes >= PAGE_BYTES {
            self.note(Change::Came(SpareBlock { address, size_bytes, pool, freed_at }));
        }
    }

    /// A block is no longer in the free set, or no longer the same.
    pub(in super::super) fn went(&mut self, address: u64, size_bytes: u64) {
        if size_bytes >= PAGE_BYTES {
            self.note(Change::Went { address });
        }
    }

    fn remove(&mut self, address: u64) {
        if let Some(gone) = self.by_address.remove(&address) {
            self.by_age.remove(&gone.age());
            self.page_count -= gone.page_count();
        }
    }

    fn insert(&mut self, block: SpareBlock) {
        self.remove(block.address);
        let page_count = block.page_count();
        if page_count > 0 {
            self.by_address.insert(block.address, block);
            self.by_age.insert(block.age(), block.size_bytes);
            self.page_count += page_count;
        }
    }

    fn enter_changes(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        for change in changes.drain(..) {
            match change {
                Change::Came(block) => self.insert(block),
                Change::Went { address } => self.remove(address),
            }
        }
        self.changes = changes;
    }

    /// Pages in all of them.
    pub(super) fn page_count(&self) -> usize {
        self.page_count
    }

    /// The one that an address lies in.
    pub(super) fn containing(&self, address: u64) -> Option<&SpareBlock> {
        let (_, block) = self.by_address.range(..=address).next_back()?;
        (address < block.end()).then_some(block)
    }

    /// Those of a pool freed up to a time, the oldest first.
    pub(super) fn oldest(&self, pool: PoolKind, until: u64) -> impl Iterator<Item = SpareBlock> {
        let is_small = pool == PoolKind::Small;
        let of_pool = self.by_age.range((is_small, 0, 0)..=(is_small, until, u64::MAX));
        of_pool.map(move |(&(_, freed_at, address), &size_bytes)| SpareBlock { address, size_bytes, pool, freed_at })
    }

    /// Whether any was freed after a time.
    pub(super) fn has_younger(&self, until: u64) -> bool {
        [false, true].into_iter().any(|is_small| {
            let last = self.by_age.range((is_small, 0, 0)..=(is_small, u64::MAX, u64::MAX)).next_back();
            last.is_some_and(|((_, freed_at, _), _)| *freed_at > until)
        })
    }
}

impl StreamPools {
    /// Brings the free blocks with whole pages up to date.
    pub(super) fn settle_spares(&mut self) {
        if self.spare_blocks.is_kept {
            self.spare_blocks.enter_changes();
            return;
        }
        let mut kept = SpareBlocks { is_kept: true, ..SpareBlocks::default() };
        let mut count = 0;
        for pool in [PoolKind::Small, PoolKind::Large] {
            // A smaller block has no whole page.
            for free in self.free_blocks_from(pool, PAGE_BYTES) {
                count += 1;
                let freed_at = self.blocks[free.index].freed_at_search;
                kept.insert(SpareBlock { address: free.address, size_bytes: free.size_bytes, pool, freed_at });
            }
        }
        kept.most_changes = LEAST_CHANGES.max(2 * count);
        self.spare_blocks = kept;
    }

    /// A block is about to be free, merged with its free neighbours.
    #[cold]
    #[inline(never)]
    pub(in super::super) fn note_free(&mut self, index: BlockIndex, freed_at: u64) {
        let block = &self.blocks[index];
        let (pool, prev, next) = (block.pool, block.prev, block.next);
        let (mut address, mut size_bytes) = (block.address, block.size_bytes);
        for neighbour in [prev, next] {
            if self.is_in_state(neighbour, BlockState::Free) {
                let block = &self.blocks[neighbour];
                self.spare_blocks.went(block.address, block.size_bytes);
                address = address.min(block.address);
                size_bytes += block.size_bytes;
            }
        }
        self.spare_blocks.came(pool, address, size_bytes, freed_at);
    }

    /// A block that was taken out of the free set is about to be handed out, cut at its front.
    #[cold]
    #[inline(never)]
    pub(in super::super) fn note_served(&mut self, index: BlockIndex, served_bytes: u64) {
        let block = &self.blocks[index];
        let (address, size_bytes) = (block.address, block.size_bytes);
        self.spare_blocks.went(address, size_bytes);
        self.spare_blocks.came(block.pool, address + served_bytes, size_bytes - served_bytes, block.freed_at_search);
    }

    /// A block was put into the free set.
    pub(in super::super) fn note_came(&mut self, index: BlockIndex) {
        let block = &self.blocks[index];
        self.spare_blocks.came(block.pool, block.address, block.size_bytes, block.freed_at_search);
    }
}
