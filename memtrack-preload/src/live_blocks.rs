//! Which addresses the program holds.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who gave a block to the program, and so who takes it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The driver.
    Driver,
    /// The cache, for the work of this stream of its own naming.
    Cache {
        /// The stream.
        stream: u64,
    },
}

/// A block that the program holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// As requested.
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    pub(crate) owner: Owner,
}

/// So many tables, each with its lock.
const TABLE_COUNT: usize = 64;

type Table = HashMap<u64, Block, BuildHasherDefault<AddressHasher>>;

/// Blocks by address.
#[derive(Debug)]
pub(crate) struct LiveBlocks {
    tables: [Mutex<Table>; TABLE_COUNT],
}

impl Default for LiveBlocks {
    fn default() -> Self {
        Self { tables: std::array::from_fn(|_| Mutex::default()) }
    }
}

/// Only whole insertions and removals happen under it, so a poisoned table is a whole one.
fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveBlocks {
    fn table(&self, address: u64) -> MutexGuard<'_, Table> {
        // Addresses end in zeros; the highest bits of a product depend on all of the others.
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        lock(&self.tables[(hash >> (u64::BITS - TABLE_COUNT.trailing_zeros())) as usize])
    }

    /// The block that was there before.
    pub(crate) fn insert(&self, address: u64, block: Block) -> Option<Block> {
        self.table(address).insert(address, block)
    }

    pub(crate) fn remove(&self, address: u64) -> Option<Block> {
        if address == 0 { None } else { self.table(address).remove(&address) }
    }

    pub(crate) fn remove_all_of(&self, device: usize) -> Vec<Block> {
        let of_table =
            |table| lock(table).extract_if(|_, block| block.device == device).map(|(_, block)| block).collect();
        self.tables.iter().flat_map::<Vec<Block>, _>(of_table).collect()
    }
}

/// One multiplication. Addresses are the driver's, not an adversary's.
#[derive(Debug, Default)]
struct AddressHasher {
    hash: u64,
}

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, address: u64) {
        self.hash = (self.hash ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
