//! Why a pinned allocator did not do as asked.

use crate::allocator::InvalidSetting;
use crate::device::{DeviceError, Stream};
use crate::units::Bytes;

/// Why there is no pinned memory, or why it was not copied or lent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinnedError {
    /// No page-locked memory for it, also after giving cached memory back.
    #[error(transparent)]
    OutOfMemory(Box<PinnedOutOfMemory>),
    /// A size of more than 2^60 bytes: a mistake in the program.
    #[error(
        "tried to allocate {requested_bytes} bytes of pinned memory, more than any machine has (the limit is 2^60 bytes); check the arithmetic that led to this size"
    )]
    TooLarge {
        /// As asked for; [`u64::MAX`] when the element count times the element size is larger than that.
        requested_bytes: u64,
    },
    /// The device offers no page-locked memory.
    #[error("{device} offers no page-locked memory; use a host, simulated or cuda device")]
    NotOffered {
        /// The device's name.
        device: String,
    },
    /// The configuration does not make sense.
    #[error(transparent)]
    InvalidSetting(#[from] InvalidSetting),
    /// The thread that looks after streams cannot be started.
    #[error(
        "the thread for `pinned_use_background_threads` cannot be started: {message}; turn the setting off, or raise the limit of threads"
    )]
    NoThread {
        /// What the operating system said.
        message: String,
    },
    /// Two buffers whose lengths differ.
    #[error("cannot copy {source_len} elements into a buffer of {target_len}; the lengths must be equal")]
    LengthMismatch {
        /// Elements given.
        source_len: usize,
        /// Elements there is room for.
        target_len: usize,
    },
    /// A pinned buffer and a buffer that are not of one device.
    #[error(
        "the pinned buffer is of an allocator on {pinned}, the other buffer on another device, {other}; make both on one device"
    )]
    OtherDevice {
        /// The pinned allocator's device.
        pinned: String,
        /// The other buffer's device.
        other: String,
    },
    /// The stream is being captured into a graph, and the buffer could be used anew before the graph runs.
    #[error(
        "{stream} is being captured, and the buffer is of no capture pool; make it in `PinnedAllocator::capture_pool`"
    )]
    Capturing {
        /// The stream.
        stream: Stream,
    },
    /// Another stream uses the buffer, and the work that is to come after it is being captured.
    #[error(
        "another stream still uses the pinned buffer, for which {stream} cannot wait while it is being captured; call `as_mut_slice` before the capture begins"
    )]
    StillUsed {
        /// The stream that is being captured.
        stream: Stream,
    },
    /// A graph may read or write the buffer whenever it is launched.
    #[error(
        "the pinned buffer is used by a captured graph; use `as_mut_ptr` while the graph is not running, or `CapturePool::release` when it is gone"
    )]
    Captured,
    /// The device refused or failed otherwise.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The figures of a request for pinned memory that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of page-locked host memory on {device}: tried to lock {} for a request of {} ({requested_bytes} bytes); this allocator has {} locked, after {} of cached memory was given back in vain. Free pinned buffers earlier, make them smaller (sizes are rounded up to powers of two), or raise the limit of locked memory",
    Bytes::unsigned(*size_bytes),
    Bytes::unsigned(*requested_bytes),
    Bytes::unsigned(*allocated_bytes),
    Bytes::unsigned(*returned_bytes)
)]
#[non_exhaustive]
pub struct PinnedOutOfMemory {
    /// The device's name.
    pub device: String,
    /// As asked for.
    pub requested_bytes: u64,
    /// The size of the block, the next power of two.
    pub size_bytes: u64,
    /// What this allocator has locked now: blocks in use, blocks that wait for streams, and cached blocks.
    pub allocated_bytes: u64,
    /// What was cached and has been given back for this request.
    pub returned_bytes: u64,
}
