//! The shards that a handle's owners used, so that a known stream costs no shared lock and no count.

use std::sync::{Arc, OnceLock};

use super::error::AllocationError;
use super::inner::Inner;
use super::shard::Shard;
use crate::device::Stream;

/// So many streams are remembered; of others the allocator's list is asked.
const KNOWN_COUNT: usize = 16;

/// Shards of the default pools. They go with the public handle, as those in the allocator's list do.
#[derive(Debug, Default)]
pub(super) struct KnownShards {
    shards: [OnceLock<(Stream, Arc<Shard>)>; KNOWN_COUNT],
}

impl KnownShards {
    /// The shard of a stream.
    #[inline]
    pub(super) fn get(&self, stream: Stream) -> Option<&Arc<Shard>> {
        for place in &self.shards {
            match place.get() {
                Some((of, shard)) if *of == stream => return Some(shard),
                Some(_) => {}
                // They are filled from the front.
                None => return None,
            }
        }
        None
    }

    /// The shard of a stream that is not remembered yet; made on first use.
    #[cold]
    #[inline(never)]
    pub(super) fn find(&self, inner: &Arc<Inner>, stream: Stream) -> Result<Arc<Shard>, AllocationError> {
        let shard = inner.shard(stream)?;
        for place in &self.shards {
            // Two threads may remember the same: one place is lost.
            if place.set((stream, Arc::clone(&shard))).is_ok() {
                break;
            }
        }
        Ok(shard)
    }
}
