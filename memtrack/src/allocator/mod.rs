//! The caching allocator: policy and books, no driver call of its own.
//!
//! Segments are taken from a [`Device`], cut into blocks, and kept for reuse when the program gives
//! blocks back. The rules are those of PyTorch 2.11's native allocator. What a device is and how memory is measured by
//! scopes and phases lives elsewhere.

mod address_table;
mod block;
mod capture_reuse;
mod compact;
mod config;
mod diagnose;
mod error;
mod events;
mod expandable;
mod free_set;
mod grow;
mod hooks;
mod inner;
mod keeper;
mod known_shards;
mod live;
mod mapping;
mod memory_pool;
mod pending;
mod pools;
mod private_pools;
mod raw;
mod reclaim;
mod registry;
mod report;
mod rounding;
mod shard;
mod snapshots;
mod sorted_runs;
mod stream_ordered;
mod stream_uses;
mod survey;
pub(crate) mod watch;

use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

pub use config::{
    Backend, Config, ConfigError, ENVIRONMENT_VARIABLE, EnvironmentError, InvalidSetting, ParsePolicyError, Policy,
    TorchConfigError, TorchEnvironmentError, TorchException, TorchParser,
};
pub use error::{AllocationError, OutOfMemory, Refusal};
pub use hooks::{OomHook, OomHookOptions, OomResponse};
pub(crate) use inner::Inner;
use known_shards::KnownShards;
pub use live::LiveBlock;
pub(crate) use live::LiveOrigin;
pub use memory_pool::{Capture, GraphMemory, MemoryPool, PoolGuard};
pub use private_pools::{PoolId, PoolOptions};
pub use registry::allocators;
use rounding::REQUEST_LIMIT_BYTES;
pub use rounding::RoundupDivisions;
pub(crate) use shard::Lease;
pub(crate) use survey::DriverReporter;

use crate::device::{Device, DeviceError, Stream};
use crate::history::recording::StackId;
use crate::stats::{CompactStats, MemoryStats};
use crate::sync::lock;

/// A caching allocator on one device. Cloning gives another handle to the same allocator.
///
/// When the last handle is dropped, cached memory goes back to the device, after waiting for the streams that still use freed
/// blocks; what buffers hold goes back with the last of them.
///
/// Thread-safe; threads on different streams do not wait for each other on the cached path, save for the statistics. A
/// cached allocation and its free take two locks each.
///
/// ```
/// use std::sync::Arc;
/// use memtrack::{Buffer, CachingAllocator, device::Host};
///
/// let allocator = CachingAllocator::new(Arc::new(Host::with_capacity(64 << 20)));
/// let buffer = Buffer::<f32>::zeros(&allocator, 1000)?;
/// assert_eq!(allocator.memory_stats().allocated_bytes.all.current, 4096);
/// drop(buffer);
/// assert_eq!(allocator.memory_stats().allocated_bytes.all.current, 0);
/// assert_eq!(allocator.memory_stats().reserved_bytes.all.current, 2 << 20);
/// # Ok::<(), memtrack::AllocationError>(())
/// ```
#[derive(Clone)]
pub struct CachingAllocator {
    handle: Arc<Handle>,
}

/// Shared by the public handles; the last one to go gives cached memory back.
pub(crate) struct Handle {
    inner: Arc<Inner>,
    shards: KnownShards,
}

impl fmt::Debug for CachingAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner().fmt(f)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.shut_down();
    }
}

// A panic leaves the books whole: no code of the program's runs under the locks, and scopes that it unwinds through close. So
// training may be caught and tried again.
impl UnwindSafe for CachingAllocator {}
impl RefUnwindSafe for CachingAllocator {}

