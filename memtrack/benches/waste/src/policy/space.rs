//! The books of one stretch of addresses: blocks that are live, free or without memory, in address order.

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::{PAGE_BYTES, Slot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Live,
    Free,
    /// Whole slots without a page of their own.
    Hole,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) bytes: u64,
    pub(crate) state: State,
    /// The operation at which it became free.
    pub(crate) since: u64,
}

/// A stretch of addresses.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) stream: u8,
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// Free blocks by size, then address.
    pub(crate) free: BTreeSet<(u64, u64)>,
}

impl Space {
    pub(crate) fn new(base: u64, bytes: u64, stream: u8) -> Self {
        let hole = Block { bytes, state: State::Hole, since: 0 };
        Self { stream, blocks: BTreeMap::from([(base, hole)]), free: BTreeSet::new() }
    }

    fn put(&mut self, address: u64, block: Block) {
        if block.state == State::Free {
            self.free.insert((block.bytes, address));
        }
        self.blocks.insert(address, block);
    }

    fn take(&mut self, address: u64) -> Block {
        let block = self.blocks.remove(&address).expect("a block of this space");
        if block.state == State::Free {
            self.free.remove(&(block.bytes, address));
        }
        block
    }

    pub(crate) fn containing(&self, address: u64) -> Option<(u64, Block)> {
        let (&start, &block) = self.blocks.range(..=address).next_back()?;
        (address < start + block.bytes).then_some((start, block))
    }

    /// Gives a range within one block another state, merged with its neighbours of that state.
    pub(crate) fn set(&mut self, address: u64, bytes: u64, state: State, now: u64) {
        let (start, block) = self.containing(address).expect("a range of this space");
        assert!(address + bytes <= start + block.bytes, "a range within one block");
        self.take(start);
        if start < address {
            self.put(start, Block { bytes: address - start, ..block });
        }
        let (end, block_end) = (address + bytes, start + block.bytes);
        if end < block_end {
            self.put(end, Block { bytes: block_end - end, ..block });
        }
        let (mut from, mut to, mut since) = (address, end, now);
        if state != State::Live {
            if let Some((&before, &neighbour)) = self.blocks.range(..address).next_back()
                && neighbour.state == state
            {
                self.take(before);
                from = before;
                since = since.max(neighbour.since);
            }
            if let Some(&neighbour) = self.blocks.get(&end)
                && neighbour.state == state
            {
                self.take(end);
                to = end + neighbour.bytes;
                since = since.max(neighbour.since);
            }
        }
        self.put(from, Block { bytes: to - from, state, since });
    }

    /// The slots that lie wholly in a free block: first and one past the last.
    pub(crate) fn whole_slots(address: u64, bytes: u64) -> (Slot, Slot) {
        (address.div_ceil(PAGE_BYTES), (address + bytes) / PAGE_BYTES)
    }
}
