//! Which addresses the program holds.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::books::Api;

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
    /// The function that gave it.
    pub(crate) api: Api,
}

/// So many tables, each with its lock.
const TABLE_COUNT: usize = 64;

/// A block in a table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    block: Block,
    /// The number of the call that frees it and was not answered yet; 0 for none.
    going: u64,
}

/// A block that is being freed. It is held until the free was answered, and so is its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Going {
    pub(crate) block: Block,
    call: u64,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Entry, BuildHasherDefault<AddressHasher>>,
    /// The number of the last call that freed from here.
    last_call: u64,
}

/// What was under an address that was given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// A block whose free has been done, and is answered to another thread about now.
    Going(Block),
    /// One whose free was not seen.
    Live(Block),
}

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
    pub(crate) fn insert(&self, address: u64, block: Block) -> Option<Before> {
        let before = self.table(address).entries.insert(address, Entry { block, going: 0 })?;
        Some(if before.going == 0 { Before::Live(before.block) } else { Before::Going(before.block) })
    }

    /// A call begins to free what is there. `None` where there is nothing, or another call frees it.
    pub(crate) fn begin_free(&self, address: u64) -> Option<Going> {
        if address == 0 {
            return None;
        }
        let mut table = self.table(address);
        let call = table.last_call + 1;
        let entry = table.entries.get_mut(&address).filter(|entry| entry.going == 0)?;
        entry.going = call;
        let block = entry.block;
        table.last_call = call;
        Some(Going { block, call })
    }

    /// The call was answered, and the block is gone or stays; whether it was here still, and not another at its address.
    pub(crate) fn end_free(&self, address: u64, going: Going, is_gone: bool) -> bool {
        let mut table = self.table(address);
        match table.entries.entry(address) {
            Place::Occupied(mut place) if place.get().going == going.call => {
                if is_gone {
                    place.remove();
                } else {
                    place.get_mut().going = 0;
                }
                true
            }
            Place::Occupied(_) | Place::Vacant(_) => false,
        }
    }

    /// Shows every block, but for those of tables that somebody works on; whether there were none of these. Never waits: at the end
    /// of a process nobody may be left to open a lock.
    pub(crate) fn look_at_all(&self, mut look: impl FnMut(&Block)) -> bool {
        let mut saw_all = true;
        for table in &self.tables {
            match table.try_lock() {
                Ok(table) => table.blocks().for_each(&mut look),
                Err(TryLockError::Poisoned(table)) => table.into_inner().blocks().for_each(&mut look),
                Err(TryLockError::WouldBlock) => saw_all = false,
            }
        }
        saw_all
    }

    /// [`begin_free`](Self::begin_free) for all blocks that are meant.
    pub(crate) fn begin_free_where(&self, is_meant: impl Fn(u64, &Block) -> bool) -> Vec<(u64, Going)> {
        let mut all = Vec::new();
        for table in &self.tables {
            let mut table = lock(table);
            let call = table.last_call + 1;
            table.last_call = call;
            for (address, entry) in &mut table.entries {
                if entry.going == 0 && is_meant(*address, &entry.block) {
                    entry.going = call;
                    all.push((*address, Going { block: entry.block, call }));
                }
            }
        }
        all
    }
}

impl Table {
    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.entries.values().map(|entry| &entry.block)
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
