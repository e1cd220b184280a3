//! Who keeps memory: the blocks that the program holds, with the lines they were allocated at.

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

impl Inner {
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
