//! The free blocks of one pool of one stream, in the order of the best-fit rule.
//!
//! They stand in *bins* by size, sixteen for each doubling, and in order in each bin; a bit for each bin says whether anything is in
//! it. A pool has some tens to hundreds of free blocks in training, so most bins have one or none: a search is a look at one bin or at
//! the next bit. A bin is a list through the blocks' own records, so that a block is taken out without a search. One with more
//! than [`LIST_LEN`] is kept in [`SortedRuns`] instead, and a pool with a million free blocks of one size is searched in logarithmic
//! time too.

use super::block::{Block, BlockIndex, BlockTable, NO_BLOCK};
use super::sorted_runs::SortedRuns;

/// A free block. The order is that of the search: smallest first, ties to the lowest address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeBlock {
    pub(crate) size_bytes: u64,
    pub(crate) address: u64,
    pub(crate) index: BlockIndex,
}

/// Size and address as one number.
pub(super) type Key = u128;

#[inline]
pub(super) fn key(size_bytes: u64, address: u64) -> Key {
    (Key::from(size_bytes) << 64) | Key::from(address)
}

impl FreeBlock {
    #[inline]
    pub(super) fn key(&self) -> Key {
        key(self.size_bytes, self.address)
    }
}

impl Block {
    fn as_free(&self, index: BlockIndex) -> FreeBlock {
        FreeBlock { size_bytes: self.size_bytes, address: self.address, index }
    }
}

impl BlockTable {
    /// A free block as sets know it.
    pub(super) fn free_block(&self, index: BlockIndex) -> FreeBlock {
        self[index].as_free(index)
    }
}

/// Bins for each doubling, as a power of two.
const PARTS_SHIFT: u32 = 4;
/// Sizes are multiples of it.
const UNIT_SHIFT: u32 = 9;
/// The bin of the largest size is below it.
const BIN_LIMIT: usize = ((u64::BITS - UNIT_SHIFT - PARTS_SHIFT + 1) << PARTS_SHIFT) as usize;
const WORD_COUNT: usize = BIN_LIMIT.div_ceil(u64::BITS as usize);
/// The neighbours in a list.
const PREV: usize = 0;
const NEXT: usize = 1;
/// A list is no longer: each look at it is a record that may be in no cache.
const LIST_LEN: u32 = 16;

/// The bin of a size: the larger the size, the later.
#[inline(always)]
fn bin_of(size_bytes: u64) -> usize {
    let units = size_bytes >> UNIT_SHIFT;
    // What is below the first doubling that is divided has a bin for each size.
    let doubling = (units | (1 << PARTS_SHIFT)).ilog2() - PARTS_SHIFT;
    ((u64::from(doubling) << PARTS_SHIFT) + (units >> doubling)) as usize
}

/// The free blocks of some sizes, in order.
#[derive(Debug)]
struct Bin {
    /// The first of the list.
    head: BlockIndex,
    count: u32,
    /// In place of the list, where there are many.
    many: Option<Box<SortedRuns>>,
}

impl Default for Bin {
    fn default() -> Self {
        Self { head: NO_BLOCK, count: 0, many: None }
    }
}

/// Free blocks by (size, address). No two have the same address. Size and address of a block stay what they are while it is here.
#[derive(Debug)]
pub(crate) struct FreeSet {
    /// A bit for each bin with anything in it.
    words: [u64; WORD_COUNT],
    /// As many as were used so far.
    bins: Vec<Bin>,
}

impl Default for FreeSet {
    fn default() -> Self {
        Self { words: [0; WORD_COUNT], bins: Vec::new() }
    }
}

