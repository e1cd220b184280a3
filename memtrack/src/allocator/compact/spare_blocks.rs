//! The free blocks of one stream that have a whole page, by address and by age. Plain data, no device.
//!
//! Pools change at every allocation and free, and spare pages are wanted only where pages move. So changes are noted, and entered when
//! somebody asks; where more are noted than there are blocks, they are forgotten, and the blocks are collected anew. Either takes
//! logarithmic time for each change. Before anybody asks for the first time nothing is noted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::block::{Block, BlockIndex, BlockState};
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

/// How many streams may have spare pages, so that the others need not be asked if none has.
#[derive(Debug, Default)]
pub(in super::super) struct Giving {
    stream_count: Arc<AtomicUsize>,
    is_counted: bool,
}

impl Giving {
    /// With a count that the streams of an allocator share.
    pub(in super::super) fn new(stream_count: &Arc<AtomicUsize>) -> Self {
        Self { stream_count: Arc::clone(stream_count), is_counted: false }
    }

    #[inline(always)]
    pub(in super::super) fn is_counted(&self) -> bool {
        self.is_counted
    }

    fn set(&mut self, is_counted: bool) {
        match (self.is_counted, is_counted) {
            (false, true) => _ = self.stream_count.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = self.stream_count.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
        self.is_counted = is_counted;
    }
}

impl StreamPools {
    /// As [`note_free`](Self::note_free), of a stream that had no spare pages when it was last asked.
    #[cold]
    #[inline(never)]
    pub(in super::super) fn note_giving(&mut self, index: BlockIndex) {
        let Block { prev, next, mut size_bytes, .. } = self.blocks[index];
        for neighbour in [prev, next] {
            if self.is_in_state(neighbour, BlockState::Free) {
                size_bytes += self.blocks[neighbour].size_bytes;
            }
        }
        if size_bytes >= PAGE_BYTES {
            self.giving.set(true);
        }
    }

    /// What a growth made is free for a moment. If nothing of it stayed, the stream has nothing to give still.
    pub(super) fn recount_giving(&mut self) {
        if self.giving.is_counted() && self.largest_free_bytes() < PAGE_BYTES {
            self.giving.set(false);
        }
    }

    /// Whether neither this stream nor, it seems, any other has a spare page.
    pub(super) fn nobody_gives(&mut self) -> bool {
        if self.giving.is_counted() {
            self.settle_spares();
            self.giving.set(self.spare_blocks.page_count > 0);
        }
        self.giving.stream_count.load(Ordering::Acquire) == 0
    }

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

#[cfg(test)]
mod tests {
    use super::super::super::pools::SizedRequest;
    use super::super::super::rounding::SizeRules;
    use super::*;
    use crate::{Config, Policy};

    const START: u64 = 1 << 40;
    const RANGE_PAGES: u64 = 400;

    /// Xorshift: the same numbers in every run.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state >> 16
    }

    fn pools() -> StreamPools {
        let mut config = Config::default();
        config.policy = Policy::Compact;
        let mut pools = StreamPools::new(SizeRules::new(&config), false);
        pools.add_range(PoolKind::Large, START, RANGE_PAGES * PAGE_BYTES);
        pools.enter_pages(PoolKind::Large, &(START..START + RANGE_PAGES / 2 * PAGE_BYTES), Default::default());
        pools
    }

    /// Walks all free blocks.
    fn walked(pools: &StreamPools) -> Vec<SpareBlock> {
        let mut blocks: Vec<SpareBlock> = pools
            .free_blocks(PoolKind::Large)
            .map(|free| {
                let freed_at = pools.blocks[free.index].freed_at_search;
                SpareBlock { address: free.address, size_bytes: free.size_bytes, pool: PoolKind::Large, freed_at }
            })
            .filter(|block| block.page_count() > 0)
            .collect();
        blocks.sort_unstable_by_key(SpareBlock::age);
        blocks
    }

    fn check(pools: &mut StreamPools) {
        pools.settle_spares();
        let (walked, spare) = (walked(pools), &pools.spare_blocks);
        assert_eq!(spare.oldest(PoolKind::Large, u64::MAX).collect::<Vec<_>>(), walked);
        assert_eq!(spare.page_count(), walked.iter().map(SpareBlock::page_count).sum::<usize>());
        assert_eq!(spare.by_address.len(), walked.len());
        for block in &walked {
            assert_eq!(spare.containing(block.end() - 1), Some(block));
        }
        let youngest = walked.last().map_or(0, |block| block.freed_at);
        assert!(!spare.has_younger(youngest));
        assert_eq!(spare.has_younger(youngest.saturating_sub(1)), youngest > 0);
    }

    /// Does something to the pools: what a program does, or pages that leave a free block, or come to a hole.
    fn step(pools: &mut StreamPools, live: &mut Vec<BlockIndex>, state: &mut u64) {
        match random(state) % 12 {
            0..6 => {
                let size_bytes = 512 * (200 + random(state) % (3 << (random(state) % 13)));
                let request = SizedRequest { size_bytes, requested_bytes: 1, search_count: 0, expandable: true };
                live.extend(pools.serve(&request).map(|(index, _)| index));
            }
            6..10 if !live.is_empty() => {
                let at = random(state) as usize % live.len();
                pools.take_back(live.swap_remove(at), 0);
            }
            10 => {
                let spare = walked(pools);
                if let Some(block) = spare.get(random(state) as usize % spare.len().max(1)) {
                    let slots = block.slots();
                    assert_eq!(
                        pools.enter_hole(PoolKind::Large, &(slots.end - PAGE_BYTES..slots.end)),
                        Some(block.freed_at)
                    );
                }
            }
            _ => {
                let holes: Vec<BlockIndex> = pools.unmapped(PoolKind::Large).values().copied().collect();
                let hole = &pools.blocks[holes[random(state) as usize % holes.len()]];
                if hole.address + hole.size_bytes < START + RANGE_PAGES * PAGE_BYTES {
                    let slots = hole.address..hole.address + PAGE_BYTES;
                    pools.enter_pages(PoolKind::Large, &slots, Default::default());
                }
            }
        }
    }

    #[test]
    fn spare_blocks_are_those_of_a_walk_whenever_somebody_asks() {
        let mut state = 88_172_645_463_325_252;
        let (mut pools, mut live) = (pools(), Vec::new());
        for turn in 0..20_000 {
            step(&mut pools, &mut live, &mut state);
            if turn < 4000 || random(&mut state).is_multiple_of(500) {
                check(&mut pools);
            }
        }
    }

    #[test]
    fn nothing_is_noted_before_somebody_asks_and_no_more_than_there_are_blocks_after() {
        let (mut pools, mut live, mut state) = (pools(), Vec::new(), 7);
        for _ in 0..500 {
            step(&mut pools, &mut live, &mut state);
        }
        pools.spare_blocks = SpareBlocks::default();
        (0..9).for_each(|_| pools.spare_blocks.went(START, PAGE_BYTES));
        assert!(!pools.spare_blocks.is_kept() && pools.spare_blocks.changes.is_empty());
        pools.settle_spares();
        let most = pools.spare_blocks.most_changes;
        (0..most).for_each(|_| pools.spare_blocks.went(START, PAGE_BYTES));
        assert!(pools.spare_blocks.is_kept());
        pools.spare_blocks.went(START, PAGE_BYTES);
        assert!(!pools.spare_blocks.is_kept() && pools.spare_blocks.changes.is_empty());
        check(&mut pools);
    }
}
