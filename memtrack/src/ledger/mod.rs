//! The books of one device: statistics, open scopes with their exact peaks, owners, calls by call site, phases and epochs; and
//! the device's part of scopes over several ([`Combined`]).
//!
//! The books are plain data behind one lock: each allocation and free is entered once, in constant time. What an event moves in its scope
//! and in those around is entered for many events at once ([`run`]). Threads that find the lock taken write into a ring instead, which
//! is entered in the order in which things happened before anybody reads the books ([`SharedLedger`]). No device call, no clock, no
//! tracing call and no policy may live here.

mod attempts;
mod call_site;
mod call_sites;
mod calls;
mod combined;
mod counters;
mod epochs;
mod event;
mod held;
mod matrix;
mod outcome;
mod owners;
mod phases;
mod ring;
mod run;
mod scopes;
mod shared;
mod slot;
mod threads;

use std::time::Duration;

pub(crate) use attempts::FailedAttempt;
pub use call_site::CallSite;
pub(crate) use call_sites::{Inclusive, SiteTotals};
pub(crate) use combined::Combined;
pub(crate) use epochs::{ClosedEpoch, EpochKey, HeldAtPeak, OriginRow, PeakWindow, PhaseRow};
pub(crate) use matrix::Amount;
pub use outcome::Outcome;
use phases::PhaseId;
pub(crate) use shared::{LedgerGuard, SharedLedger};
pub(crate) use slot::{ClosedScope, ScopeKey, ScopeKind};
pub(crate) use threads::{ThreadNumber, current as current_thread};

use self::call_sites::CallSites;
use self::combined::Part;
use self::counters::Counters;
use self::epochs::Epochs;
use self::matrix::{Matrix, Reading};
use self::phases::Phases;
use self::run::Run;
use self::scopes::Scopes;
use self::slot::Totals;
use self::threads::ThreadSet;
use crate::stats::{MemoryStats, PoolKind};

/// The net change of the inactive split counters in one event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SplitChange {
    pub(crate) count: i64,
    pub(crate) bytes: i64,
}

/// A block as the ledger sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub(crate) pool: PoolKind,
    /// Rounded.
    pub(crate) size_bytes: i64,
    /// As asked for.
    pub(crate) requested_bytes: i64,
    /// At least the split limit.
    pub(crate) oversize: bool,
    /// The thread that allocates or frees it.
    pub(crate) thread: ThreadNumber,
}

/// The books of one device.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    counters: Counters,
    run: Run,
    totals: Totals,
    scopes: Scopes,
    phases: Phases,
    matrix: Matrix,
    epochs: Epochs,
    call_sites: CallSites,
    /// Open scopes that are this device's part of one over several; nearly always none.
    parts: Vec<Part>,
}

impl Ledger {
    pub(crate) fn new(max_split_size: i64) -> Self {
        Self { counters: Counters::new(max_split_size), ..Self::default() }
    }

    /// All statistics; about a kilobyte.
    pub(crate) fn stats(&self) -> MemoryStats {
        self.counters.read()
    }

    pub(crate) fn reset_peak(&mut self) {
        self.counters.reset_peak();
    }

    pub(crate) fn reset_accumulated(&mut self) {
        // A run is told by the sums.
        self.settle();
        self.counters.reset_accumulated();
    }

    /// Rounded bytes handed out.
    pub(crate) fn live_bytes(&self) -> i64 {
        self.counters.all_bytes.current
    }

    pub(crate) fn active_bytes(&self) -> i64 {
        self.counters.active_bytes()
    }

    pub(crate) fn reserved_bytes(&self) -> i64 {
        self.counters.reserved_bytes.all.current
    }

    /// Bytes as asked for: now, and the most since peaks were reset.
    pub(crate) fn requested_bytes(&self) -> (i64, i64) {
        (self.counters.all_requested.current, self.counters.all_requested.peak)
    }

    /// The program gave a block back, which still has to wait for other streams.
    pub(crate) fn free_requested(&mut self, entry: &BlockEntry, owner: Option<ScopeKey>, context: Option<ScopeKey>) {
        self.settle();
        self.settle_peaks();
        self.given_back(entry, owner, context);
        self.counters.pends(entry);
    }

