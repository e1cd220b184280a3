//! The free blocks of one pool of one stream, in the order of the best-fit rule.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::block::BlockIndex;

/// A free block. The order of the fields is the order of the search: smallest first, ties to the lowest address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FreeBlock {
    pub(crate) size_bytes: u64,
    pub(crate) address: u64,
    pub(crate) index: BlockIndex,
}

/// Free blocks by (size, address).
#[derive(Debug, Default)]
pub(crate) struct FreeSet {
    blocks: BTreeSet<FreeBlock>,
}

impl FreeSet {
    #[inline]
    pub(crate) fn insert(&mut self, block: FreeBlock) {
        self.blocks.insert(block);
    }

    #[inline]
    pub(crate) fn remove(&mut self, block: &FreeBlock) {
        self.blocks.remove(block);
    }

    /// The smallest block of at least this size; of several, the one at the lowest address.
    #[inline]
    pub(crate) fn best_fit(&self, size_bytes: u64) -> Option<FreeBlock> {
        self.blocks.range(FreeBlock { size_bytes, address: 0, index: 0 }..).next().copied()
    }

    /// The block before `block` in the order, present or not.
    pub(crate) fn before(&self, block: &FreeBlock) -> Option<FreeBlock> {
        self.blocks.range((Bound::Unbounded, Bound::Excluded(*block))).next_back().copied()
    }

    /// The last block in the order: the largest.
    pub(crate) fn largest(&self) -> Option<FreeBlock> {
        self.blocks.last().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = FreeBlock> {
        self.blocks.iter().copied()
    }
}
