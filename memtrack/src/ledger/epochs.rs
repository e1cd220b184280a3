//! Epochs in progress: where the phase books stood at the start, and the peaks of the phases closed since.

use std::collections::BTreeMap;
use std::time::Duration;

use super::phases::{OTHER_PHASE, PhaseId, PhaseTotals, Phases};
use super::scopes::Scopes;
use super::slot::{ClosedScope, ScopeKey};
use crate::stats::MemoryStats;

/// Names an epoch in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EpochKey {
    pub(crate) scope: ScopeKey,
    serial: u64,
}

/// How high the activations of one phase went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PhaseActivity {
    /// The highest live bytes while the phase was open.
    pub(crate) peak_bytes: i64,
    /// Rises above entry, by size class: class to (highest rise in it, how many).
    rises: BTreeMap<u32, (i64, u64)>,
}

impl PhaseActivity {
    fn add(&mut self, peak_bytes: i64, rise_bytes: i64) {
        self.peak_bytes = self.peak_bytes.max(peak_bytes);
        let rise_bytes = rise_bytes.max(0);
        let (highest_bytes, count) = self.rises.entry(size_class(rise_bytes.unsigned_abs())).or_default();
        *highest_bytes = (*highest_bytes).max(rise_bytes);
        *count += 1;
    }

    /// The highest rise.
    pub(crate) fn rise_max_bytes(&self) -> i64 {
        self.rises.values().next_back().map_or(0, |(highest_bytes, _)| *highest_bytes)
    }

    /// The rise that half of the activations do not exceed: exact when all of its size class are equal, else the
    /// highest of a class 1.6 % wide.
    pub(crate) fn rise_median_bytes(&self) -> i64 {
        let total: u64 = self.rises.values().map(|(_, count)| count).sum();
        let mut below = 0;
        for (highest_bytes, count) in self.rises.values() {
            below += count;
            if below * 2 >= total {
                return *highest_bytes;
            }
        }
        0
    }
}

/// 64 classes for each power of two, so that a summary of any length stays small.
fn size_class(bytes: u64) -> u32 {
    if bytes < 64 {
        return bytes as u32;
    }
    let log = bytes.ilog2();
    (log - 5) * 64 + ((bytes >> (log - 6)) & 63) as u32
}

#[derive(Debug)]
struct OpenEpoch {
    key: EpochKey,
    number: u64,
    step_count: u64,
    before: Vec<PhaseTotals>,
    activity: BTreeMap<PhaseId, PhaseActivity>,
    /// The highest live bytes while no phase was open, or right after an allocation outside every phase.
    other_peak_bytes: Option<i64>,
}

/// An epoch's books, closed.
#[derive(Debug, Clone)]
pub(crate) struct ClosedEpoch {
    pub(crate) number: u64,
    pub(crate) lasted: Duration,
    pub(crate) step_count: u64,
    pub(crate) scope: ClosedScope,
    pub(crate) peak_phase: &'static str,
    /// Phases with anything booked or entered, in order of first sight; "other" is last.
    pub(crate) rows: Vec<(&'static str, PhaseTotals, PhaseActivity)>,
    /// The number of the epoch that ended before, and the allocated bytes then.
    pub(crate) previous: Option<(u64, i64)>,
    pub(crate) reserved_bytes: i64,
}

/// All epochs in progress; usually one.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    open: Vec<OpenEpoch>,
    next_serial: u64,
    last_ended: Option<(u64, i64)>,
}

impl Epochs {
    pub(super) fn open(&mut self, number: u64, scope: ScopeKey, before: &[PhaseTotals]) -> EpochKey {
        let key = EpochKey { scope, serial: self.next_serial };
        self.next_serial += 1;
        self.open.push(OpenEpoch {
            key: key.clone(),
            number,
            step_count: 0,
            before: before.to_vec(),
            activity: BTreeMap::new(),
            other_peak_bytes: None,
        });
        key
    }

    pub(super) fn count_step(&mut self) {
        for epoch in &mut self.open {
            epoch.step_count += 1;
        }
    }

    pub(super) fn raise_other(&mut self, highest_bytes: i64) {
        for epoch in &mut self.open {
            epoch.other_peak_bytes = epoch.other_peak_bytes.max(Some(highest_bytes));
        }
    }

    /// A phase ended; the caller has just cut.
    pub(super) fn phase_closed(&mut self, phase: PhaseId, closed: &ClosedScope, scopes: &Scopes) {
        for epoch in &mut self.open {
            epoch.include(phase, closed.before_bytes, closed.peak_bytes, scopes);
        }
    }

    /// Takes in the phases that are still open when an epoch ends; the caller has just cut.
    pub(super) fn include_open_phases(&mut self, key: &EpochKey, scopes: &Scopes) {
        if let Some(epoch) = self.open.iter_mut().find(|epoch| epoch.key == *key) {
            for (phase, before_bytes, peak_bytes) in scopes.open_phases() {
                epoch.include(phase, before_bytes, peak_bytes, scopes);
            }
        }
    }

    pub(super) fn close(
        &mut self,
        key: &EpochKey,
        scope: ClosedScope,
        phases: &Phases,
        stats: &MemoryStats,
        lasted: Duration,
    ) -> Option<ClosedEpoch> {
        let position = self.open.iter().position(|epoch| epoch.key == *key)?;
        let OpenEpoch { number, step_count, before, mut activity, other_peak_bytes, .. } = self.open.remove(position);
        let mut rows = Vec::new();
        let nothing = PhaseTotals::default();
        for (index, (name, totals)) in phases.names().iter().zip(phases.all_totals()).enumerate() {
            let totals = totals.since(before.get(index).unwrap_or(&nothing));
            let activity = activity.remove(&(index as PhaseId));
            if index == usize::from(OTHER_PHASE) || totals != nothing || activity.is_some() {
                rows.push((*name, totals, activity.unwrap_or_default()));
            }
        }
        if let Some((_, _, other)) = rows.first_mut() {
            other.peak_bytes = other.peak_bytes.max(other_peak_bytes.unwrap_or(0));
        }
        rows.rotate_left(1);
        Some(ClosedEpoch {
            number,
            lasted,
            step_count,
            peak_phase: phases.name(scope.peak_place.phase).unwrap_or("other"),
            scope,
            rows,
            previous: self.last_ended.replace((number, scope.after_bytes)),
            reserved_bytes: stats.reserved_bytes.all.current,
        })
    }
}

impl OpenEpoch {
    fn include(&mut self, phase: PhaseId, before_bytes: i64, peak_bytes: i64, scopes: &Scopes) {
        // A phase older than the epoch may have been higher before it; since the epoch began, the phase was open all the
        // time, so the epoch's own peak so far is the phase's peak within the epoch. For a younger phase this is no limit.
        let peak_bytes = scopes.peak_bytes(self.key.scope).map_or(peak_bytes, |epoch_peak| peak_bytes.min(epoch_peak));
        self.activity.entry(phase).or_default().add(peak_bytes, peak_bytes - before_bytes);
    }
}
