//! A pinned allocator's shared state, and the ways of a block: out of the cache or the device, to the program, and back.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::SIZE_LIMIT_BYTES;
use super::background::Signal;
use super::block::{Block, FreeLists};
use super::config::PinnedConfig;
use super::counters::Counters;
use super::error::{PinnedError, PinnedOutOfMemory};
use super::events;
use super::memory::NotTaken;
use super::pending::{PendingBlock, PendingBlocks, wait_for_end};
use super::reserve::Reserve;
use super::uses::Use;
use crate::device::{Device, DeviceError, PinnedMemory};
use crate::sync::lock;

/// All of a pinned allocator but its public handle.
pub(super) struct Inner {
    pub(super) device: Arc<dyn Device>,
    pub(super) config: PinnedConfig,
    pub(super) reserve: Reserve,
    state: Mutex<State>,
    /// Held by who gives cached memory back, so that nobody takes for an out of memory what is on its way to the device.
    reclaiming: Mutex<()>,
    /// Where there is a thread that looks after streams, how to wake it.
    pub(super) signal: Option<Arc<Signal>>,
    /// Whether that thread is at work, so that allocations need not look.
    pub(super) is_polled: AtomicBool,
}

/// What changes. Events are asked for under its lock, which takes a microsecond; nothing is waited for and no memory is
/// taken under it.
#[derive(Debug)]
pub(super) struct State {
    /// The handles are gone: nothing is cached any more.
    is_closed: bool,
    pub(super) free: FreeLists,
    pub(super) pending: PendingBlocks,
    pub(super) counters: Counters,
}

