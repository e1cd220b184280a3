//! Free memory that a request cannot have because of streams.

use std::collections::BTreeMap;

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::view::{AllocatorView, Request};
use crate::device::Stream;
use crate::history::BlockStatus;
use crate::units::Bytes;

fn size(bytes: u64) -> Bytes {
    Bytes::unsigned(bytes)
}

/// Without what is idle for other streams and pools the request does not fit, with it it would.
pub(super) fn idle_cache_of_another_stream(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let mut idle: BTreeMap<(Option<(u64, u64)>, Stream), u64> = BTreeMap::new();
    // Segments that are wholly free were given back, or could be, whoever they served.
    for segment in view.segments.iter().filter(|segment| !segment.is_idle()) {
        *idle.entry((segment.private_pool, segment.stream)).or_default() += segment.idle_bytes();
    }
    let own = (None, request.stream);
    let own_idle_bytes = idle.get(&own).copied().unwrap_or(0);
    let others = || idle.iter().filter(|(key, bytes)| **key != own && **bytes > 0);
    let other_idle_bytes: u64 = others().map(|(_, bytes)| bytes).sum();
    let room_bytes = view.room_bytes().saturating_add(view.returnable_bytes());
    let own_bytes = own_idle_bytes.saturating_add(room_bytes);
    let needed_bytes = request.rounded_bytes;
    let (&(largest_pool, largest_stream), &largest_stream_idle_bytes) = others().max_by_key(|(_, bytes)| **bytes)?;
    // Where the own stream has enough in pieces, others matter only with one that is large enough.
    let whole_elsewhere = view
        .segments
        .iter()
        .filter(|segment| (segment.private_pool, segment.stream) != own)
        .any(|segment| segment.holes().any(|bytes| bytes >= needed_bytes));
    let would_do = own_bytes < needed_bytes && own_bytes.saturating_add(other_idle_bytes) >= needed_bytes;
    if !(would_do || whole_elsewhere) {
        return None;
    }
    let numbers = Numbers::IdleCacheOfAnotherStream {
        requested_bytes: request.requested_bytes,
        stream: request.stream,
        own_idle_bytes,
        other_idle_bytes,
        largest_stream,
        largest_stream_idle_bytes,
        room_bytes,
    };
    let owner = match largest_pool {
        None => format!("stream {}", largest_stream.0),
        Some((major, minor)) => format!("stream {} of memory pool ({major}, {minor})", largest_stream.0),
    };
    let headline = format!(
        "{} is idle but belongs to {owner}, while stream {} asks for {} and has {} idle ({} not reserved yet)",
        size(largest_stream_idle_bytes),
        request.stream.0,
        size(request.requested_bytes),
        size(own_idle_bytes),
        size(room_bytes)
    );
    let evidence = idle.iter().filter(|(_, bytes)| **bytes > 0).map(|((pool, stream), bytes)| match pool {
        None => format!("idle in stream {}: {}", stream.0, size(*bytes)),
        Some((major, minor)) => {
            format!("idle in stream {} of memory pool ({major}, {minor}): {}", stream.0, size(*bytes))
        }
    });
    let advice = [
        format!("free what pins the segments of {owner}: whole segments go back to the device and serve every stream"),
        "or allocate on one stream and tell the other with record_stream".to_owned(),
    ];
    Some(Finding::new(Severity::Cause, numbers, headline).evidence(evidence).advice(advice))
}

/// At least `least_bytes` were given back and wait for other streams.
pub(super) fn pending_frees(view: &AllocatorView, least_bytes: u64, severity: Severity) -> Option<Finding> {
    let pending_bytes = view.pending_bytes();
    if pending_bytes < least_bytes.max(1) {
        return None;
    }
    let mut by_stream: BTreeMap<Stream, (u64, u64)> = BTreeMap::new();
    for segment in &view.segments {
        for block in segment.blocks.iter().filter(|block| block.status == BlockStatus::ActivePendingFree) {
            let (count, bytes) = by_stream.entry(segment.stream).or_default();
            *count += 1;
            *bytes += block.size_bytes;
        }
    }
    let pending_block_count = by_stream.values().map(|(count, _)| count).sum();
    let reusable_bytes = view.idle_bytes();
    let numbers = Numbers::PendingFrees {
        pending_bytes,
        pending_block_count,
        allocated_bytes: view.allocated_bytes,
        reusable_bytes,
    };
    let headline = format!(
        "{} was given back and waits for other streams: {} are reusable now, not the {} between reserved and allocated",
        size(pending_bytes),
        size(reusable_bytes),
        size(view.reserved_bytes.saturating_sub(view.allocated_bytes))
    );
    let evidence = by_stream
        .iter()
        .map(|(stream, (count, bytes))| format!("{count} blocks of stream {} wait, {}", stream.0, size(*bytes)));
    let advice =
        "let the stream that lags behind catch up (synchronise it), or copy to it less ahead of time".to_owned();
    Some(Finding::new(severity, numbers, headline).evidence(evidence).advice([advice]))
}
