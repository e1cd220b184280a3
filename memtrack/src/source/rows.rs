//! What a summary says of one source: the epoch and its phases.

use std::sync::Arc;

use super::{Exactness, PeakKind, SourceFigures};

/// What a source said over an epoch. A figure that the source does not keep, or that could not be read, is absent.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SourceSummary {
    /// The whole epoch.
    pub epoch: SourceFigures,
    /// The phases that ended in the epoch, in the order in which they first did.
    pub phases: Vec<SourcePhase>,
}

impl SourceSummary {
    /// The source's name.
    pub fn name(&self) -> &Arc<str> {
        &self.epoch.name
    }

    /// What the figures are good for.
    pub fn exactness(&self) -> Exactness {
        self.epoch.exactness
    }

    /// The least exact kind of peak among the epoch's and its phases'.
    pub fn peak_kind(&self) -> PeakKind {
        self.phases.iter().map(|phase| phase.peak_kind).fold(self.epoch.peak_kind, PeakKind::max)
    }

    pub(super) fn of_epoch(figures: &[(u64, SourceFigures)], rows: &[Row]) -> Vec<Self> {
        let summary = |(source, epoch): &(u64, SourceFigures)| Self {
            epoch: epoch.clone(),
            phases: rows.iter().filter(|row| row.source == *source).map(|row| row.phase.clone()).collect(),
        };
        figures.iter().map(summary).collect()
    }
}

/// All activations of one phase, as a source saw them: what the process's use of the source did meanwhile, whoever did it. What
/// happens in a phase inside a phase counts for both, and once where a phase is inside itself.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SourcePhase {
    /// The phase.
    pub name: &'static str,
    /// Times it ended.
    pub entered_count: u64,
    /// Bytes in use when it first began.
    pub before_bytes: Option<i64>,
    /// Bytes in use when it last ended.
    pub after_bytes: Option<i64>,
    /// The sum of the activations' changes.
    pub net_bytes: Option<i64>,
    /// The most bytes in use at any moment of it.
    pub peak_bytes: Option<i64>,
    /// The highest rise of a peak above the bytes in use when an activation began.
    pub rise_max_bytes: Option<i64>,
    /// The most bytes taken from the device at any moment of it.
    pub reserved_peak_bytes: Option<i64>,
    /// The least exact kind of peak among the activations'.
    pub peak_kind: PeakKind,
    /// Activations whose figures could not be read; the sums are without them.
    pub failure_count: u64,
}

/// A phase's totals under way.
#[derive(Debug)]
pub(super) struct Row {
    source: u64,
    phase: SourcePhase,
}

impl Row {
    pub(super) fn find<'a>(rows: &'a mut Vec<Self>, source: u64, name: &'static str) -> &'a mut Self {
        let position = rows.iter().position(|row| row.source == source && row.phase.name == name);
        let position = position.unwrap_or_else(|| {
            let phase = SourcePhase {
                name,
                entered_count: 0,
                before_bytes: None,
                after_bytes: None,
                net_bytes: None,
                peak_bytes: None,
                rise_max_bytes: None,
                reserved_peak_bytes: None,
                peak_kind: PeakKind::Exact,
                failure_count: 0,
            };
            rows.push(Self { source, phase });
            rows.len() - 1
        });
        &mut rows[position]
    }

    /// Counts an activation; one inside another of the same phase has its bytes counted there.
    pub(super) fn count(&mut self, figures: &SourceFigures, is_recursive: bool) {
        let phase = &mut self.phase;
        phase.entered_count += 1;
        if figures.failure.is_some() {
            phase.failure_count += 1;
            return;
        }
        // None is less than any number.
        phase.peak_bytes = phase.peak_bytes.max(figures.peak_bytes);
        phase.rise_max_bytes = phase.rise_max_bytes.max(figures.peak_delta_bytes());
        phase.reserved_peak_bytes = phase.reserved_peak_bytes.max(figures.reserved_peak_bytes);
        phase.peak_kind = phase.peak_kind.max(figures.peak_kind);
        if is_recursive {
            return;
        }
        phase.before_bytes = phase.before_bytes.or(figures.before_bytes);
        phase.after_bytes = figures.after_bytes.or(phase.after_bytes);
        if let Some(delta_bytes) = figures.delta_bytes() {
            phase.net_bytes = Some(phase.net_bytes.unwrap_or(0).wrapping_add(delta_bytes));
        }
    }
}
