//! Blocks, and the lists they are cached in.

use std::mem::ManuallyDrop;

use super::counters::Source;
use crate::device::PlainMemory;

/// A piece of page-locked memory, in one hand at a time: a buffer's, a list's, or that of who gives it back.
///
/// Dropping it gives nothing back: the memory is then locked for as long as its device lives, which is what becomes of a
/// block that a stream may use for ever.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    /// A power of two.
    pub(super) size_bytes: u64,
    pub(super) memory: Memory,
}

/// What is to be done to give a block's memory back.
#[derive(Debug)]
pub(super) enum Memory {
    /// The device allocated it.
    Allocated,
    /// Ordinary memory that was registered.
    Registered(ManuallyDrop<PlainMemory>),
    /// Cut from the reserve segment.
    Reserve,
}

impl Memory {
    pub(super) fn source(&self) -> Source {
        match self {
            Self::Allocated | Self::Registered(_) => Source::Device,
            Self::Reserve => Source::Reserve,
        }
    }
}

/// Cached blocks, by the logarithm of their size; the last to come is the first to go.
#[derive(Debug)]
pub(super) struct FreeLists {
    by_size: [Vec<Block>; 64],
}

impl Default for FreeLists {
    fn default() -> Self {
        Self { by_size: [const { Vec::new() }; 64] }
    }
}

impl FreeLists {
    pub(super) fn push(&mut self, block: Block) {
        self.by_size[block.size_bytes.ilog2() as usize].push(block);
    }

    pub(super) fn pop(&mut self, size_bytes: u64) -> Option<Block> {
        self.by_size[size_bytes.ilog2() as usize].pop()
    }

    /// Takes every block out, the smallest first.
    pub(super) fn take_all(&mut self) -> Vec<Block> {
        self.by_size.iter_mut().flat_map(std::mem::take).collect()
    }
}
