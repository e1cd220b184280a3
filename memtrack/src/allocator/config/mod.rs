//! What an allocator can be told, by value or as text.
//!
//! Here live [`Config`] and its three readers: the *strict* one (`MEMTRACK_ALLOC_CONF`, all or nothing), PyTorch's own with
//! its leniency (`torch`, over `tokens` and `numbers`), and the environment variables of both. What the settings do lives
//! with the allocator; nothing here knows one.

mod environment;
mod numbers;
mod policy;
mod settings;
mod show;
mod strict;
mod tokens;
mod torch;
mod torch_error;

use std::fmt;

use super::rounding::RoundupDivisions;
use crate::units::MIB;

pub use environment::{ENVIRONMENT_VARIABLE, EnvironmentError, TorchEnvironmentError};
pub use policy::{ParsePolicyError, Policy};
pub use strict::ConfigError;
pub use torch_error::{TorchConfigError, TorchException, TorchParser};

/// No more threads than this register pinned memory, as in PyTorch.
const MAX_REGISTER_THREADS: u64 = 128;

/// What takes memory from the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Backend {
    /// The caching allocator itself, over the driver's plain calls.
    #[default]
    Native,
    /// The driver's own stream-ordered pool.
    CudaMallocAsync,
}

impl Backend {
    /// As PyTorch writes it: `native` or `cudaMallocAsync`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::CudaMallocAsync => "cudaMallocAsync",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Native, Self::CudaMallocAsync].into_iter().find(|backend| backend.name() == name)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How an allocator works. [`Config::default`] is PyTorch's default.
///
/// By value, from a text read strictly ([`str::parse`], [`Config::from_env`]), or from a text read as PyTorch 2.11 reads it
/// ([`Config::from_torch`]). Two configurations with the same settings are equal, whichever text they came from. The debug form
/// leaves out what is the default.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Which rules it follows. Fixed once an allocator is made.
    pub policy: Policy,
    /// Of [`Policy::Compact`]: how many percent above the most bytes ever requested at once pages are created rather than moved, from 0 to
    /// 100. What is below 0.6 means 0.6: with less, moves leave more parts of pages behind than they save.
    pub compact_slack_percent: f64,
    /// Blocks of at least this many bytes are never split, nor given to smaller requests. `None`: no limit.
    pub max_split_size_bytes: Option<u64>,
    /// How much larger than a request an unsplittable block may be and still serve it.
    pub max_non_split_rounding_bytes: u64,
    /// The segment for requests above 1 MiB and below 10 MiB; a larger request gets one of its own size. Also the page of
    /// expandable segments of large blocks.
    pub large_segment_size_bytes: u64,
    /// Rounding of requests to fractions of a power of two.
    pub roundup_power2_divisions: RoundupDivisions,
    /// With a memory limit: free unused segments once this share of it is reserved. `None`: never.
    pub garbage_collection_threshold: Option<f64>,
    /// The share of the device's total memory that may be reserved, from 0 to 1; 1 is no limit.
    ///
    /// Read once, when an allocator is made; `set_per_process_memory_fraction` changes the limit of one that exists.
    pub per_process_memory_fraction: f64,
    /// Segments that grow in a reserved range of addresses in place of segments of fixed size.
    pub expandable_segments: bool,
    /// What takes memory from the driver. Fixed once an allocator is made.
    pub backend: Backend,
    /// Let other threads use the allocator while one waits for the driver's allocation. In memtrack they always may, on the
    /// cached path: the setting is kept for what is read from it and changes nothing.
    pub release_lock_on_cudamalloc: bool,
    /// During the capture of a graph: reuse a block that other captured streams use within the same capture, once its own stream has
    /// joined all of them there. Without it the block waits for the end of the capture, as does one that a stream outside of the
    /// capture was given work with.
    ///
    /// The graph is looked into when such a block is freed and when memory is allocated on its stream, which the driver allows only
    /// while no other thread gives work to the same capture. In PyTorch it is the same.
    pub graph_capture_record_stream_reuse: bool,
    /// Pinned memory: free uses are looked for by a thread of their own rather than by allocations.
    pub pinned_use_background_threads: bool,
    /// Pinned memory: host memory is taken from the system and registered, rather than taken from the driver.
    pub pinned_use_cuda_host_register: bool,
    /// Pinned memory that is registered: how many threads touch its pages. A power of two, at most 128.
    pub pinned_num_register_threads: u64,
    /// Pinned memory: take one segment of this size first and serve from it. `None`: no such segment. Read once, at the first
    /// pinned allocation.
    pub pinned_reserve_segment_size_bytes: Option<u64>,
    /// Do as PyTorch 2.11 does also where that is a mistake.
    ///
    /// Off (the default), memtrack is right where PyTorch 2.11 is wrong, and figures differ only there:
    ///
    /// - After waiting for other streams it looks into the pool once more, where PyTorch reports an out of memory that the same call a
    ///   moment later would not meet.
    /// - When `max_split_size_mb` is lowered at run time, it leaves alone the parts of segments in use that PyTorch asks the driver to
    ///   free.
    /// - While a memory pool is entered it goes on asking and waiting for events; PyTorch takes that for a graph capture.
    /// - A size of 2^60 bytes and more is refused also as a raw allocation.
    /// - Counts of pinned memory go down again.
    ///
    /// On, PyTorch's numbers come out there too, for comparisons. Memory in use is never freed either way; nor is memory that a graph
    /// works on given back or lent to others, nor are pages unmapped while a graph is captured; and a stream that was recorded while a
    /// pool was entered is waited for. Threads go on with cached memory while one of them waits for the driver, as in PyTorch with
    /// `release_lock_on_cudamalloc`. Fixed once an allocator is made.
    pub torch_exact: bool,
    origin: Origin,
}