    /// Of a block that the program gave back, all but the counters. Peaks are settled, and no run is on.
    fn given_back(&mut self, entry: &BlockEntry, owner: Option<ScopeKey>, context: Option<ScopeKey>) {
        let BlockEntry { size_bytes, requested_bytes, thread, .. } = *entry;
        self.totals.free_count += 1;
        self.totals.moved_bytes = self.totals.moved_bytes.wrapping_add(size_bytes);

        let context = self.scopes.resolve(context);
        let phase = self.scopes.phase_of(context);
        self.phases.totals(phase).freed(size_bytes);
        // A scope stays in the table while it owns blocks; one that was gone at the allocation is gone now.
        let owner = self.scopes.resolve(owner);
        let origin = self.change_held(owner, Amount { bytes: size_bytes.wrapping_neg(), count: -1 });
        self.matrix.freed(origin, phase, Amount { bytes: size_bytes, count: 1 });
        self.scopes.active(ThreadSet::of(thread), context);
        if !self.parts.is_empty() {
            self.lower_sums(owner, size_bytes, requested_bytes);
        }
        self.scopes.moved(context, size_bytes);
        self.scopes.disown(owner, requested_bytes);
    }

    /// A block that waited went back to its pool.
    pub(crate) fn free_completed(&mut self, entry: &BlockEntry, split: SplitChange) {
        self.counters.pends_no_more(entry, split);
    }

    /// A segment came from the device, for an allocation of `context`.
    pub(crate) fn segment_allocated(&mut self, pool: PoolKind, bytes: i64, oversize: bool, context: Option<ScopeKey>) {
        self.settle_peaks();
        self.counters.segment.increase(pool, 1);
        self.counters.reserved_bytes.increase(pool, bytes);
        if oversize {
            self.counters.oversize_segments.increase(1);
        }
        self.counters.num_device_alloc += 1;
        let phase = self.context_phase(context);
        self.phases.totals(phase).device_allocation_count += 1;
    }

    /// A segment went back to the device.
    pub(crate) fn segment_released(&mut self, pool: PoolKind, bytes: i64, oversize: bool) {
        self.settle_peaks();
        self.counters.segment.decrease(pool, 1);
        self.counters.reserved_bytes.decrease(pool, bytes);
        if oversize {
            self.counters.oversize_segments.decrease(1);
        }
        self.counters.num_device_free += 1;
    }

    /// Pages of an expandable segment were mapped, for an allocation of `context`. As in PyTorch they are no segment, and however many they
    /// are, they count as one call of the device.
    pub(crate) fn pages_mapped(&mut self, pool: PoolKind, bytes: i64, context: Option<ScopeKey>) {
        self.settle_peaks();
        self.counters.reserved_bytes.increase(pool, bytes);
        self.counters.num_device_alloc += 1;
        let phase = self.context_phase(context);
        self.phases.totals(phase).device_allocation_count += 1;
    }

    /// Pages of an expandable segment were unmapped at once.
    pub(crate) fn pages_unmapped(&mut self, pool: PoolKind, bytes: i64) {
        self.settle_peaks();
        self.counters.reserved_bytes.decrease(pool, bytes);
        self.counters.num_device_free += 1;
    }

    /// The driver's own pool has so many bytes reserved now.
    pub(crate) fn reserved_is(&mut self, bytes: i64) {
        let change = bytes - self.reserved_bytes();
        // What it has more it took for an allocation that is entered already.
        if change < 0 {
            self.settle_peaks();
        }
        self.counters.reserved_bytes.change(PoolKind::Large, change);
    }

    /// PyTorch counts the release of a segment before the device refuses it.
    pub(crate) fn release_refused(&mut self) {
        self.counters.num_device_free += 1;
    }

    pub(crate) fn synchronized(&mut self) {
        self.counters.num_sync_all_streams += 1;
    }

    pub(crate) fn retried(&mut self, context: Option<ScopeKey>) {
        self.counters.num_alloc_retries += 1;
        self.totals.retry_count += 1;
        let context = self.scopes.resolve(context);
        self.phases.totals(self.scopes.phase_of(context)).retry_count += 1;
        self.retried_in(context);
    }

    pub(crate) fn out_of_memory(&mut self, context: Option<ScopeKey>) {
        self.counters.num_ooms += 1;
        self.totals.oom_count += 1;
        let context = self.scopes.resolve(context);
        self.phases.totals(self.scopes.phase_of(context)).oom_count += 1;
        self.out_of_memory_in(context);
    }

    /// An allocation in `context` found no cached block, and took so long.
    pub(crate) fn slow_path_took(&mut self, took: Duration, context: Option<ScopeKey>) {
        let phase = self.context_phase(context);
        let nanos = &mut self.phases.totals(phase).slow_path_nanos;
        *nanos = nanos.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    fn context_phase(&self, context: Option<ScopeKey>) -> PhaseId {
        self.scopes.phase_of(self.scopes.resolve(context))
    }

    /// The name of the phase in force in a context, if any.
    pub(crate) fn phase_name(&self, context: Option<ScopeKey>) -> Option<&'static str> {
        self.phases.name(self.context_phase(context))
    }

