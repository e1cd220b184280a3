//! Open scopes: exact peaks for any nesting and overlap, and whose bytes are live.
//!
//! **Peaks.** No peak is ever reset. One running maximum of the live bytes is kept since the last *cut*; a cut happens
//! when a scope opens or closes, hands the maximum to every open scope and restarts it from the live bytes. Open scopes
//! stand in order of opening. An older scope's interval covers a younger one's so far, so peaks never rise from old to
//! new, and handing over may stop at the first scope, from the new end, that is already as high.
//!
//! **Owners.** A block remembers the scope that allocated it. Allocations and frees of owned blocks are credited to that
//! scope and to all scopes around it, so a scope's own bytes do not change through what other threads do. A closed scope's
//! record stays as long as blocks or inner scopes refer to it.

mod kept;

use std::num::NonZeroU32;

use super::phases::{OTHER_PHASE, PhaseId};

/// No scope.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Names one activation of a scope. A key of a scope that is gone names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopeKey {
    slot: u32,
    /// Never zero, so that an optional key is no larger than a key: each block holds one.
    generation: NonZeroU32,
}

/// What a scope means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    /// A function or a block.
    Function,
    /// One step of an epoch, by its number.
    Step(u64),
    /// An epoch.
    Epoch,
}

/// Counters that only grow, whatever is reset by the user.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) allocation_count: i64,
    pub(super) free_count: i64,
    /// Rounded bytes of all allocations and frees together.
    pub(super) moved_bytes: i64,
    pub(super) retry_count: i64,
    pub(super) oom_count: i64,
}

/// The phase and step at which a peak was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) phase: PhaseId,
    pub(crate) step: Option<u64>,
}

/// What happened in a scope.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClosedScope {
    pub(crate) phase: PhaseId,
    pub(crate) phase_name: Option<&'static str>,
    /// The phase this scope itself began, if it did.
    pub(crate) own_phase: Option<PhaseId>,
    pub(crate) before_bytes: i64,
    pub(crate) after_bytes: i64,
    pub(crate) peak_bytes: i64,
    pub(crate) peak_place: Place,
    pub(crate) allocation_count: i64,
    pub(crate) free_count: i64,
    pub(crate) retry_count: i64,
    pub(crate) oom_count: i64,
    pub(crate) reserved_delta_bytes: i64,
    pub(crate) own_delta_bytes: i64,
    pub(crate) own_peak_bytes: i64,
    pub(crate) own_allocation_count: i64,
    pub(crate) foreign_bytes: i64,
}

#[derive(Debug)]
struct Slot {
    generation: NonZeroU32,
    open: bool,
    kind: ScopeKind,
    name: &'static str,
    parent: u32,
    /// Inner scopes and owned live blocks that refer to this record.
    reference_count: u32,
    own_phase: Option<PhaseId>,
    phase: PhaseId,
    /// Neighbours among the open scopes, by time of opening.
    older: u32,
    newer: u32,
    peak_bytes: i64,
    peak_place: Place,
    before_bytes: i64,
    before_reserved_bytes: i64,
    before: Totals,
    own_live_bytes: i64,
    own_peak_bytes: i64,
    own_allocation_count: i64,
    /// Rounded bytes allocated and freed by threads inside this scope.
    moved_bytes: i64,
}

/// All scopes of one device.
#[derive(Debug)]
pub(super) struct Scopes {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    newest: u32,
    open_phase_count: usize,
    running_max_bytes: i64,
    running_place: Place,
    step: Option<u64>,
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
            step: None,
        }
    }
}

