//! The memory of programs that train with [tch](https://docs.rs/tch): what PyTorch's own caching allocator counts, in memtrack's scopes,
//! phases and epochs.
//!
//! tch tells nothing of memory. [`TorchSource`] asks libtorch itself, the same functions that `torch.cuda.memory_stats` asks:
//!
//! ```no_run
//! use std::sync::Arc;
//! use memtrack::source::register_source;
//! use memtrack_tch::TorchSource;
//!
//! memtrack_tch::initialize()?; // or make a tensor on the GPU first
//! let _registered = register_source(Arc::new(TorchSource::new(0)?))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From there on every [`#[track_memory]`](macro@memtrack::track_memory) function, scope, step and epoch has PyTorch's figures, with exact
//! peaks. [`empty_cache`] gives cached memory back, which tch lacks as well.
//!
//! - `source`: [`TorchSource`], and what is asked of PyTorch once.
//! - `statistics`: the figures, and what they are in which backend.
//! - `error`: why there are none.
//! - `shim`: the only module with `unsafe`; the C++ is `shim/allocator.cpp`.

#[forbid(unsafe_code)]
mod error;
mod shim;
#[forbid(unsafe_code)]
mod source;
#[forbid(unsafe_code)]
mod statistics;

pub use error::TorchError;
pub use source::{TorchSource, empty_cache, initialize};
pub use statistics::{Backend, TorchStatistics};
