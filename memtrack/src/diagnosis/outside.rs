//! Memory on the device that is not this allocator's, and what this allocator keeps from others.

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::size::{compared, size};
use super::view::{AllocatorView, Request};
use crate::units::{Bytes, GIB, MIB};

/// Below one part in so many of the device, a context and what libraries take is nothing to speak of.
const OUTSIDE_PART: u64 = 10;
/// Growth and differences below this are nothing to speak of.
const LEAST_BYTES: u64 = 256 * MIB;
/// So many processes, with no more than this each, are taken for workers that have a context and nothing else.
const LEAST_WORKER_COUNT: u64 = 4;
const LARGEST_CONTEXT_BYTES: u64 = GIB;

/// A request of `requested_bytes` outside of the allocator failed, for which the device has room once the cache is emptied. What is idle
/// beside blocks in use does not help others.
pub(super) fn cache_starves_outside(view: &AllocatorView, requested_bytes: u64) -> Option<Finding> {
    let idle_bytes = view.idle_bytes();
    let fits = view.device_free_bytes.is_some_and(|free_bytes| free_bytes >= requested_bytes);
    let free_bytes = view.device_free_bytes.unwrap_or(0);
    let returnable_bytes = view.returnable_bytes();
    if fits || returnable_bytes == 0 || free_bytes.saturating_add(returnable_bytes) < requested_bytes {
        return None;
    }
    let outside_bytes = view.outside_bytes();
    let headroom_bytes = requested_bytes.max(GIB).div_ceil(GIB).saturating_mul(GIB);
    let cap_bytes = outside_bytes
        .and_then(|outside| view.device_total_bytes.checked_sub(outside)?.checked_sub(headroom_bytes))
        // What does not go back has to fit under it.
        .filter(|cap| *cap >= view.reserved_bytes.saturating_sub(returnable_bytes).max(view.allocated_bytes));
    // Rounded down, so that the headroom is there.
    let thousandths_of = |cap| (u128::from(cap) * 1000 / u128::from(view.device_total_bytes.max(1))) as u64;
    // A cap of nothing would leave no allocator.
    let cap_bytes = cap_bytes.filter(|cap| thousandths_of(*cap) > 0);
    let cap_thousandths = cap_bytes.map(thousandths_of);
    let numbers = Numbers::CacheStarvesOutside {
        requested_bytes,
        idle_bytes,
        returnable_bytes,
        device_free_bytes: view.device_free_bytes,
        outside_bytes,
        headroom_bytes,
        cap_bytes,
        cap_thousandths,
    };
    let [asked, free, idle] = compared([requested_bytes, free_bytes, idle_bytes]);
    let [reserved, allocated] = compared([view.reserved_bytes, view.allocated_bytes]);
    let headline = format!(
        "a request outside of the allocator is starved by its cache: {asked} asked for, {free} free on the device, {idle} idle in the \
         allocator ({reserved} reserved, {allocated} allocated)"
    );
    let ratio = idle_bytes / requested_bytes.max(1);
    let evidence = (ratio >= 2).then(|| format!("idle in the allocator is {ratio} times what was asked for"));
    let mut advice = vec![format!("empty the cache once: that frees up to {}", size(returnable_bytes))];
    if let (Some(cap), Some(thousandths)) = (cap_bytes, cap_thousandths) {
        advice.push(format!(
            "or cap the allocator at {}, a memory fraction of {}.{:03}, which leaves {} for others",
            size(cap),
            thousandths / 1000,
            thousandths % 1000,
            size(headroom_bytes)
        ));
    }
    Some(Finding::new(Severity::Cause, numbers, headline).evidence(evidence).advice(advice))
}

/// What others have on the device would do for the request: more than a tenth of the device, or known to be other processes'.
pub(super) fn other_processes(view: &AllocatorView, request: Option<&Request>) -> Option<Finding> {
    let outside_bytes = view.outside_bytes()?;
    let outside = &view.outside;
    let needed_bytes = request.map_or(LEAST_BYTES, |request| request.rounded_bytes.saturating_sub(view.room_bytes()));
    let matters = match outside.other_processes_bytes {
        Some(bytes) => bytes > 0 && bytes >= needed_bytes,
        None => outside_bytes >= needed_bytes && outside_bytes > view.device_total_bytes / OUTSIDE_PART,
    };
    // A limit of the allocator's own does not give way when others leave.
    if !matters || request.is_some_and(|request| request.by_limit) {
        return None;
    }
    let numbers = Numbers::OtherProcesses {
        requested_bytes: request.map_or(0, |request| request.requested_bytes),
        outside_bytes,
        other_processes_bytes: outside.other_processes_bytes,
        process_count: outside.process_count,
        device_total_bytes: view.device_total_bytes,
    };
    let [part, whole] = compared([outside.other_processes_bytes.unwrap_or(outside_bytes), view.device_total_bytes]);
    let whose = match (outside.other_processes_bytes, outside.process_count) {
        (Some(_), Some(count)) => format!("{count} other processes have {part} of"),
        (Some(_), None) => format!("other processes have {part} of"),
        (None, _) => format!("{part} are not this allocator's (context, libraries, other processes) of"),
    };
    let headline = format!("{whose} the device's {whole}");
    let share = format!(
        "{:.1} % of the device is outside of this allocator",
        outside_bytes as f64 / view.device_total_bytes.max(1) as f64 * 100.0
    );
    let equal = outside.other_processes_bytes.zip(outside.process_count).filter(|(_, count)| *count > 1);
    let evidence = equal.map(|(bytes, count)| format!("{} a process on average", size(bytes / count)));
    let advice = match outside.other_processes_bytes {
        Some(bytes) => format!("end or move the other processes: that frees up to {}", size(bytes)),
        None => {
            "see which processes are on the device (nvidia-smi, or `memtrack smi`), and end or move them".to_owned()
        }
    };
    let contexts = outside
        .other_processes_bytes
        .zip(outside.process_count)
        .filter(|(bytes, count)| *count >= LEAST_WORKER_COUNT && bytes / count <= LARGEST_CONTEXT_BYTES);
    let contexts = contexts.map(|(bytes, count)| {
        format!(
            "{count} processes of {} look like idle contexts of worker processes: start workers without the device (CUDA_VISIBLE_DEVICES=\"\")",
            size(bytes / count)
        )
    });
    let severity = if request.is_some() { Severity::Cause } else { Severity::Note };
    Some(
        Finding::new(severity, numbers, headline)
            .evidence([share])
            .evidence(evidence)
            .advice(contexts)
            .advice([advice]),
    )
}