impl CachingAllocator {
    /// An allocator with PyTorch's default configuration.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Inner::new(device, Config::default()).into_allocator()
    }

    /// One that nobody allocates from, for the books of a program that takes its memory elsewhere. It is not listed.
    pub(crate) fn stand_in(device: Arc<dyn Device>) -> Self {
        let mut inner = Inner::new(device, Config::default());
        inner.is_stand_in = true;
        inner.into_allocator()
    }

    /// An allocator with a configuration.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`] when the configuration does not make sense, or the device does not have the backend.
    pub fn with_config(device: Arc<dyn Device>, config: Config) -> Result<Self, InvalidSetting> {
        config.check()?;
        if config.backend == Backend::CudaMallocAsync && device.stream_ordered_memory().is_none() {
            let problem = format!("{} has no stream-ordered memory; use `native`", device.name());
            return Err(InvalidSetting { key: "backend", problem });
        }
        Ok(Inner::new(device, config).into_allocator())
    }

    /// An allocator configured by the environment variable `MEMTRACK_ALLOC_CONF`, by default when it is not set.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError`] when the variable's text is malformed, or names a backend that the device does not have.
    pub fn from_env(device: Arc<dyn Device>) -> Result<Self, EnvironmentError> {
        Ok(Self::with_config(device, Config::from_env()?)?)
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.handle.inner
    }

    /// A block of at least `requested_bytes`, which is not zero, for the program's line `location`.
    #[inline]
    pub(crate) fn lend(
        &self,
        requested_bytes: u64,
        stream: Stream,
        location: &'static Location<'static>,
    ) -> Result<Lease, AllocationError> {
        if requested_bytes >= REQUEST_LIMIT_BYTES {
            return Err(AllocationError::TooLarge { requested_bytes });
        }
        self.lend_unchecked(requested_bytes, stream, location)
    }

    /// As [`lend`](Self::lend), of any size: one so large that its rounding overflows becomes a block of no bytes.
    #[inline]
    fn lend_unchecked(
        &self,
        requested_bytes: u64,
        stream: Stream,
        location: &'static Location<'static>,
    ) -> Result<Lease, AllocationError> {
        self.handle.inner.allocate(&self.handle.shards, requested_bytes, stream, location)
    }

    /// The device whose memory this hands out.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.inner().device
    }

    /// The settings in force.
    pub fn config(&self) -> Config {
        lock(&self.inner().growth).config.clone()
    }

    /// Changes the settings, by a text in PyTorch's own grammar with all its leniency, as PyTorch's `_set_allocator_settings`: some
    /// keys go back to their default when the text does not name them, others keep their value. What is allocated stays as it is.
    ///
    /// `backend` cannot be changed, and `per_process_memory_fraction` is accepted without effect; see
    /// [`set_per_process_memory_fraction`](Self::set_per_process_memory_fraction).
    ///
    /// # Errors
    ///
    /// [`TorchConfigError`]; as in PyTorch, what stands before the mistake is in force then.
    pub fn apply_settings(&self, text: &str) -> Result<(), TorchConfigError> {
        let outcome = self.inner().change_settings(|config| config.apply_torch(text));
        self.inner().warn_not_expandable();
        outcome
    }

    /// Whether both are handles of one allocator.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.inner(), other.inner())
    }

    /// A block of at least `bytes` bytes as a bare address; zero bytes give address 0, which needs no free.
    ///
    /// [`Buffer`](crate::Buffer) is the safer way and needs no table look-up. An address is good until it is freed or the
    /// last handle of the allocator is dropped, whichever comes first: it does not keep the allocator, as a buffer does.
    ///
    /// # Errors
    ///
    /// [`AllocationError::OutOfMemory`], [`AllocationError::TooLarge`] from 2^60 bytes on, or a failure of the device. With
    /// `torch_exact` no size is too large, as in PyTorch's `caching_allocator_alloc`: of the last 511 sizes below 2^64 (`-1`, say) the rounding
    /// overflows and comes to a block of no bytes, at an address that the next block can have too; it is freed with the allocator.
    #[track_caller]
    pub fn allocate_raw(&self, bytes: u64, stream: Stream) -> Result<u64, AllocationError> {
        if bytes == 0 {
            return Ok(0);
        }
        let location = Location::caller();
        // PyTorch does not check here.
        let lease = if bytes >= REQUEST_LIMIT_BYTES && self.config().torch_exact {
            self.lend_unchecked(bytes, stream, location)?
        } else {
            self.lend(bytes, stream, location)?
        };
        Ok(self.inner().raw.hold(lease))
    }

    /// Gives back a block of [`allocate_raw`](Self::allocate_raw). Address 0 is accepted and nothing is done.
    ///
    /// # Errors
    ///
    /// [`AllocationError::InvalidPointer`] when the address is not one; nothing is changed then.
    pub fn free_raw(&self, address: u64) -> Result<(), AllocationError> {
        if address == 0 { Ok(()) } else { self.inner().raw.take(address).map(drop) }
    }

    /// Says that `stream` uses the block at `address` too: it is reused only when that stream's work up to the free is
    /// done. Its own stream is ignored.
    ///
    /// # Errors
    ///
    /// [`AllocationError::InvalidPointer`], or an unknown stream.
    pub fn record_stream_raw(&self, address: u64, stream: Stream) -> Result<(), AllocationError> {
        self.device().check_stream(stream)?;
        self.inner().raw.with(address, |lease| lease.record_stream(stream))
    }

    /// All counters. One lock, about a kilobyte copied.
    ///
    /// With the backend `cudaMallocAsync` they are what the driver's pool says, as in PyTorch: current and peak of allocated, active and
    /// reserved bytes, the first two unrounded; all others, `max_split_size` included, stay zero. Scopes, phases and epochs measure as always.
    pub fn memory_stats(&self) -> MemoryStats {
        let inner = self.inner();
        if inner.is_stream_ordered { inner.ordered_stats() } else { inner.ledger().stats() }
    }

    /// What `policy:compact` did with its pages; zeros under the other policy. One lock, which growths hold.
    pub fn compact_stats(&self) -> CompactStats {
        lock(&self.inner().growth).compact.stats
    }

    /// One figure, without the copy of all.
    fn current_stats(&self, figure: impl FnOnce(&MemoryStats) -> i64) -> i64 {
        let inner = self.inner();
        if inner.is_stream_ordered { figure(&inner.ordered_stats()) } else { figure(&inner.ledger().stats()) }
    }

    /// Bytes handed to the program now, rounded.
    pub fn memory_allocated(&self) -> i64 {
        self.current_stats(|stats| stats.allocated_bytes.all.current)
    }

    /// The most bytes handed to the program since the start or the last [`reset_peak_memory_stats`].
    ///
    /// [`reset_peak_memory_stats`]: Self::reset_peak_memory_stats
    pub fn max_memory_allocated(&self) -> i64 {
        self.current_stats(|stats| stats.allocated_bytes.all.peak)
    }

    /// Bytes taken from the device now.
    pub fn memory_reserved(&self) -> i64 {
        self.current_stats(|stats| stats.reserved_bytes.all.current)
    }

    /// The most bytes taken from the device since the start or the last reset of peaks.
    pub fn max_memory_reserved(&self) -> i64 {
        self.current_stats(|stats| stats.reserved_bytes.all.peak)
    }

    /// Sets every peak to the value now. Scopes, phases and epochs do not depend on it.
    pub fn reset_peak_memory_stats(&self) {
        let inner = self.inner();
        if inner.is_stream_ordered {
            inner.reset_ordered_peaks();
        } else {
            inner.reset_peaks();
        }
    }

    /// Sets every accumulated counter, and the counts of retries, OOMs and device calls, to zero.
    pub fn reset_accumulated_memory_stats(&self) {
        self.inner().ledger().reset_accumulated();
    }

    /// Gives all cached segments that are wholly free back to the device, and the whole free pages of expandable segments, after
    /// waiting for streams that still use freed blocks. Blocks in use keep their segments.
    ///
    /// While a [`MemoryPool`] is entered on any thread, or a graph captured, only private pools that nobody uses any more are looked at,
    /// and nothing is waited for, as in PyTorch.
    ///
    /// # Errors
    ///
    /// A failure of the device; segments not given back by then stay cached.
    pub fn empty_cache(&self) -> Result<(), DeviceError> {
        let inner = self.inner();
        if inner.is_stream_ordered {
            return inner.trim_ordered();
        }
        let stack = inner.history.capture_free(StackId::NONE);
        let mut growth = lock(&inner.growth);
        growth.asked_at = stack;
        let outcome = inner.release_all(&mut growth);
        drop(growth);
        inner.pending.report_lost(inner);
        outcome
    }

    /// Limits what is taken from the device to a share of its total memory; 1 removes the limit. Only growth is limited:
    /// cached memory can be reused, and what is reserved already stays.
    ///
    /// # Errors
    ///
    /// [`AllocationError::InvalidFraction`] unless `0 <= fraction <= 1`.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<(), AllocationError> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocationError::InvalidFraction { fraction });
        }
        self.inner().set_fraction(fraction);
        Ok(())
    }

    /// The limit in bytes, `None` without one.
    pub fn limit_bytes(&self) -> Option<u64> {
        lock(&self.inner().growth).limit_bytes
    }
}