/// Where the settings came from. Takes no part in comparisons: settings are equal whatever said them.
#[derive(Debug, Clone, Default)]
struct Origin {
    /// The last text that was read, also when it was refused.
    text: String,
    /// Read as PyTorch reads, which accepts combinations that make no sense.
    lenient: bool,
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: Policy::Torch,
            compact_slack_percent: 2.0,
            max_split_size_bytes: None,
            max_non_split_rounding_bytes: 20 * MIB,
            large_segment_size_bytes: 20 * MIB,
            roundup_power2_divisions: RoundupDivisions::default(),
            garbage_collection_threshold: None,
            per_process_memory_fraction: 1.0,
            expandable_segments: false,
            backend: Backend::Native,
            release_lock_on_cudamalloc: false,
            graph_capture_record_stream_reuse: false,
            pinned_use_background_threads: false,
            pinned_use_cuda_host_register: false,
            pinned_num_register_threads: 1,
            pinned_reserve_segment_size_bytes: None,
            torch_exact: false,
            origin: Origin::default(),
        }
    }
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("allocator configuration, `{key}`: {problem}")]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The setting, by its key in the text form.
    pub key: &'static str,
    /// What is wrong and what is accepted.
    pub problem: String,
}

/// What 1 would mean is not what PyTorch does with it.
const ONE_DIVISION: &str = "1 division is no rounding at all in PyTorch, not rounding up to a power of two; \
                            write 2 or more, or 0 in a list, or leave the key out for no rounding";

impl Config {
    /// Whether the settings make sense, each and together.
    ///
    /// A configuration that was read as PyTorch reads ([`from_torch`](Self::from_torch),
    /// [`apply_torch`](Self::apply_torch)) may hold what PyTorch accepts: 1 as divisions, and a rounding for unsplittable
    /// blocks below the large segment size.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`] names the first that does not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem: String| Err(InvalidSetting { key, problem });
        let least_bytes = self.large_segment_size_bytes;
        if least_bytes <= 10 * MIB {
            return refuse("large_segment_size_mb", "must be more than 10".to_owned());
        }
        let rounding_bytes = if self.origin.lenient { least_bytes } else { self.max_non_split_rounding_bytes };
        let at_least = [
            ("max_split_size_mb", self.max_split_size_bytes.unwrap_or(u64::MAX)),
            ("max_non_split_rounding_mb", rounding_bytes),
        ];
        for (key, bytes) in at_least {
            if bytes < least_bytes {
                return refuse(key, format!("must be at least the large segment size, {}", least_bytes / MIB));
            }
        }
        if !self.origin.lenient && self.roundup_power2_divisions.table().contains(&1) {
            return refuse("roundup_power2_divisions", ONE_DIVISION.to_owned());
        }
        if self.garbage_collection_threshold.is_some_and(|threshold| !(threshold > 0.0 && threshold < 1.0)) {
            return refuse("garbage_collection_threshold", "must be above 0 and below 1".to_owned());
        }
        if !(0.0..=1.0).contains(&self.per_process_memory_fraction) {
            return refuse("per_process_memory_fraction", "must be from 0 to 1".to_owned());
        }
        if !(0.0..=100.0).contains(&self.compact_slack_percent) {
            return refuse("compact_slack_percent", "must be from 0 to 100".to_owned());
        }
        let threads = self.pinned_num_register_threads;
        if !threads.is_power_of_two() || threads > MAX_REGISTER_THREADS {
            let problem = format!("must be a power of two, at most {MAX_REGISTER_THREADS}");
            return refuse("pinned_num_register_threads", problem);
        }
        if self.pinned_reserve_segment_size_bytes == Some(0) {
            return refuse("pinned_reserve_segment_size_mb", "must be more than 0".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_by_value_are_held_to_the_same_rules() {
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err().key
        };
        assert_eq!(Config::default().check(), Ok(()));
        assert_eq!(refused(|config| config.per_process_memory_fraction = f64::NAN), "per_process_memory_fraction");
        assert_eq!(refused(|config| config.per_process_memory_fraction = -1.0), "per_process_memory_fraction");
        assert_eq!(
            refused(|config| config.garbage_collection_threshold = Some(f64::NAN)),
            "garbage_collection_threshold"
        );
        assert_eq!(refused(|config| config.large_segment_size_bytes = 0), "large_segment_size_mb");
        assert_eq!(refused(|config| config.max_split_size_bytes = Some(1)), "max_split_size_mb");
        assert_eq!(refused(|config| config.max_non_split_rounding_bytes = 1), "max_non_split_rounding_mb");
        assert_eq!(refused(|config| config.compact_slack_percent = f64::NAN), "compact_slack_percent");
        assert_eq!(refused(|config| config.compact_slack_percent = 100.5), "compact_slack_percent");
        assert_eq!(refused(|config| config.pinned_num_register_threads = 3), "pinned_num_register_threads");
        assert_eq!(refused(|config| config.pinned_num_register_threads = 256), "pinned_num_register_threads");
        assert_eq!(
            refused(|config| config.pinned_reserve_segment_size_bytes = Some(0)),
            "pinned_reserve_segment_size_mb"
        );
        let one = RoundupDivisions::uniform(1).unwrap();
        let mut config = Config { roundup_power2_divisions: one, ..Config::default() };
        assert_eq!(config.check().unwrap_err().key, "roundup_power2_divisions");
        config.origin.lenient = true;
        assert_eq!(config.check(), Ok(()));
    }
}
