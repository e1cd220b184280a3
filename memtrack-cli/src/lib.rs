//! The command `memtrack`, in parts that can be used and tested by themselves.
//!
//! - [`recording`]: files that say what was asked of an allocator, and perhaps what PyTorch answered.
//! - [`operation`]: one thing that a recording asks.
//! - [`session`]: a device and an allocator that do it.
//! - [`replay`]: both together, and what came of it.
//! - [`smi`]: the memory of every GPU, by the driver and by memtrack.
//! - [`check`]: the same against limits, for health checks.
//! - [`diff`]: what grew between two epochs of run files.
//! - [`fit`]: the smallest memory limit under which a recording completes.
//! - [`run`]: programs that know nothing of memtrack, with their GPU memory counted or cached.
//! - [`options`] and [`command`]: the command line around them.

// Only what `run` passes on of what it was started with asks the C library itself.
#![deny(unsafe_code)]

pub mod check;
pub mod command;
pub mod diff;
pub mod fit;
pub mod operation;
pub mod options;
pub mod recording;
pub mod replay;
pub mod run;
pub mod session;
pub mod smi;
pub mod statistics;
