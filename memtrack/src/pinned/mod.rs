//! Page-locked host memory, cached: the memory that a device copies from and to by itself while the host goes on.
//!
//! Here live [`PinnedAllocator`], whose rules are those of PyTorch 2.11's host allocator, its buffers, and their copies to and
//! from [`Buffer`](crate::Buffer). Blocks are powers of two, none is cut or merged, and they belong to no stream: a block that
//! streams use is reused when all of them are done. What a device is, and how it locks pages, lives elsewhere.

mod background;
mod block;
mod buffer;
mod capture;
mod config;
mod counters;
mod error;
mod events;
mod inner;
mod lease;
mod memory;
mod pending;
mod registered;
mod reserve;
mod stats;
mod torch_counters;
mod uses;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use self::background::{Background, Signal};
pub use self::buffer::PinnedBuffer;
pub use self::capture::CapturePool;
pub use self::config::PinnedConfig;
pub use self::error::{PinnedError, PinnedOutOfMemory};
use self::inner::Inner;
pub use self::stats::{DurationStatistic, HostMemoryStats};
use crate::device::{Device, DeviceError};

/// A request for more bytes than this is a mistake in the program.
const SIZE_LIMIT_BYTES: u64 = 1 << 60;

/// A caching allocator of page-locked host memory. Cloning gives another handle to the same allocator.
///
/// A request gets a block of the next power of two, with no least size; the block of that size that was freed last, or new
/// memory. When the device has none, streams that use freed blocks are waited for, cached memory is given back, and the device
/// is asked once more.
///
/// When the last handle is dropped, cached memory goes back to the device, after waiting for the streams that still use freed
/// blocks; what buffers hold goes back with the last of them.
///
/// Thread-safe. A cached allocation and its free take one lock each, and one call of the device for each stream that uses a
/// freed block at the front of the queue.
///
/// ```
/// use std::sync::Arc;
/// use memtrack::{PinnedAllocator, PinnedBuffer, device::Host};
///
/// let allocator = PinnedAllocator::new(Arc::new(Host::new()))?;
/// let buffer = PinnedBuffer::<f32>::zeros(&allocator, 10_000)?;
/// assert_eq!(allocator.host_memory_stats().active_bytes.current, 65_536);
/// drop(buffer);
/// assert_eq!(allocator.host_memory_stats().active_bytes.current, 0);
/// assert_eq!(allocator.host_memory_stats().allocated_bytes.current, 65_536);
/// allocator.empty_cache()?;
/// assert_eq!(allocator.host_memory_stats().allocated_bytes.current, 0);
/// # Ok::<(), memtrack::pinned::PinnedError>(())
/// ```
#[derive(Clone)]
pub struct PinnedAllocator {
    handle: Arc<Handle>,
}

/// Shared by the public handles; the last one to go gives cached memory back.
struct Handle {
    inner: Arc<Inner>,
    background: Option<Background>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // First, so that nobody caches any more.
        self.background = None;
        self.inner.shut_down();
    }
}

impl fmt::Debug for PinnedAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner().fmt(f)
    }
}

// A panic leaves the books whole: no code of the program's runs under the locks.
impl UnwindSafe for PinnedAllocator {}
impl RefUnwindSafe for PinnedAllocator {}

impl PinnedAllocator {
    /// An allocator with the default configuration.
    ///
    /// # Errors
    ///
    /// [`PinnedError::NotOffered`] when the device has no page-locked memory.
    pub fn new(device: Arc<dyn Device>) -> Result<Self, PinnedError> {
        Self::with_config(device, PinnedConfig::default())
    }

    /// An allocator with a configuration.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new); [`PinnedError::InvalidSetting`] when the configuration does not make sense;
    /// [`PinnedError::NoThread`] when its thread cannot be started.
    pub fn with_config(device: Arc<dyn Device>, config: PinnedConfig) -> Result<Self, PinnedError> {
        config.check()?;
        if device.pinned_memory().is_none() {
            return Err(PinnedError::NotOffered { device: device.name().to_owned() });
        }
        let signal = config.use_background_thread.then(|| Arc::new(Signal::default()));
        let inner = Arc::new(Inner::new(device, config, signal.clone()));
        let background = signal.map(|signal| Background::start(&inner, signal)).transpose()?;
        Ok(Self { handle: Arc::new(Handle { inner, background }) })
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.handle.inner
    }

    /// The device that copies from and to the memory.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.inner().device
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &PinnedConfig {
        &self.inner().config
    }

    /// Whether both are handles of one allocator.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.inner(), other.inner())
    }

    /// A pool for buffers whose copies are captured into graphs.
    pub fn capture_pool(&self) -> CapturePool {
        CapturePool::new(self)
    }

    /// Gives all cached blocks back to the device, those included whose streams are done by now; waits for none. Blocks cut
    /// from the reserve segment go back to it, and the segment stays.
    ///
    /// # Errors
    ///
    /// A failure of the device; blocks not given back by then stay cached.
    pub fn empty_cache(&self) -> Result<(), DeviceError> {
        self.inner().empty_cache()
    }

    /// All counters. One lock.
    pub fn host_memory_stats(&self) -> HostMemoryStats {
        self.inner().state().counters.stats()
    }

    /// Sets every peak to the value now, and forgets the longest and the shortest times.
    pub fn reset_peak_host_memory_stats(&self) {
        self.inner().state().counters.reset_peak();
    }

    /// Sets every accumulated counter to zero, and the total times. `num_host_alloc` and `num_host_free` go on, unless
    /// [`torch_exact`](PinnedConfig::torch_exact).
    pub fn reset_accumulated_host_memory_stats(&self) {
        self.inner().state().counters.reset_accumulated();
    }
}
