//! Free memory in places that are each too small, and who keeps the places apart.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::segment_fit::{
    OWN_SEGMENT_BYTES, OWN_SEGMENT_STEP_BYTES, in_whole, no_room_can_be_made, page_bytes, pages_for,
};
use super::size::{compared, size};
use super::sums::{is_at_most_one_in, total};
use super::view::{AllocatorView, BlockView, Request, SegmentView};
use crate::history::BlockStatus;
use crate::stats::PoolKind;
use crate::units::MIB;

/// So many holes, or segments, are listed.
const LISTED_COUNT: usize = 6;
/// A segment is pinned when no more of it than one part in so many is in use.
const PINNED_PART: u64 = 10;

fn is_live(block: &BlockView) -> bool {
    block.status != BlockStatus::Inactive
}

/// Segments that a request can be served from.
fn serving<'a>(view: &'a AllocatorView, request: &'a Request) -> impl Iterator<Item = &'a SegmentView> {
    view.segments.iter().filter(|segment| {
        let (stream, pool, private_pool) = (segment.stream, segment.pool, segment.private_pool);
        (stream, pool, private_pool) == (request.stream, request.pool, request.private_pool)
    })
}

/// Enough is free for the request, but in places that are each too small.
///
/// Places are the holes of segments that also hold live blocks and serve the request's stream and pool, and what the device or the
/// limit has left. Segments that are wholly free count as left too, where they can be given back.
pub fn fragmentation(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let mut holes: Vec<u64> =
        serving(view, request).filter(|segment| !view.may_go_back(segment)).flat_map(SegmentView::holes).collect();
    holes.sort_by_key(|bytes| Reverse(*bytes));
    let unused_inside_bytes = total(holes.iter().copied());
    let largest_hole_bytes = holes.first().copied().unwrap_or(0);
    let room_bytes = view.room_bytes().saturating_add(view.whole_segment_bytes());
    let needed_bytes = request.rounded_bytes;
    let largest_place_bytes = largest_hole_bytes.max(room_bytes);
    if holes.is_empty()
        || largest_place_bytes >= needed_bytes
        || unused_inside_bytes.saturating_add(room_bytes) < needed_bytes
    {
        return None;
    }
    let expandable_segments = view.settings.expandable_segments;
    let short_bytes = needed_bytes - largest_place_bytes;
    let numbers = Numbers::Fragmentation {
        requested_bytes: request.requested_bytes,
        allocated_bytes: view.allocated_bytes,
        reserved_bytes: view.reserved_bytes,
        unused_inside_bytes,
        hole_count: holes.len() as u64,
        largest_hole_bytes,
        room_bytes,
        short_bytes,
        hole_short_bytes: needed_bytes - largest_hole_bytes,
        expandable_segments,
    };
    let [asked, largest_place] = compared([request.requested_bytes, largest_place_bytes]);
    let headline = format!(
        "{} unused inside segments plus {} outside would do for {asked}, but the largest single place is {largest_place}, {} short",
        size(unused_inside_bytes),
        size(room_bytes),
        size(short_bytes)
    );
    let shares = format!(
        "{:.1} % of reserved memory is in use; 1 - largest/free = {:.1} %; the best hole is {} short",
        percent(view.allocated_bytes, view.reserved_bytes),
        100.0 - percent(largest_hole_bytes, unused_inside_bytes),
        size(needed_bytes - largest_hole_bytes)
    );
    let evidence =
        std::iter::once(shares).chain(std::iter::once(show_holes(&holes))).chain(pinning_lines(view, request));
    let advice = cures(view, request, &holes, short_bytes);
    Some(Finding::new(Severity::Cause, numbers, headline).evidence(evidence).advice(advice))
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

/// As `6 holes of 945.00 MiB`, equal ones together.
fn show_holes(holes: &[u64]) -> String {
    let mut by_size: BTreeMap<Reverse<u64>, u64> = BTreeMap::new();
    for bytes in holes {
        *by_size.entry(Reverse(*bytes)).or_default() += 1;
    }
    let shown = by_size.iter().take(LISTED_COUNT).map(|(Reverse(bytes), count)| {
        let holes = if *count == 1 { "hole" } else { "holes" };
        format!("{count} {holes} of {}", size(*bytes))
    });
    let mut shown: Vec<String> = shown.collect();
    if by_size.len() > LISTED_COUNT {
        shown.push(format!("{} more sizes", by_size.len() - LISTED_COUNT));
    }
    shown.join(", ")
}

/// Who keeps the segments with the most free bytes.
fn pinning_lines(view: &AllocatorView, request: &Request) -> Vec<String> {
    let mut segments: Vec<&SegmentView> =
        serving(view, request).filter(|segment| !segment.is_idle() && segment.idle_bytes() > 0).collect();
    segments.sort_by_key(|segment| Reverse(segment.idle_bytes()));
    segments.into_iter().take(LISTED_COUNT).map(|segment| pinning_line(view, segment)).collect()
}

fn pinning_line(view: &AllocatorView, segment: &SegmentView) -> String {
    let live: Vec<&BlockView> = segment.blocks.iter().filter(|block| is_live(block)).collect();
    let live_bytes = total(live.iter().map(|block| block.size_bytes));
    let blocks = if live.len() == 1 { "block" } else { "blocks" };
    let [idle, whole] = compared([segment.idle_bytes(), segment.size_bytes()]);
    let mut line =
        format!("{idle} free in a segment of {whole}, kept by {} in {} {blocks}", size(live_bytes), live.len());
    if let Some(group) = live
        .iter()
        .max_by_key(|block| block.size_bytes)
        .and_then(|block| view.live.get(block.group? as usize))
        .filter(|group| !group.place.is_empty())
    {
        line.push_str(&format!(", allocated at {}", group.place));
        if !group.scope.is_empty() {
            line.push_str(&format!(" in {}", group.scope));
        }
    }
    line
}

/// What whole pages of expandable segments would give of a hole, wherever in a page it begins.
fn whole_page_bytes(view: &AllocatorView, pool: PoolKind, hole_bytes: u64) -> u64 {
    let page_bytes = page_bytes(view, pool);
    (hole_bytes / page_bytes).saturating_sub(1).saturating_mul(page_bytes)
}

/// What may avoid it, less what is done already. Settings that change where blocks come to lie have to be there from the start, and
/// nobody knows what a program comes to with them: they are possibilities, named only where the figures do not speak against them.
fn cures(view: &AllocatorView, request: &Request, holes: &[u64], short_bytes: u64) -> Vec<String> {
    let settings = &view.settings;
    let mut cures = Vec::new();
    let page_bytes = total(holes.iter().map(|bytes| whole_page_bytes(view, request.pool, *bytes)));
    let room_bytes = view.room_bytes().saturating_add(view.whole_segment_bytes());
    // A limit is asked about no less than the segment.
    let needed_bytes = pages_for(view, request).max(if view.limit_bytes.is_some() { request.segment_bytes } else { 0 });
    let pages_would_do = page_bytes.saturating_add(room_bytes) >= needed_bytes;
    if !settings.expandable_segments && settings.expandable_possible && pages_would_do {
        cures.push(format!(
            "set expandable_segments:True before the program starts: free pages of partly used segments, at least {} of these holes, can \
             then be reused for any size, which may help",
            size(page_bytes)
        ));
    }
    let smallest_cut_bytes = serving(view, request)
        .filter(|segment| !segment.is_expandable && !segment.is_idle() && segment.idle_bytes() > 0)
        .map(SegmentView::size_bytes)
        .filter(|bytes| *bytes > settings.large_segment_size_bytes)
        .min();
    if let Some(limit_mib) = smallest_cut_bytes.map(|bytes| bytes / MIB)
        && settings.max_split_size_bytes.is_none_or(|bytes| bytes / MIB > limit_mib)
        && uncut_would_do(view, request, limit_mib.saturating_mul(MIB))
    {
        cures.push(format!(
            "set max_split_size_mb:{limit_mib} or less, down to {}, before the program starts: segments of that size are then not cut for \
             smaller requests, which open segments of their own; it may help",
            settings.large_segment_size_bytes / MIB
        ));
    }
    if cures.is_empty() {
        // All of it is in force: what is left is to need less.
        cures.push(no_room_can_be_made(view, request).unwrap_or_else(|| {
            let short = size(short_bytes);
            format!("live memory is what is left to change: free at least {short} more, or make the batch smaller")
        }));
    } else {
        cures.push("or allocate what lives long before what comes and goes".to_owned());
    }
    cures
}

/// Whether there would be room if segments of the limit or more had not been cut for the smaller blocks that live in them now: these have
/// segments of their own then.
fn uncut_would_do(view: &AllocatorView, request: &Request, limit_bytes: u64) -> bool {
    let (mut freed_bytes, mut largest_freed_bytes) = (0_u64, 0);
    let (mut shared_bytes, mut own_bytes) = (0_u64, 0_u64);
    let cut = serving(view, request).filter(|segment| {
        !segment.is_expandable
            && !segment.is_idle()
            && segment.size_bytes() >= limit_bytes
            && segment.blocks.iter().filter(|block| is_live(block)).all(|block| block.size_bytes < limit_bytes)
    });
    for segment in cut {
        freed_bytes = freed_bytes.saturating_add(segment.size_bytes());
        largest_freed_bytes = largest_freed_bytes.max(segment.size_bytes());
        for block in segment.blocks.iter().filter(|block| is_live(block)) {
            let of = if block.size_bytes < OWN_SEGMENT_BYTES { &mut shared_bytes } else { &mut own_bytes };
            let bytes = if block.size_bytes < OWN_SEGMENT_BYTES {
                block.size_bytes
            } else {
                in_whole(block.size_bytes, OWN_SEGMENT_STEP_BYTES)
            };
            *of = of.saturating_add(bytes);
        }
    }
    let opened_bytes = in_whole(shared_bytes, page_bytes(view, request.pool)).saturating_add(own_bytes);
    let room_bytes = view.room_bytes().saturating_add(view.whole_segment_bytes());
    let left_bytes = room_bytes.saturating_add(freed_bytes).saturating_sub(opened_bytes);
    left_bytes >= request.segment_bytes || (largest_freed_bytes >= request.rounded_bytes && room_bytes >= opened_bytes)
}

/// A free block is large enough, and `max_split_size_mb` keeps it from the request: blocks of that size or more are neither cut nor
/// handed to smaller requests, nor to ones that are much smaller than the block.
pub(super) fn split_limit_refuses(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let max_split_size_bytes = view.settings.max_split_size_bytes?;
    let needed_bytes = request.rounded_bytes;
    let would_do = serving(view, request).flat_map(SegmentView::holes).filter(|bytes| *bytes >= needed_bytes);
    let block_bytes = would_do.min()?;
    let is_smaller = needed_bytes < max_split_size_bytes;
    // A block that may be cut would have served it.
    if is_smaller && block_bytes < max_split_size_bytes {
        return None;
    }
    let numbers = Numbers::SplitLimitRefuses {
        requested_bytes: request.requested_bytes,
        block_bytes,
        max_split_size_bytes,
        room_bytes: view.room_bytes(),
    };
    let [block, asked, limit] = compared([block_bytes, request.requested_bytes, max_split_size_bytes]);
    let headline =
        format!("a block of {block} is free and would do for {asked}, but the split limit of {limit} forbids it");
    let (why, setting) = if is_smaller {
        let least_mib = block_bytes / MIB + 1;
        (
            "blocks of the limit or more serve no smaller request",
            format!(
                "set max_split_size_mb to {least_mib} or more (it is {}), or leave it out",
                max_split_size_bytes / MIB
            ),
        )
    } else {
        (
            "blocks of the limit or more are not cut, and serve no request that leaves much of them over",
            format!(
                "set max_non_split_rounding_mb to {} or more, or leave max_split_size_mb out",
                (block_bytes - needed_bytes) / MIB + 1
            ),
        )
    };
    let free = "or ask for the block's size: what is free is reused only whole".to_owned();
    Some(Finding::new(Severity::Cause, numbers, headline).evidence([why.to_owned()]).advice([setting, free]))
}

/// Segments with much free memory that few live bytes keep from going back: at most a tenth of the segment is in use, and what is
/// free in it is at least `least_idle_bytes`. Those with the most free bytes first, six at most.
pub fn pinned_segments(view: &AllocatorView, least_idle_bytes: u64, severity: Severity) -> Vec<Finding> {
    let pinned = |segment: &&SegmentView| {
        let (total_bytes, idle_bytes) = (segment.size_bytes(), segment.idle_bytes());
        !segment.is_idle()
            && !segment.is_expandable
            && idle_bytes >= least_idle_bytes.max(1)
            && is_at_most_one_in(PINNED_PART, total_bytes - idle_bytes, total_bytes)
    };
    let mut segments: Vec<&SegmentView> = view.segments.iter().filter(pinned).collect();
    segments.sort_by_key(|segment| Reverse(segment.idle_bytes()));
    segments.into_iter().take(LISTED_COUNT).map(|segment| pinned_segment(view, segment, severity)).collect()
}

fn pinned_segment(view: &AllocatorView, segment: &SegmentView, severity: Severity) -> Finding {
    let (segment_bytes, idle_bytes) = (segment.size_bytes(), segment.idle_bytes());
    let pinning_bytes = segment_bytes - idle_bytes;
    let pinning_block_count = segment.blocks.iter().filter(|block| is_live(block)).count() as u64;
    let room_bytes = view.room_bytes();
    let numbers = Numbers::PinnedSegment {
        segment_bytes,
        idle_bytes,
        pinning_bytes,
        pinning_block_count,
        room_bytes,
        stream: segment.stream,
    };
    let by = match pinning_block_count {
        1 => format!("one block of {}", size(pinning_bytes)),
        count => format!("{count} blocks of {} together", size(pinning_bytes)),
    };
    let [idle, whole] = compared([idle_bytes, segment_bytes]);
    let headline = format!(
        "{idle} idle inside a segment of {whole} and {} outside cannot come together: the segment is pinned by {by}",
        size(room_bytes)
    );
    let mut advice = vec![format!("free {by} for {} to go back", size(segment_bytes))];
    let page_bytes = total(segment.holes().map(|bytes| whole_page_bytes(view, segment.pool, bytes)));
    if !view.settings.expandable_segments && view.settings.expandable_possible && page_bytes > 0 {
        advice.push(format!(
            "or set expandable_segments:True before the program starts: at least {} of it could then go back, which may help",
            size(page_bytes)
        ));
    } else {
        advice.push("or allocate what lives long first, before large segments are cached".to_owned());
    }
    Finding::new(severity, numbers, headline).evidence([pinning_line(view, segment)]).advice(advice)
}
