//! Which blocks and pools a file names when, so that one that names what is not there is refused before it is run.

use std::collections::{HashMap, HashSet};

use crate::operation::{BlockId, PoolName};

/// Numbers the allocations of a recording, and finds the live ones by the file's own numbers.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    live: HashMap<u64, BlockId>,
    count: usize,
}

impl Blocks {
    /// A new block called `id`.
    pub(super) fn allocate(&mut self, id: u64) -> Result<BlockId, String> {
        let block = BlockId { id: Some(id), index: self.count };
        if self.live.insert(id, block).is_some() {
            return Err(format!("block {id} is allocated already and not freed yet"));
        }
        self.count += 1;
        Ok(block)
    }

    /// A block that nothing else of the file can name.
    pub(super) fn allocate_unnamed(&mut self) -> BlockId {
        let block = BlockId { id: None, index: self.count };
        self.count += 1;
        block
    }

    pub(super) fn find(&self, id: u64) -> Result<BlockId, String> {
        self.live.get(&id).copied().ok_or_else(|| missing(id))
    }

    pub(super) fn free(&mut self, id: u64) -> Result<BlockId, String> {
        self.live.remove(&id).ok_or_else(|| missing(id))
    }

    /// Adds a block that another table numbered.
    pub(super) fn insert(&mut self, id: u64, block: BlockId) -> Result<(), String> {
        let before = self.live.insert(id, block);
        before.map_or(Ok(()), |_| Err(format!("block {id} is freed again before its last free is complete")))
    }

    /// How many there were.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

fn missing(id: u64) -> String {
    format!("block {id} is not allocated here: it never was, or is freed already")
}

/// The private pools of a recording.
#[derive(Debug, Default)]
pub(super) struct Pools {
    known: HashSet<PoolName>,
    entered: HashSet<PoolName>,
}

impl Pools {
    pub(super) fn create(&mut self, pool: PoolName) -> Result<(), String> {
        if self.known.insert(pool) { Ok(()) } else { Err(format!("pool {pool} exists already")) }
    }

    pub(super) fn enter(&mut self, pool: PoolName) -> Result<(), String> {
        if !self.known.contains(&pool) {
            return Err(format!("pool {pool} does not exist here"));
        }
        if self.entered.insert(pool) {
            Ok(())
        } else {
            Err(format!("pool {pool} is in use already; it cannot begin twice"))
        }
    }

    pub(super) fn leave(&mut self, pool: PoolName) -> Result<(), String> {
        if self.entered.remove(&pool) { Ok(()) } else { Err(format!("pool {pool} is not in use here")) }
    }

    pub(super) fn delete(&mut self, pool: PoolName) -> Result<(), String> {
        if self.entered.contains(&pool) {
            return Err(format!("pool {pool} is still in use; it has to end before it is deleted"));
        }
        if self.known.remove(&pool) { Ok(()) } else { Err(format!("pool {pool} does not exist here")) }
    }
}