    /// Opens a scope inside `parent`. With `phase`, what happens in it is booked under that phase.
    pub(crate) fn open_scope(
        &mut self,
        parent: Option<ScopeKey>,
        kind: ScopeKind,
        phase: Option<&'static str>,
    ) -> ScopeKey {
        self.settle();
        let parent = self.scopes.open_or_around(self.scopes.resolve(parent));
        let inherited = self.scopes.phase_of(parent);
        let own_phase = phase.map(|name| self.phases.enter(inherited, name));
        if let Some(phase) = own_phase {
            self.matrix.widen(self.phases.node_count());
            self.phases.totals(phase).entered_count += 1;
        }
        self.cut(own_phase.unwrap_or(inherited));
        let reserved_bytes = self.reserved_bytes();
        let before = (self.live_bytes(), reserved_bytes, self.totals);
        let key = self.scopes.open(parent, kind, own_phase, inherited, before);
        match kind {
            ScopeKind::CallSite(site) => self.begin_call(key, site),
            ScopeKind::Step(number) => {
                self.scopes.set_step(Some(number));
                self.epochs.count_step();
            }
            ScopeKind::Function | ScopeKind::Epoch => {}
        }
        key
    }

    /// Closes a scope and says what happened in it. `None` when it is closed already.
    #[inline]
    pub(crate) fn close_scope(&mut self, key: ScopeKey, outcome: Outcome) -> Option<ClosedScope> {
        self.settle();
        if !self.scopes.is_open(key) {
            return None;
        }
        let closed = self.close_open_scope(key, outcome);
        Some(ClosedScope { phase_name: self.phases.name(closed.phase), ..closed })
    }

    /// As [`close_scope`](Self::close_scope) where nobody asks what happened; the name of the phase that the scope began, if it did.
    pub(crate) fn close_scope_unread(&mut self, key: ScopeKey, outcome: Outcome) -> Option<&'static str> {
        self.settle();
        if !self.scopes.is_open(key) {
            return None;
        }
        self.close_open_scope(key, outcome).own_phase.and_then(|own_phase| self.phases.name(own_phase))
    }

    #[inline(always)]
    fn close_open_scope(&mut self, key: ScopeKey, outcome: Outcome) -> ClosedScope {
        let phase = self.scopes.phase_around(key);
        self.cut(phase);
        self.scopes.hand_threads_on(key);
        if let Some(site) = self.scopes.site_of(key) {
            self.end_call(key, site, outcome);
        }
        let after = (self.live_bytes(), self.reserved_bytes());
        let closed = self.scopes.close(key, outcome, after, &self.totals);
        if let Some(phase) = closed.own_phase {
            let name = self.phases.name_id(phase);
            self.epochs.phase_closed(name, &closed, &self.scopes);
        }
        closed
    }

    /// Begins an epoch: a scope of its own, and rows per phase from here on.
    pub(crate) fn open_epoch(&mut self, number: u64, parent: Option<ScopeKey>) -> EpochKey {
        let scope = self.open_scope(parent, ScopeKind::Epoch, None);
        let notes = self.begin_notes();
        let before = Reading { totals: self.phases.all_totals().to_vec(), matrix: self.matrix.clone() };
        self.epochs.open(number, scope, before, notes)
    }

    /// Ends an epoch. `None` when it has ended already.
    pub(crate) fn close_epoch(&mut self, key: &EpochKey, lasted: Duration) -> Option<ClosedEpoch> {
        self.settle();
        self.settle_peaks();
        let phase = self.scopes.phase_around(key.scope);
        self.cut(phase);
        self.scopes.gather_threads();
        self.epochs.include_open_phases(key, &self.scopes, &self.phases, &self.totals);
        let scope = self.close_scope(key.scope, Outcome::Ok)?;
        let epoch = self.epochs.take(key)?;
        let holders = self.holders(&epoch.notes);
        Some(self.epochs.close(
            epoch,
            scope,
            (&self.phases, &self.matrix),
            (self.reserved_bytes(), self.active_bytes()),
            holders,
            lasted,
        ))
    }

    /// Ends the stretch since the last cut: its highest point goes to every scope that is open.
    fn cut(&mut self, next_phase: PhaseId) {
        let highest_bytes = self.scopes.cut(self.counters.all_bytes.current, next_phase);
        if !self.scopes.any_phase_open() {
            self.epochs.raise_other(highest_bytes);
        }
    }
}

#[cfg(test)]
mod tests;
