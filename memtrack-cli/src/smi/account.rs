//! Where a device's used bytes are, over all its processes.

use std::fmt;

use memtrack::driver::{ContextMethod, DriverMemory, Exactness, PartKind, ProcessBytes, QueryFailure};
use memtrack::publish::PublishedAllocator;

use super::ProcessLook;

/// `used = allocated + cached + context + other processes + unexplained`, to the byte.
///
/// Allocated, cached and context are of the processes that publish their figures; others are those that do not. An unknown
/// part counts as nothing, and so is in what is unexplained.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// The device's used bytes.
    pub used_bytes: u64,
    /// The parts in the order of the sum.
    pub lines: [Line; 5],
    /// Processes that publish.
    pub publishing_count: usize,
    /// Processes that the driver lists and that do not publish; `None` when there is no telling.
    pub foreign_count: Option<usize>,
}

/// One part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// Which.
    pub kind: PartKind,
    /// The bytes; `None` when unknown.
    pub bytes: Option<i64>,
    /// Where they are from.
    pub source: Source,
    /// How exact they are.
    pub exactness: Exactness,
    /// Why there is no figure.
    pub unknown: Option<String>,
}

/// Where a part is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Files that processes published.
    Published,
    /// The driver's list of processes, less what was published as reserved.
    ProcessListLessReserved,
    /// The driver's list of processes.
    ProcessList,
    /// What the other parts leave.
    Remainder,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Published => "published",
            Self::ProcessListLessReserved => "process list less reserved",
            Self::ProcessList => "process list",
            Self::Remainder => "remainder",
        })
    }
}

impl Account {
    pub(super) fn new(
        memory: &DriverMemory,
        processes: &[ProcessLook],
        list_failure: Option<&QueryFailure>,
        list_is_complete: bool,
    ) -> Self {
        let used_bytes = memory.used_bytes;
        let (publishing, foreign): (Vec<&ProcessLook>, Vec<&ProcessLook>) =
            processes.iter().partition(|process| process.publishes());
        let published = |kind, figure: fn(&PublishedAllocator) -> u64| {
            let bytes = publishing.iter().map(|process| process.sum(figure)).fold(0, u64::saturating_add);
            known(kind, bytes, Source::Published, Exactness::Exact)
        };
        let unlisted = publishing.iter().any(|process| process.driver.is_none());
        let others = match list_failure {
            Some(failure) => unknown(PartKind::OtherProcesses, Source::ProcessList, failure.to_string()),
            // It may be any of those listed, under a number of another namespace.
            None if unlisted && !list_is_complete => {
                let reason = "the driver lists a process that publishes under a number that is not known here";
                unknown(PartKind::OtherProcesses, Source::ProcessList, reason.to_owned())
            }
            None => others(&foreign, list_is_complete),
        };
        let numbers_are_known = list_failure.is_none() && (list_is_complete || !unlisted);
        let foreign_count = numbers_are_known.then_some(foreign.len());
        let parts = [
            published(PartKind::Allocated, |allocator| allocator.allocated_bytes),
            published(PartKind::Cached, PublishedAllocator::cached_bytes),
            context(&publishing),
            others,
        ];
        let explained: i128 = parts.iter().filter_map(|part| part.bytes).map(i128::from).sum();
        let left = (i128::from(used_bytes) - explained).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        let all_exact = parts.iter().all(|part| part.exactness == Exactness::Exact);
        // What is missing from a part can only make this larger than it is.
        let only_more = parts
            .iter()
            .all(|part| matches!(part.exactness, Exactness::Exact | Exactness::AtLeast | Exactness::Unknown));
        // By NVML's first query what the driver reserves is in it too.
        let all_exact = all_exact && memory.driver_reserved_bytes.is_some();
        let exactness = match (all_exact, only_more) {
            (true, _) => Exactness::Exact,
            (_, true) => Exactness::AtMost,
            _ => Exactness::Estimate,
        };
        let unexplained = Line {
            kind: PartKind::Unexplained,
            bytes: Some(left),
            source: Source::Remainder,
            exactness,
            unknown: None,
        };
        let [allocated, cached, context, others] = parts;
        Self {
            used_bytes,
            lines: [allocated, cached, context, others, unexplained],
            publishing_count: publishing.len(),
            foreign_count,
        }
    }

