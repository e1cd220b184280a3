//! What a device can answer instead of doing as asked.

use super::Stream;
use crate::units::Bytes;

/// A device's refusal or failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has no room for this. Not sticky: a later or smaller request may succeed.
    #[error("{device} has no room for {} ({requested_bytes} bytes)", Bytes::unsigned(*requested_bytes))]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// What was asked of the device, in bytes.
        requested_bytes: u64,
    },
    /// A size the device cannot serve: zero, or no multiple of the granularity.
    #[error("{device} cannot serve a size of {bytes} bytes: {reason}")]
    InvalidSize {
        /// The device's name.
        device: String,
        /// The size asked for.
        bytes: u64,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// An address that is not what the call needs.
    #[error("{address:#x} on {device}: {reason}")]
    InvalidAddress {
        /// The device's name.
        device: String,
        /// The address given.
        address: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A stream this device does not know, or cannot be used by handle.
    #[error("{stream} on {device}: {reason}")]
    InvalidStream {
        /// The device's name.
        device: String,
        /// The stream given.
        stream: Stream,
        /// What is wrong with it, and what to do.
        reason: &'static str,
    },
    /// The device has no bytes to copy (simulated).
    #[error("{device} has no bytes behind its addresses; use a host or cuda device to read and write")]
    NoBytes {
        /// The device's name.
        device: String,
    },
    /// The driver failed. Some of these stay for the rest of the process.
    #[error("{call} failed on {device}: {name} ({code}): {description}")]
    Driver {
        /// The device's name.
        device: String,
        /// The driver call.
        call: &'static str,
        /// The driver's number for the error.
        code: u32,
        /// The driver's name for it.
        name: String,
        /// The driver's sentence about it.
        description: String,
    },
}

impl DeviceError {
    /// Whether this is [`OutOfMemory`](Self::OutOfMemory), the one error that reclaiming memory can help.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }
}
