//! Blocks: the pieces that segments are cut into, in a table by index.

use std::panic::Location;
use std::sync::Arc;

use super::stream_uses::StreamUses;
use crate::history::recording::StackId;
use crate::ledger::ScopeKey;
use crate::observer::{self, Observed};
use crate::stats::PoolKind;

/// A block's index in its shard's table.
pub(crate) type BlockIndex = u32;

/// No block.
pub(crate) const NO_BLOCK: BlockIndex = BlockIndex::MAX;

/// An expandable segment's index in its shard's table.
pub(crate) type SegmentIndex = u32;

/// The block is of a plain segment.
pub(crate) const NOT_EXPANDABLE: SegmentIndex = SegmentIndex::MAX;

/// What a block is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// In the free set of its pool.
    Free,
    /// Handed to the program.
    Allocated,
    /// Given back by the program, still in use by another stream.
    PendingFree,
    /// A stretch of an expandable segment without memory behind it.
    Unmapped,
}

/// Where a program asks for memory. Two words at most, so that it is passed in registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// The line that called memtrack.
    pub(crate) location: &'static Location<'static>,
    /// How the program got there, if that is recorded.
    pub(crate) stack: StackId,
}

/// What few blocks have, and only while the program holds them.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// The streams besides the block's own that use it.
    pub(crate) uses: StreamUses,
    /// Whom to tell of the free.
    pub(crate) observed: Option<Arc<Observed>>,
}

/// A piece of a segment. A block is *split* if it has a neighbour; one without is a whole segment, or all of an expandable
/// segment's addresses.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    /// Rounded.
    pub(crate) size_bytes: u64,
    /// As asked for; stale while free.
    pub(crate) requested_bytes: u64,
    /// The pool's search count when the block became free, for the garbage collector's notion of age.
    pub(crate) freed_at_search: u64,
    /// What few blocks have, so it costs one word.
    pub(crate) extras: Option<Box<Extras>>,
    /// Neighbours in the segment.
    pub(crate) prev: BlockIndex,
    pub(crate) next: BlockIndex,
    /// The scope whose thread allocated it.
    pub(crate) owner: Option<ScopeKey>,
    /// What is needed in one state alone.
    pub(super) in_state: [u32; 2],
    /// The line it was last allocated at; none before the first time.
    pub(crate) location: Option<&'static Location<'static>>,
    /// How the program got there, if that is recorded.
    pub(crate) stack: StackId,
    /// Where the segment that begins with it was.
    pub(crate) segment_stack: StackId,
    /// The expandable segment it is of, [`NOT_EXPANDABLE`] for none.
    pub(crate) segment: SegmentIndex,
    pub(crate) pool: PoolKind,
    pub(crate) state: BlockState,
}

impl Block {
    /// A whole segment, not handed out yet.
    pub(crate) fn segment(address: u64, size_bytes: u64, pool: PoolKind) -> Self {
        Self {
            address,
            size_bytes,
            requested_bytes: 0,
            freed_at_search: 0,
            extras: None,
            prev: NO_BLOCK,
            next: NO_BLOCK,
            owner: None,
            in_state: [NO_BLOCK; 2],
            location: None,
            stack: StackId::NONE,
            segment_stack: StackId::NONE,
            segment: NOT_EXPANDABLE,
            pool,
            state: BlockState::Free,
        }
    }

    /// Of a block that the program holds: the era in which it was allocated.
    #[inline]
    pub(crate) fn born(&self) -> u32 {
        self.in_state[0]
    }

    #[inline]
    pub(crate) fn set_born(&mut self, era: u32) {
        self.in_state[0] = era;
    }

    /// Of a pending block: the events that must complete before it is free.
    pub(crate) fn event_count(&self) -> u32 {
        self.in_state[1]
    }

    pub(crate) fn set_event_count(&mut self, count: u32) {
        self.in_state[1] = count;
    }

    /// Of a free block: its neighbours in a list of free blocks.
    #[inline(always)]
    pub(super) fn free_neighbours(&self) -> [BlockIndex; 2] {
        self.in_state
    }

    #[inline(always)]
    pub(super) fn free_neighbours_mut(&mut self) -> &mut [BlockIndex; 2] {
        &mut self.in_state
    }

    /// The block was handed out by `allocator`; its owner may be observed.
    #[cold]
    pub(crate) fn observe(&mut self, allocator: u64) {
        if let (Some(observed), Some(location)) = (observer::observed(allocator, self.owner), self.location) {
            observed.allocated(location, self.requested_bytes);
            self.extras.get_or_insert_default().observed = Some(observed);
        }
    }

    /// The program gives the block back. Returns the streams that use it besides its own, if any do.
    #[inline]
    pub(crate) fn give_back(&mut self) -> Option<StreamUses> {
        match self.extras.take() {
            None => None,
            Some(extras) => self.give_back_with(*extras),
        }
    }

    #[cold]
    fn give_back_with(&self, extras: Extras) -> Option<StreamUses> {
        let Extras { uses, observed } = extras;
        if let (Some(observed), Some(location)) = (observed, self.location) {
            observed.freed(location, self.requested_bytes);
        }
        (!uses.is_empty()).then_some(uses)
    }

    #[inline]
    pub(crate) fn is_split(&self) -> bool {
        self.prev != NO_BLOCK || self.next != NO_BLOCK
    }

    #[inline]
    pub(crate) fn is_expandable(&self) -> bool {
        self.segment != NOT_EXPANDABLE
    }
}

/// A shard's blocks. An index stays with its block until the block is merged away or its segment released.
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    blocks: Vec<Block>,
    vacant: Vec<BlockIndex>,
}

impl BlockTable {
    #[inline(always)]
    pub(crate) fn insert(&mut self, block: Block) -> BlockIndex {
        match self.vacant.pop() {
            Some(index) => {
                let vacant = std::mem::replace(&mut self[index], block);
                // It has none, so that nothing is lost, and nothing is looked for.
                debug_assert!(vacant.extras.is_none(), "extras go when the program gives a block back");
                std::mem::forget(vacant);
                index
            }
            None => {
                // A table of 2^32 blocks would need more host memory than a machine has before it needs the index.
                let index = self.blocks.len() as BlockIndex;
                if self.blocks.len() == self.blocks.capacity() {
                    self.grow();
                }
                self.blocks.push(block);
                index
            }
        }
    }

    /// Makes room by a twenty-fourth: doubled, a table of a million blocks could take twice what they need.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.blocks.reserve_exact((self.blocks.len() / 24).max(64));
    }

    pub(crate) fn remove(&mut self, index: BlockIndex) {
        self.vacant.push(index);
    }

    /// All records, by index: what works on many at once should not ask where they are again and again.
    #[inline(always)]
    pub(super) fn records(&mut self) -> &mut [Block] {
        &mut self.blocks
    }

    /// Every block that is there, by index.
    pub(crate) fn indices(&self) -> Vec<BlockIndex> {
        let mut is_there = vec![true; self.blocks.len()];
        for index in &self.vacant {
            is_there[*index as usize] = false;
        }
        (0..self.blocks.len() as BlockIndex).filter(|index| is_there[*index as usize]).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.vacant.len() == self.blocks.len()
    }
}

impl std::ops::Index<BlockIndex> for BlockTable {
    type Output = Block;

    #[inline]
    fn index(&self, index: BlockIndex) -> &Block {
        &self.blocks[index as usize]
    }
}

impl std::ops::IndexMut<BlockIndex> for BlockTable {
    #[inline]
    fn index_mut(&mut self, index: BlockIndex) -> &mut Block {
        &mut self.blocks[index as usize]
    }
}
