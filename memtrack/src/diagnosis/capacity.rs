//! Too much for the device or for the limit, however it were arranged.

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::size::size;
use super::streams::idle_in_the_other_pool;
use super::view::{AllocatorView, FailedAttemptView, Request};
use crate::stats::PoolKind;
use crate::units::MIB;

/// The page of expandable segments of small blocks.
const SMALL_PAGE_BYTES: u64 = 2 * MIB;
/// So many groups of live blocks are listed.
const LISTED_COUNT: usize = 5;

/// The request alone is more than may ever be reserved.
pub(super) fn request_never_fits(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let capacity_bytes = view.capacity_bytes();
    let short_bytes = request.rounded_bytes.checked_sub(capacity_bytes).filter(|bytes| *bytes > 0)?;
    let requested_bytes = request.requested_bytes;
    let limited = view.limit_bytes.is_some_and(|limit| limit < view.device_total_bytes);
    let what = if limited { "the memory fraction allows in all" } else { "the device has" };
    let numbers = Numbers::RequestNeverFits { requested_bytes, capacity_bytes, short_bytes };
    let headline = format!(
        "{} asked for is {} more than the {} that {what}",
        size(requested_bytes),
        size(short_bytes),
        size(capacity_bytes)
    );
    let fits_card = request.rounded_bytes <= view.device_total_bytes;
    let raise = (limited && fits_card).then(|| format!("raise the memory fraction{}", fraction_for(view, request)));
    let shrink = format!(
        "no freeing can help: split the request, or make it at most {:.1} % of its size",
        capacity_bytes as f64 / request.rounded_bytes as f64 * 100.0
    );
    Some(Finding::new(Severity::Cause, numbers, headline).advice(raise).advice([shrink]))
}

/// The least fraction under which the request would fit beside what is reserved, as ` to at least 0.813`.
fn fraction_for(view: &AllocatorView, request: &Request) -> String {
    let needed_bytes = view.reserved_bytes.saturating_add(taken_bytes(view, request));
    if view.device_total_bytes == 0 || needed_bytes > view.device_total_bytes {
        return String::new();
    }
    let thousandths = (u128::from(needed_bytes) * 1000).div_ceil(u128::from(view.device_total_bytes));
    format!(" to at least {}.{:03}", thousandths / 1000, thousandths % 1000)
}

/// The limit refused what the card had room for.
pub(super) fn limit_refuses(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let limit_bytes = view.limit_bytes.filter(|_| request.by_limit)?;
    let segment_bytes = taken_bytes(view, request);
    let card_has_room = view.device_free_bytes.is_some_and(|free_bytes| free_bytes >= segment_bytes);
    if !card_has_room {
        return None;
    }
    let needed_limit_bytes = view.reserved_bytes.saturating_add(segment_bytes);
    let numbers = Numbers::LimitRefuses {
        requested_bytes: request.requested_bytes,
        segment_bytes,
        limit_bytes,
        reserved_bytes: view.reserved_bytes,
        device_free_bytes: view.device_free_bytes,
        needed_limit_bytes,
    };
    let headline = format!(
        "the memory fraction refuses, not the card: {} reserved and {} of {} are more than the {} allowed, while {} of the device is \
         free",
        size(view.reserved_bytes),
        if view.settings.expandable_segments { "pages" } else { "a segment" },
        size(segment_bytes),
        size(limit_bytes),
        size(view.device_free_bytes.unwrap_or(0)),
    );
    let advice =
        format!("raise the memory fraction{}, which allows {}", fraction_for(view, request), size(needed_limit_bytes));
    Some(Finding::new(Severity::Cause, numbers, headline).advice([advice]))
}

/// What is free for the request's stream or others, together with what can be taken, is less than the request. What is idle in segments
/// of the other pool of the same stream can serve it as little as what is live.
pub(super) fn live_memory_too_large(view: &AllocatorView, request: &Request) -> Option<Finding> {
    // What waits for other streams was waited for before the request failed; while a graph is captured it cannot be.
    let other_pool_bytes = idle_in_the_other_pool(view, request);
    let cached_bytes = view.reserved_bytes.saturating_sub(view.allocated_bytes).saturating_sub(other_pool_bytes);
    let room_bytes = view.room_bytes();
    let available_bytes = room_bytes.saturating_add(cached_bytes);
    let short_bytes = request.rounded_bytes.checked_sub(available_bytes).filter(|bytes| *bytes > 0)?;
    let numbers = Numbers::LiveMemoryTooLarge {
        requested_bytes: request.requested_bytes,
        allocated_bytes: view.allocated_bytes,
        cached_bytes,
        room_bytes,
        short_bytes,
    };
    let headline = format!(
        "{} are live, and {} asked for is {} more than the {} left ({} cached, {} not reserved yet)",
        size(view.allocated_bytes),
        size(request.requested_bytes),
        size(short_bytes),
        size(available_bytes),
        size(cached_bytes),
        size(room_bytes),
    );
    let holders = view.live.iter().take(LISTED_COUNT).map(|group| format!("holds {group}"));
    let wanted_bytes = view.allocated_bytes.saturating_add(request.rounded_bytes);
    let share = short_bytes as f64 / wanted_bytes.max(1) as f64 * 100.0;
    let mut advice = vec![format!(
        "free {} more before this request, or make the batch smaller: it is {share:.1} % of what is live with the request",
        size(short_bytes)
    )];
    if cached_bytes == 0 && other_pool_bytes == 0 {
        advice.push("emptying the cache cannot help: nothing is cached".to_owned());
    }
    let other_pool = (other_pool_bytes > 0).then(|| {
        let (idle_in, refused) = match request.pool {
            PoolKind::Small => ("large", "small"),
            PoolKind::Large => ("small", "large"),
        };
        format!(
            "{} more are idle in segments of {idle_in} requests that are partly in use; they never serve {refused} ones",
            size(other_pool_bytes)
        )
    });
    Some(Finding::new(Severity::Cause, numbers, headline).evidence(holders).evidence(other_pool).advice(advice))
}

