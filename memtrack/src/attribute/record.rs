//! A scope's figures on its span.

use super::callsite::with_places;
use super::opened::Closed;
use super::site::{Options, Site};
use crate::scope::{Outcome, ScopeRecord};
use tracing::Span;
use tracing::field::Value;

/// Records everything known at an activation's end, in one call: formatting layers append at each.
///
/// `closed` is none if nothing was measured; then only the outcome is recorded. `phase_given`: the span got its phase
/// when it was made. `sampled`: one of how many calls this is. Nothing is recorded as `None`, which some layers would
/// show. A span's own fields come before the user's, in the order in which the attribute declares them.
pub(super) fn record(
    span: &Span,
    site: &Site,
    closed: Option<&Closed>,
    outcome: Outcome,
    phase_given: bool,
    sampled: u64,
) {
    let Some(metadata) = span.metadata() else { return };
    let (fields, options) = (metadata.fields(), &site.options);
    let name = outcome.as_str();
    let Some(closed) = closed else {
        if let Some(field) = fields.field("mem.outcome") {
            span.record_all(&fields.value_set(&[(&field, Some(&name as &dyn Value))]));
        }
        return;
    };
    let record = &closed.record;
    if is_silent(options, record, outcome) {
        return;
    }
    if !record.has_allocator {
        return record_source(span, site, record, phase_given, sampled);
    }
    let device = record.device.as_str();
    let phase = record.phase.as_ref().filter(|_| !phase_given).map(|phase| phase as &dyn Value);
    let (delta_bytes, peak_delta_bytes) = (record.delta_bytes(), record.peak_delta_bytes());
    let device_columns: [Option<&dyn Value>; 9] = [
        Some(&record.before_bytes),
        Some(&record.after_bytes),
        Some(&delta_bytes),
        Some(&record.peak_bytes),
        Some(&peak_delta_bytes),
        Some(&record.allocation_count),
        Some(&record.free_count),
        Some(&record.retry_count),
        Some(&record.oom_count),
    ];
    let sampled = i64::try_from(sampled).unwrap_or(i64::MAX);
    with_places(fields, |places| {
        // The span is of our own making, so its first fields are these.
        let mut next = places.iter_mut();
        let mut push = |value| {
            if let Some(place) = next.next() {
                *place = value;
            }
        };
        push(Some(&device));
        push(phase);
        if options.has_device_columns {
            device_columns.into_iter().for_each(&mut push);
        }
        push(Some(&name));
        if options.has_own_columns {
            push(Some(&record.own_delta_bytes));
            push(Some(&record.own_peak_bytes));
            push(Some(&record.own_allocation_count));
            if options.has_device_columns {
                push(Some(&record.foreign_bytes));
                push(Some(&record.reserved_delta_bytes));
            }
        }
        if let Some(devices) = &closed.devices {
            push(Some(&devices.changed_count));
        }
        if options.is_sampled {
            push(Some(&sampled));
        }
        span.record_all(&fields.value_set_all(places));
    });
}

/// As [`record`] where no allocator is measured: the columns are those of the first source, as far as it has them.
#[cold]
#[inline(never)]
fn record_source(span: &Span, site: &Site, record: &ScopeRecord, phase_given: bool, sampled: u64) {
    let (Some(metadata), Some(source)) = (span.metadata(), record.sources.first()) else { return };
    let (fields, options) = (metadata.fields(), &site.options);
    let columns = [
        ("mem.before", source.before_bytes),
        ("mem.after", source.after_bytes),
        ("mem.delta", source.delta_bytes()),
        ("mem.peak", source.peak_bytes),
        ("mem.peak_delta", source.peak_delta_bytes()),
        ("mem.retries", source.retry_count),
        ("mem.ooms", source.oom_count),
        ("mem.reserved.delta", source.reserved_delta_bytes()),
        ("mem.sampled", options.is_sampled.then(|| i64::try_from(sampled).unwrap_or(i64::MAX))),
    ];
    let (device, outcome) = (record.device.as_str(), record.outcome.as_str());
    with_places(fields, |places| {
        // By name: what an allocator alone can tell is left out between them.
        let mut set = |name: &str, value| {
            if let Some(place) = fields.field(name).and_then(|field| places.get_mut(field.index())) {
                *place = value;
            }
        };
        set("mem.device", Some(&device as &dyn Value));
        if let Some(phase) = record.phase.as_ref().filter(|_| !phase_given) {
            set("mem.phase", Some(phase));
        }
        set("mem.outcome", Some(&outcome));
        for (name, figure) in &columns {
            if let Some(figure) = figure {
                set(name, Some(figure));
            }
        }
        span.record_all(&fields.value_set_all(places));
    });
}

/// Says what each source did whose figures are not on the span, inside it.
pub(super) fn log_sources(record: &ScopeRecord) {
    let on_span = usize::from(!record.has_allocator);
    for source in record.sources.iter().skip(on_span) {
        tracing::info!(
            target: "memtrack::source",
            {
                mem.source = source.name.as_ref(),
                mem.phase = record.phase.unwrap_or("other"),
                function = record.name,
                mem.before = source.before_bytes,
                mem.after = source.after_bytes,
                mem.delta = source.delta_bytes(),
                mem.peak = source.peak_bytes,
                mem.peak_delta = source.peak_delta_bytes(),
                mem.peak_kind = source.peak_kind.as_str(),
                mem.reserved.delta = source.reserved_delta_bytes(),
                mem.retries = source.retry_count,
                mem.ooms = source.oom_count,
                error = source.failure.as_ref().map(tracing::field::display),
            },
            "{} in {}", record.name, source.name
        );
    }
}

/// Whether `min_delta` keeps quiet about a call: it changed less, and nothing went wrong.
fn is_silent(options: &Options, record: &ScopeRecord, outcome: Outcome) -> bool {
    let Some(least_bytes) = options.min_delta_bytes else { return false };
    let of_device = options.has_device_columns || !record.has_allocator;
    let delta_bytes = if of_device { record.delta_bytes() } else { record.own_delta_bytes };
    outcome == Outcome::Ok && record.oom_count == 0 && delta_bytes.saturating_abs() < least_bytes
}
