//! The parts of a reconciliation, each with where it is from and how exact it is.

use std::fmt;

use super::{Basis, ContextMethod, OtherProcesses, Reconciliation};

/// One part of the driver's used bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// Which.
    pub kind: PartKind,
    /// The bytes; `None` when unknown, which counts as nothing in the sum and so is in `Unexplained`.
    pub bytes: Option<i64>,
    /// Where the figure is from.
    pub source: PartSource,
    /// How exact it is.
    pub exactness: Exactness,
}

/// The parts of `used = allocated + cached + context + other processes + unexplained`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PartKind {
    /// Blocks the allocator has handed out.
    Allocated,
    /// What the allocator keeps and has not handed out.
    Cached,
    /// The CUDA context, modules and libraries.
    Context,
    /// Other processes.
    OtherProcesses,
    /// What is left.
    Unexplained,
}

impl PartKind {
    /// As it is written: `other processes`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Cached => "cached",
            Self::Context => "context",
            Self::OtherProcesses => "other processes",
            Self::Unexplained => "unexplained",
        }
    }
}

impl fmt::Display for PartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a part's figure is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PartSource {
    /// The allocator's own counters.
    Allocator,
    /// The driver's list of processes.
    ProcessList,
    /// The device's used bytes above a figure from before.
    AboveBaseline,
    /// The device's used bytes, less what is known to be something else.
    WholeDevice,
    /// What the other parts leave of the whole.
    Remainder,
}

impl fmt::Display for PartSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocator => "allocator",
            Self::ProcessList => "process list",
            Self::AboveBaseline => "device above baseline",
            Self::WholeDevice => "whole device",
            Self::Remainder => "remainder",
        })
    }
}

/// How exact a part's figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exactness {
    /// To the byte.
    Exact,
    /// There may be more: not every process is seen, or has a figure.
    AtLeast,
    /// There may be less: other processes' memory may be in it and cannot be told apart.
    AtMost,
    /// Exact unless other processes came, went, grew or shrank meanwhile.
    Estimate,
    /// There is no figure.
    Unknown,
}

impl fmt::Display for Exactness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::AtLeast => "at least",
            Self::AtMost => "at most",
            Self::Estimate => "estimate",
            Self::Unknown => "unknown",
        })
    }
}

impl Reconciliation {
    /// The parts in the order of the sum. Their bytes, unknown ones taken as 0, add up to `used_bytes`.
    ///
    /// With [`Basis::OwnProcess`] the other processes are no part of the whole, and their part is unknown.
    pub fn parts(&self) -> [Part; 5] {
        let allocators = |kind, bytes: u64| part(kind, signed(bytes), PartSource::Allocator, Exactness::Exact);
        let (source, exactness) = match self.context_method {
            ContextMethod::OwnProcess => (PartSource::ProcessList, Exactness::Exact),
            ContextMethod::AboveBaseline => (PartSource::AboveBaseline, Exactness::Estimate),
            ContextMethod::WholeDevice => (PartSource::WholeDevice, Exactness::AtMost),
        };
        let context = part(PartKind::Context, signed(self.context_bytes), source, exactness);
        let others_exactness = match (&self.other_processes, self.other_processes_bytes) {
            (_, None) => Exactness::Unknown,
            (OtherProcesses::Listed { unknown_count: 0, complete: true, .. }, Some(_)) => Exactness::Exact,
            _ => Exactness::AtLeast,
        };
        let others_bytes = self.other_processes_bytes.and_then(signed);
        let others = part(PartKind::OtherProcesses, others_bytes, PartSource::ProcessList, others_exactness);
        let others_matter = matches!(self.basis, Basis::Device(_));
        let all_exact = exactness == Exactness::Exact && (!others_matter || others_exactness == Exactness::Exact);
        // By NVML's first query what the driver reserves is in the whole, and so in what is left of it.
        let reserve_is_in_it = others_matter && self.driver_reserved_bytes.is_none();
        let left = match (all_exact, reserve_is_in_it) {
            (true, false) => Exactness::Exact,
            (true, true) => Exactness::AtMost,
            (false, _) => Exactness::Estimate,
        };
        [
            allocators(PartKind::Allocated, self.allocated_bytes),
            allocators(PartKind::Cached, self.cached_bytes),
            context,
            others,
            part(PartKind::Unexplained, Some(self.unexplained_bytes), PartSource::Remainder, left),
        ]
    }
}

fn part(kind: PartKind, bytes: Option<i64>, source: PartSource, exactness: Exactness) -> Part {
    Part { kind, bytes, source, exactness }
}

fn signed(bytes: u64) -> Option<i64> {
    i64::try_from(bytes).ok()
}
