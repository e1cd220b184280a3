//! Too much for what there is, however it were arranged.

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::segment_fit::{no_room_can_be_made, opened_bytes, taken_bytes};
use super::size::{compared, size};
use super::streams::{idle_in_the_other_pool, owner_of};
use super::sums::total;
use super::view::{AllocatorView, FailedAttemptView, Request, SegmentView};
use crate::stats::PoolKind;

/// So many groups of live blocks are listed.
const LISTED_COUNT: usize = 5;

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
    let [asked, available] = compared([request.requested_bytes, available_bytes]);
    let headline = format!(
        "{} are live, and {asked} asked for is {} more than the {available} left ({} cached, {} not reserved yet)",
        size(view.allocated_bytes),
        size(short_bytes),
        size(cached_bytes),
        size(room_bytes),
    );
    let holders = view.live.iter().take(LISTED_COUNT).map(|group| format!("holds {group}"));
    let wanted_bytes = view.allocated_bytes.saturating_add(request.rounded_bytes);
    let share = short_bytes as f64 / wanted_bytes.max(1) as f64 * 100.0;
    let mut advice = vec![match no_room_can_be_made(view, request) {
        Some(never) => format!("{never}; make the batch smaller"),
        None => format!(
            "free at least {} more before this request, or make the batch smaller: it is {share:.1} % of what is live with the request",
            size(short_bytes)
        ),
    }];
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

/// Without what waits for other streams all that is cached and all that is left are less than the request.
pub(super) fn needs_pending(view: &AllocatorView, request: &Request) -> bool {
    let idle_bytes = view.idle_bytes().saturating_sub(idle_in_the_other_pool(view, request));
    view.room_bytes().saturating_add(idle_bytes) < request.rounded_bytes
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
    let [refused, free] = compared([segment_bytes, device_free_bytes]);
    let headline = format!("the device refused {refused} although it says that {free} are free");
    let advice = [
        "somebody else may have taken and returned memory meanwhile: try again".to_owned(),
        "or the device's own memory is in pieces: ask for less at once".to_owned(),
    ];
    Some(Finding::new(Severity::Cause, numbers, headline).advice(advice))
}

/// By the figures nothing is in the way: what was is gone.
pub(super) fn freed_meanwhile(view: &AllocatorView, request: &Request) -> Finding {
    let own = (request.private_pool, request.stream, request.pool);
    let usable = view.segments.iter().filter(|segment| owner_of(segment) == own).flat_map(SegmentView::holes);
    let (idle_bytes, largest_usable_bytes, room_bytes) =
        (view.idle_bytes(), usable.max().unwrap_or(0), view.room_bytes());
    let numbers = Numbers::FreedMeanwhile {
        requested_bytes: request.requested_bytes,
        idle_bytes,
        largest_usable_bytes,
        room_bytes,
    };
    let [asked, idle, usable, room] = compared([request.requested_bytes, idle_bytes, largest_usable_bytes, room_bytes]);
    let fits_now = largest_usable_bytes >= request.rounded_bytes || room_bytes >= taken_bytes(view, request);
    let or_else = if fits_now { "" } else { ", or what is idle is in pieces" };
    let headline = format!(
        "{asked} was refused, and the figures taken just after show nothing that forbids it: {idle} idle, the largest free block for it \
         {usable}, {room} not reserved; other threads or processes gave memory back meanwhile{or_else}"
    );
    let advice = "try again; where it happens often, let threads take turns at their peaks".to_owned();
    Finding::new(Severity::Note, numbers, headline).advice([advice])
}

/// What a failed attempt allocated keeps memory from the next one.
pub(super) fn failed_attempts_alive(view: &AllocatorView) -> Vec<Finding> {
    view.failed_attempts.iter().filter(|attempt| !attempt.alive.is_empty()).map(failed_attempt_alive).collect()
}

fn failed_attempt_alive(attempt: &FailedAttemptView) -> Finding {
    let alive_bytes = total(attempt.alive.iter().map(|group| group.requested_bytes));
    let alive_block_count = total(attempt.alive.iter().map(|group| group.block_count));
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
