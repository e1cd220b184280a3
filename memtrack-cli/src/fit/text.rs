//! What is printed of a recording, for people.

use std::fmt::Write as _;

use memtrack::plain_text::{counted, padded, shown};
use memtrack::units::{Bytes, MIB};

use super::GRANULARITY_BYTES;
use super::options::Card;
use super::report::{PolicyReport, Report};
use super::trial::{DEVICE_BYTES, LimitBy};

/// Nothing is said of a file without a result here; that is an error's place.
pub(super) fn text(report: &Report) -> String {
    let Some(requested_peak_bytes) = report.requested_peak_bytes else { return String::new() };
    let mut text = String::new();
    let allocations = counted(report.allocations.unwrap_or_default() as u64, "allocation");
    line(&mut text, &format!("{}: requested peak {}, {allocations}", report.title(), whole_mib(requested_peak_bytes)));
    for note in &report.notes {
        line(&mut text, &format!("  note: {note}"));
    }
    let answered: Vec<&PolicyReport> =
        report.policies.iter().filter(|policy| policy.smallest_limit_bytes.is_some()).collect();
    if answered.is_empty() {
        return text;
    }
    table(&mut text, &answered, requested_peak_bytes);
    line(&mut text, &what_a_limit_is(report));
    for policy in &answered {
        said_of(&mut text, policy);
    }
    if let Some(card) = &report.card {
        on_card(&mut text, &answered, card);
    }
    text
}

fn line(text: &mut String, line: &str) {
    // Names are other people's.
    let _ = writeln!(text, "{}", shown(line));
}

/// Exact for limits, which are whole numbers of MiB; as `--limit` takes it.
fn whole_mib(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) { format!("{} MiB", bytes / MIB) } else { Bytes::unsigned(bytes).to_string() }
}

fn names(policy: &PolicyReport) -> String {
    policy.names.join(", ")
}

const COLUMNS: usize = 9;
const HEAD: [&str; COLUMNS] = [
    "policy",
    "without limit",
    "smallest limit",
    "of requested",
    "retries",
    "per 1000",
    "device calls",
    "calm from",
    "unfelt from",
];

fn table(text: &mut String, policies: &[&PolicyReport], requested_peak_bytes: u64) {
    let row = |policy: &&PolicyReport| -> [String; COLUMNS] {
        let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), whole_mib);
        let count = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        let share = policy.smallest_limit_bytes.filter(|_| requested_peak_bytes > 0);
        [
            shown(&names(policy)),
            bytes(policy.unlimited_peak_bytes),
            bytes(policy.smallest_limit_bytes),
            share.map_or("-".to_owned(), |limit| format!("{:.3}", limit as f64 / requested_peak_bytes as f64)),
            count(policy.retries),
            policy.retries_per_1000.map_or("-".to_owned(), |retries| format!("{retries:.2}")),
            count(policy.device_allocations),
            bytes(policy.calm_limit_bytes),
            bytes(policy.unfelt_limit_bytes),
        ]
    };
    let rows: Vec<[String; COLUMNS]> =
        std::iter::once(HEAD.map(str::to_owned)).chain(policies.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    for row in &rows {
        let mut cells = format!("  {}", padded(&row[0], widths[0]));
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(cells, "  {cell:>width$}");
        }
        let _ = writeln!(text, "{}", cells.trim_end());
    }
}

/// What stands for a limit decides how many addresses expandable segments have, and by that where blocks lie.
fn what_a_limit_is(report: &Report) -> String {
    let has_all = report.device_bytes == DEVICE_BYTES;
    let device = if has_all { Bytes::unsigned(DEVICE_BYTES).to_string() } else { whole_mib(report.device_bytes) };
    match (report.limit_by, report.card) {
        (LimitBy::Card, Some(_)) => format!("  a limit is what is left of a card of {device}"),
        (LimitBy::Card, None) => format!(
            "  a limit is what is left of a card of {device}, which has addresses to spare; --on asks about a smaller one"
        ),
        (LimitBy::Fraction, _) => format!("  a limit is a memory fraction of a device of {device}"),
    }
}

