//! What an allocator must do to run programs.

use super::features::Features;
use crate::reference_allocator::{Counters, PoolId, Refused, SegmentState, TraceEntry};

/// How a subject starts.
#[derive(Debug, Clone)]
pub struct Setup {
    /// As in `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings: String,
    /// Of the device.
    pub total_bytes: u64,
    /// Where segments and address ranges come to lie, in order.
    pub addresses: Vec<u64>,
    /// PyTorch's ways also where memtrack has better ones.
    pub torch_exact: bool,
}

/// What an error says beside who refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Bytes that the allocator has from the device.
    pub reserved_bytes: u64,
    /// The largest free block of any stream.
    pub largest_free_block_bytes: u64,
    /// The limit in force.
    pub limit_bytes: Option<u64>,
}

/// An allocator with a device that does as it is told. Addresses and pools passed in are ones that it gave out and that are
/// still live.
pub trait Subject: Sized {
    /// What it can do.
    const FEATURES: Features;

    /// A fresh allocator, or what is wrong with the settings.
    fn start(setup: &Setup) -> Result<Self, String>;
    /// Allocates for a thread.
    fn allocate(&mut self, bytes: u64, stream: u64, thread: usize) -> Result<u64, Refused>;
    /// Frees.
    fn free(&mut self, address: u64);
    /// Another stream uses the block.
    fn record_stream(&mut self, address: u64, stream: u64);
    /// The device's stream is busy from now on.
    fn set_busy(&mut self, stream: u64);
    /// The device's stream is idle.
    fn set_idle(&mut self, stream: u64);
    /// The device's oldest incomplete events complete.
    fn complete_oldest_events(&mut self, count: usize);
    /// Every stream is idle.
    fn synchronize(&mut self);
    /// Other processes' bytes on the device.
    fn set_other_use(&mut self, bytes: u64);
    /// Gives cached memory back.
    fn empty_cache(&mut self);
    /// Resets peaks.
    fn reset_peak(&mut self);
    /// Resets what accumulates.
    fn reset_accumulated(&mut self);
    /// Sets the memory fraction.
    fn set_memory_fraction(&mut self, fraction: f64);
    /// Applies settings; what stands before a mistake is in force. Only with [`Features::settings`].
    fn apply_settings(&mut self, text: &str) -> Result<(), String>;
    /// Makes a pool. This and the next three only with [`Features::pools`].
    fn create_pool(&mut self, use_on_oom: bool, no_split: bool) -> PoolId;
    /// Enters a pool on a thread; false if it is entered already.
    fn enter_pool(&mut self, pool: PoolId, thread: usize) -> bool;
    /// Leaves an entered pool.
    fn leave_pool(&mut self, pool: PoolId);
    /// Drops a pool that nobody has entered.
    fn delete_pool(&mut self, pool: PoolId);
    /// What the last refusal said.
    fn last_refusal(&self) -> Figures;
    /// Segments on the device as (address, bytes), in address order; no expandable ones.
    fn device_segments(&self) -> Vec<(u64, u64)>;
    /// Bytes taken from the device.
    fn device_used_bytes(&self) -> u64;
    /// The 122 statistics.
    fn counters(&self) -> Counters;
    /// Segments and blocks, if the subject can show them.
    fn snapshot(&self) -> Option<Vec<SegmentState>>;
    /// Everything that happened, if the subject can show it.
    fn trace(&self) -> Option<Vec<TraceEntry>>;
}