/// What a request takes from the device: its segment, or whole pages.
fn opened_bytes(view: &AllocatorView, request: &Request) -> u64 {
    if !view.settings.expandable_segments {
        return request.segment_bytes;
    }
    let page_bytes = match request.pool {
        PoolKind::Small => SMALL_PAGE_BYTES,
        PoolKind::Large => view.settings.large_segment_size_bytes.max(1),
    };
    request.rounded_bytes.div_ceil(page_bytes).saturating_mul(page_bytes)
}

/// What has to be allowed for a request: what it takes, and no less than the segment that the limit is checked against.
fn taken_bytes(view: &AllocatorView, request: &Request) -> u64 {
    opened_bytes(view, request).max(request.segment_bytes)
}

/// The request fits, the segment or the pages that the settings make of it do not.
pub(super) fn segment_too_large(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let room_bytes = view.room_bytes();
    let segment_bytes = opened_bytes(view, request);
    if request.rounded_bytes > room_bytes || room_bytes >= segment_bytes {
        return None;
    }
    let requested_bytes = request.requested_bytes;
    let numbers = Numbers::SegmentTooLarge { requested_bytes, segment_bytes, room_bytes };
    let what = if view.settings.expandable_segments { "whole pages" } else { "segment" };
    let headline = format!(
        "there is room for {} ({} left) but not for the {what} of {} that it opens",
        size(requested_bytes),
        size(room_bytes),
        size(segment_bytes)
    );
    let large_bytes = view.settings.large_segment_size_bytes;
    let least_mib = (request.rounded_bytes.div_ceil(MIB) + 1).max(12);
    let by_setting = !view.settings.expandable_segments && segment_bytes == large_bytes;
    let lower = (by_setting && request.pool == PoolKind::Large && least_mib * MIB <= room_bytes).then(|| {
        format!(
            "set large_segment_size_mb to {least_mib}, or to anything up to {} (it is {})",
            room_bytes / MIB,
            large_bytes / MIB
        )
    });
    let free = format!("free {} earlier", size(segment_bytes - room_bytes));
    Some(Finding::new(Severity::Cause, numbers, headline).advice(lower).advice([free]))
}

/// The device refused although it says that it has room.
pub(super) fn device_refuses_with_room(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let device_free_bytes = view.device_free_bytes?;
    let segment_bytes = opened_bytes(view, request);
    if request.by_limit || device_free_bytes < segment_bytes {
        return None;
    }
    let requested_bytes = request.requested_bytes;
    let numbers = Numbers::DeviceRefusesWithRoom { requested_bytes, segment_bytes, device_free_bytes };
    let headline = format!(
        "the device refused {} although it says that {} are free",
        size(segment_bytes),
        size(device_free_bytes)
    );
    let advice = [
        "somebody else may have taken and returned memory meanwhile: try again".to_owned(),
        "or the device's own memory is in pieces: ask for less at once".to_owned(),
    ];
    Some(Finding::new(Severity::Cause, numbers, headline).advice(advice))
}

/// What a failed attempt allocated keeps memory from the next one.
pub(super) fn failed_attempts_alive(view: &AllocatorView) -> Vec<Finding> {
    view.failed_attempts.iter().filter(|attempt| !attempt.alive.is_empty()).map(failed_attempt_alive).collect()
}

fn failed_attempt_alive(attempt: &FailedAttemptView) -> Finding {
    let alive_bytes = attempt.alive.iter().map(|group| group.requested_bytes).sum();
    let alive_block_count = attempt.alive.iter().map(|group| group.block_count).sum();
    let numbers = Numbers::FailedAttemptAlive {
        alive_bytes,
        alive_block_count,
        attempt_requested_bytes: attempt.requested_bytes,
    };
    let blocks = if alive_block_count == 1 { "block" } else { "blocks" };
    let headline = format!(
        "first suspect: {} in {alive_block_count} {blocks} that `{}` allocated are still live, though it ended after running out of \
         memory (for {})",
        size(alive_bytes),
        attempt.scope,
        size(attempt.requested_bytes)
    );
    let evidence = attempt.alive.iter().take(LISTED_COUNT).map(|group| format!("alive: {group}"));
    let advice = format!(
        "drop the error value, and whatever else of the failed attempt is kept, before trying again: that frees {}",
        size(alive_bytes)
    );
    Finding::new(Severity::Cause, numbers, headline).evidence(evidence).advice([advice])
}
