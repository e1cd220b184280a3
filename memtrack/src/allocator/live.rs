//! Who keeps memory: the blocks that the program holds, with the lines they were allocated at.

use std::collections::HashMap;
use std::panic::Location;

use super::block::BlockState;
use super::inner::Inner;
use crate::device::Stream;
use crate::ledger::ScopeKey;

/// A block that the program holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveBlock {
    /// Bytes as asked for.
    pub requested_bytes: u64,
    /// Bytes of the block, rounded: what `allocated_bytes` counts.
    pub size_bytes: u64,
    /// The line of the program that allocated it.
    pub location: &'static Location<'static>,
    /// The name of the innermost scope it was allocated in.
    pub scope: &'static str,
    /// Where it is on the device.
    pub address: u64,
    /// The stream that orders its use.
    pub stream: Stream,
}

/// Blocks that the program holds and that came from the same place at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveOrigin {
    pub(crate) block_count: u64,
    pub(crate) requested_bytes: u64,
    pub(crate) size_bytes: u64,
    pub(crate) location: &'static Location<'static>,
    pub(crate) phase: &'static str,
    /// The innermost scope they were allocated in, none outside all.
    pub(crate) scope: Option<&'static str>,
    /// The era in which they were allocated.
    pub(crate) born: u32,
}

impl Inner {
    /// All blocks that the program holds, of one moment; in no order. A place can come more than once.
    pub(crate) fn live_origins(&self) -> Vec<LiveOrigin> {
        // By address: a hundred thousand blocks come from few places, whose names need not be looked at for each.
        let mut origins: HashMap<(*const Location<'_>, Option<*const str>, *const str, u32), LiveOrigin> =
            HashMap::new();
        self.at_rest(|_, shards| {
            // With all shards held no block comes or goes, so each owner has its record.
            let ledger = self.ledger();
            for (_, pools) in shards {
                for index in pools.blocks.indices() {
                    let block = &pools.blocks[index];
                    let (BlockState::Allocated, Some(location)) = (block.state, block.location) else { continue };
                    let (phase, scope) = ledger.origin(block.owner);
                    let scope_address = scope.map(std::ptr::from_ref);
                    let key = (std::ptr::from_ref(location), scope_address, std::ptr::from_ref(phase), block.born());
                    let (requested_bytes, size_bytes, born) = (0, 0, block.born());
                    let empty =
                        LiveOrigin { block_count: 0, requested_bytes, size_bytes, location, phase, scope, born };
                    let origin = origins.entry(key).or_insert(empty);
                    origin.block_count += 1;
                    origin.requested_bytes = origin.requested_bytes.saturating_add(block.requested_bytes);
                    origin.size_bytes = origin.size_bytes.saturating_add(block.size_bytes);
                }
            }
        });
        origins.into_values().collect()
    }

    /// The blocks that were allocated in an open scope or in a scope inside it, and that the program still holds; by stream and
    /// address.
    pub(crate) fn live_blocks_inside(&self, scope: ScopeKey) -> Vec<LiveBlock> {
        let mut blocks = self.at_rest(|_, shards| {
            // With all shards held no block comes or goes, so each owner has its record.
            let ledger = self.ledger();
            let mut blocks = Vec::new();
            for (shard, pools) in shards {
                for index in pools.blocks.indices() {
                    let block = &pools.blocks[index];
                    let (BlockState::Allocated, Some(owner), Some(location)) =
                        (block.state, block.owner, block.location)
                    else {
                        continue;
                    };
                    if let Some(name) = ledger.name_inside(owner, scope) {
                        blocks.push(LiveBlock {
                            requested_bytes: block.requested_bytes,
                            size_bytes: block.size_bytes,
                            location,
                            scope: name,
                            address: block.address,
                            stream: shard.stream,
                        });
                    }
                }
            }
            blocks
        });
        blocks.sort_by_key(|block| (block.stream, block.address));
        blocks
    }
}