    /// The part of this kind.
    pub fn line(&self, kind: PartKind) -> &Line {
        let place = match kind {
            PartKind::Allocated => 0,
            PartKind::Cached => 1,
            PartKind::Context => 2,
            PartKind::OtherProcesses => 3,
            _ => 4,
        };
        &self.lines[place]
    }
}

/// A process's context: as it measured it from the driver's list itself, else what the driver lists beyond what it reserved, else
/// as it measured it otherwise.
pub(super) fn context_of(process: &ProcessLook) -> Option<(u64, Source, Exactness)> {
    // Several allocators on one device share the context, and each may have measured it.
    let measured = process.published.iter().map(|allocator| allocator.context).collect::<Option<Vec<_>>>();
    let measured = measured.and_then(|measured| measured.into_iter().max_by_key(|context| context.bytes));
    let driver_bytes = process.driver.as_ref().and_then(ProcessBytes::known);
    let reserved_bytes = process.sum(|allocator| allocator.reserved_bytes);
    match (measured, driver_bytes.and_then(|bytes| bytes.checked_sub(reserved_bytes))) {
        (Some(context), _) if context.method == ContextMethod::OwnProcess => {
            Some((context.bytes, Source::Published, Exactness::Exact))
        }
        // Libraries that it loaded since are in it.
        (_, Some(bytes)) => Some((bytes, Source::ProcessListLessReserved, Exactness::AtMost)),
        (Some(context), None) => {
            let is_estimate = context.method == ContextMethod::AboveBaseline;
            let exactness = if is_estimate { Exactness::Estimate } else { Exactness::AtMost };
            Some((context.bytes, Source::Published, exactness))
        }
        (None, None) => None,
    }
}

fn context(publishing: &[&ProcessLook]) -> Line {
    let contexts: Vec<_> = publishing.iter().filter_map(|process| context_of(process)).collect();
    let bytes = contexts.iter().map(|(bytes, _, _)| *bytes).fold(0, u64::saturating_add);
    // The least exact of them speaks for the sum.
    let least = contexts.iter().max_by_key(|(_, _, exactness)| match exactness {
        Exactness::Exact => 0,
        Exactness::Estimate => 1,
        _ => 2,
    });
    let (source, exactness) = least.map_or((Source::Published, Exactness::Exact), |least| (least.1, least.2));
    match contexts.len() {
        0 if !publishing.is_empty() => {
            let reason = "it was not published, and the driver has no figure of the process";
            unknown(PartKind::Context, Source::Published, reason.to_owned())
        }
        count if count < publishing.len() => known(PartKind::Context, bytes, source, Exactness::AtLeast),
        _ => known(PartKind::Context, bytes, source, exactness),
    }
}

fn others(foreign: &[&ProcessLook], list_is_complete: bool) -> Line {
    let figures: Vec<u64> =
        foreign.iter().filter_map(|process| process.driver.as_ref().and_then(ProcessBytes::known)).collect();
    let bytes = figures.iter().copied().fold(0, u64::saturating_add);
    match foreign.len() - figures.len() {
        0 if list_is_complete => known(PartKind::OtherProcesses, bytes, Source::ProcessList, Exactness::Exact),
        count if count > 0 && figures.is_empty() => {
            let reason = format!("{count} listed without a figure");
            unknown(PartKind::OtherProcesses, Source::ProcessList, reason)
        }
        _ => known(PartKind::OtherProcesses, bytes, Source::ProcessList, Exactness::AtLeast),
    }
}

fn known(kind: PartKind, bytes: u64, source: Source, exactness: Exactness) -> Line {
    Line { kind, bytes: Some(i64::try_from(bytes).unwrap_or(i64::MAX)), source, exactness, unknown: None }
}

fn unknown(kind: PartKind, source: Source, reason: String) -> Line {
    Line { kind, bytes: None, source, exactness: Exactness::Unknown, unknown: Some(reason) }
}
