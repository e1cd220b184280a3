//! Open scopes, and their exact peaks for any nesting and overlap.
//!
//! **Peaks.** No peak is ever reset. One running maximum of the live bytes is kept since the last *cut*; a cut happens
//! when a scope opens or closes, hands the maximum to every open scope and restarts it from the live bytes. Open scopes
//! stand in order of opening. An older scope's interval covers a younger one's so far, so peaks never rise from old to
//! new, and handing over may stop at the first scope, from the new end, that is already as high. The set of threads that were
//! active is kept the same way: it only grows from new to old.
//!
//! Whose the bytes are is the affair of [`owners`](super::owners).

mod kept;

use std::num::NonZeroU32;

use super::held::Held;
use super::phases::{OTHER_PHASE, PhaseId};
use super::slot::{Call, ClosedScope, NO_SLOT, Owned, Place, ScopeKey, ScopeKind, Slot, Totals};
use super::threads::ThreadSet;

/// All scopes of one device.
#[derive(Debug)]
pub(super) struct Scopes {
    pub(super) slots: Vec<Slot>,
    pub(super) vacant: Vec<u32>,
    newest: u32,
    open_phase_count: usize,
    running_max_bytes: i64,
    running_place: Place,
    running_threads: ThreadSet,
    step: Option<u64>,
    /// Counts the peaks of epochs, see [`held`](super::held).
    pub(super) peak_serial: u64,
    /// Live blocks of no scope.
    pub(super) unowned: Held,
}

impl Default for Scopes {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            newest: NO_SLOT,
            open_phase_count: 0,
            running_max_bytes: 0,
            running_place: Place::default(),
            running_threads: ThreadSet::default(),
            step: None,
            peak_serial: 0,
            unowned: Held::default(),
        }
    }
}

impl Scopes {
    /// The slot a key names, [`NO_SLOT`] when it names nothing any more.
    #[inline]
    pub(super) fn resolve(&self, key: Option<ScopeKey>) -> u32 {
        match key {
            Some(key)
                if self
                    .slots
                    .get(key.slot() as usize)
                    .is_some_and(|slot| slot.generation.get() == key.generation()) =>
            {
                key.slot()
            }
            _ => NO_SLOT,
        }
    }

    pub(super) fn is_open(&self, key: ScopeKey) -> bool {
        self.slots.get(self.resolve(Some(key)) as usize).is_some_and(|slot| slot.open)
    }

    pub(super) fn any_phase_open(&self) -> bool {
        self.open_phase_count > 0
    }

    #[inline]
    pub(super) fn phase_of(&self, slot: u32) -> PhaseId {
        self.slots.get(slot as usize).map_or(OTHER_PHASE, |slot| slot.phase)
    }

    /// The phase in force once this scope is closed.
    pub(super) fn phase_around(&mut self, key: ScopeKey) -> PhaseId {
        let around = self.open_around(self.resolve(Some(key)));
        self.phase_of(around)
    }

    pub(super) fn set_step(&mut self, step: Option<u64>) {
        self.step = step;
        self.running_place.step = step;
    }

    /// The live bytes rose through an allocation made in `phase`.
    #[inline]
    pub(super) fn raise(&mut self, live_bytes: i64, phase: PhaseId) {
        if live_bytes > self.running_max_bytes {
            self.running_max_bytes = live_bytes;
            self.running_place = Place { phase, step: self.step };
        }
    }

    /// Threads inside `context` moved bytes.
    #[inline]
    pub(super) fn active(&mut self, threads: ThreadSet, context: u32) {
        self.running_threads.insert_all(threads);
        if let Some(slot) = self.slots.get_mut(context as usize) {
            slot.threads_inside.insert_all(threads);
            if !slot.open {
                self.active_in_closed(threads, context);
            }
        }
    }

    #[cold]
    fn active_in_closed(&mut self, threads: ThreadSet, context: u32) {
        let around = self.open_around(context);
        if let Some(slot) = self.slots.get_mut(around as usize) {
            slot.threads_inside.insert_all(threads);
        }
    }

    /// A scope is about to close: the threads inside it were inside the scope around it. An event enters its thread in the
    /// innermost scope alone, so a phase asks the scopes inside it that are still open too.
    #[inline]
    pub(super) fn hand_threads_on(&mut self, key: ScopeKey) {
        if self.newest != key.slot() && self.slots[key.slot() as usize].own_phase.is_some() {
            self.gather_threads();
        }
        let around = self.open_around(key.slot());
        let inside = self.slots[key.slot() as usize].threads_inside;
        if let Some(slot) = self.slots.get_mut(around as usize) {
            slot.threads_inside.insert_all(inside);
        }
    }

    /// Every open scope has the threads of those inside it.
    #[cold]
    pub(super) fn gather_threads(&mut self) {
        // From the newest: what is inside a scope is younger.
        let mut at = self.newest;
        while let Some(slot) = self.slots.get(at as usize) {
            let (inside, older) = (slot.threads_inside, slot.older);
            let around = self.open_around(at);
            if let Some(slot) = self.slots.get_mut(around as usize) {
                slot.threads_inside.insert_all(inside);
            }
            at = older;
        }
    }