impl FreeSet {
    #[inline(always)]
    pub(super) fn insert(&mut self, blocks: &mut [Block], index: BlockIndex) {
        let block = &mut blocks[index as usize];
        let at = bin_of(block.size_bytes);
        *block.free_neighbours_mut() = [NO_BLOCK; 2];
        match self.bins.get_mut(at) {
            Some(bin) if bin.count == 0 => {
                (bin.head, bin.count) = (index, 1);
                self.words[at / 64] |= 1 << (at % 64);
            }
            Some(bin) => bin.insert(blocks, index),
            None => self.insert_into_new(blocks, at, index),
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_into_new(&mut self, blocks: &mut [Block], at: usize, index: BlockIndex) {
        self.bins.resize_with(at + 1, Bin::default);
        self.words[at / 64] |= 1 << (at % 64);
        self.bins[at].insert(blocks, index);
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, blocks: &mut [Block], index: BlockIndex) {
        let at = bin_of(blocks[index as usize].size_bytes);
        let bin = &mut self.bins[at];
        if bin.many.is_some() {
            bin.remove_of_many(blocks, index);
            return;
        }
        let [prev, next] = blocks[index as usize].free_neighbours();
        bin.count -= 1;
        if next != NO_BLOCK {
            blocks[next as usize].free_neighbours_mut()[PREV] = prev;
        }
        if prev != NO_BLOCK {
            blocks[prev as usize].free_neighbours_mut()[NEXT] = next;
            return;
        }
        bin.head = next;
        if next == NO_BLOCK {
            self.words[at / 64] &= !(1 << (at % 64));
        }
    }

    /// The smallest block of at least this size; of several, the one at the lowest address.
    #[inline(always)]
    pub(super) fn best_fit(&self, blocks: &BlockTable, size_bytes: u64) -> Option<BlockIndex> {
        let at = bin_of(size_bytes);
        let bin = self.bins.get(at)?;
        if bin.count > 0
            && let Some(found) = bin.best_fit(blocks, size_bytes)
        {
            return Some(found);
        }
        self.first_from(at + 1)
    }

    /// The first block of the bins from `bin` on.
    #[inline]
    fn first_from(&self, bin: usize) -> Option<BlockIndex> {
        let mut at = bin / 64;
        let mut word = self.words.get(at)? & (u64::MAX << (bin % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        self.bins.get(at * 64 + word.trailing_zeros() as usize)?.first()
    }

    /// What stands behind a block of the set.
    pub(super) fn after(&self, blocks: &BlockTable, index: BlockIndex) -> Option<BlockIndex> {
        let at = bin_of(blocks[index].size_bytes);
        let in_bin = match &self.bins.get(at)?.many {
            None => Some(blocks[index].free_neighbours()[NEXT]).filter(|next| *next != NO_BLOCK),
            Some(many) => many.after(&blocks.free_block(index)).map(|found| found.index),
        };
        in_bin.or_else(|| self.first_from(at + 1))
    }

    /// The last block in the order before this size and address.
    pub(super) fn before(&self, blocks: &BlockTable, size_bytes: u64, address: u64) -> Option<FreeBlock> {
        let (at, limit) = (bin_of(size_bytes), key(size_bytes, address));
        let in_bin = self.bins.get(at).and_then(|bin| bin.last_below(blocks, limit));
        in_bin.or_else(|| self.last_below(blocks, at))
    }

    /// The last block in the order: the largest.
    pub(super) fn largest(&self, blocks: &BlockTable) -> Option<FreeBlock> {
        self.last_below(blocks, self.bins.len())
    }

    fn last_below(&self, blocks: &BlockTable, bin: usize) -> Option<FreeBlock> {
        let earlier = &self.bins[..bin.min(self.bins.len())];
        earlier.iter().rev().find_map(|bin| bin.last_below(blocks, Key::MAX))
    }

    /// All of at least this size, in order; each takes the time of a step in a list, or of a search where there are many of its size.
    pub(super) fn iter_from<'a>(
        &'a self,
        blocks: &'a BlockTable,
        size_bytes: u64,
    ) -> impl Iterator<Item = FreeBlock> + 'a {
        let mut next = self.best_fit(blocks, size_bytes);
        std::iter::from_fn(move || {
            let index = next?;
            next = self.after(blocks, index);
            Some(blocks.free_block(index))
        })
    }
}

impl Bin {
    #[inline(never)]
    fn insert(&mut self, blocks: &mut [Block], index: BlockIndex) {
        let block = blocks[index as usize].as_free(index);
        if self.many.is_none() && self.count == LIST_LEN {
            self.become_many(blocks);
        }
        self.count += 1;
        if let Some(many) = &mut self.many {
            many.insert(block);
            return;
        }
        let (mut prev, mut next) = (NO_BLOCK, self.head);
        while next != NO_BLOCK && blocks[next as usize].as_free(next).key() < block.key() {
            (prev, next) = (next, blocks[next as usize].free_neighbours()[NEXT]);
        }
        self.link(blocks, prev, index);
        self.link_next(blocks, index, next);
    }

    fn link(&mut self, blocks: &mut [Block], prev: BlockIndex, index: BlockIndex) {
        blocks[index as usize].free_neighbours_mut()[PREV] = prev;
        if prev == NO_BLOCK {
            self.head = index;
        } else {
            blocks[prev as usize].free_neighbours_mut()[NEXT] = index;
        }
    }

    fn link_next(&mut self, blocks: &mut [Block], index: BlockIndex, next: BlockIndex) {
        blocks[index as usize].free_neighbours_mut()[NEXT] = next;
        if next != NO_BLOCK {
            blocks[next as usize].free_neighbours_mut()[PREV] = index;
        }
    }

    #[cold]
    #[inline(never)]
    fn become_many(&mut self, blocks: &[Block]) {
        let mut many = Box::<SortedRuns>::default();
        let mut at = std::mem::replace(&mut self.head, NO_BLOCK);
        while at != NO_BLOCK {
            many.insert(blocks[at as usize].as_free(at));
            at = blocks[at as usize].free_neighbours()[NEXT];
        }
        self.many = Some(many);
    }

    #[cold]
    #[inline(never)]
    fn remove_of_many(&mut self, blocks: &mut [Block], index: BlockIndex) {
        let Some(many) = &mut self.many else { return };
        many.remove(&blocks[index as usize].as_free(index));
        self.count -= 1;
        // Well below what makes it many, so that it does not go to and fro.
        if self.count > LIST_LEN / 2 {
            return;
        }
        let few = self.many.take();
        let mut prev = NO_BLOCK;
        for FreeBlock { index, .. } in few.iter().flat_map(|few| few.iter()) {
            self.link(blocks, prev, index);
            blocks[index as usize].free_neighbours_mut()[NEXT] = NO_BLOCK;
            prev = index;
        }
    }

    #[inline(always)]
    fn best_fit(&self, blocks: &BlockTable, size_bytes: u64) -> Option<BlockIndex> {
        if let Some(many) = &self.many {
            return many.best_fit(size_bytes).map(|found| found.index);
        }
        let mut at = self.head;
        while at != NO_BLOCK && blocks[at].size_bytes < size_bytes {
            at = blocks[at].free_neighbours()[NEXT];
        }
        (at != NO_BLOCK).then_some(at)
    }

    #[inline]
    fn first(&self) -> Option<BlockIndex> {
        match &self.many {
            None => (self.head != NO_BLOCK).then_some(self.head),
            Some(many) => many.best_fit(0).map(|found| found.index),
        }
    }

    fn last_below(&self, blocks: &BlockTable, limit: Key) -> Option<FreeBlock> {
        if let Some(many) = &self.many {
            return many.last_below(limit);
        }
        let mut last = None;
        let mut at = self.head;
        while at != NO_BLOCK && blocks.free_block(at).key() < limit {
            last = Some(blocks.free_block(at));
            at = blocks[at].free_neighbours()[NEXT];
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::block::Block;
    use super::*;
    use crate::stats::PoolKind;

    /// Xorshift: the same numbers in every run.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state >> 16
    }

    #[derive(Default)]
    struct Both {
        set: FreeSet,
        blocks: BlockTable,
        model: BTreeMap<(u64, u64), BlockIndex>,
    }

    impl Both {
        fn insert(&mut self, size_bytes: u64, address: u64) {
            if !self.model.contains_key(&(size_bytes, address)) {
                let index = self.blocks.insert(Block::segment(address, size_bytes, PoolKind::Small));
                self.set.insert(self.blocks.records(), index);
                self.model.insert((size_bytes, address), index);
            }
        }

        fn remove(&mut self, key: (u64, u64)) {
            if let Some(index) = self.model.remove(&key) {
                self.set.remove(self.blocks.records(), index);
                self.blocks.remove(index);
            }
        }

        fn check_at(&self, size_bytes: u64, address: u64) {
            let name = |found: Option<FreeBlock>| found.map(|found| found.index);
            let fit = self.model.range((size_bytes, 0)..).next().map(|(_, index)| *index);
            assert_eq!(self.set.best_fit(&self.blocks, size_bytes), fit);
            let next = self.model.range((size_bytes, 0)..).nth(1).map(|(_, index)| *index);
            assert_eq!(fit.and_then(|fit| self.set.after(&self.blocks, fit)), next);
            let before = self.model.range(..(size_bytes, address)).next_back().map(|(_, index)| *index);
            assert_eq!(name(self.set.before(&self.blocks, size_bytes, address)), before);
            let largest = self.model.values().next_back().copied();
            assert_eq!(name(self.set.largest(&self.blocks)), largest);
        }

        fn check(&self) {
            let blocks: Vec<FreeBlock> = self.set.iter_from(&self.blocks, 0).collect();
            assert!(blocks.iter().map(|block| block.index).eq(self.model.values().copied()), "in order");
            let mut counts = vec![0; self.set.bins.len()];
            blocks.iter().for_each(|block| counts[bin_of(block.size_bytes)] += 1);
            for (at, bin) in self.set.bins.iter().enumerate() {
                assert_eq!(bin.count, counts[at]);
                assert_eq!(self.set.words[at / 64] >> (at % 64) & 1 == 1, bin.count > 0);
                assert!(bin.many.is_some() || bin.count <= LIST_LEN);
                assert!(bin.many.is_none() || bin.head == NO_BLOCK);
            }
        }
    }

    #[test]
    fn the_order_is_that_of_an_ordered_map_while_the_set_grows_and_shrinks() {
        let mut state = 88_172_645_463_325_252;
        let mut both = Both::default();
        let mut were_many = false;
        for turn in 0..40_000_u64 {
            // Few sizes for many blocks, so that ties are common, and some of any size; mostly shrinking, then mostly growing.
            let doublings = if random(&mut state).is_multiple_of(3) { random(&mut state) % 30 } else { 0 };
            let size_bytes = (512 * (1 + random(&mut state) % 20)) << doublings;
            let address = 512 * (random(&mut state) % 500);
            let grows = random(&mut state) % 8 < if turn % 8000 >= 4000 { 7 } else { 2 };
            if grows {
                both.insert(size_bytes, address);
            } else {
                both.check_at(size_bytes, address);
                let any = both.model.range((size_bytes, address)..).next().map(|(key, _)| *key);
                if let Some(key) = any {
                    both.remove(key);
                }
            }
            were_many |= both.set.bins.iter().any(|bin| bin.many.is_some());
            if turn % 97 == 0 {
                both.check();
                let expected = both.model.range((size_bytes, 0)..).map(|(_, index)| *index);
                assert!(both.set.iter_from(&both.blocks, size_bytes).map(|block| block.index).eq(expected));
            }
        }
        assert!(were_many, "a bin of many");
        while let (Some((first, _)), Some((last, _))) = (both.model.first_key_value(), both.model.last_key_value()) {
            let key = if both.model.len().is_multiple_of(3) { *first } else { *last };
            both.remove(key);
            both.check();
        }
        assert!(both.set.bins.iter().all(|bin| bin.many.is_none()), "lists again");
    }

    #[test]
    fn bins_are_in_the_order_of_sizes_to_the_largest() {
        let sizes = (0..51).flat_map(|doubling| (16..32_u64).map(move |part| (part << doubling) << 9));
        let sizes: Vec<u64> = (1..16).map(|units| units * 512).chain(sizes).collect();
        let bins: Vec<usize> = sizes.iter().map(|size| bin_of(*size)).collect();
        assert!(bins.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(bin_of(u64::MAX) < BIN_LIMIT);
        assert_eq!(bin_of(512), 1);
        assert_ne!(bin_of(1 << 20), bin_of((1 << 20) + (1 << 16)), "sixteen for each doubling");
        assert_eq!(bin_of(1 << 20), bin_of((1 << 20) + (1 << 16) - 512));
    }
}
