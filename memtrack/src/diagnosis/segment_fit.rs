//! A request that fits, and the segment, or the whole pages, that the settings make of it, which does not.

use std::collections::BTreeMap;

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::size::{compared, size};
use super::streams::owner_of;
use super::view::{AllocatorView, Request, SegmentView};
use crate::stats::PoolKind;
use crate::units::MIB;

/// The page of expandable segments of small blocks.
const SMALL_PAGE_BYTES: u64 = 2 * MIB;
/// Requests of the large pool from here on open a segment of their own size, in steps of 2 MiB.
pub(super) const OWN_SEGMENT_BYTES: u64 = 10 * MIB;
pub(super) const OWN_SEGMENT_STEP_BYTES: u64 = 2 * MIB;
/// `large_segment_size_mb` has to be more than 10.
const LEAST_SETTING_MIB: u64 = 11;
/// No page larger than this is looked for.
const LARGEST_PAGE_MIB: u64 = 1024;

/// The page of expandable segments of a pool.
pub(super) fn page_bytes(view: &AllocatorView, pool: PoolKind) -> u64 {
    match pool {
        PoolKind::Small => SMALL_PAGE_BYTES,
        PoolKind::Large => view.settings.large_segment_size_bytes.max(1),
    }
}

/// What a request takes from the device: its segment, or whole pages.
pub(super) fn opened_bytes(view: &AllocatorView, request: &Request) -> u64 {
    if !view.settings.expandable_segments {
        return request.segment_bytes;
    }
    pages_for(view, request)
}

/// The whole pages that the request takes where segments are expandable.
pub(super) fn pages_for(view: &AllocatorView, request: &Request) -> u64 {
    in_whole(request.rounded_bytes, page_bytes(view, request.pool))
}

pub(super) fn in_whole(bytes: u64, page_bytes: u64) -> u64 {
    bytes.div_ceil(page_bytes).saturating_mul(page_bytes)
}

/// What has to be allowed for a request: what it takes, and no less than the segment that the limit is checked against.
pub(super) fn taken_bytes(view: &AllocatorView, request: &Request) -> u64 {
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
    let [asked, room, segment] = compared([requested_bytes, room_bytes, segment_bytes]);
    let headline = format!("there is room for {asked} ({room} left) but not for the {what} of {segment} that it opens");
    let setting =
        if view.settings.expandable_segments { smaller_pages(view, request) } else { smaller_segments(view, request) };
    let free = no_room_can_be_made(view, request)
        .unwrap_or_else(|| format!("free at least {} earlier", size(segment_bytes - room_bytes)));
    let advice = setting.into_iter().chain(smaller_request(view, request)).chain([free]);
    Some(Finding::new(Severity::Cause, numbers, headline).advice(advice))
}

/// Says so where freeing all there is would not make room for what the request opens, and what could serve it instead, if anything.
pub(super) fn no_room_can_be_made(view: &AllocatorView, request: &Request) -> Option<String> {
    let ours_bytes = view.device_total_bytes.saturating_sub(view.outside_bytes().unwrap_or(0));
    let limit_bytes = view.limit_bytes.unwrap_or(u64::MAX);
    // The limit is asked about the segment, also where pages are mapped instead.
    let (needed_bytes, most_bytes) = if opened_bytes(view, request) > ours_bytes {
        (opened_bytes(view, request), ours_bytes)
    } else if request.segment_bytes > limit_bytes {
        (request.segment_bytes, limit_bytes)
    } else {
        return None;
    };
    let what = if view.settings.expandable_segments { "whole pages" } else { "a segment" };
    let [needed, most] = compared([needed_bytes, most_bytes]);
    let never = format!("freeing cannot make room for {what} of {needed}: {most} may be reserved at most");
    let serves = |segment: &SegmentView| {
        owner_of(segment) == (request.private_pool, request.stream, request.pool)
            && !segment.is_expandable
            && segment.size_bytes() >= request.rounded_bytes
    };
    if view.segments.iter().any(serves) {
        return Some(format!(
            "{never}; only a free block of {} in a segment that is there already could serve the request",
            size(request.rounded_bytes)
        ));
    }
    Some(never)
}

