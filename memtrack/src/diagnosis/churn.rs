//! Memory that is reserved and not lost: growing batches, retries, rounding, a large cache.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::size::{compared, size};
use super::sums::{is_at_most_one_in, total};
use super::view::{AllocatorView, SegmentView};
use crate::stats::PoolKind;
use crate::units::MIB;

/// So many sizes of idle segments are a series.
const LEAST_SIZE_COUNT: usize = 4;
/// Fewer idle bytes are no large cache.
const LEAST_IDLE_BYTES: u64 = 256 * MIB;
/// Less lost to rounding is nothing to speak of.
const LEAST_ROUNDING_BYTES: u64 = MIB;

/// Segments of four sizes or more are idle, or nine tenths of each, and together more than twice the largest: each size was
/// used once and missed by the next. Not a leak.
pub fn growing_sizes(view: &AllocatorView) -> Option<Finding> {
    let nearly_idle = |segment: &&SegmentView| {
        let bytes = segment.size_bytes();
        segment.pool == PoolKind::Large
            && !segment.is_expandable
            && bytes > view.settings.large_segment_size_bytes
            && is_at_most_one_in(10, bytes - segment.idle_bytes(), bytes)
    };
    let segments: Vec<&SegmentView> = view.segments.iter().filter(nearly_idle).collect();
    let sizes: BTreeSet<u64> = segments.iter().map(|segment| segment.size_bytes()).collect();
    let largest_segment_bytes = sizes.last().copied()?;
    let idle_segment_bytes = total(segments.iter().map(|segment| segment.size_bytes()));
    if sizes.len() < LEAST_SIZE_COUNT || idle_segment_bytes <= largest_segment_bytes.saturating_mul(2) {
        return None;
    }
    let expandable_segments = view.settings.expandable_segments;
    let numbers = Numbers::GrowingSizes {
        idle_segment_count: segments.len() as u64,
        size_count: sizes.len() as u64,
        idle_segment_bytes,
        largest_segment_bytes,
        allocated_bytes: view.allocated_bytes,
        expandable_segments,
    };
    let headline = format!(
        "not a leak: {} idle segments of {} sizes, {} together, from requests that grow; {} is allocated",
        segments.len(),
        sizes.len(),
        size(idle_segment_bytes),
        size(view.allocated_bytes)
    );
    let smallest_bytes = sizes.first().copied().unwrap_or(0);
    let evidence = format!("sizes from {} to {}", size(smallest_bytes), size(largest_segment_bytes));
    let mut advice =
        vec![format!("run the largest batch first: {} then serve all of them", size(largest_segment_bytes))];
    if !expandable_segments && view.settings.expandable_possible {
        advice.insert(0, "set expandable_segments:True".to_owned());
    }
    Some(Finding::new(Severity::Warning, numbers, headline).evidence([evidence]).advice(advice))
}

/// Three retries or more, and at least one in every two steps; with no steps, three retries or more.
///
/// What a retry costs is the way of all cached segments to the device and back, and a wait for every stream that freed blocks wait for.
pub fn retries_every_step(step_count: u64, retry_count: u64, reserved_bytes: u64, limit_bytes: u64) -> Option<Finding> {
    if retry_count < 3 || retry_count.saturating_mul(2) < step_count {
        return None;
    }
    let numbers = Numbers::RetriesEveryStep { step_count, retry_count, reserved_bytes, limit_bytes };
    let steps = match step_count {
        0 => String::new(),
        1 => " in 1 step".to_owned(),
        _ => format!(" in {step_count} steps"),
    };
    let [reserved, limit] = compared([reserved_bytes, limit_bytes]);
    let headline = format!(
        "{retry_count} retries{steps}: the cache is given back and taken again, with {reserved} of {limit} reserved"
    );
    let advice = [
        "make the batch slightly smaller, or free what is not needed in the step's peak".to_owned(),
        "or set garbage_collection_threshold below 1 with a memory fraction, so that single segments go back instead of all".to_owned(),
    ];
    Some(Finding::new(Severity::Warning, numbers, headline).advice(advice))
}

/// Blocks are at least twice what was asked for, and a MiB or more is lost so.
pub fn rounding_overhead(view: &AllocatorView) -> Option<Finding> {
    let requested_bytes = total(view.live.iter().map(|group| group.requested_bytes));
    let allocated_bytes = total(view.live.iter().map(|group| group.size_bytes));
    let block_count = total(view.live.iter().map(|group| group.block_count));
    let lost_bytes = allocated_bytes.saturating_sub(requested_bytes);
    if lost_bytes < LEAST_ROUNDING_BYTES || lost_bytes < requested_bytes {
        return None;
    }
    let factor = allocated_bytes / requested_bytes.max(1);
    let numbers = Numbers::RoundingOverhead { requested_bytes, allocated_bytes, block_count };
    let headline = format!(
        "{block_count} blocks of {} asked for take {}, {factor} times as much: the smallest block is 512 B",
        size(requested_bytes),
        size(allocated_bytes)
    );
    let mut worst: Vec<_> = view.live.iter().collect();
    worst.sort_by_key(|group| Reverse(group.size_bytes.saturating_sub(group.requested_bytes)));
    let evidence = worst.first().map(|group| format!("{group}, taking {}", size(group.size_bytes)));
    let advice = "keep small values in one buffer, or on the host".to_owned();
    Some(Finding::new(Severity::Note, numbers, headline).evidence(evidence).advice([advice]))
}

/// Reserved is at least twice what is allocated, and 256 MiB or more above it.
pub fn idle_cache(view: &AllocatorView) -> Option<Finding> {
    let idle_bytes = view.reserved_bytes.saturating_sub(view.allocated_bytes);
    if idle_bytes < LEAST_IDLE_BYTES || view.reserved_bytes < view.allocated_bytes.saturating_mul(2) {
        return None;
    }
    let returnable_bytes = view.returnable_bytes();
    let numbers = Numbers::IdleCache {
        reserved_bytes: view.reserved_bytes,
        allocated_bytes: view.allocated_bytes,
        returnable_bytes,
    };
    let headline = format!(
        "{} is reserved and {} allocated: {} of the cache is in {} wholly free",
        size(view.reserved_bytes),
        size(view.allocated_bytes),
        size(returnable_bytes),
        if view.free_page_bytes == 0 { "segments" } else { "segments or pages" }
    );
    let advice = format!(
        "nothing has to be done: the cache serves the next peak, and goes back by itself when memory runs short; for others on the \
         device, emptying it frees up to {}",
        size(returnable_bytes)
    );
    Some(Finding::new(Severity::Note, numbers, headline).advice([advice]))
}
