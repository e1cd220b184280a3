//! One stream's pools behind their lock, and the lease of a block.
//!
//! Free blocks are never shared between streams, so each stream is a shard with a lock of its own, and so is each stream of each
//! private pool; streams meet only at the ledger. Locks are taken in this order: growth, the list of shards or the table of blocks held by address, one wait for
//! pending frees, shard, the queues of pending frees or the ledger or the history.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::block::{Block, BlockIndex, BlockState, Origin};
use super::compact::Giving;
use super::inner::Inner;
use super::pools::{SizedRequest, StreamPools};
use super::private_pools::{PoolId, PrivatePool};
use super::rounding::SizeRules;
use crate::context;
use crate::device::Stream;
use crate::history::TraceAction;
use crate::history::recording::{Event, StackId};
use crate::ledger::SplitChange;
use crate::observer;
use crate::sync::{BiasedGuard, BiasedMutex};

/// One stream's pools: the default ones, or those of a private pool.
///
/// A shard keeps its allocator's books alive, and is kept alive by each block it handed out: buffers may outlive the
/// last handle of their allocator.
pub(crate) struct Shard {
    pub(crate) inner: Arc<Inner>,
    pub(crate) stream: Stream,
    /// `None` for the default pools.
    pub(super) private: Option<Arc<PrivatePool>>,
    pools: BiasedMutex<StreamPools>,
}

impl Shard {
    pub(super) fn new(inner: Arc<Inner>, stream: Stream, private: Option<Arc<PrivatePool>>, rules: SizeRules) -> Self {
        let no_split = private.as_ref().is_some_and(|pool| pool.no_split);
        let mut pools = StreamPools::new(rules, no_split);
        if private.is_none() {
            pools.giving = Giving::new(&inner.giving_stream_count);
        }
        let pools = BiasedMutex::new(pools);
        Self { inner, stream, private, pools }
    }

    pub(super) fn pool_id(&self) -> PoolId {
        self.private.as_ref().map_or(PoolId::DEFAULT, |pool| pool.id)
    }

    /// Whether it is of a private pool that somebody uses, who need not have a handle of the allocator.
    pub(super) fn is_held_by_others(&self) -> bool {
        self.private.as_ref().is_some_and(|pool| !pool.is_freeable())
    }

