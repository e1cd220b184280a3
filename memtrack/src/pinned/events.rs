//! What a pinned allocator says through `tracing`. No lock is held while these run.

use super::inner::Inner;
use crate::device::{DeviceError, Stream};
use crate::units::signed;

pub(super) fn log_retry(inner: &Inner, requested_bytes: u64, returned_bytes: u64, served: bool) {
    tracing::warn!(
        target: "memtrack::alloc_retry",
        {
            mem.device = inner.device.name(),
            memory = "pinned",
            requested_bytes = signed(requested_bytes),
            returned_bytes = signed(returned_bytes),
            outcome = if served { "served" } else { "failed" },
        },
        "pinned allocation retried after giving cached memory back"
    );
}

pub(super) fn log_no_reserve(inner: &Inner, error: &DeviceError) {
    tracing::warn!(
        target: "memtrack::pinned",
        {
            mem.device = inner.device.name(),
            error = %error,
        },
        "there is no memory for the reserve segment of pinned memory; going on without one"
    );
}

pub(super) fn log_lost_block(inner: &Inner, stream: Stream, error: &DeviceError) {
    tracing::error!(
        target: "memtrack::pinned",
        {
            mem.device = inner.device.name(),
            stream = stream.0 as i64,
            error = %error,
        },
        "a freed block of pinned memory stays out of use: a stream that used it can be given no event and cannot be waited for"
    );
}

pub(super) fn log_kept_memory(inner: &Inner, error: &DeviceError) {
    tracing::warn!(
        target: "memtrack::pinned",
        {
            mem.device = inner.device.name(),
            error = %error,
        },
        "a pinned allocator ended and the device did not take all of its memory back"
    );
}

pub(super) fn log_captured_memory(inner: &Inner, bytes: u64) {
    tracing::warn!(
        target: "memtrack::pinned",
        {
            mem.device = inner.device.name(),
            captured_bytes = signed(bytes),
        },
        "a capture pool was dropped without being released: its used blocks stay locked, since graphs may still use them"
    );
}
