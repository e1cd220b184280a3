//! Whose bytes: the walks over the scopes that a thread is in.
//!
//! A block remembers the scope that allocated it. Allocations and frees of owned blocks are credited to that scope and to
//! all scopes around it, so a scope's own bytes do not change through what other threads do. A closed scope's record stays as
//! long as blocks or inner scopes refer to it.

use std::num::NonZeroU32;

use super::counters::Volume;
use super::scopes::Scopes;
use super::slot::{NO_SLOT, Owned, ScopeKey, ScopeKind, Slot};

impl Slot {
    #[inline]
    fn moved_in_run(&mut self, allocated: &Volume, freed: &Volume, risen_bytes: i64) {
        let owned = &mut self.owned;
        owned.peak_bytes = owned.peak_bytes.max(owned.live_bytes().wrapping_add(risen_bytes));
        owned.allocated_bytes = owned.allocated_bytes.wrapping_add(allocated.requested_bytes);
        owned.freed_bytes = owned.freed_bytes.wrapping_add(freed.requested_bytes);
        owned.allocation_count += allocated.count;
        owned.free_count += freed.count;
        self.moved_bytes = self.moved_bytes.wrapping_add(allocated.bytes).wrapping_add(freed.bytes);
    }
}

impl Owned {
    #[inline]
    fn freed(&mut self, requested_bytes: i64) {
        self.freed_bytes = self.freed_bytes.wrapping_add(requested_bytes);
        self.free_count += 1;
    }

    /// Allocated and not given back.
    #[inline]
    pub(crate) fn live_bytes(&self) -> i64 {
        self.allocated_bytes.wrapping_sub(self.freed_bytes)
    }
}

impl Scopes {
    /// The nearest open scope around `at`.
    ///
    /// Closed ones in between are passed over for good: a scope that outlives the one it was opened in, as each step does
    /// where a loop assigns `guard = step(i)`, would else keep an ever longer chain of records to walk.
    #[inline]
    pub(super) fn open_around(&mut self, at: u32) -> u32 {
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
    pub(super) fn vacate_unreferenced(&mut self, mut at: u32) {
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

    /// In a run of a thread in the scope `owner` blocks were allocated, and of its own were freed; its live bytes, as asked for, rose so
    /// far above what they were. Returns whether the function that allocated them is a call of a call site.
    pub(super) fn moved_in_run(&mut self, owner: u32, allocated: &Volume, freed: &Volume, risen_bytes: i64) -> bool {
        let Some(slot) = self.slots.get_mut(owner as usize) else { return false };
        slot.reference_count = (i64::from(slot.reference_count) + allocated.count - freed.count) as u32;
        let mut at = owner;
        let mut function = None;
        // The nearest function's and that of the steps and epochs inside it, exclusively.
        while function.is_none()
            && let Some(slot) = self.slots.get_mut(at as usize)
        {
            if slot.open {
                slot.moved_in_run(allocated, freed, risen_bytes);
                slot.owned.exclusive_bytes = slot.owned.exclusive_bytes.wrapping_add(allocated.requested_bytes);
                function = match slot.kind {
                    ScopeKind::CallSite(_) => Some(true),
                    ScopeKind::Function => Some(false),
                    ScopeKind::Step(_) | ScopeKind::Epoch => None,
                };
            }
            at = self.open_around(at);
        }
        while let Some(slot) = self.slots.get_mut(at as usize) {
            slot.moved_in_run(allocated, freed, risen_bytes);
            at = self.open_around(at);
        }
        function == Some(true)
    }

    /// A block of `owner` was given back.
    #[inline]
    pub(super) fn disown(&mut self, owner: u32, requested_bytes: i64) {
        let mut at = owner;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.open {
                slot.owned.freed(requested_bytes);
            }
            at = self.open_around(at);
        }
        self.release_owned(owner);
    }

    /// One block fewer refers to `owner`.
    #[inline]
    fn release_owned(&mut self, owner: u32) {
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

    /// Whether `context` is in an open scope.
    pub(super) fn is_inside(&mut self, context: u32, scope: ScopeKey) -> bool {
        let outer = self.resolve(Some(scope));
        let mut at = context;
        while at != NO_SLOT && at != outer {
            at = self.open_around(at);
        }
        at != NO_SLOT && at == outer
    }

    /// An allocation of a thread inside `context` gave cached memory back and asked again.
    pub(super) fn retried(&mut self, context: u32) {
        self.for_each_open(context, |owned| owned.retry_count += 1);
    }

    /// An allocation of a thread inside `context` ran out of memory.
    pub(super) fn out_of_memory(&mut self, context: u32) {
        self.for_each_open(context, |owned| owned.oom_count += 1);
    }

    fn for_each_open(&mut self, context: u32, count: impl Fn(&mut Owned)) {
        let mut at = context;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.open {
                count(&mut slot.owned);
            }
            at = self.open_around(at);
        }
    }
}
