//! The `cudaMallocAsync` backend: every allocation and free goes to the driver's pool, in stream order. Nothing is cached, rounded or
//! split here; what scopes and phases measure is entered as for the native backend.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::block::{Block, BlockIndex, BlockState, Origin};
use super::error::{AllocationError, OutOfMemory, Refusal};
use super::events;
use super::inner::Inner;
use super::shard::{Grant, Lease, Shard};
use super::stream_uses::StreamUses;
use super::survey::Survey;
use crate::context;
use crate::device::{Device, DeviceError, Stream, StreamOrderedMemory, StreamOrderedUsage};
use crate::history::recording::StackId;
use crate::ledger::SplitChange;
use crate::stats::{MemoryStats, PoolKind, Statistic};
use crate::sync::lock;

/// What the backend keeps. A block is in the table of its stream's shard until the driver has it back.
#[derive(Debug, Default)]
pub(super) struct OrderedFrees {
    /// The allocator's handles are gone: nothing is tried again later, nor cached.
    closed: AtomicBool,
    /// Zero spares an allocation the lock.
    count: AtomicUsize,
    /// Blocks that the program gave back and the driver did not take: their stream was captured.
    refused: Mutex<Vec<RefusedFree>>,
}

#[derive(Debug)]
struct RefusedFree {
    shard: Arc<Shard>,
    index: BlockIndex,
    uses: Option<StreamUses>,
}

fn memory(device: &dyn Device) -> Result<&dyn StreamOrderedMemory, DeviceError> {
    device.stream_ordered_memory().ok_or_else(|| DeviceError::InvalidSize {
        device: device.name().to_owned(),
        bytes: 0,
        reason: "the device has no stream-ordered memory",
    })
}

/// As in PyTorch, the limit is for what is used, not for what the pool has reserved.
fn within_limit(
    limit_bytes: Option<u64>,
    memory: &dyn StreamOrderedMemory,
    requested_bytes: u64,
) -> Result<bool, DeviceError> {
    let Some(limit_bytes) = limit_bytes else { return Ok(true) };
    Ok(memory.ordered_usage()?.used_bytes.saturating_add(requested_bytes) <= limit_bytes)
}

impl Inner {
    /// Memory of exactly this size, for the work that the stream is given from now on.
    #[cold]
    pub(super) fn allocate_ordered(
        self: &Arc<Self>,
        requested_bytes: u64,
        stream: Stream,
        location: &'static Location<'static>,
    ) -> Result<Lease, AllocationError> {
        self.free_refused();
        let shard = self.shard(stream)?;
        let mut live = Vec::new();
        let attempt = |counts| {
            let mut survey = None;
            let mut outcome = self.attempt_ordered(&shard, requested_bytes, location, counts, &mut survey);
            if let (Err(AllocationError::OutOfMemory(error)), Some(survey)) = (&mut outcome, survey) {
                live = self.explain(error, survey);
            }
            outcome
        };
        let count = |_: &OutOfMemory| self.ledger().out_of_memory(context::current(self.id));
        let mut outcome = self.with_oom_hooks(requested_bytes, attempt, count);
        if let Err(AllocationError::OutOfMemory(error)) = &mut outcome {
            self.report(self, error, live);
        }
        outcome
    }

    fn attempt_ordered(
        &self,
        shard: &Arc<Shard>,
        requested_bytes: u64,
        location: &'static Location<'static>,
        counts: bool,
        survey: &mut Option<Survey>,
    ) -> Result<Lease, AllocationError> {
        let (stream, memory) = (shard.stream, memory(&*self.device)?);
        let address = {
            // With a limit one after the other, or each of several threads would see room for all.
            let growth = lock(&self.growth);
            let limit_bytes = growth.limit_bytes;
            let _alone = limit_bytes.is_some().then_some(growth);
            if within_limit(limit_bytes, memory, requested_bytes)? {
                memory.allocate_ordered(requested_bytes, stream).map(Ok)
            } else {
                Ok(Err(Refusal::Limit))
            }
        };
        let refused_by = match address {
            Ok(Ok(address)) => {
                let grant = self.hold(shard, address, requested_bytes, location);
                return Ok(Lease::new(shard, grant));
            }
            Ok(Err(refused_by)) => refused_by,
            Err(error) if error.is_out_of_memory() => Refusal::Device,
            Err(error) => return Err(error.into()),
        };
        let error = self.ordered_out_of_memory(memory, stream, requested_bytes, refused_by, counts);
        let failure = Some(self.failure(requested_bytes));
        *survey = Some(self.survey(&lock(&self.growth), error.device_free_bytes, failure));
        Err(AllocationError::OutOfMemory(Box::new(error)))
    }

