//! Where GPU memory went, why it ran out, and why nvidia-smi shows another number.
//!
//! A training loop takes its memory from a [`CachingAllocator`] through [`Buffer`]s, annotates its functions with
//! [`#[track_memory]`](macro@track_memory) and ends each epoch with a summary:
//!
//! ```
//! use std::sync::Arc;
//! use memtrack::device::{self, Stream};
//! use memtrack::{AllocationError, Buffer, CachingAllocator, track_memory};
//!
//! #[track_memory(phase = "forward", err)]
//! fn forward(allocator: &CachingAllocator, input: &Buffer<f32>) -> Result<Buffer<f32>, AllocationError> {
//!     let mut output = Buffer::zeros(allocator, input.len())?;
//!     output.copy_from(input)?;
//!     Ok(output)
//! }
//!
//! let allocator = CachingAllocator::new(device::auto());
//! memtrack::set_default(&allocator);
//! let input = Buffer::from_slice(&allocator, &[1.0_f32; 1000])?;
//! let epoch = memtrack::epoch(1);
//! for number in 0..10 {
//!     let _step = memtrack::step(number);
//!     let output = forward(&allocator, &input)?;
//!     assert_eq!(output.to_vec()?[0], 1.0);
//! }
//! let summary = epoch.finish().expect("an allocator is current");
//! assert_eq!(summary.phases[0].name, "forward");
//! println!("{summary}");
//! # Ok::<(), AllocationError>(())
//! ```
//!
//! # The parts
//!
//! - [`device`]: where bytes come from. *Host* memory is the default and runs anywhere, *cuda* is an NVIDIA GPU through a
//!   driver that is looked for at run time, *simulated* has no bytes and does as it is told, for tests.
//! - [`CachingAllocator`]: keeps what a program gives back for its next request, by the rules of PyTorch's allocator, and
//!   counts what `torch.cuda.memory_stats` counts, under the same names ([`MemoryStats`]). [`Config`] has all of PyTorch's
//!   settings; [`MemoryPool`] keeps memory apart, and leads a graph capture's allocations.
//! - [`pinned`]: page-locked host memory, cached as PyTorch caches it, and copies that do not wait.
//! - [`scope`](mod@scope) and [`macro@track_memory`]: what happened to the device's memory between two points, with exact
//!   peaks under any nesting and overlap of threads and tasks, recorded into a [`tracing`] span;
//!   [`CachingAllocator::call_sites`] has the totals.
//! - [`source`]: memory that a framework allocates, in the records and summaries of scopes, phases and epochs.
//! - [`testing`]: budgets of memory in ordinary tests.
//! - [`phase`](mod@phase): phases, steps and epochs; a summary whose rows add up to the epoch's change, with who held the peak, what grew
//!   and what seems to leak (`docs/summary.md`).
//! - [`run_file`]: a JSON line for each epoch, for `memtrack diff` and other programs.
//! - [`driver`]: the driver's figures through NVML, set beside the allocator's so that they add up to the byte.
//! - [`diagnosis`]: findings, why memory ran out or may; [`post_mortem`]: what is written when it did.
//! - [`publish`]: a process's figures in a file, for `memtrack smi` and `memtrack check`.
//! - [`history`]: what an allocator did over time, written for PyTorch's tools and read from them
//!   ([`CachingAllocator::record_memory_history`], [`CachingAllocator::dump_snapshot`]).
//!
//! # For those who know `torch.cuda`
//!
//! Sizes, the choice of blocks, addresses within segments and all counters are PyTorch 2.11's. Its functions are here by their
//! names: as methods of [`CachingAllocator`], and for the current allocator as [`memory_allocated`], [`memory_stats`],
//! [`memory_summary`], [`empty_cache`] and so on. `docs/torch.md` has each of them with its differences. Where PyTorch is wrong
//! memtrack is right, unless [`Config::torch_exact`] asks for the same numbers.
//!
//! ```
//! use memtrack::{Buffer, CachingAllocator, Config};
//!
//! let config: Config = "expandable_segments:True,max_split_size_mb:64".parse()?;
//! let allocator = CachingAllocator::with_config(memtrack::device::auto(), config)?;
//! let _current = allocator.make_current();
//! let _buffer = Buffer::<f32>::zeros(&allocator, 1000)?;
//! assert_eq!(memtrack::memory_allocated(), 4096);
//! print!("{}", memtrack::memory_summary(true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is logged
//!
//! Spans carry bytes as `i64` in `mem.*` fields. A `WARN` event with target `memtrack::alloc_retry` says that an allocation
//! had to give cached memory back and ask again; an `ERROR` event with target `memtrack::oom` that it ran out of memory,
//! with the numbers; `INFO` events with the targets
//! `memtrack::epoch` and, for each phase, `memtrack::phase` end each epoch; `WARN` events with the targets
//! `memtrack::budget_exceeded` and `memtrack::leak` say that a call broke its budget. The README lists the other targets. Nothing is
//! emitted while a lock is held.
//!
//! # Features
//!
//! - `cuda` (default): the cuda device and the loans to cudarc. No CUDA is needed to build or to run.
//! - `nvml` (default): the driver's view. Without it, or without NVML, summaries say so in that line.
//! - `track` (default): without it [`#[track_memory]`](macro@track_memory) returns its item as it is.
//! - `backtrace`: call sites in histories and snapshots.
//! - `json`: reading snapshots from JSON; they are written as JSON without it.

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeExamples;