/// The largest request whose own segment fits into what is left now.
fn smaller_request(view: &AllocatorView, request: &Request) -> Option<String> {
    let most_bytes = view.room_bytes() / OWN_SEGMENT_STEP_BYTES * OWN_SEGMENT_STEP_BYTES;
    let opens_its_own = request.pool == PoolKind::Large && request.rounded_bytes >= OWN_SEGMENT_BYTES;
    (opens_its_own && !view.settings.expandable_segments && most_bytes >= OWN_SEGMENT_BYTES)
        .then(|| format!("ask for {} at most, whose segment fits into what is left now", size(most_bytes)))
}

/// The settings under which the request's segment fits into what is left now. Only requests of more than 1 MiB and less than 10
/// get the segment that is a setting. What a program that has it from the start comes to, nobody knows: it may open more segments.
fn smaller_segments(view: &AllocatorView, request: &Request) -> Option<String> {
    let is_a_setting = request.pool == PoolKind::Large
        && request.rounded_bytes < OWN_SEGMENT_BYTES
        && request.segment_bytes == view.settings.large_segment_size_bytes;
    let most_mib = view.room_bytes() / MIB;
    if !is_a_setting || most_mib < LEAST_SETTING_MIB {
        return None;
    }
    let or_more =
        if most_mib > LEAST_SETTING_MIB { format!(", or to anything up to {most_mib}") } else { String::new() };
    Some(format!(
        "set large_segment_size_mb to {LEAST_SETTING_MIB}{or_more} (it is {}): such a segment fits now; set from the start it may help",
        view.settings.large_segment_size_bytes / MIB
    ))
}

/// The largest smaller page with which what is mapped now and the request would fit. Whether the program comes here with it depends on
/// what was live before. Pages are in steps of 2 MiB, as devices have them.
fn smaller_pages(view: &AllocatorView, request: &Request) -> Option<String> {
    let now_mib = view.settings.large_segment_size_bytes / MIB;
    if request.pool != PoolKind::Large {
        return None;
    }
    let largest_mib = now_mib.saturating_sub(1).min(LARGEST_PAGE_MIB) & !1;
    let fitting = (LEAST_SETTING_MIB..=largest_mib).rev().filter(|mib| mib % 2 == 0);
    let fitting = fitting.map(|mib| mib * MIB).find(|bytes| would_fit(view, request, *bytes))?;
    Some(format!(
        "set large_segment_size_mb to {} (it is {now_mib}) before the program starts: what is mapped now and the request would fit, so \
         it may help",
        fitting / MIB
    ))
}

/// Whether what is mapped and the request would fit with another page. Mapped ranges are counted with the pages that they could
/// touch at most, and the request with pages of its own.
fn would_fit(view: &AllocatorView, request: &Request, page_bytes: u64) -> bool {
    let mut ranges: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    let mut mapped_bytes = 0_u64;
    for segment in view.segments.iter().filter(|segment| segment.is_expandable && segment.pool == PoolKind::Large) {
        let bytes = segment.size_bytes();
        mapped_bytes = mapped_bytes.saturating_add(bytes);
        let (count, needed_bytes) = ranges.entry(owner_of(segment)).or_default();
        *count += 1;
        *needed_bytes = needed_bytes.saturating_add(in_whole(bytes, page_bytes));
    }
    // The only range of a stream begins with a page; others may begin anywhere in one.
    let needed_bytes = ranges.values().fold(0_u64, |sum, (count, bytes)| {
        let more = if *count > 1 { count.saturating_mul(page_bytes) } else { 0 };
        sum.saturating_add(*bytes).saturating_add(more)
    });
    let room_bytes = view.room_bytes().saturating_add(mapped_bytes).saturating_sub(needed_bytes);
    let checked_bytes = match view.limit_bytes {
        None => 0,
        Some(_) if request.rounded_bytes < OWN_SEGMENT_BYTES => page_bytes,
        Some(_) => in_whole(request.rounded_bytes, OWN_SEGMENT_STEP_BYTES),
    };
    in_whole(request.rounded_bytes, page_bytes).max(checked_bytes) <= room_bytes
}
