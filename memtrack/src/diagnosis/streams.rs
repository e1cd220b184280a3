//! Free memory that a request cannot have because of streams.

use std::collections::BTreeMap;

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::segment_fit::taken_bytes;
use super::size::{compared, size};
use super::sums::total;
use super::view::{AllocatorView, Request, SegmentView};
use crate::device::Stream;
use crate::history::BlockStatus;
use crate::stats::PoolKind;

/// Whom idle memory serves.
pub(super) type Owner = (Option<(u64, u64)>, Stream, PoolKind);

pub(super) fn owner_of(segment: &SegmentView) -> Owner {
    (segment.private_pool, segment.stream, segment.pool)
}

/// Whether it is the request's stream, in the default pools or the private pool that the request was led into.
fn is_of_stream(private_pool: Option<(u64, u64)>, stream: Stream, request: &Request) -> bool {
    private_pool == request.private_pool && stream == request.stream
}

/// What is idle for the request's own stream, in segments of the other pool: small requests have segments of their own.
pub(super) fn idle_in_the_other_pool(view: &AllocatorView, request: &Request) -> u64 {
    let of_other_pool = view.segments.iter().filter(|segment| {
        let (private_pool, stream, pool) = owner_of(segment);
        is_of_stream(private_pool, stream, request) && pool != request.pool && !view.may_go_back(segment)
    });
    total(of_other_pool.map(SegmentView::idle_bytes))
}

/// As `stream 1`, `stream 1 of memory pool (0, 2)`, `stream 1 of the default pools` to a request of a memory pool, or, where it serves the other pool, `small requests of stream 1`.
fn named(owner: Owner, request: &Request) -> String {
    let (private_pool, stream, pool) = owner;
    let of_pool = match private_pool {
        Some((major, minor)) => format!(" of memory pool ({major}, {minor})"),
        None if request.private_pool.is_some() => " of the default pools".to_owned(),
        None => String::new(),
    };
    let kind = match pool {
        _ if pool == request.pool => "",
        PoolKind::Small => "small requests of ",
        PoolKind::Large => "large requests of ",
    };
    format!("{kind}stream {}{of_pool}", stream.0)
}

/// Without what is idle for other streams and private pools the request does not fit, with it it would.
pub(super) fn idle_cache_of_another_stream(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let mut idle: BTreeMap<Owner, u64> = BTreeMap::new();
    // Segments that are wholly free were given back, or could be, whoever they served; but for those that a private pool keeps.
    for segment in view.segments.iter().filter(|segment| !view.may_go_back(segment)) {
        let bytes = idle.entry(owner_of(segment)).or_default();
        *bytes = bytes.saturating_add(segment.idle_bytes());
    }
    let own = (request.private_pool, request.stream, request.pool);
    let own_idle_bytes = idle.get(&own).copied().unwrap_or(0);
    // The other pool of the same stream is no other stream's.
    let is_own = |(private_pool, stream, _): Owner| is_of_stream(private_pool, stream, request);
    let others = || idle.iter().filter(|(owner, bytes)| !is_own(**owner) && **bytes > 0);
    let other_idle_bytes = total(others().map(|(_, bytes)| *bytes));
    let room_bytes = view.room_bytes().saturating_add(view.whole_segment_bytes());
    let own_bytes = own_idle_bytes.saturating_add(room_bytes);
    let needed_bytes = request.rounded_bytes;
    let (&largest, &largest_stream_idle_bytes) = others().max_by_key(|(_, bytes)| **bytes)?;
    // Where the own stream has enough in pieces, others matter only with one that is large enough.
    let others_segments = view.segments.iter().filter(|segment| !is_own(owner_of(segment)));
    let whole_elsewhere = others_segments.flat_map(SegmentView::holes).any(|bytes| bytes >= needed_bytes);
    let would_do = own_bytes < needed_bytes && own_bytes.saturating_add(other_idle_bytes) >= needed_bytes;
    if !(would_do || whole_elsewhere) || room_bytes >= needed_bytes {
        return None;
    }
    let numbers = Numbers::IdleCacheOfAnotherStream {
        requested_bytes: request.requested_bytes,
        stream: request.stream,
        own_idle_bytes,
        other_idle_bytes,
        largest_stream: largest.1,
        largest_stream_idle_bytes,
        room_bytes,
    };
    let owner = named(largest, request);
    let [idle_bytes, asked, own_bytes, room] =
        compared([largest_stream_idle_bytes, request.requested_bytes, own_idle_bytes, room_bytes]);
    let headline = format!(
        "{idle_bytes} is idle but belongs to {owner}, while stream {} asks for {asked} and has {own_bytes} idle ({room} not reserved yet)",
        request.stream.0,
    );
    let in_use = idle.iter().filter(|(_, bytes)| **bytes > 0);
    let evidence = in_use.map(|(owner, bytes)| format!("idle in {}: {}", named(*owner, request), size(*bytes)));
    let kept_bytes = total(
        view.segments
            .iter()
            .filter(|segment| segment.is_idle() && !view.may_go_back(segment) && owner_of(segment) == largest)
            .map(SegmentView::size_bytes),
    );
    let mut advice = Vec::new();
    if kept_bytes > 0 && largest.0.is_none() {
        advice.push(format!(
            "empty the cache before allocations are led into a memory pool: {} of it are wholly free, and stay while they are",
            size(kept_bytes)
        ));
    } else if kept_bytes > 0 {
        advice.push(format!(
            "drop the memory pool and the graphs that were captured with it: {} of it are wholly free and then go back; or make the \
             pool with use_on_oom, if no graph uses it",
            size(kept_bytes)
        ));
    }
    if kept_bytes < largest_stream_idle_bytes {
        advice.push(unpin(view, request, largest, &owner, room_bytes));
    }
    if largest.0 == request.private_pool {
        advice.push("or allocate on one stream and tell the other with record_stream".to_owned());
    }
    Some(Finding::new(Severity::Cause, numbers, headline).evidence(evidence).advice(advice))
}

