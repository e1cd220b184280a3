//! The books of expandable segments: ranges of addresses in which memory is mapped and unmapped page by page. Plain data, no
//! device.
//!
//! All of a range's addresses are blocks, in one chain: free and allocated ones with memory, unmapped ones without.

use super::block::{Block, BlockIndex, BlockState, NO_BLOCK, SegmentIndex};
use super::free_set::FreeBlock;
use super::pools::StreamPools;
use crate::device::PhysicalMemory;
use crate::stats::PoolKind;

/// A range of addresses. It keeps its page size, whatever the settings become.
#[derive(Debug)]
pub(super) struct ExpandableSegment {
    pub(super) address: u64,
    pub(super) bytes: u64,
    page_bytes: u64,
    /// What is mapped, by page, up to the last page that ever was: a range is mostly addresses without memory.
    pages: Vec<Option<PhysicalMemory>>,
}

impl ExpandableSegment {
    /// A range with nothing mapped. `bytes` is a multiple of `page_bytes`.
    pub(super) fn new(address: u64, bytes: u64, page_bytes: u64) -> Self {
        Self { address, bytes, page_bytes, pages: Vec::new() }
    }

    /// The pages that hold any of the bytes from `address` on; it begins with a page.
    pub(super) fn pages_for(&self, address: u64, bytes: u64) -> PageRange {
        let first = (address - self.address) / self.page_bytes;
        let last = (address - self.address + bytes).div_ceil(self.page_bytes);
        self.range(first, last)
    }

    /// The pages that lie wholly in the range, `None` without any.
    pub(super) fn pages_within(&self, address: u64, bytes: u64) -> Option<PageRange> {
        let first = (address - self.address).div_ceil(self.page_bytes);
        let last = (address - self.address + bytes) / self.page_bytes;
        (first < last).then(|| self.range(first, last))
    }

    fn range(&self, first: u64, last: u64) -> PageRange {
        let (page_bytes, bytes) = (self.page_bytes, (last - first) * self.page_bytes);
        PageRange {
            first: first as usize,
            last: last as usize,
            page_bytes,
            address: self.address + first * page_bytes,
            bytes,
        }
    }

    pub(super) fn set_mapped(&mut self, range: &PageRange, memory: Vec<PhysicalMemory>) {
        if self.pages.len() < range.last {
            self.pages.resize(range.last, None);
        }
        for (page, memory) in self.pages[range.first..range.last].iter_mut().zip(memory) {
            *page = Some(memory);
        }
    }

    /// Forgets what was mapped there and returns it.
    pub(super) fn set_unmapped(&mut self, range: &PageRange) -> Vec<PhysicalMemory> {
        self.pages[range.first..range.last].iter_mut().filter_map(Option::take).collect()
    }
}

/// Whole pages of one segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageRange {
    first: usize,
    last: usize,
    pub(super) page_bytes: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl PageRange {
    /// So many pages from the front.
    pub(super) fn first_pages(&self, count: usize) -> Self {
        Self { last: self.first + count, bytes: count as u64 * self.page_bytes, ..*self }
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        let (address, page_bytes) = (self.address, self.page_bytes);
        (0..(self.last - self.first) as u64).map(move |page| address + page * page_bytes)
    }
}

/// The expandable segments of one shard.
#[derive(Debug, Default)]
pub(super) struct Segments(Vec<Option<ExpandableSegment>>);

impl Segments {
    fn insert(&mut self, segment: ExpandableSegment) -> SegmentIndex {
        match self.0.iter().position(Option::is_none) {
            Some(vacant) => {
                self.0[vacant] = Some(segment);
                vacant as SegmentIndex
            }
            None => {
                self.0.push(Some(segment));
                (self.0.len() - 1) as SegmentIndex
            }
        }
    }

    pub(super) fn get(&self, index: SegmentIndex) -> Option<&ExpandableSegment> {
        self.0.get(index as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: SegmentIndex) -> Option<&mut ExpandableSegment> {
        self.0.get_mut(index as usize)?.as_mut()
    }

    fn remove(&mut self, index: SegmentIndex) {
        if let Some(segment) = self.0.get_mut(index as usize) {
            *segment = None;
        }
    }
}

impl StreamPools {
    /// Where a block of this size can be made by mapping: the first unmapped block in address order that, with the free
    /// blocks around it, has addresses enough. The block returned is free or unmapped.
    pub(super) fn find_growable(&self, pool: PoolKind, size_bytes: u64) -> Option<BlockIndex> {
        let usable = |index: BlockIndex| {
            index != NO_BLOCK && matches!(self.blocks[index].state, BlockState::Free | BlockState::Unmapped)
        };
        self.unmapped(pool).values().copied().find_map(|unmapped| {
            let prev = self.blocks[unmapped].prev;
            let first = if usable(prev) { prev } else { unmapped };
            let (mut bytes, mut at) = (0, first);
            while bytes < size_bytes && usable(at) {
                bytes += self.blocks[at].size_bytes;
                at = self.blocks[at].next;
            }
            (bytes >= size_bytes).then_some(first)
        })
    }

