//! Epochs in progress: where the phase books stood at the start, and what was seen of the phases closed since.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Ledger;
use super::held::{Holder, PeakNotes};
use super::matrix::{Amount, Matrix, Reading, rows_since};
use super::phases::{FURTHER_PHASES, NameId, NameTotals, Phases};
use super::scopes::Scopes;
use super::slot::{ClosedScope, ScopeKey, Totals};
use super::threads::ThreadSet;

/// Names an epoch in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EpochKey {
    pub(crate) scope: ScopeKey,
    serial: u64,
}

/// What the activations of one phase saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PhaseActivity {
    /// The highest live bytes while the phase was open.
    pub(crate) peak_bytes: i64,
    /// Rounded bytes that threads outside moved meanwhile.
    pub(crate) foreign_bytes: i64,
    /// Those threads that did nothing inside an activation.
    pub(crate) other_threads: ThreadSet,
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

    /// The rise that so many of a hundred activations do not exceed: exact when all of its size class are equal, else the
    /// highest of a class 1.6 % wide.
    pub(crate) fn rise_percentile_bytes(&self, percent: u64) -> i64 {
        let total: u64 = self.rises.values().map(|(_, count)| count).sum();
        let mut below = 0;
        for (highest_bytes, count) in self.rises.values() {
            below += count;
            if u128::from(below) * 100 >= u128::from(total) * u128::from(percent) {
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

/// Between which two looks a peak was reached. `None` as the first is the epoch's beginning, as the second its end.
pub(crate) type PeakWindow = (Option<Instant>, Option<Instant>);

/// The peak as of the latest look.
#[derive(Debug, Clone, Copy)]
struct PeakSeen {
    bytes: i64,
    looked: Option<Instant>,
    /// `None` while it is the bytes at the beginning.
    window: Option<PeakWindow>,
}

/// An epoch in progress.
#[derive(Debug)]
pub(super) struct OpenEpoch {
    key: EpochKey,
    number: u64,
    step_count: u64,
    before: Reading,
    pub(super) notes: PeakNotes,
    activity: BTreeMap<NameId, PhaseActivity>,
    /// The highest live bytes while no phase was open, or right after an allocation outside every phase.
    other_peak_bytes: Option<i64>,
    peak_seen: PeakSeen,
}

/// What an epoch says of one phase.
#[derive(Debug, Clone)]
pub(crate) struct PhaseRow {
    pub(crate) name: &'static str,
    pub(crate) totals: NameTotals,
    pub(crate) activity: PhaseActivity,
}

/// What became of the blocks of one phase; the names are those of the phases that freed.
#[derive(Debug, Clone)]
pub(crate) struct OriginRow {
    pub(crate) origin: &'static str,
    pub(crate) before: Amount,
    pub(crate) allocated: Amount,
    pub(crate) freed: Vec<(&'static str, Amount)>,
    pub(crate) live: Amount,
}

/// Who held the epoch's peak: blocks by the phase and the scope that allocated them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldAtPeak {
    pub(crate) phase: &'static str,
    pub(crate) scope: Option<&'static str>,
    pub(crate) held: Amount,
}

/// An epoch's books, closed.
#[derive(Debug, Clone)]
pub(crate) struct ClosedEpoch {
    pub(crate) number: u64,
    pub(crate) lasted: Duration,
    pub(crate) step_count: u64,
    pub(crate) scope: ClosedScope,
    pub(crate) peak_phase: &'static str,
    /// `None` when the peak is the bytes at the beginning.
    pub(crate) peak_window: Option<PeakWindow>,
    /// Phases with anything booked or entered, in order of first sight; "other" is last.
    pub(crate) rows: Vec<PhaseRow>,
    /// In the same order.
    pub(crate) origins: Vec<OriginRow>,
    /// The most bytes first.
    pub(crate) held_at_peak: Vec<HeldAtPeak>,
    pub(crate) reserved_at_peak_bytes: i64,
    pub(crate) active_at_peak_bytes: i64,
    /// The number of the epoch that ended before, and the allocated bytes then.
    pub(crate) previous: Option<(u64, i64)>,
    pub(crate) reserved_bytes: i64,
    pub(crate) active_bytes: i64,
}

/// All epochs in progress; usually one.
#[derive(Debug)]
pub(crate) struct Epochs {
    open: Vec<OpenEpoch>,
    next_serial: u64,
    last_ended: Option<(u64, i64)>,
    /// Of all epochs' peaks; what is no higher is nobody's new peak.
    pub(super) lowest_peak_bytes: i64,
}

impl Default for Epochs {
    fn default() -> Self {
        Self { open: Vec::new(), next_serial: 0, last_ended: None, lowest_peak_bytes: i64::MAX }
    }
}

impl Epochs {
    pub(super) fn open(&mut self, number: u64, scope: ScopeKey, before: Reading, notes: PeakNotes) -> EpochKey {
        let key = EpochKey { scope, serial: self.next_serial };
        self.next_serial += 1;
        self.open.push(OpenEpoch {
            key: key.clone(),
            number,
            step_count: 0,
            before,
            peak_seen: PeakSeen { bytes: notes.peak_bytes, looked: None, window: None },
            notes,
            activity: BTreeMap::new(),
            other_peak_bytes: None,
        });
        self.find_lowest_peak();
        key
    }

    pub(super) fn peaks_mut(&mut self) -> impl Iterator<Item = &mut PeakNotes> {
        self.open.iter_mut().map(|epoch| &mut epoch.notes)
    }

    pub(super) fn find_lowest_peak(&mut self) {
        let peaks = self.open.iter().map(|epoch| epoch.notes.peak_bytes);
        self.lowest_peak_bytes = peaks.min().unwrap_or(i64::MAX);
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
    pub(super) fn phase_closed(&mut self, phase: NameId, closed: &ClosedScope, scopes: &Scopes) {
        let ClosedScope { before_bytes, peak_bytes, foreign_bytes, other_threads, .. } = *closed;
        for epoch in &mut self.open {
            epoch.include(phase, before_bytes, peak_bytes, (foreign_bytes, other_threads), scopes);
        }
    }

    /// Takes in the phases that are still open when an epoch ends; the caller has just cut.
    pub(super) fn include_open_phases(&mut self, key: &EpochKey, scopes: &Scopes, phases: &Phases, totals: &Totals) {
        if let Some(epoch) = self.open.iter_mut().find(|epoch| epoch.key == *key) {
            for (phase, slot) in scopes.open_phases() {
                let foreign = (slot.foreign_bytes(totals), slot.other_threads());
                epoch.include(phases.name_id(phase), slot.before_bytes, slot.peak_bytes, foreign, scopes);
            }
        }
    }

    /// Takes an epoch out of those in progress.
    pub(super) fn take(&mut self, key: &EpochKey) -> Option<OpenEpoch> {
        let position = self.open.iter().position(|epoch| epoch.key == *key)?;
        let epoch = self.open.remove(position);
        self.find_lowest_peak();
        Some(epoch)
    }

    pub(super) fn close(
        &mut self,
        epoch: OpenEpoch,
        scope: ClosedScope,
        (phases, matrix): (&Phases, &Matrix),
        (reserved_bytes, active_bytes): (i64, i64),
        holders: Vec<Holder>,
        lasted: Duration,
    ) -> ClosedEpoch {
        let OpenEpoch { number, step_count, before, notes, mut activity, other_peak_bytes, peak_seen, .. } = epoch;
        let rose_since = scope.peak_bytes > peak_seen.bytes;
        let mut rows = Vec::new();
        let nothing = NameTotals::default();
        let totals = phases.by_name_since(&before.totals);
        for (index, (name, totals)) in phases.names().iter().zip(totals).enumerate() {
            let activity = activity.remove(&(index as NameId));
            if index == 0 || totals != nothing || activity.is_some() {
                rows.push(PhaseRow { name, totals, activity: activity.unwrap_or_default() });
            }
        }
        if let Some(other) = rows.first_mut() {
            let peak_bytes = &mut other.activity.peak_bytes;
            *peak_bytes = (*peak_bytes).max(other_peak_bytes.unwrap_or(0));
        }
        rows.rotate_left(1);
        ClosedEpoch {
            number,
            lasted,
            step_count,
            peak_phase: phases.name(scope.peak_place.phase).unwrap_or("other"),
            peak_window: if rose_since { Some((peak_seen.looked, None)) } else { peak_seen.window },
            rows,
            origins: origins(&before, phases, matrix),
            held_at_peak: held_at_peak(holders, phases),
            reserved_at_peak_bytes: notes.reserved_bytes,
            active_at_peak_bytes: notes.active_bytes,
            previous: self.last_ended.replace((number, scope.after_bytes)),
            scope,
            reserved_bytes,
            active_bytes,
        }
    }
}

impl Ledger {
    /// Whether an epoch is in progress.
    pub(crate) fn is_in_epoch(&self) -> bool {
        !self.epochs.open.is_empty()
    }

    /// Sees at `now` whether the peaks of epochs rose since the last look; whoever looks has a clock at hand, and the ledger none.
    pub(crate) fn look_at_peaks(&mut self, now: Instant) {
        for epoch in &mut self.epochs.open {
            let scope = self.scopes.slots.get(self.scopes.resolve(Some(epoch.key.scope)) as usize);
            let Some(bytes) = scope.map(|slot| self.scopes.peak_bytes_now(slot)) else { continue };
            let seen = &mut epoch.peak_seen;
            if bytes > seen.bytes {
                (seen.bytes, seen.window) = (bytes, Some((seen.looked, Some(now))));
            }
            seen.looked = seen.looked.max(Some(now));
        }
    }
}

impl OpenEpoch {
    fn include(
        &mut self,
        phase: NameId,
        before_bytes: i64,
        peak_bytes: i64,
        (foreign_bytes, other_threads): (i64, ThreadSet),
        scopes: &Scopes,
    ) {
        // A phase older than the epoch may have been higher before it; since the epoch began, the phase was open all the
        // time, so the epoch's own peak so far is the phase's peak within the epoch. For a younger phase this is no limit.
        let peak_bytes = scopes.peak_bytes(self.key.scope).map_or(peak_bytes, |epoch_peak| peak_bytes.min(epoch_peak));
        let activity = self.activity.entry(phase).or_default();
        activity.add(peak_bytes, peak_bytes - before_bytes);
        activity.foreign_bytes = activity.foreign_bytes.wrapping_add(foreign_bytes);
        activity.other_threads.insert_all(other_threads);
    }
}

fn origins(before: &Reading, phases: &Phases, matrix: &Matrix) -> Vec<OriginRow> {
    let name =
        |id: Option<NameId>| id.and_then(|id| phases.names().get(usize::from(id)).copied()).unwrap_or(FURTHER_PHASES);
    let mut rows: Vec<OriginRow> = rows_since(before, phases, matrix)
        .into_iter()
        .map(|row| {
            let mut freed: Vec<_> = row.freed.into_iter().map(|(phase, amount)| (name(phase), amount)).collect();
            other_last(&mut freed, |(phase, _)| phase);
            OriginRow { origin: name(row.origin), before: row.before, allocated: row.allocated, freed, live: row.live }
        })
        .collect();
    other_last(&mut rows, |row| row.origin);
    rows
}

/// "other" stands first, if it is there.
fn other_last<T>(rows: &mut [T], name: impl Fn(&T) -> &'static str) {
    if rows.first().is_some_and(|first| name(first) == "other") {
        rows.rotate_left(1);
    }
}

fn held_at_peak(holders: Vec<Holder>, phases: &Phases) -> Vec<HeldAtPeak> {
    let mut by_name: BTreeMap<(&str, Option<&str>), HeldAtPeak> = BTreeMap::new();
    for Holder { phase, scope, held } in holders {
        let phase = phases.name(phase).unwrap_or("other");
        let empty = HeldAtPeak { phase, scope, held: Amount::default() };
        by_name.entry((phase, scope)).or_insert(empty).held.add(held);
    }
    let mut holders: Vec<HeldAtPeak> = by_name.into_values().filter(|holder| !holder.held.is_nothing()).collect();
    // Stable, so equals stay in the order of their names.
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.held.bytes));
    holders
}