impl fmt::Debug for Inner {
    /// What a person wants to know of an allocator, and no lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedAllocator")
            .field("device", &self.device.name())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl State {
    /// Caches the blocks whose streams are done with them.
    fn poll(&mut self, device: &dyn Device) -> Result<(), DeviceError> {
        while let Some(block) = self.pending.poll(device)? {
            self.counters.completed(block.size_bytes);
            self.free.push(block);
        }
        Ok(())
    }

    fn serve_cached(&mut self, size_bytes: u64) -> Option<Block> {
        let block = self.free.pop(size_bytes)?;
        self.counters.handed_out(size_bytes);
        Some(block)
    }
}

/// The size of the block for a request: the next power of two, with no least size.
pub(super) fn block_size(requested_bytes: u64) -> Result<u64, PinnedError> {
    if requested_bytes > SIZE_LIMIT_BYTES {
        return Err(PinnedError::TooLarge { requested_bytes });
    }
    Ok(requested_bytes.next_power_of_two())
}

impl Inner {
    pub(super) fn new(device: Arc<dyn Device>, config: PinnedConfig, signal: Option<Arc<Signal>>) -> Self {
        let counters = Counters::new(config.torch_exact);
        let state = State { is_closed: false, free: FreeLists::default(), pending: PendingBlocks::default(), counters };
        Self {
            device,
            reserve: Reserve::new(config.reserve_segment_bytes),
            config,
            state: Mutex::new(state),
            reclaiming: Mutex::default(),
            is_polled: AtomicBool::new(signal.is_some()),
            signal,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The device's calls; it had them when the allocator was made.
    pub(super) fn pinned(&self) -> Result<&dyn PinnedMemory, DeviceError> {
        self.device.pinned_memory().ok_or_else(|| DeviceError::InvalidAddress {
            device: self.device.name().to_owned(),
            address: 0,
            reason: "the device offers no page-locked memory any more",
        })
    }

    /// A block of at least `requested_bytes`, which is not zero, from the default pool.
    pub(super) fn allocate(&self, requested_bytes: u64) -> Result<Block, PinnedError> {
        let size_bytes = block_size(requested_bytes)?;
        {
            let mut state = self.state();
            if !state.pending.is_empty() && !self.is_polled.load(Ordering::Acquire) {
                state.poll(&*self.device)?;
            }
            if let Some(block) = state.serve_cached(size_bytes) {
                return Ok(block);
            }
        }
        self.grow(size_bytes, requested_bytes, Self::wait_for_streams)
    }

    /// A block with new memory, after giving cached memory back if it must be. `find` may find a cached block first, when
    /// there is no memory; it is where streams are waited for.
    pub(super) fn grow(
        &self,
        size_bytes: u64,
        requested_bytes: u64,
        find: impl FnOnce(&Self, u64) -> Option<Block>,
    ) -> Result<Block, PinnedError> {
        let mut returned_bytes = 0;
        let mut taken = self.take_memory(size_bytes);
        if taken.as_ref().is_err_and(DeviceError::is_out_of_memory) {
            {
                let _one_at_a_time = lock(&self.reclaiming);
                if let Some(block) = find(self, size_bytes) {
                    return Ok(block);
                }
                returned_bytes = self.release_cached().unwrap_or_else(|(returned_bytes, _)| returned_bytes);
                taken = self.take_memory(size_bytes);
            }
            events::log_retry(self, requested_bytes, returned_bytes, taken.is_ok());
        }
        match taken {
            Ok(block) => {
                self.state().counters.handed_out(size_bytes);
                Ok(block)
            }
            Err(error) if error.is_out_of_memory() => {
                let allocated = self.state().counters.stats().allocated_bytes.current;
                Err(PinnedError::OutOfMemory(Box::new(PinnedOutOfMemory {
                    device: self.device.name().to_owned(),
                    requested_bytes,
                    size_bytes,
                    allocated_bytes: u64::try_from(allocated).unwrap_or(0),
                    returned_bytes,
                })))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the streams that blocks wait for, and looks for a block of this size in what comes back by it.
    fn wait_for_streams(&self, size_bytes: u64) -> Option<Block> {
        let streams = self.state().pending.streams();
        for stream in streams {
            // Where it fails, its blocks stay pending: the memory for this request is to come from elsewhere.
            let _ = self.device.synchronize_stream(stream);
        }
        let mut state = self.state();
        let _ = state.poll(&*self.device);
        state.serve_cached(size_bytes)
    }

    /// Takes a block back from the program, with the uses of streams that were not waited for.
    pub(super) fn free(&self, block: Block, uses: Vec<Use>) {
        let was_used = !uses.is_empty();
        let Some(pending) = self.with_ends(block, uses) else { return };
        let mut state = self.state();
        if state.is_closed {
            drop(state);
            self.retire(pending);
        } else if !pending.ends.is_empty() {
            state.pending.push(pending);
            drop(state);
            if let Some(signal) = &self.signal {
                signal.wake();
            }
        } else {
            // Used, and waited for where there was no event: as good as complete.
            if was_used {
                state.counters.completed(pending.block.size_bytes);
            } else {
                state.counters.returned(pending.block.size_bytes);
            }
            state.free.push(pending.block);
        }
    }

    /// Finds the end of each use: its event, or one recorded now; without one the stream is waited for. `None` when not even
    /// that can be done: then the block stays out of use, since a stream may still copy from or to it.
    fn with_ends(&self, block: Block, uses: Vec<Use>) -> Option<PendingBlock> {
        let mut pending = PendingBlock { block, ends: VecDeque::with_capacity(uses.len()) };
        let mut lost = None;
        for Use { stream, event, .. } in uses {
            match event.map_or_else(|| self.device.record_event(stream), Ok) {
                Ok(event) => pending.ends.push_back((stream, event)),
                Err(_) => lost = wait_for_end(&*self.device, stream, None).err().map(|error| (stream, error)).or(lost),
            }
        }
        let Some((stream, error)) = lost else { return Some(pending) };
        pending.ends.into_iter().for_each(|(_, event)| self.device.release_event(event));
        events::log_lost_block(self, stream, &error);
        None
    }

    /// Caches what streams are done with. Never waits.
    pub(super) fn poll(&self) -> Result<(), DeviceError> {
        self.state().poll(&*self.device)
    }

    pub(super) fn empty_cache(&self) -> Result<(), DeviceError> {
        let _one_at_a_time = lock(&self.reclaiming);
        self.poll()?;
        self.release_cached().map(drop).map_err(|(_, error)| error)
    }

    /// Gives every cached block back; how many bytes that were. After an error of the device what is left stays cached.
    fn release_cached(&self) -> Result<u64, (u64, DeviceError)> {
        let mut blocks = self.state().free.take_all().into_iter();
        let mut returned_bytes = 0;
        while let Some(block) = blocks.next() {
            let size_bytes = block.size_bytes;
            // SAFETY: the block was cached, so no buffer has it and its streams are done with it.
            if let Err(not_taken) = unsafe { self.give_memory_back(block) } {
                let NotTaken { block, error } = *not_taken;
                let mut state = self.state();
                std::iter::once(block).chain(blocks).for_each(|block| state.free.push(block));
                return Err((returned_bytes, error));
            }
            returned_bytes += size_bytes;
        }
        Ok(returned_bytes)
    }

    /// The end of the last handle: what is cached goes back, and what waits for streams is waited for.
    pub(super) fn shut_down(&self) {
        let (free, pending) = {
            let mut state = self.state();
            state.is_closed = true;
            (state.free.take_all(), state.pending.take_all())
        };
        for block in free {
            self.retire(PendingBlock { block, ends: VecDeque::new() });
        }
        for pending in pending {
            self.retire(pending);
        }
        if let Err(error) = self.end_reserve() {
            events::log_kept_memory(self, &error);
        }
    }

    /// Waits for a block's streams and gives its memory back to the device; the way of all blocks once the handles are gone.
    fn retire(&self, pending: PendingBlock) {
        let PendingBlock { block, ends } = pending;
        let mut outcome = Ok(());
        for (stream, event) in ends {
            let waited = wait_for_end(&*self.device, stream, Some(event));
            outcome = outcome.and(waited.map_err(|error| (stream, error)));
        }
        if let Err((stream, error)) = outcome {
            return events::log_lost_block(self, stream, &error);
        }
        // SAFETY: the block is no buffer's any more, and its streams are done with it.
        let given_back = unsafe { self.give_memory_back(block) }.map_err(|not_taken| not_taken.error);
        if let Err(error) = given_back.and_then(|()| self.end_reserve()) {
            events::log_kept_memory(self, &error);
        }
    }
}
