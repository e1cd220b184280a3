//! Runs: events in a row in one scope, of whatever threads, which are entered into the books of scopes and phases as one.
//!
//! Most events follow another of the same scope. Of such a *run* only the counters are kept up, and how high the
//! live bytes were; all else that an event moves (the scope, each scope around it, its phase, the matrix, who holds what) moves by
//! sums, which are the counters' rise since the run began. So an event of a run costs the same in any number of scopes.
//!
//! To end a run is linear in the scopes that are open around it. That falls on each event where runs are short: where each allocation
//! is followed by the free of a block of another scope, as in a backward pass, and where scopes open and close around single blocks.
//!
//! **Why it is exact.** Within a run nothing but the run's own allocations and frees happens, the frees of blocks that its scope
//! itself owns. The live bytes of a scope around then move as those of the device do, so the highest point of the run is the same moment
//! for all of them. A run ends (is *settled*) before anything else is read or changed: an event of another scope, a free
//! of another's block, a scope that opens or closes, a peak that an epoch notes. [`SharedLedger::lock`](super::SharedLedger::lock)
//! settles, so that whoever takes the books sees no run.

use super::counters::Volume;
use super::matrix::Amount;
use super::phases::OTHER_PHASE;
use super::slot::{NO_SLOT, ScopeKey};
use super::threads::ThreadSet;
use super::{BlockEntry, Ledger, SplitChange};

/// In place of a scope; no scope has it, since places do not go so far.
const NO_RUN: u64 = u64::MAX;

/// The run that is on.
#[derive(Debug)]
pub(super) struct Run {
    /// Its scope as one number; [`NO_RUN`] when no run is on.
    scope: u64,
    threads: ThreadSet,
    /// The scope's place.
    slot: u32,
    /// Each event is a run of its own.
    is_single: bool,
    /// The most live bytes after one of its allocations.
    highest_bytes: i64,
    /// The same of bytes as asked for.
    highest_requested_bytes: i64,
    /// What was handed out before it, ever and then.
    allocated_before: Volume,
    current_before: Volume,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            scope: NO_RUN,
            threads: ThreadSet::default(),
            slot: NO_SLOT,
            is_single: false,
            highest_bytes: 0,
            highest_requested_bytes: 0,
            allocated_before: Volume::default(),
            current_before: Volume::default(),
        }
    }
}

impl Ledger {
    /// A block was handed out to a thread in the scope `owner`, which is to be named again at the free.
    #[inline(always)]
    pub(crate) fn allocated(&mut self, entry: &BlockEntry, split: SplitChange, owner: Option<ScopeKey>) {
        if self.run.scope != ScopeKey::to_word(owner) {
            self.begin_run(owner);
        }
        self.counters.allocated(entry, split);
        let run = &mut self.run;
        run.threads.insert(entry.thread);
        run.highest_bytes = run.highest_bytes.max(self.counters.all_bytes.current);
        run.highest_requested_bytes = run.highest_requested_bytes.max(self.counters.all_requested.current);
        if run.is_single {
            self.allocated_alone(entry);
        }
    }

    /// A block of the scope `owner` was given back by a thread in the scope `context`, and is free.
    #[inline(always)]
    pub(crate) fn freed(
        &mut self,
        entry: &BlockEntry,
        split: SplitChange,
        owner: Option<ScopeKey>,
        context: Option<ScopeKey>,
    ) {
        let is_of_run = self.run.scope == ScopeKey::to_word(context) && owner == context;
        if is_of_run && !self.run.is_single {
            if self.counters.all_bytes.current > self.epochs.lowest_peak_bytes {
                // Ends the run; the free begins another.
                self.settle_peaks();
                self.begin_run(context);
            }
            self.run.threads.insert(entry.thread);
            self.counters.freed(entry, split);
        } else {
            self.freed_elsewhere(entry, split, owner, context);
        }
    }

    #[inline(never)]
    fn freed_elsewhere(
        &mut self,
        entry: &BlockEntry,
        split: SplitChange,
        owner: Option<ScopeKey>,
        context: Option<ScopeKey>,
    ) {
        self.settle();
        self.settle_peaks();
        self.given_back(entry, owner, context);
        self.counters.freed(entry, split);
    }

    #[inline(never)]
    fn begin_run(&mut self, scope: Option<ScopeKey>) {
        self.settle();
        let slot = self.scopes.resolve(scope);
        // The last block of a closed scope takes the scope's record with it, and a scope of several devices sees each event.
        let is_closed = self.scopes.slots.get(slot as usize).is_some_and(|slot| !slot.open);
        let (allocated_before, current_before) = self.counters.volumes();
        self.run = Run {
            scope: ScopeKey::to_word(scope),
            threads: ThreadSet::default(),
            slot,
            is_single: is_closed || !self.parts.is_empty(),
            highest_bytes: i64::MIN,
            highest_requested_bytes: current_before.requested_bytes,
            allocated_before,
            current_before,
        };
    }

    #[cold]
    #[inline(never)]
    fn allocated_alone(&mut self, entry: &BlockEntry) {
        let slot = self.run.slot;
        self.settle();
        if !self.parts.is_empty() {
            self.raise_sums(slot, entry.size_bytes, entry.requested_bytes);
        }
    }

    /// Ends the run, if one is on: whatever is read afterwards has all that happened in it.
    #[inline]
    pub(super) fn settle(&mut self) {
        if self.run.scope != NO_RUN {
            self.settle_run();
        }
    }

    #[inline(never)]
    fn settle_run(&mut self) {
        self.run.scope = NO_RUN;
        let Run { threads, slot, highest_bytes, highest_requested_bytes, allocated_before, current_before, .. } =
            self.run;
        let (allocated, current) = self.counters.volumes();
        let allocated = allocated.less(allocated_before);
        let freed = allocated.less(current.less(current_before));
        let moved_bytes = allocated.bytes.wrapping_add(freed.bytes);
        self.totals.allocation_count += allocated.count;
        self.totals.free_count += freed.count;
        self.totals.moved_bytes = self.totals.moved_bytes.wrapping_add(moved_bytes);

        let change = Amount { bytes: allocated.bytes.wrapping_sub(freed.bytes), count: allocated.count - freed.count };
        let phase = self.change_held(slot, change);
        self.phases.totals(phase).moved(&allocated, &freed);
        if freed.count > 0 {
            self.matrix.freed(phase, phase, Amount { bytes: freed.bytes, count: freed.count });
        }
        if allocated.count > 0 {
            self.scopes.raise(highest_bytes, phase);
            if phase == OTHER_PHASE {
                // Some other thread may be in a phase, so no cut will tell.
                self.epochs.raise_other(highest_bytes);
            }
        }
        self.scopes.active(threads, slot);
        let risen_bytes = highest_requested_bytes.wrapping_sub(current_before.requested_bytes);
        let is_call = self.scopes.moved_in_run(slot, &allocated, &freed, risen_bytes);
        if !is_call && allocated.count > 0 {
            self.allocated_beside_calls(slot, &allocated);
        }
        if slot != NO_SLOT && freed.count > 0 {
            self.scopes.vacate_unreferenced(slot);
        }
    }
}
