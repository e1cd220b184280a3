//! What a scope says of one source.

use std::sync::Arc;

use super::{Exactness, SourceError, SourceReading};
use crate::units::signed;

/// How a peak came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PeakKind {
    /// From the source's high-water mark, which nobody but this scope and those around and inside it used: as exact as the source.
    Exact,
    /// From the source's high-water mark, while scopes of other threads or tasks were open that are neither around nor inside this
    /// one: the exact peak of the whole process in that time, which may be theirs.
    Shared,
    /// Somebody else set the high-water mark back meanwhile: the real peak may be higher. It is noticed when the mark is lower than
    /// it can be; a reset right after the highest moment of a window, with as much in use as at its beginning, is not.
    ResetElsewhere,
    /// The source keeps no peak: the highest of what was read where scopes began and ended. The real peak may be higher.
    AtBoundaries,
}

impl PeakKind {
    /// As JSON and events have it: `exact`, `shared`, `reset_elsewhere` or `at_boundaries`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Shared => "shared",
            Self::ResetElsewhere => "reset_elsewhere",
            Self::AtBoundaries => "at_boundaries",
        }
    }

    /// What a person should know of such a peak.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Exact => "peaks by high-water mark",
            Self::Shared => "peaks by high-water mark, shared with scopes of other threads",
            Self::ResetElsewhere => "peaks are lower bounds: somebody else reset the high-water mark",
            Self::AtBoundaries => "peaks are lower bounds: read where scopes begin and end",
        }
    }
}

/// What a source said while a scope was open, in bytes as the source counts them. A figure that the source does not keep is absent;
/// all are where it could not be read at the beginning, and all but [`before_bytes`](Self::before_bytes) where not at the end.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SourceFigures {
    /// The source's name.
    pub name: Arc<str>,
    /// The number of its device, if it has one.
    pub device: Option<u32>,
    /// What the figures are good for.
    pub exactness: Exactness,
    /// Bytes in use when the scope opened.
    pub before_bytes: Option<i64>,
    /// Bytes in use when it closed.
    pub after_bytes: Option<i64>,
    /// The most bytes in use at any moment in between, both ends included, as far as [`peak_kind`](Self::peak_kind) says.
    pub peak_bytes: Option<i64>,
    /// How the peak came about.
    pub peak_kind: PeakKind,
    /// Bytes taken from the device when the scope opened.
    pub reserved_before_bytes: Option<i64>,
    /// Bytes taken from the device when it closed.
    pub reserved_after_bytes: Option<i64>,
    /// The most of them in between. Where the driver keeps it, an attempt that was refused counts.
    pub reserved_peak_bytes: Option<i64>,
    /// Allocations meanwhile that gave cached memory back and asked again.
    pub retry_count: Option<i64>,
    /// Allocations meanwhile that ran out of memory.
    pub oom_count: Option<i64>,
    /// Why figures are absent.
    pub failure: Option<SourceError>,
}

impl SourceFigures {
    /// Bytes in use at the end less those at the start.
    pub fn delta_bytes(&self) -> Option<i64> {
        difference(self.before_bytes, self.after_bytes)
    }

    /// How far the peak rose above the start.
    pub fn peak_delta_bytes(&self) -> Option<i64> {
        difference(self.before_bytes, self.peak_bytes)
    }

    /// Change of the bytes taken from the device.
    pub fn reserved_delta_bytes(&self) -> Option<i64> {
        difference(self.reserved_before_bytes, self.reserved_after_bytes)
    }

    pub(super) fn absent(name: Arc<str>, device: Option<u32>, exactness: Exactness, failure: SourceError) -> Self {
        Self {
            name,
            device,
            exactness,
            before_bytes: None,
            after_bytes: None,
            peak_bytes: None,
            peak_kind: PeakKind::Exact,
            reserved_before_bytes: None,
            reserved_after_bytes: None,
            reserved_peak_bytes: None,
            retry_count: None,
            oom_count: None,
            failure: Some(failure),
        }
    }

    pub(super) fn begin(&mut self, begun: &SourceReading) {
        self.failure = None;
        self.before_bytes = Some(signed(begun.current_bytes));
        self.reserved_before_bytes = begun.reserved_bytes.map(signed);
    }

    pub(super) fn end(&mut self, begun: &SourceReading, ended: &SourceReading) {
        let count = |first: Option<u64>, last: Option<u64>| Some(signed(last?.saturating_sub(first?)));
        self.after_bytes = Some(signed(ended.current_bytes));
        self.reserved_after_bytes = ended.reserved_bytes.map(signed);
        self.retry_count = count(begun.retry_count, ended.retry_count);
        self.oom_count = count(begun.oom_count, ended.oom_count);
    }
}

fn difference(first: Option<i64>, last: Option<i64>) -> Option<i64> {
    Some(last?.wrapping_sub(first?))
}
