//! What an allocator says through `tracing`: a retry is a warning, an out of memory an error, inside the current span.
//!
//! Sizes are bytes as `i64`, since exporters turn unsigned numbers into text. Where a figure can be missing, the field says
//! what holds instead (no limit: all the device has), since formatters show a missing value as a stray blank. No lock is held while these run.

use std::path::PathBuf;

use super::error::OutOfMemory;
use super::grow::Retry;
use super::inner::Inner;
use crate::device::{DeviceError, Stream};
use crate::post_mortem::PostMortemError;
use crate::units::signed;

pub(super) fn log_retry(inner: &Inner, stream: Stream, retry: &Retry) {
    tracing::warn!(
        target: "memtrack::alloc_retry",
        {
            mem.device = inner.device.name(),
            stream = stream.0 as i64,
            requested_bytes = signed(retry.requested_bytes),
            segment_bytes = signed(retry.segment_bytes),
            returned_bytes = signed(retry.returned_bytes),
            took_us = signed(retry.took.as_micros().try_into().unwrap_or(u64::MAX)),
            outcome = if retry.served { "served" } else { "failed" },
        },
        "allocation retried after giving cached memory back"

    );
}

pub(super) fn log_out_of_memory(error: &OutOfMemory) {
    tracing::error!(
        target: "memtrack::oom",
        {
            mem.device = error.device.as_str(),
            mem.phase = error.phase.unwrap_or("other"),
            stream = error.stream.0 as i64,
            requested_bytes = signed(error.requested_bytes),
            segment_bytes = signed(error.segment_bytes),
            allocated_bytes = signed(error.allocated_bytes),
            reserved_bytes = signed(error.reserved_bytes),
            largest_usable_block_bytes = signed(error.largest_usable_block_bytes),
            largest_free_block_bytes = signed(error.largest_free_block_bytes),
            device_free_bytes = error.device_free_bytes.map(signed),
            device_total_bytes = signed(error.device_total_bytes),
            limit_bytes = signed(error.limit_bytes.unwrap_or(error.device_total_bytes)),
            returned_bytes = signed(error.returned_bytes),
            findings = error.codes().as_str(),
        },
        "{error}"

    );
}

pub(super) fn log_post_mortem(inner: &Inner, outcome: &Result<PathBuf, PostMortemError>) {
    match outcome {
        Ok(folder) => tracing::info!(
            target: "memtrack::post_mortem",
            {
                mem.device = inner.device.name(),
                folder = %folder.display(),
            },
            "what memory was like when it ran out is in {}", folder.display()
        ),
        Err(error) => tracing::warn!(
            target: "memtrack::post_mortem",
            {
                mem.device = inner.device.name(),
                error = %error,
            },
            "what memory was like when it ran out could not be written: {error}"
        ),
    }
}

pub(super) fn log_kept_segments(inner: &Inner, error: &DeviceError) {
    tracing::warn!(
        target: "memtrack::allocator",
        {
            mem.device = inner.device.name(),
            error = %error,
        },
        "an allocator ended and the device did not take all of its memory back"
    );
}

pub(super) fn log_lost_block(inner: &Inner, stream: Stream, error: &DeviceError) {
    tracing::error!(
        target: "memtrack::allocator",
        {
            mem.device = inner.device.name(),
            stream = stream.0 as i64,
            error = %error,
        },
        "a freed block stays out of use: a stream that used it can be given no event and cannot be waited for"
    );
}

pub(super) fn log_not_expandable(inner: &Inner, reason: &str) {
    tracing::warn!(
        target: "memtrack::allocator",
        {
            mem.device = inner.device.name(),
            reason,
        },
        "expandable_segments is set and has no effect here"
    );
}

pub(super) fn log_no_history(inner: &Inner) {
    tracing::warn!(
        target: "memtrack::snapshot",
        { mem.device = inner.device.name() },
        "the history is off: the snapshot holds segments and live blocks, and no events; call record_memory_history first"
    );
}

pub(super) fn log_peaks_not_reset(inner: &Inner, error: &DeviceError) {
    tracing::warn!(
        target: "memtrack::allocator",
        {
            mem.device = inner.device.name(),
            error = %error,
        },
        "the device did not reset its pool's high marks"
    );
}

pub(super) fn log_no_history_with_backend(inner: &Inner) {
    tracing::warn!(
        target: "memtrack::snapshot",
        { mem.device = inner.device.name() },
        "nothing is recorded: the backend cudaMallocAsync has no history and no snapshot; use the backend native"
    );
}
