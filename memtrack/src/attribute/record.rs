//! A scope's figures on its span.

use super::opened::Closed;
use super::site::{Options, Site};
use crate::scope::{Outcome, ScopeRecord};
use tracing::Span;
use tracing::field::{Field, Value};

/// How many of memtrack's fields a span has with the device's columns alone, the usual case.
const DEVICE_COUNT: usize = 12;
/// How many it can have.
const MOST: usize = 19;

/// Records values for the span's first fields, by position and without a list on the heap. A macro, since tracing takes
/// lists of fixed lengths only.
macro_rules! record_in_order {
    ($count:expr, $span:expr, $fields:expr, $values:expr) => {{
        let mut declared = $fields.iter();
        let Some(first) = declared.next() else { return };
        // The span is of our own making, so a field that has a value is declared.
        let mut next = Some(first.clone());
        let names: [Field; $count] = std::array::from_fn(|_| {
            let name = next.take().unwrap_or_else(|| first.clone());
            next = declared.next();
            name
        });
        let pairs: [_; $count] = std::array::from_fn(|index| (&names[index], $values[index]));
        $span.record_all(&$fields.value_set(&pairs));
    }};
}

type Values<'a, const N: usize> = [Option<&'a dyn Value>; N];

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
    let device = record.device.as_str();
    let phase = record.phase.as_ref().filter(|_| !phase_given).map(|phase| phase as &dyn Value);
    let (delta_bytes, peak_delta_bytes) = (record.delta_bytes(), record.peak_delta_bytes());
    let device_columns: Values<'_, 9> = [
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
    if options.has_device_columns && !options.has_own_columns && !options.is_sampled && closed.devices.is_none() {
        let [before, after, delta, peak, peak_delta, allocs, frees, retries, ooms] = device_columns;
        let values = [
            Some(&device as &dyn Value),
            phase,
            before,
            after,
            delta,
            peak,
            peak_delta,
            allocs,
            frees,
            retries,
            ooms,
            Some(&name),
        ];
        record_in_order!(DEVICE_COUNT, span, fields, values);
        return;
    }
    let sampled = i64::try_from(sampled).unwrap_or(i64::MAX);
    let mut values: Values<'_, MOST> = [None; MOST];
    let mut count = 0;
    let mut push = |value| {
        if let Some(place) = values.get_mut(count) {
            *place = value;
        }
        count += 1;
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
    record_in_order!(MOST, span, fields, values);
}

/// Whether `min_delta` keeps quiet about a call: it changed less, and nothing went wrong.
fn is_silent(options: &Options, record: &ScopeRecord, outcome: Outcome) -> bool {
    let Some(least_bytes) = options.min_delta_bytes else { return false };
    let delta_bytes = if options.has_device_columns { record.delta_bytes() } else { record.own_delta_bytes };
    outcome == Outcome::Ok && record.oom_count == 0 && delta_bytes.saturating_abs() < least_bytes
}
