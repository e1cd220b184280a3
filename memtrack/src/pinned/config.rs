//! How a pinned allocator behaves.

use super::SIZE_LIMIT_BYTES;
use crate::allocator::{Config, InvalidSetting};

/// The most threads that may touch pages for one registration.
const MAX_REGISTER_THREADS: usize = 128;

/// The settings of a [`PinnedAllocator`](super::PinnedAllocator). The default is PyTorch's, with right counts.
///
/// In PyTorch's configuration text they are the keys that begin with `pinned_`; each field names its own.
///
/// ```
/// use memtrack::{Config, pinned::PinnedConfig};
///
/// let config: Config = "pinned_num_register_threads:8,pinned_use_cuda_host_register:True".parse()?;
/// let pinned = PinnedConfig::from(&config);
/// assert_eq!((pinned.register_threads, pinned.use_host_register), (8, true));
/// # Ok::<(), memtrack::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedConfig {
    /// Take ordinary memory, touch its pages and have them locked, instead of asking the driver for locked memory; faster
    /// for large blocks. `pinned_use_cuda_host_register`, off by default.
    pub use_host_register: bool,
    /// How many threads touch the pages of a block that is to be registered, where it has that many pages. A power of two
    /// up to 128. `pinned_num_register_threads`, 1 by default.
    pub register_threads: usize,
    /// Bytes of a segment that is taken at the first allocation that the cache cannot serve and kept until the allocator
    /// ends; blocks are cut from it as long as it has room. `pinned_reserve_segment_size_mb`, none by default.
    pub reserve_segment_bytes: Option<u64>,
    /// Let a thread of its own look, every 100 µs, which blocks their streams are done with, instead of each allocation. It
    /// sleeps while no block waits. `pinned_use_background_threads`, off by default. Its queries break a graph capture in the
    /// driver's strictest mode, on whatever thread that is; capture in another mode where it is on.
    pub use_background_thread: bool,
    /// Count as PyTorch 2.11 does, mistakes included; see [`HostMemoryStats`](super::HostMemoryStats). Nothing else changes.
    /// Off by default, and no setting of PyTorch's.
    pub torch_exact: bool,
}

impl Default for PinnedConfig {
    fn default() -> Self {
        Self {
            use_host_register: false,
            register_threads: 1,
            reserve_segment_bytes: None,
            use_background_thread: false,
            torch_exact: false,
        }
    }
}

impl From<&Config> for PinnedConfig {
    /// The `pinned_` keys of an allocator's configuration, and its `torch_exact`.
    fn from(config: &Config) -> Self {
        Self {
            use_host_register: config.pinned_use_cuda_host_register,
            // Beyond what fits, the check refuses it.
            register_threads: usize::try_from(config.pinned_num_register_threads).unwrap_or(usize::MAX),
            reserve_segment_bytes: config.pinned_reserve_segment_size_bytes,
            use_background_thread: config.pinned_use_background_threads,
            torch_exact: config.torch_exact,
        }
    }
}

impl PinnedConfig {
    /// Whether the settings make sense.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`] names the first that does not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem: String| Err(InvalidSetting { key, problem });
        let threads = self.register_threads;
        if !threads.is_power_of_two() || threads > MAX_REGISTER_THREADS {
            let problem = format!("must be a power of two from 1 to {MAX_REGISTER_THREADS}, not {threads}");
            return refuse("pinned_num_register_threads", problem);
        }
        match self.reserve_segment_bytes {
            Some(0) => refuse("pinned_reserve_segment_size_mb", "must be more than 0".to_owned()),
            Some(SIZE_LIMIT_BYTES..) => {
                refuse("pinned_reserve_segment_size_mb", "more than any machine has".to_owned())
            }
            _ => Ok(()),
        }
    }
}
