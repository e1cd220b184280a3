//! Requests that the allocator's own limit, the memory fraction, keeps from memory that the card has.

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::segment_fit::taken_bytes;
use super::size::{compared, size};
use super::view::{AllocatorView, Request};

/// The request alone is more than may ever be reserved.
pub(super) fn request_never_fits(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let capacity_bytes = view.capacity_bytes();
    let short_bytes = request.rounded_bytes.checked_sub(capacity_bytes).filter(|bytes| *bytes > 0)?;
    let requested_bytes = request.requested_bytes;
    let withheld_bytes = view.device_total_bytes.saturating_sub(capacity_bytes);
    let outside_bytes = view.outside_bytes();
    let what = if withheld_bytes > 0 { "the memory fraction allows in all" } else { "the device has" };
    let numbers =
        Numbers::RequestNeverFits { requested_bytes, capacity_bytes, short_bytes, withheld_bytes, outside_bytes };
    let [asked, capacity] = compared([requested_bytes, capacity_bytes]);
    let headline = format!("{asked} asked for is {} more than the {capacity} that {what}", size(short_bytes));
    let evidence = (withheld_bytes > 0).then(|| {
        let held = match outside_bytes {
            Some(bytes) => format!("{} of the device are held outside of this allocator", size(bytes)),
            None => "what others hold is unknown".to_owned(),
        };
        format!(
            "the memory fraction withholds {} of the device's {}; {held}",
            size(withheld_bytes),
            size(view.device_total_bytes)
        )
    });
    let fits_card = withheld_bytes > 0 && taken_bytes(view, request) <= view.device_total_bytes;
    let raise = fits_card.then(|| raise_for_all(view, request));
    let shrink = format!(
        "no freeing {}can help: split the request, or make it at most {:.1} % of its size",
        if fits_card { "alone " } else { "" },
        capacity_bytes as f64 / request.rounded_bytes as f64 * 100.0
    );
    Some(Finding::new(Severity::Cause, numbers, headline).evidence(evidence).advice(raise).advice([shrink]))
}

/// What lets a request through that the limit alone forbids and the card could hold: of what the setting withholds, of what this
/// allocator has reserved, and of what others hold.
fn raise_for_all(view: &AllocatorView, request: &Request) -> String {
    let taken_bytes = taken_bytes(view, request);
    let total_bytes = view.device_total_bytes;
    let Some(free_bytes) = view.device_free_bytes else {
        let fraction = fraction_for(view.reserved_bytes.saturating_add(taken_bytes).min(total_bytes), total_bytes);
        return format!(
            "raise the memory fraction to at least {fraction}, if the device has {} free",
            size(taken_bytes)
        );
    };
    if free_bytes >= taken_bytes {
        let fraction = fraction_for(view.reserved_bytes.saturating_add(taken_bytes), total_bytes);
        return format!("raise the memory fraction to at least {fraction}");
    }
    let short_bytes = taken_bytes - free_bytes;
    let within_reach_bytes = view.reserved_bytes.saturating_add(free_bytes).min(total_bytes);
    if short_bytes <= view.reserved_bytes {
        // What is reserved then and what the request takes are all that others leave.
        return format!(
            "raise the memory fraction to at least {} and free {} here: the device has {} free",
            fraction_for(within_reach_bytes, total_bytes),
            size(short_bytes),
            size(free_bytes)
        );
    }
    let outside_bytes = total_bytes.saturating_sub(within_reach_bytes);
    format!(
        "raising the memory fraction cannot help by itself: of the device's {} others hold {}, which leaves {} at most; {} of theirs has \
         to go first, then set it to at least {}",
        size(total_bytes),
        size(outside_bytes),
        size(within_reach_bytes),
        size(taken_bytes.saturating_sub(within_reach_bytes)),
        fraction_for(taken_bytes, total_bytes)
    )
}

/// The least fraction, in thousandths, whose limit is no less than `needed_bytes`, as `0.813`.
fn fraction_for(needed_bytes: u64, total_bytes: u64) -> String {
    let thousandths = (u128::from(needed_bytes) * 1000).div_ceil(u128::from(total_bytes.max(1))).min(1000);
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

/// The limit refused what the card had room for.
pub(super) fn limit_refuses(view: &AllocatorView, request: &Request) -> Option<Finding> {
    let limit_bytes = view.limit_bytes.filter(|_| request.by_limit)?;
    let segment_bytes = taken_bytes(view, request);
    let device_free_bytes = view.device_free_bytes.filter(|free_bytes| *free_bytes >= segment_bytes)?;
    let needed_limit_bytes = view.reserved_bytes.saturating_add(segment_bytes);
    let numbers = Numbers::LimitRefuses {
        requested_bytes: request.requested_bytes,
        segment_bytes,
        limit_bytes,
        reserved_bytes: view.reserved_bytes,
        device_free_bytes: view.device_free_bytes,
        needed_limit_bytes,
    };
    let [reserved, limit, needed] = compared([view.reserved_bytes, limit_bytes, needed_limit_bytes]);
    let [segment, free] = compared([segment_bytes, device_free_bytes]);
    let headline = format!(
        "the memory fraction refuses, not the card: {reserved} reserved and {} of {segment} are more than the {limit} allowed, while \
         {free} of the device is free",
        if view.settings.expandable_segments { "pages" } else { "a segment" },
    );
    let advice = format!(
        "raise the memory fraction to at least {}, which allows {needed}",
        fraction_for(needed_limit_bytes, view.device_total_bytes)
    );
    Some(Finding::new(Severity::Cause, numbers, headline).advice([advice]))
}