    /// Hands the running maximum to the open scopes and restarts it; returns what it was.
    #[inline]
    pub(super) fn cut(&mut self, live_bytes: i64, next_phase: PhaseId) -> i64 {
        let highest_bytes = self.running_max_bytes;
        let mut at = self.newest;
        while let Some(slot) = self.slots.get_mut(at as usize).filter(|slot| slot.peak_bytes < highest_bytes) {
            slot.peak_bytes = highest_bytes;
            slot.peak_place = self.running_place;
            at = slot.older;
        }
        let threads = std::mem::take(&mut self.running_threads);
        let mut at = self.newest;
        while let Some(slot) = self.slots.get_mut(at as usize).filter(|slot| !slot.threads_seen.has_all(threads)) {
            slot.threads_seen.insert_all(threads);
            at = slot.older;
        }
        self.running_max_bytes = live_bytes;
        self.running_place = Place { phase: next_phase, step: self.step };
        highest_bytes
    }

    /// Enters a scope as the newest; the caller has just cut.
    #[inline]
    pub(super) fn open(
        &mut self,
        parent: u32,
        kind: ScopeKind,
        own_phase: Option<PhaseId>,
        inherited_phase: PhaseId,
        (before_bytes, before_reserved_bytes, before): (i64, i64, Totals),
    ) -> ScopeKey {
        let index = self.vacant.pop().unwrap_or(self.slots.len() as u32);
        let generation = self.slots.get(index as usize).map_or(NonZeroU32::MIN, |slot| slot.generation);
        let phase = own_phase.unwrap_or(inherited_phase);
        let slot = Slot {
            generation,
            open: true,
            outcome: super::Outcome::Ok,
            kind,
            name: "",
            parent,
            reference_count: 0,
            own_phase,
            phase,
            older: self.newest,
            newer: NO_SLOT,
            peak_bytes: before_bytes,
            peak_place: Place { phase, step: self.step },
            before_bytes,
            before_reserved_bytes,
            before,
            owned: Owned::default(),
            call: Call::default(),
            moved_bytes: 0,
            threads_inside: ThreadSet::default(),
            threads_seen: ThreadSet::default(),
            held: Held { noted_serial: self.peak_serial, ..Held::default() },
        };
        if let Some(newest) = self.slots.get_mut(self.newest as usize) {
            newest.newer = index;
        }
        if let Some(parent) = self.slots.get_mut(parent as usize) {
            parent.reference_count += 1;
        }
        match self.slots.get_mut(index as usize) {
            Some(vacant) => *vacant = slot,
            None => self.slots.push(slot),
        }
        self.newest = index;
        self.open_phase_count += usize::from(own_phase.is_some());
        ScopeKey::new(index, generation)
    }

    /// Removes an open scope, from wherever it stands; the caller has just cut and knows that it is open.
    #[inline(always)]
    pub(super) fn close(
        &mut self,
        key: ScopeKey,
        outcome: super::Outcome,
        (after_bytes, reserved_bytes): (i64, i64),
        totals: &Totals,
    ) -> ClosedScope {
        let slot = &mut self.slots[key.slot() as usize];
        slot.open = false;
        let closed = ClosedScope {
            phase: slot.phase,
            phase_name: None,
            own_phase: slot.own_phase,
            before_bytes: slot.before_bytes,
            after_bytes,
            peak_bytes: slot.peak_bytes,
            peak_place: slot.peak_place,
            allocation_count: totals.allocation_count - slot.before.allocation_count,
            free_count: totals.free_count - slot.before.free_count,
            retry_count: totals.retry_count - slot.before.retry_count,
            oom_count: totals.oom_count - slot.before.oom_count,
            reserved_delta_bytes: reserved_bytes.wrapping_sub(slot.before_reserved_bytes),
            owned: slot.owned,
            foreign_bytes: slot.foreign_bytes(totals),
            other_threads: slot.other_threads(),
        };
        let (older, newer, kind) = (slot.older, slot.newer, slot.kind);
        slot.outcome = outcome;
        if let Some(neighbour) = self.slots.get_mut(older as usize) {
            neighbour.newer = newer;
        }
        match self.slots.get_mut(newer as usize) {
            Some(neighbour) => neighbour.older = older,
            None => self.newest = older,
        }
        self.open_phase_count -= usize::from(closed.own_phase.is_some());
        if let ScopeKind::Step(_) = kind {
            // Steps of several threads end in any order, so the step in force is not the one this step began in.
            self.set_step(self.newest_step());
        }
        self.vacate_unreferenced(key.slot());
        closed
    }

    /// The peak so far of an open scope, as of the last cut.
    pub(super) fn peak_bytes(&self, key: ScopeKey) -> Option<i64> {
        self.slots.get(self.resolve(Some(key)) as usize).map(|slot| slot.peak_bytes)
    }

    /// The peak so far of an open scope.
    pub(super) fn peak_bytes_now(&self, slot: &Slot) -> i64 {
        // Whatever was reached since the last cut, every open scope has seen.
        slot.peak_bytes.max(self.running_max_bytes)
    }

    /// Open scopes, the newest first.
    pub(super) fn open_slots(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let mut next = self.newest;
        std::iter::from_fn(move || {
            let at = next;
            let slot = self.slots.get(at as usize)?;
            next = slot.older;
            Some((at, slot))
        })
    }

    fn newest_step(&self) -> Option<u64> {
        self.open_slots().find_map(|(_, slot)| match slot.kind {
            ScopeKind::Step(number) => Some(number),
            ScopeKind::Function | ScopeKind::CallSite(_) | ScopeKind::Epoch => None,
        })
    }

    /// Open scopes that began a phase.
    pub(super) fn open_phases(&self) -> impl Iterator<Item = (PhaseId, &Slot)> {
        self.open_slots().filter_map(|(_, slot)| slot.own_phase.map(|phase| (phase, slot)))
    }

    #[cfg(test)]
    pub(super) fn record_count(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}
