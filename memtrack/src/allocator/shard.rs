//! One stream's pools behind their lock, and the lease of a block.
//!
//! Free blocks are never shared between streams, so each stream is a shard with a lock of its own; streams meet only at
//! the ledger. Locks are taken in this order: growth, the list of shards or the table of blocks held by address, one wait for
//! pending frees, shard, the queues of pending frees or the ledger.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::block::{BlockIndex, BlockState};
use super::inner::Inner;
use super::pools::{SizedRequest, StreamPools};
use crate::context;
use crate::device::Stream;
use crate::ledger::{EventLog, SplitChange};
use crate::sync::lock;

/// One stream's pools.
///
/// A shard keeps its allocator's books alive, and is kept alive by each block it handed out: buffers may outlive the
/// last handle of their allocator.
pub(crate) struct Shard {
    pub(crate) inner: Arc<Inner>,
    pub(crate) stream: Stream,
    log: Arc<EventLog>,
    pools: Mutex<StreamPools>,
}

impl Shard {
    pub(crate) fn new(inner: Arc<Inner>, stream: Stream) -> Self {
        Self { inner, stream, log: Arc::default(), pools: Mutex::new(StreamPools::default()) }
    }

    #[inline]
    pub(crate) fn pools(&self) -> MutexGuard<'_, StreamPools> {
        lock(&self.pools)
    }

    /// Serves a request from the free blocks, if one fits.
    pub(crate) fn serve_cached(&self, size_bytes: u64, requested_bytes: u64) -> Option<Grant> {
        let request = self.sized_request(size_bytes, requested_bytes);
        let mut pools = self.pools();
        let (index, split) = pools.serve(&self.inner.rules, &request)?;
        Some(self.enter(&mut pools, index, split))
    }

    /// Serves a request with a segment new from the device.
    pub(super) fn serve_with_segment(
        &self,
        address: u64,
        segment_bytes: u64,
        size_bytes: u64,
        requested_bytes: u64,
    ) -> Grant {
        let request = self.sized_request(size_bytes, requested_bytes);
        let mut pools = self.pools();
        let (index, split) = pools.serve_with_segment(&self.inner.rules, address, segment_bytes, &request);
        self.enter(&mut pools, index, split)
    }

    #[inline]
    fn sized_request(&self, size_bytes: u64, requested_bytes: u64) -> SizedRequest {
        let search_count = self.inner.search_count(self.inner.rules.pool(size_bytes));
        SizedRequest { size_bytes, requested_bytes, search_count }
    }

    /// Enters a block that was just handed out into the books.
    #[inline(always)]
    fn enter(&self, pools: &mut StreamPools, index: BlockIndex, split: SplitChange) -> Grant {
        let inner = &self.inner;
        let context = context::current(inner.id);
        let entry = pools.entry(&inner.rules, index);
        let block = &mut pools.blocks[index];
        block.owner = context;
        inner.ledger.allocated(&self.log, &entry, split, context);
        Grant { index, address: block.address }
    }

    /// The program gave a block back.
    fn free(self: &Arc<Self>, index: BlockIndex) {
        let inner = &self.inner;
        let context = context::current(inner.id);
        let mut pools = self.pools();
        let entry = pools.entry(&inner.rules, index);
        let block = &mut pools.blocks[index];
        let owner = block.owner;
        let Some(streams) = block.streams.take() else {
            let split = pools.take_back(index, inner.search_count(entry.pool));
            inner.ledger.freed(&self.log, &entry, split, owner, context);
            return;
        };
        block.state = BlockState::PendingFree;
        block.event_count = streams.len() as u32;
        inner.ledger().free_requested(&entry, owner, context);
        let announced = inner.pending.announce(streams.len());
        drop(pools);
        inner.pending.defer(inner, self, index, &streams, announced);
    }

    /// One of the streams that used a pending block is done with it.
    pub(crate) fn event_done(&self, index: BlockIndex) {
        let inner = &self.inner;
        let mut pools = self.pools();
        let block = &mut pools.blocks[index];
        block.event_count -= 1;
        if block.event_count > 0 {
            return;
        }
        let entry = pools.entry(&inner.rules, index);
        let split = pools.take_back(index, inner.search_count(entry.pool));
        inner.ledger().free_completed(&entry, split);
    }

    fn record_stream(&self, index: BlockIndex, stream: Stream) {
        if stream == self.stream {
            return;
        }
        let mut pools = self.pools();
        let streams = pools.blocks[index].streams.get_or_insert_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }
}

impl fmt::Debug for Shard {
    /// Short: a shard and its allocator refer to each other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // The last buffer of an allocator whose handles are gone: what it left goes back to the device.
        self.inner.release_segments_of(self);
    }
}

/// A block out of its pool; it becomes a [`Lease`] with the shard it is of.
#[derive(Debug)]
#[must_use = "a block that no lease gives back is lost"]
pub(crate) struct Grant {
    index: BlockIndex,
    address: u64,
}

/// A block in the program's hands; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lease {
    shard: Arc<Shard>,
    grant: Grant,
}

impl Lease {
    /// The grant is one of this shard's.
    #[inline]
    pub(super) fn new(shard: Arc<Shard>, grant: Grant) -> Self {
        Self { shard, grant }
    }

    #[inline]
    pub(crate) fn address(&self) -> u64 {
        self.grant.address
    }

    /// Rounded. Takes the shard's lock.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.shard.pools().blocks[self.grant.index].size_bytes
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// Another stream uses the block too: it is not reused before that stream's work up to the free is done.
    pub(crate) fn record_stream(&self, stream: Stream) {
        self.shard.record_stream(self.grant.index, stream);
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        self.shard.free(self.grant.index);
    }
}