    /// Enters a block into its shard and into the books.
    fn hold(
        &self,
        shard: &Arc<Shard>,
        address: u64,
        requested_bytes: u64,
        location: &'static Location<'static>,
    ) -> Grant {
        let grant = {
            let mut pools = shard.pools();
            let block = Block {
                state: BlockState::Allocated,
                requested_bytes,
                ..Block::segment(address, requested_bytes, PoolKind::Large)
            };
            let index = pools.blocks.insert(block);
            shard.enter(&mut pools, index, SplitChange::default(), Origin { location, stack: StackId::NONE })
        };
        self.enter_reserved();
        grant
    }

    /// The program gave a block back.
    #[cold]
    pub(super) fn free_ordered(&self, shard: Arc<Shard>, index: BlockIndex) {
        let context = context::current(self.id);
        let _kept;
        let uses = {
            let mut pools = shard.pools();
            _kept = pools.keeper.take_back();
            let entry = pools.entry(index);
            let block = &mut pools.blocks[index];
            block.state = BlockState::PendingFree;
            let (owner, uses) = (block.owner, block.give_back());
            self.ledger().free_requested(&entry, owner, context);
            uses
        };
        self.free_refused();
        self.give_back(RefusedFree { shard, index, uses });
    }

    /// Gives a block to the driver, behind the work of the other streams that use it; keeps it when the driver does not take it.
    fn give_back(&self, free: RefusedFree) {
        let RefusedFree { shard, index, uses } = &free;
        let streams = uses.as_ref().map(|uses| uses.streams()).unwrap_or_default();
        let ordered = streams.into_iter().try_for_each(|stream| self.order_after(shard.stream, stream));
        let address = shard.pools().blocks[*index].address;
        match ordered.and_then(|()| self.free_in_order(address, shard.stream)) {
            Ok(()) => {
                let mut pools = shard.pools();
                let entry = pools.entry(*index);
                pools.blocks.remove(*index);
                drop(pools);
                self.ledger().free_completed(&entry, SplitChange::default());
                self.enter_reserved();
                if self.ordered.closed.load(Ordering::Acquire) {
                    // Nobody will ask again, so nothing is kept. Refused, it goes with the device.
                    let _ = self.trim_pool();
                }
            }
            Err(error) => {
                let stream = shard.stream;
                if self.keep_refused(free) {
                    return;
                }
                // The device has it back when it goes.
                events::log_lost_block(self, stream, &error);
            }
        }
    }

    /// Keeps a free to be tried again: the stream is captured, or the driver is failing, and in time it may take it. `false` once the
    /// allocator's handles are gone.
    fn keep_refused(&self, free: RefusedFree) -> bool {
        let mut refused = lock(&self.ordered.refused);
        // Asked under the lock, which `close_ordered` takes to say so.
        if self.ordered.closed.load(Ordering::Acquire) {
            return false;
        }
        refused.push(free);
        self.ordered.count.store(refused.len(), Ordering::Release);
        true
    }

    /// Lets later work of `stream` wait for what `other` was given.
    fn order_after(&self, stream: Stream, other: Stream) -> Result<(), DeviceError> {
        let event = self.device.record_event(other)?;
        let outcome = self.device.stream_wait_event(stream, &event);
        self.device.release_event(event);
        outcome
    }

    #[expect(unsafe_code, reason = "where this backend lets memory go")]
    fn free_in_order(&self, address: u64, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the block's lease is gone and the block is in no set, so nobody is given it; work of its own stream comes before the free in
        // stream order, and that of every other stream that used it was ordered before by `give_back`.
        unsafe { memory(&*self.device)?.free_ordered(address, stream) }
    }