/// The examples of the attribute's options, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/attribute.md")]
struct AttributeExamples;

/// The example of the summary's page, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/summary.md")]
struct SummaryExamples;

#[deny(unsafe_code)]
mod allocator;
#[forbid(unsafe_code)]
mod attribute;
mod buffer;
#[forbid(unsafe_code)]
mod context;
#[forbid(unsafe_code)]
mod current;
pub mod device;
#[forbid(unsafe_code)]
pub mod diagnosis;
pub mod driver;
#[deny(unsafe_code)]
pub mod history;
#[forbid(unsafe_code)]
mod ledger;
#[forbid(unsafe_code)]
mod memory;
#[forbid(unsafe_code)]
mod observer;
#[forbid(unsafe_code)]
pub mod phase;
pub mod pinned;
#[forbid(unsafe_code)]
pub mod plain_text;
#[forbid(unsafe_code)]
pub mod post_mortem;
#[forbid(unsafe_code)]
pub mod publish;
#[forbid(unsafe_code)]
mod retry;
#[forbid(unsafe_code)]
pub mod run_file;
#[forbid(unsafe_code)]
pub mod scope;
#[deny(unsafe_code)]
pub mod source;
#[forbid(unsafe_code)]
mod stats;
#[deny(unsafe_code)]
mod sync;
#[forbid(unsafe_code)]
pub mod testing;
#[forbid(unsafe_code)]
pub mod units;

pub use allocator::{
    AllocationError, Backend, CachingAllocator, Capture, Config, ConfigError, ENVIRONMENT_VARIABLE, EnvironmentError,
    GraphMemory, InvalidSetting, MemoryPool, OomHook, OomHookOptions, OomResponse, OutOfMemory, ParsePolicyError,
    Policy, PoolGuard, PoolId, PoolOptions, Refusal, RoundupDivisions, TorchConfigError, TorchEnvironmentError,
    TorchException, TorchParser, allocators,
};
#[doc(hidden)]
pub use attribute::private as __private;
pub use attribute::{AsAllocator, AsAllocators, Budget, Exceeded};
pub use buffer::{Buffer, Element};
#[cfg(feature = "cuda")]
pub use buffer::{CudaRef, CudaRefMut, CudaSliceRef, CudaSliceRefMut};
pub use current::{Current, clear_default, current, enabled, set_default, set_enabled};
pub use memory::{
    CurrentAllocatorError, empty_cache, get_allocator_backend, get_per_process_memory_fraction, list_gpu_processes,
    max_memory_allocated, max_memory_reserved, mem_get_info, memory_allocated, memory_reserved, memory_stats,
    memory_summary, reset_accumulated_memory_stats, reset_peak_memory_stats, set_per_process_memory_fraction,
};
pub use memtrack_macros::{track_memory, track_memory_block};
pub use phase::{EpochSummary, epoch, phase, step};
pub use pinned::{PinnedAllocator, PinnedBuffer};
pub use retry::{Halving, RetryError, RetryOptions, retry_halving};
pub use scope::scope;
pub use source::register_source;
pub use stats::{CompactStats, MemoryStats, PoolKind, PoolStatistic, Statistic};