/// What pins the segments of `largest` is to be freed; how far that goes. Holes in the own stream's segments count for nothing: they do
/// not come together with what the device has left.
fn unpin(view: &AllocatorView, request: &Request, largest: Owner, owner: &str, room_bytes: u64) -> String {
    let of_owner = || view.segments.iter().filter(|segment| owner_of(segment) == largest && !view.may_go_back(segment));
    let is_kept = |segment: &SegmentView| segment.is_kept || (view.default_pools_kept && largest.0.is_none());
    if of_owner().any(is_kept) {
        return format!("free what pins the segments of {owner}: they go back once nothing keeps their pool either");
    }
    let given_back_bytes = total(of_owner().map(SegmentView::size_bytes));
    let then_bytes = room_bytes.saturating_add(given_back_bytes);
    match taken_bytes(view, request).checked_sub(then_bytes) {
        None | Some(0) => {
            format!(
                "free what pins the segments of {owner}: whole segments go back to the device and serve every stream"
            )
        }
        Some(short_bytes) => format!(
            "free what pins the segments of {owner}: that gives back {} at most, and at least {} more has to be freed elsewhere",
            size(given_back_bytes),
            size(short_bytes)
        ),
    }
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
            *bytes = bytes.saturating_add(block.size_bytes);
        }
    }
    let pending_block_count = total(by_stream.values().map(|(count, _)| *count));
    let reusable_bytes = view.idle_bytes();
    let numbers = Numbers::PendingFrees {
        pending_bytes,
        pending_block_count,
        allocated_bytes: view.allocated_bytes,
        reusable_bytes,
    };
    let [reusable, cached] = compared([reusable_bytes, view.reserved_bytes.saturating_sub(view.allocated_bytes)]);
    let headline = format!(
        "{} was given back and waits for other streams: {reusable} are reusable now, not the {cached} between reserved and allocated",
        size(pending_bytes),
    );
    let evidence = by_stream
        .iter()
        .map(|(stream, (count, bytes))| format!("{count} blocks of stream {} wait, {}", stream.0, size(*bytes)));
    let advice =
        "let the stream that lags behind catch up (synchronise it), or copy to it less ahead of time".to_owned();
    Some(Finding::new(severity, numbers, headline).evidence(evidence).advice([advice]))
}