    #[inline]
    pub(crate) fn pools(&self) -> BiasedGuard<'_, StreamPools> {
        self.pools.lock()
    }

    /// Serves a request from the free blocks, if one fits.
    pub(crate) fn serve_cached(self: &Arc<Self>, requested_bytes: u64, origin: Origin) -> Option<Grant> {
        let mut pools = self.pools();
        if pools.rules.counts_searches && self.private.is_none() {
            self.inner.count_search(pools.rules.pool(pools.rules.round(requested_bytes)));
        }
        let request = self.sized_request(&pools.rules, requested_bytes);
        self.serve(&mut pools, &request, origin)
    }

    /// As [`serve_cached`](Self::serve_cached), for a request that has been counted; `expandable` says whether expandable segments may serve
    /// it.
    pub(super) fn serve_again(
        self: &Arc<Self>,
        requested_bytes: u64,
        origin: Origin,
        expandable: bool,
    ) -> Option<Grant> {
        let mut pools = self.pools();
        let request = SizedRequest { expandable, ..self.sized_request(&pools.rules, requested_bytes) };
        self.serve(&mut pools, &request, origin)
    }

    /// Serves a request with a segment new from the device.
    pub(super) fn serve_with_segment(
        self: &Arc<Self>,
        address: u64,
        segment_bytes: u64,
        requested_bytes: u64,
        origin: Origin,
    ) -> Grant {
        let mut pools = self.pools();
        let request = self.sized_request(&pools.rules, requested_bytes);
        let (index, split) = pools.serve_with_segment(address, segment_bytes, &request);
        pools.blocks[index].segment_stack = origin.stack;
        self.enter(&mut pools, index, split, origin)
    }

    #[inline(always)]
    fn serve(self: &Arc<Self>, pools: &mut StreamPools, request: &SizedRequest, origin: Origin) -> Option<Grant> {
        let (index, split) = pools.serve(request)?;
        Some(self.enter(pools, index, split, origin))
    }

    #[inline]
    pub(super) fn sized_request(&self, rules: &SizeRules, requested_bytes: u64) -> SizedRequest {
        let size_bytes = rules.round(requested_bytes);
        let search_count = self.inner.search_count(rules.pool(size_bytes));
        SizedRequest { size_bytes, requested_bytes, search_count, expandable: rules.expandable }
    }

    /// Enters a block that was just handed out into the books.
    #[inline(always)]
    pub(super) fn enter(
        self: &Arc<Self>,
        pools: &mut StreamPools,
        index: BlockIndex,
        split: SplitChange,
        origin: Origin,
    ) -> Grant {
        let inner = &self.inner;
        let context = context::current(inner.id);
        pools.keeper.lend(self);
        let entry = pools.entry(index);
        let block = &mut pools.blocks[index];
        block.owner = context;
        block.set_born(inner.era.load(Ordering::Relaxed));
        block.location = Some(origin.location);
        block.stack = origin.stack;
        if observer::any_observer() {
            block.observe(inner.id);
        }
        inner.ledger.allocated(&entry, split, context);
        if inner.history.is_on() {
            inner.history.record([self.event(TraceAction::Alloc, block)]);
        }
        Grant { index, address: block.address }
    }

    /// What the history keeps of a block.
    fn event(&self, action: TraceAction, block: &Block) -> Event {
        let Block { address, requested_bytes, stack, .. } = *block;
        Event { action, address, size_bytes: requested_bytes, stream: self.stream, stack }
    }

    /// The program gave a block back.
    fn free(self: &Arc<Self>, index: BlockIndex) {
        let inner = &self.inner;
        if inner.is_stream_ordered {
            return inner.free_ordered(Arc::clone(self), index);
        }
        let context = context::current(inner.id);
        // Before the lock: it may walk the stack.
        let asked_at = inner.history.capture_free(StackId::NONE);
        // Declared before the lock's guard, so that it goes after it. From where the guard goes nothing of the shard may be touched: another
        // thread may give the last block back.
        let _kept;
        let mut pools = self.pools();
        _kept = pools.keeper.take_back();
        let entry = pools.entry(index);
        let block = &mut pools.blocks[index];
        let owner = block.owner;
        let uses = block.give_back();
        if inner.history.is_on() {
            if asked_at != StackId::NONE {
                block.stack = asked_at;
            }
            let requested = self.event(TraceAction::FreeRequested, block);
            match &uses {
                None => inner.history.record([requested, self.event(TraceAction::FreeCompleted, block)]),
                Some(_) => inner.history.record([requested]),
            }
        }
        let Some(uses) = uses else {
            let split = pools.give_back(index, inner.search_count(entry.pool));
            inner.ledger.freed(&entry, split, owner, context);
            return;
        };
        // The rest is done without the lock.
        let this = Arc::clone(self);
        let inner = &this.inner;
        block.state = BlockState::PendingFree;
        // Where it is kept until a capture ends, it waits for none.
        block.set_event_count(0);
        inner.ledger().free_requested(&entry, owner, context);
        let Some((streams, announced)) = inner.pending.announce(&this, index, uses) else { return };
        block.set_event_count(streams.len() as u32);
        drop(pools);
        inner.pending.defer(inner, &this, index, &streams, announced);
        inner.pending.report_lost(inner);
    }

    /// A pending block is to wait for so many events.
    pub(super) fn expect_events(&self, index: BlockIndex, event_count: u32) {
        self.pools().blocks[index].set_event_count(event_count);
    }

    /// One of the streams that used a pending block is done with it.
    pub(crate) fn event_done(&self, index: BlockIndex) {
        let inner = &self.inner;
        let mut pools = self.pools();
        let block = &mut pools.blocks[index];
        let left_count = block.event_count().saturating_sub(1);
        block.set_event_count(left_count);
        if left_count > 0 {
            return;
        }
        inner.history.record([self.event(TraceAction::FreeCompleted, block)]);
        let entry = pools.entry(index);
        let split = pools.give_back(index, inner.search_count(entry.pool));
        inner.ledger().free_completed(&entry, split);
    }

    /// The shard is in no list any more: from here on only its blocks keep it.
    pub(super) fn abandon(&self) {
        let kept = self.pools().keeper.abandon();
        drop(kept);
    }

    fn record_stream(&self, index: BlockIndex, stream: Stream) {
        if stream == self.stream {
            return;
        }
        // Asked before the lock is taken. Outside captures it is not asked at all.
        let inner = &self.inner;
        let held = inner.routes.hold_events();
        let captured = held && inner.device.capture_id(stream).is_ok_and(|capture| capture.is_some());
        let mut pools = self.pools();
        let exact = held && pools.rules.torch_exact;
        pools.blocks[index].extras.get_or_insert_default().uses.add(stream, captured, exact);
    }
}

impl fmt::Debug for Shard {
    /// Short: a shard and its allocator refer to each other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("pool", &self.pool_id()).field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // The last buffer of an allocator whose handles are gone: what it left goes back to the device. A private pool that was
        // forgotten left nothing, and whoever forgot it holds locks.
        if !self.pools.get_mut().is_empty() {
            self.inner.release_segments_of(self);
        }
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
    /// Not counted, and so not dropped: the shard's keeper holds it for as long as the block is out.
    shard: ManuallyDrop<Arc<Shard>>,
    grant: Grant,
}

// What a live block costs the host, its record in the table and the program's hold on it: 104 bytes, 112 with recorded stacks.
const _: () = assert!(size_of::<Block>() + size_of::<Lease>() < 128);

impl Lease {
    /// The grant is one of this shard's.
    #[inline]
    #[expect(unsafe_code, reason = "a handle that is not counted")]
    pub(super) fn new(shard: &Arc<Shard>, grant: Grant) -> Self {
        // SAFETY: `shard` is valid, and the copy is never dropped. The shard outlives it: its keeper, under its lock, counted the block
        // when it made the grant, which is used up here, and holds the shard until the drop of this lease, the only one that counts
        // the block back, has done so.
        let shard = ManuallyDrop::new(unsafe { std::ptr::read(shard) });
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
