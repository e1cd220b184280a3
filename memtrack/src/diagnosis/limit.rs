//! Requests that the allocator's own limit, the memory fraction, keeps from memory that the card has.

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::segment_fit::taken_bytes;
use super::size::{compared, size};
use super::view::{AllocatorView, Request};

/// A fraction is what this moment needs. With more to reserve a program gives less back on its way, and may come to need more.
const FOR_NOW: &str = ": enough at this moment; a run that has it from the start may need more";

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
        return format!("raise the memory fraction to at least {fraction}{FOR_NOW}");
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

/// What a fraction of so many thousandths allows, by the very arithmetic of the allocator: a product that is no whole number is cut off,
/// and from 1 up there is no limit.
fn allowed_bytes(thousandths: u64, total_bytes: u64) -> u64 {
    if thousandths >= 1000 { u64::MAX } else { (thousandths as f64 / 1000.0 * total_bytes as f64) as u64 }
}

/// The least fraction, in thousandths, whose limit is no less than `needed_bytes`, as `0.813`.
fn fraction_for(needed_bytes: u64, total_bytes: u64) -> String {
    let exact = (u128::from(needed_bytes) * 1000 / u128::from(total_bytes.max(1))).min(1000) as u64;
    // The limit of the exact fraction may come out a byte below or above.
    let allows = |thousandths: &u64| allowed_bytes(*thousandths, total_bytes) >= needed_bytes;
    let thousandths = (exact.saturating_sub(1)..1000).find(allows).unwrap_or(1000);
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
        "raise the memory fraction to at least {}, which allows {needed}{FOR_NOW}",
        fraction_for(needed_limit_bytes, view.device_total_bytes)
    );
    Some(Finding::new(Severity::Cause, numbers, headline).advice([advice]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GIB, MIB};

    #[test]
    fn the_fraction_allows_what_is_needed_and_a_thousandth_less_does_not() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let odd = [1, 999, 1000, 1001, 3 * MIB + 512, 85_045_870_592, 1 << 53, (1 << 60) + 511];
        let whole = [10, 100, 200, 250, 1000, 1023, 10_000, 81_920, 143_160].map(|mib| mib * MIB);
        let any: Vec<u64> = (0..300).map(|_| 1 + below(300 * GIB)).collect();
        for total_bytes in odd.into_iter().chain(whole).chain(any) {
            let limits = (0..1000).map(|thousandths| allowed_bytes(thousandths, total_bytes));
            let near = limits.flat_map(|limit| [limit.saturating_sub(1), limit, limit + 1]);
            let needed = near.chain((0..=1000).map(|part| (u128::from(total_bytes) * part / 1000) as u64));
            for needed_bytes in needed.filter(|bytes| *bytes <= total_bytes) {
                let text = fraction_for(needed_bytes, total_bytes);
                let fraction: f64 = text.parse().unwrap_or(f64::NAN);
                // As `set_fraction` of the allocator does it.
                let allows = |fraction: f64| fraction >= 1.0 || (fraction * total_bytes as f64) as u64 >= needed_bytes;
                assert!(allows(fraction), "{text} of {total_bytes} for {needed_bytes}");
                let less = ((fraction * 1000.0).round() - 1.0) / 1000.0;
                assert!(less < 0.0 || !allows(less), "{text} of {total_bytes} for {needed_bytes} could be less");
            }
        }
    }
}
