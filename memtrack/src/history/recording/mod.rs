//! The recording of events: what the allocator calls while it works.
//!
//! Not part of the public interface; visible for memtrack's own benchmarks and tests.
//!
//! # Locks
//!
//! A [`Recorder`] has a lock of its own inside. It is taken last, under whatever locks the caller holds, and nothing is
//! called while it is held. [`Recorder::record`] is meant to be called under the lock of the books that it reports on, so
//! that the order of a trace is the order of what happened. [`Recorder::capture_allocation`] and
//! [`Recorder::capture_free`] walk the stack and are to be called before any lock is taken. [`assemble`] resolves names and
//! is to be called with no lock held.

mod clock;
mod recorder;
mod ring;
#[cfg(feature = "backtrace")]
mod stacks;
mod state;
#[cfg(not(feature = "backtrace"))]
mod without_stacks;

pub use recorder::{Event, Recorder, Recording};
#[cfg(feature = "backtrace")]
pub use stacks::StackId;
pub use state::{BlockState, DeviceState, SegmentState, assemble};
#[cfg(not(feature = "backtrace"))]
pub use without_stacks::StackId;