impl Scopes {
    /// The slot a key names, [`NO_SLOT`] when it names nothing any more.
    #[inline]
    pub(super) fn resolve(&self, key: Option<ScopeKey>) -> u32 {
        match key {
            Some(key) if self.slots.get(key.slot as usize).is_some_and(|slot| slot.generation == key.generation) => {
                key.slot
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
            own_live_bytes: 0,
            own_peak_bytes: 0,
            own_allocation_count: 0,
            moved_bytes: 0,
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
        ScopeKey { slot: index, generation }
    }

    /// Removes an open scope, from wherever it stands; the caller has just cut and knows that it is open.
    #[inline]
    pub(super) fn close(
        &mut self,
        key: ScopeKey,
        after_bytes: i64,
        reserved_bytes: i64,
        totals: &Totals,
    ) -> ClosedScope {
        let slot = &mut self.slots[key.slot as usize];
        slot.open = false;
        let moved_bytes = totals.moved_bytes.wrapping_sub(slot.before.moved_bytes);
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
            own_delta_bytes: slot.own_live_bytes,
            own_peak_bytes: slot.own_peak_bytes,
            own_allocation_count: slot.own_allocation_count,
            foreign_bytes: moved_bytes.wrapping_sub(slot.moved_bytes),
        };
        let (older, newer, kind) = (slot.older, slot.newer, slot.kind);
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
        self.vacate_unreferenced(key.slot);
        closed
    }

    /// The nearest open scope around `at`.
    ///
    /// Closed ones in between are passed over for good: a scope that outlives the one it was opened in, as each step does
    /// where a loop assigns `guard = step(i)`, would else keep an ever longer chain of records to walk.
    #[inline]
    fn open_around(&mut self, at: u32) -> u32 {
        let parent = self.slots.get(at as usize).map_or(NO_SLOT, |slot| slot.parent);
        match self.slots.get(parent as usize) {
            Some(slot) if !slot.open => self.pass_over_closed(at, parent),
            _ => parent,
        }
    }

    #[cold]
    fn pass_over_closed(&mut self, at: u32, closed: u32) -> u32 {
        let mut parent = closed;
        while let Some(slot) = self.slots.get(parent as usize).filter(|slot| !slot.open) {
            parent = slot.parent;
        }
        if let Some(slot) = self.slots.get_mut(parent as usize) {
            slot.reference_count += 1;
        }
        self.slots[at as usize].parent = parent;
        self.slots[closed as usize].reference_count -= 1;
        self.vacate_unreferenced(closed);
        parent
    }

    /// The scope that a new one is opened in: the one named if it is open, else the nearest open one around it.
    pub(super) fn open_or_around(&mut self, at: u32) -> u32 {
        // Also shortens the chain above an open scope.
        let around = self.open_around(at);
        if self.slots.get(at as usize).is_some_and(|slot| slot.open) { at } else { around }
    }

    /// Frees the records of closed scopes that nothing refers to any more, from `at` outwards.
    #[inline]
    fn vacate_unreferenced(&mut self, mut at: u32) {
        while let Some(slot) = self.slots.get_mut(at as usize).filter(|slot| !slot.open && slot.reference_count == 0) {
            slot.generation = NonZeroU32::new(slot.generation.get().wrapping_add(1)).unwrap_or(NonZeroU32::MIN);
            let parent = slot.parent;
            self.vacant.push(at);
            if let Some(parent) = self.slots.get_mut(parent as usize) {
                parent.reference_count -= 1;
            }
            at = parent;
        }
    }

    /// A block now belongs to `owner`.
    #[inline]
    pub(super) fn own(&mut self, owner: u32, size_bytes: i64, requested_bytes: i64) {
        if let Some(slot) = self.slots.get_mut(owner as usize) {
            slot.reference_count += 1;
        }
        let mut at = owner;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.open {
                slot.own_live_bytes = slot.own_live_bytes.wrapping_add(requested_bytes);
                slot.own_peak_bytes = slot.own_peak_bytes.max(slot.own_live_bytes);
                slot.own_allocation_count += 1;
                slot.moved_bytes = slot.moved_bytes.wrapping_add(size_bytes);
            }
            at = self.open_around(at);
        }
    }

    /// A block of `owner` was given back.
    #[inline]
    pub(super) fn disown(&mut self, owner: u32, requested_bytes: i64) {
        let mut at = owner;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.open {
                slot.own_live_bytes = slot.own_live_bytes.wrapping_sub(requested_bytes);
            }
            at = self.open_around(at);
        }
        if let Some(slot) = self.slots.get_mut(owner as usize) {
            slot.reference_count -= 1;
            if !slot.open && slot.reference_count == 0 {
                self.vacate_unreferenced(owner);
            }
        }
    }

    /// A thread inside `context` moved bytes that it did not allocate now.
    #[inline]
    pub(super) fn moved(&mut self, context: u32, size_bytes: i64) {
        let mut at = context;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            slot.moved_bytes = slot.moved_bytes.wrapping_add(size_bytes);
            at = self.open_around(at);
        }
    }

    /// The peak so far of an open scope, as of the last cut.
    pub(super) fn peak_bytes(&self, key: ScopeKey) -> Option<i64> {
        self.slots.get(self.resolve(Some(key)) as usize).map(|slot| slot.peak_bytes)
    }

    /// Open scopes, the newest first.
    fn open_slots(&self) -> impl Iterator<Item = &Slot> {
        let mut at = self.newest;
        std::iter::from_fn(move || {
            let slot = self.slots.get(at as usize)?;
            at = slot.older;
            Some(slot)
        })
    }

    fn newest_step(&self) -> Option<u64> {
        self.open_slots().find_map(|slot| match slot.kind {
            ScopeKind::Step(number) => Some(number),
            ScopeKind::Function | ScopeKind::Epoch => None,
        })
    }

    /// Open scopes that began a phase: (phase, bytes before, peak so far).
    pub(super) fn open_phases(&self) -> impl Iterator<Item = (PhaseId, i64, i64)> {
        self.open_slots().filter_map(|slot| slot.own_phase.map(|phase| (phase, slot.before_bytes, slot.peak_bytes)))
    }

    #[cfg(test)]
    pub(super) fn record_count(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}