    /// Tries again what the driver did not take before.
    fn free_refused(&self) {
        if self.ordered.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let refused = {
            let mut refused = lock(&self.ordered.refused);
            self.ordered.count.store(0, Ordering::Release);
            std::mem::take(&mut *refused)
        };
        refused.into_iter().for_each(|free| self.give_back(free));
    }

    /// The last handle is gone: what is cached goes back, as far as the driver takes it.
    pub(super) fn close_ordered(&self) {
        {
            let _refused = lock(&self.ordered.refused);
            self.ordered.closed.store(true, Ordering::Release);
        }
        if let Err(error) = self.trim_ordered() {
            events::log_kept_segments(self, &error);
        }
    }

    /// The books' reserved bytes become what the driver's pool has.
    fn enter_reserved(&self) {
        if let Ok(usage) = memory(&*self.device).and_then(StreamOrderedMemory::ordered_usage) {
            self.ledger().reserved_is(usage.reserved_bytes as i64);
        }
    }

    /// Waits for the device and gives back what its pool does not need.
    pub(super) fn trim_ordered(&self) -> Result<(), DeviceError> {
        self.free_refused();
        self.trim_pool()
    }

    fn trim_pool(&self) -> Result<(), DeviceError> {
        let synchronized = self.device.synchronize();
        let trimmed = memory(&*self.device)?.trim_ordered(0);
        self.enter_reserved();
        synchronized.and(trimmed)
    }

    /// All that PyTorch counts with this backend: what the driver's pool says. Everything else stays zero.
    pub(super) fn ordered_stats(&self) -> MemoryStats {
        let usage = memory(&*self.device).and_then(StreamOrderedMemory::ordered_usage).unwrap_or_else(|_| {
            // The books have the same, rather than nothing.
            let ledger = self.ledger();
            let (used, reserved) = (ledger.stats().allocated_bytes.all, ledger.stats().reserved_bytes.all);
            StreamOrderedUsage {
                used_bytes: used.current as u64,
                used_high_bytes: used.peak as u64,
                reserved_bytes: reserved.current as u64,
                reserved_high_bytes: reserved.peak as u64,
            }
        });
        let statistic =
            |current: u64, peak: u64| Statistic { current: current as i64, peak: peak as i64, ..Statistic::default() };
        let mut stats = MemoryStats::default();
        stats.allocated_bytes.all = statistic(usage.used_bytes, usage.used_high_bytes);
        stats.active_bytes.all = stats.allocated_bytes.all;
        stats.reserved_bytes.all = statistic(usage.reserved_bytes, usage.reserved_high_bytes);
        stats
    }

    /// Sets the pool's high marks to what is current, and the books' peaks.
    pub(super) fn reset_ordered_peaks(&self) {
        self.ledger().reset_peak();
        if let Err(error) = memory(&*self.device).and_then(StreamOrderedMemory::reset_ordered_high_marks) {
            events::log_peaks_not_reset(self, &error);
        }
    }

    fn ordered_out_of_memory(
        &self,
        memory: &dyn StreamOrderedMemory,
        stream: Stream,
        requested_bytes: u64,
        refused_by: Refusal,
        counts: bool,
    ) -> OutOfMemory {
        let context = context::current(self.id);
        let usage = memory.ordered_usage().unwrap_or_default();
        let limit_bytes = lock(&self.growth).limit_bytes;
        let phase = {
            let mut ledger = self.ledger();
            if counts {
                ledger.out_of_memory(context);
            }
            ledger.phase_name(context)
        };
        OutOfMemory {
            device: self.device.name().to_owned(),
            stream,
            requested_bytes,
            rounded_bytes: requested_bytes,
            segment_bytes: requested_bytes,
            refused_by,
            allocated_bytes: usage.used_bytes,
            reserved_bytes: usage.reserved_bytes,
            largest_usable_block_bytes: 0,
            largest_free_block_bytes: 0,
            device_free_bytes: self.device.memory().ok().map(|memory| memory.free_bytes),
            device_total_bytes: self.device.total_bytes(),
            limit_bytes,
            returned_bytes: 0,
            phase,
            findings: Vec::new(),
            post_mortem: None,
        }
    }
}