/// What the search says besides its answer.
fn said_of(text: &mut String, policy: &PolicyReport) {
    let name = names(policy);
    let limit = whole_mib(policy.smallest_limit_bytes.unwrap_or_default());
    let tested = match (policy.all_above_tested, policy.limits_tested_above.unwrap_or_default() as u64) {
        (Some(true), _) => "and with every limit above it".to_owned(),
        (_, 0) => "and no limit above it was tested".to_owned(),
        (_, 1) => "and with the one limit tested above it".to_owned(),
        (_, above) => format!("and with all {above} limits tested above it"),
    };
    let below = match &policy.fails_below {
        Some(failure) => format!("fails 2 MiB below at {}", failure.operation),
        None => "2 MiB less is below what is requested".to_owned(),
    };
    if policy.fails_above.is_empty() {
        line(text, &format!("  {name}: {below}; completes with {limit} {tested}"));
        return;
    }
    let first = whole_mib(policy.first_limit_bytes.unwrap_or_default());
    let gaps = ranges(policy.fails_above.iter().map(|gap| gap.limit_bytes));
    line(text, &format!("  {name}: completes with {first}, but fails with {gaps}; completes with {limit} {tested}"));
}

/// Limits in order; of those that follow each other the first and the last.
fn ranges(limits: impl Iterator<Item = u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for limit in limits {
        match ranges.last_mut() {
            Some((_, last)) if *last + GRANULARITY_BYTES == limit => *last = limit,
            _ => ranges.push((limit, limit)),
        }
    }
    let shown = ranges.iter().map(|(first, last)| match first == last {
        true => whole_mib(*first),
        false => format!("{} to {}", whole_mib(*first), whole_mib(*last)),
    });
    shown.collect::<Vec<_>>().join(", ")
}

const NOT_COUNTED: &str = "    others are what the driver reserves, other processes, and libraries with memory of their own, as NCCL; --others \
                           says how much";

fn on_card(text: &mut String, policies: &[&PolicyReport], card: &Card) {
    let Card { card_bytes, context_bytes, others_bytes, available_bytes } = *card;
    line(
        text,
        &format!(
            "  on {}: less {} of context and {} of others, {} are left for the allocator",
            whole_mib(card_bytes),
            whole_mib(context_bytes),
            whole_mib(others_bytes),
            whole_mib(available_bytes),
        ),
    );
    line(text, NOT_COUNTED);
    for policy in policies {
        let Some(on_card) = &policy.on_card else { continue };
        let margin = whole_mib(on_card.margin_bytes.unsigned_abs());
        let verdict = match (on_card.fits, &on_card.fails, on_card.retries) {
            (true, _, retries) => {
                let retries = counted_retries(retries.unwrap_or_default());
                let late = match on_card.late_retries {
                    Some(late) if late > 0 => format!(", {late} of them in the second half"),
                    _ => String::new(),
                };
                format!("yes, {margin} to spare, {retries}{late}")
            }
            (false, Some(failure), _) => format!("no, {margin} short: fails at {}", failure.operation),
            (false, None, Some(_)) => format!("no, {margin} short: completes there, but fails with more"),
            (false, None, None) => format!("no, {margin} short: less than is requested"),
        };
        line(text, &format!("    {}: {verdict}", names(policy)));
    }
}

fn counted_retries(retries: u64) -> String {
    if retries == 1 { "1 retry".to_owned() } else { format!("{retries} retries") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_follow_each_other_are_one_range() {
        let limits = [2, 4, 6, 10, 14, 16].map(|mib| mib * MIB);
        assert_eq!(ranges(limits.into_iter()), "2 MiB to 6 MiB, 10 MiB, 14 MiB to 16 MiB");
    }
}