    /// The size of an unmapped block, `None` when there is no such block.
    pub(super) fn unmapped_bytes(&self, index: BlockIndex) -> Option<u64> {
        let block = (index != NO_BLOCK).then(|| &self.blocks[index])?;
        (block.state == BlockState::Unmapped).then_some(block.size_bytes)
    }

    /// Adds a range of addresses as one unmapped block.
    pub(super) fn add_expandable(&mut self, pool: PoolKind, segment: ExpandableSegment) -> BlockIndex {
        let (address, bytes) = (segment.address, segment.bytes);
        let segment = self.segments.insert(segment);
        let block = Block { segment, state: BlockState::Unmapped, ..Block::segment(address, bytes, pool) };
        let index = self.blocks.insert(block);
        self.unmapped_mut(pool).insert(address, index);
        index
    }

    /// Enters that the front of an unmapped block has memory now: it is a free block, merged with its free neighbours.
    pub(super) fn enter_mapped(&mut self, index: BlockIndex, mapped_bytes: u64, search_count: u64) {
        let Block { address, size_bytes, next, pool, segment, .. } = self.blocks[index];
        self.unmapped_mut(pool).remove(&address);
        if mapped_bytes < size_bytes {
            let rest = Block {
                prev: index,
                next,
                segment,
                state: BlockState::Unmapped,
                ..Block::segment(address + mapped_bytes, size_bytes - mapped_bytes, pool)
            };
            let rest = self.insert_after(index, rest);
            self.unmapped_mut(pool).insert(address + mapped_bytes, rest);
            self.blocks[index].size_bytes = mapped_bytes;
        }
        // As for a block that the program gives back; nothing of an expandable segment counts as inactive split.
        let _ = self.take_back(index, search_count);
    }

    /// The whole pages that a free block of an expandable segment could give up.
    pub(super) fn pages_of(&self, free: &FreeBlock) -> Option<PageRange> {
        self.segments.get(self.blocks[free.index].segment)?.pages_within(free.address, free.size_bytes)
    }

    /// Enters that whole pages inside a free block lost their memory. What is left of the block at either side stays free.
    pub(super) fn enter_unmapped(&mut self, free: &FreeBlock, range: &PageRange, search_count: u64) {
        let index = free.index;
        let Block { pool, segment, segment_stack, prev, .. } = self.blocks[index];
        self.take_out(index);
        self.spare_blocks.went(free.address, free.size_bytes);
        let piece = |address, bytes| Block {
            segment,
            segment_stack,
            freed_at_search: search_count,
            ..Block::segment(address, bytes, pool)
        };
        let before_bytes = range.address - free.address;
        if before_bytes > 0 {
            let before = self.blocks.insert(Block { prev, next: index, ..piece(free.address, before_bytes) });
            self.blocks[index].prev = before;
            if prev != NO_BLOCK {
                self.blocks[prev].next = before;
            }
            self.insert_free(before);
            self.note_came(before);
        }
        let after_bytes = free.size_bytes - before_bytes - range.bytes;
        if after_bytes > 0 {
            let (address, next) = (range.address + range.bytes, self.blocks[index].next);
            let after = self.insert_after(index, Block { prev: index, next, ..piece(address, after_bytes) });
            self.insert_free(after);
            self.note_came(after);
        }
        let block = &mut self.blocks[index];
        (block.address, block.size_bytes, block.state) = (range.address, range.bytes, BlockState::Unmapped);
        let (prev, next) = (block.prev, block.next);
        for neighbour in [prev, next] {
            if self.is_in_state(neighbour, BlockState::Unmapped) {
                let address = self.blocks[neighbour].address;
                self.unmapped_mut(pool).remove(&address);
                self.absorb(index, neighbour);
            }
        }
        let address = self.blocks[index].address;
        self.unmapped_mut(pool).insert(address, index);
    }

    /// The range that a block is all of, if it is unmapped and all of one.
    pub(super) fn wholly_unmapped(&self, index: BlockIndex) -> Option<(u64, u64)> {
        let block = &self.blocks[index];
        let whole = block.state == BlockState::Unmapped && !block.is_split();
        whole.then_some((block.address, block.size_bytes))
    }

    /// Forgets an expandable segment whose addresses were given back; the block is all of it.
    pub(super) fn remove_expandable(&mut self, index: BlockIndex) {
        let Block { address, pool, segment, .. } = self.blocks[index];
        self.unmapped_mut(pool).remove(&address);
        self.segments.remove(segment);
        self.blocks.remove(index);
    }
}