/// What is outside of the allocator has grown by 256 MiB or more since it was first looked at.
pub(super) fn foreign_growth(view: &AllocatorView) -> Option<Finding> {
    let (before_bytes, now_bytes) = (view.outside.before_bytes?, view.outside_bytes()?);
    let growth_bytes = now_bytes.checked_sub(before_bytes).filter(|growth| *growth >= LEAST_BYTES)?;
    let own_process_bytes = view.outside.own_growth_bytes;
    let numbers = Numbers::ForeignGrowth {
        before_bytes,
        now_bytes,
        growth_bytes: crate::units::signed(growth_bytes),
        own_process_bytes,
    };
    let [before, now] = compared([before_bytes, now_bytes]);
    let headline = format!(
        "what is on the device outside of the allocator grew by {}, from {before} to {now}",
        size(growth_bytes)
    );
    let advice = match own_process_bytes {
        Some(own) if own >= LEAST_BYTES as i64 => {
            format!("{} of it is this process's: look for libraries that take memory themselves", Bytes(own))
        }
        Some(_) => "it is not this process's: look at the other processes on the device".to_owned(),
        None => "look at the other processes on the device, and at libraries that take memory themselves".to_owned(),
    };
    Some(Finding::new(Severity::Warning, numbers, headline).advice([advice]))
}

/// The driver shows more than twice what is allocated, and at least 256 MiB more. Nothing where there is no driver.
pub(super) fn driver_above_allocated(view: &AllocatorView) -> Option<Finding> {
    if view.outside.without_driver {
        return None;
    }
    let used_bytes = view.device_total_bytes.saturating_sub(view.device_free_bytes?);
    let allocated_bytes = view.allocated_bytes;
    if used_bytes < allocated_bytes.saturating_mul(2) || used_bytes - allocated_bytes < LEAST_BYTES {
        return None;
    }
    let cached_bytes = view.reserved_bytes.saturating_sub(allocated_bytes);
    let (context_bytes, other_processes_bytes) = (view.outside.context_bytes, view.outside.other_processes_bytes);
    let known_bytes = [allocated_bytes, cached_bytes, context_bytes.unwrap_or(0), other_processes_bytes.unwrap_or(0)];
    let known_bytes = known_bytes.iter().fold(0_i64, |sum, bytes| sum.saturating_add(crate::units::signed(*bytes)));
    let rest_bytes = crate::units::signed(used_bytes).saturating_sub(known_bytes);
    let numbers = Numbers::DriverAboveAllocated {
        used_bytes,
        allocated_bytes,
        cached_bytes,
        context_bytes,
        other_processes_bytes,
        rest_bytes,
    };
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), |bytes| size(bytes).to_string());
    let headline = format!("the driver shows {} in use and {} is allocated", size(used_bytes), size(allocated_bytes));
    let evidence = format!(
        "used {} = allocated {} + cached {} + context {} + other processes {} + rest {}",
        size(used_bytes),
        size(allocated_bytes),
        size(cached_bytes),
        known(context_bytes),
        known(other_processes_bytes),
        Bytes(rest_bytes)
    );
    let advice = if cached_bytes >= used_bytes / 2 {
        format!(
            "most of it is cached and serves this process again; emptying the cache frees up to {}",
            size(view.returnable_bytes())
        )
    } else {
        "most of it is not the allocator's: see which processes are on the device (nvidia-smi, or `memtrack smi`)"
            .to_owned()
    };
    Some(Finding::new(Severity::Note, numbers, headline).evidence([evidence]).advice([advice]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::OutsideView;

    /// 24 workers with a context of 520 MiB each beside 60,000 MiB of 81,920.
    #[test]
    fn processes_of_a_contexts_size_are_taken_for_workers() {
        let view = AllocatorView {
            allocated_bytes: 60_000 * MIB,
            active_bytes: 60_000 * MIB,
            reserved_bytes: 60_000 * MIB,
            device_free_bytes: Some(9440 * MIB),
            device_total_bytes: 81_920 * MIB,
            outside: OutsideView {
                other_processes_bytes: Some(12_480 * MIB),
                process_count: Some(24),
                ..OutsideView::default()
            },
            ..AllocatorView::default()
        };
        let advised =
            |view: &AllocatorView| other_processes(view, None).map(|finding| finding.advice).unwrap_or_default();
        let advice = advised(&view);
        assert!(
            advice[0].starts_with("24 processes of 520.00 MiB look like idle contexts of worker processes"),
            "{advice:?}"
        );
        assert_eq!(advice[1], "end or move the other processes: that frees up to 12480 MiB");
        let few = OutsideView { process_count: Some(2), ..view.outside };
        assert_eq!(advised(&AllocatorView { outside: few, ..view.clone() }).len(), 1);
        let none = OutsideView { other_processes_bytes: Some(0), ..view.outside };
        assert!(advised(&AllocatorView { outside: none, ..view }).is_empty(), "the list says that there are none");
    }
}
