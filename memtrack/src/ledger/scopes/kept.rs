//! Which scope is inside which, asked off the hot path: for who keeps memory, and for handles of scopes.

use std::num::NonZeroU32;

use super::{NO_SLOT, ScopeKey, Scopes};
use crate::ledger::Ledger;

impl Scopes {
    fn key_of(&self, at: u32) -> Option<ScopeKey> {
        self.slots.get(at as usize).map(|slot| ScopeKey::new(at, slot.generation))
    }
}

impl ScopeKey {
    /// Names no scope, now and ever.
    pub(crate) const NOBODY: Self = Self::new(NO_SLOT, NonZeroU32::MIN);
}

impl Ledger {
    /// Gives a scope that was just opened its name.
    #[inline]
    pub(crate) fn name_scope(&mut self, key: ScopeKey, name: &'static str) {
        if let Some(slot) = self.scopes.slots.get_mut(key.slot() as usize) {
            slot.name = name;
        }
    }

    /// The name of `owner` if it is `scope`, which is open, or was opened inside it. A closed `owner` has a name for as long as
    /// blocks belong to it.
    pub(crate) fn name_inside(&self, owner: ScopeKey, scope: ScopeKey) -> Option<&'static str> {
        let scopes = &self.scopes;
        let (owner, scope) = (scopes.resolve(Some(owner)), scopes.resolve(Some(scope)));
        if scope == NO_SLOT {
            return None;
        }
        // Only closed scopes are ever passed over in these chains, so an open one is met.
        let mut at = owner;
        while at != scope {
            at = scopes.slots.get(at as usize)?.parent;
        }
        scopes.slots.get(owner as usize).map(|slot| slot.name)
    }

    /// The phase and the scope in which a live block of this owner was allocated.
    pub(crate) fn origin(&self, owner: Option<ScopeKey>) -> (&'static str, Option<&'static str>) {
        let slot = self.scopes.slots.get(self.scopes.resolve(owner) as usize);
        let phase = slot.and_then(|slot| self.phases.name(slot.phase)).unwrap_or("other");
        (phase, slot.map(|slot| slot.name))
    }

    /// The phase that was opened last and is open.
    pub(crate) fn newest_phase_name(&self) -> Option<&'static str> {
        self.scopes.open_phases().next().and_then(|(phase, _)| self.phases.name(phase))
    }

    /// The requested bytes allocated in an open scope that are live; 0 for one that is gone.
    pub(crate) fn own_live_bytes(&self, key: ScopeKey) -> i64 {
        let at = self.scopes.resolve(Some(key));
        self.scopes.slots.get(at as usize).map_or(0, |slot| slot.owned.live_bytes())
    }

    /// Keeps a scope's record, open or closed, until [`release_scope`](Self::release_scope). `false` when it is gone already.
    pub(crate) fn hold_scope(&mut self, key: ScopeKey) -> bool {
        let at = self.scopes.resolve(Some(key));
        self.scopes.slots.get_mut(at as usize).map(|slot| slot.reference_count += 1).is_some()
    }

    /// Lets go of a record that is held.
    pub(crate) fn release_scope(&mut self, key: ScopeKey) {
        let at = self.scopes.resolve(Some(key));
        if let Some(slot) = self.scopes.slots.get_mut(at as usize) {
            slot.reference_count -= 1;
            self.scopes.vacate_unreferenced(at);
        }
    }

    /// The scope itself while it is open, then the nearest open one around it.
    pub(crate) fn nearest_open(&mut self, key: ScopeKey) -> Option<ScopeKey> {
        let at = self.scopes.resolve(Some(key));
        let open = self.scopes.open_or_around(at);
        self.scopes.key_of(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{BlockEntry, Outcome, ScopeKind, SplitChange, ThreadNumber};
    use crate::stats::PoolKind;

    fn open(ledger: &mut Ledger, parent: Option<ScopeKey>, name: &'static str) -> ScopeKey {
        let key = ledger.open_scope(parent, ScopeKind::Function, None);
        ledger.name_scope(key, name);
        key
    }

    fn entry() -> BlockEntry {
        BlockEntry {
            pool: PoolKind::Small,
            size_bytes: 512,
            requested_bytes: 1,
            oversize: false,
            thread: ThreadNumber::default(),
        }
    }

    #[test]
    fn blocks_of_closed_scopes_name_them_to_every_open_scope_around() {
        let mut ledger = Ledger::new(-1);
        let outer = open(&mut ledger, None, "outer");
        let middle = open(&mut ledger, Some(outer), "middle");
        let inner = open(&mut ledger, Some(middle), "inner");
        let sibling = open(&mut ledger, Some(outer), "sibling");
        ledger.allocated(&entry(), SplitChange::default(), Some(inner));
        ledger.close_scope(inner, Outcome::Ok);
        assert_eq!(ledger.name_inside(inner, middle), Some("inner"));
        ledger.close_scope(middle, Outcome::Ok);
        // Another block of the same owner, so that the closed scope between them is passed over.
        ledger.allocated(&entry(), SplitChange::default(), Some(inner));
        assert_eq!(ledger.name_inside(inner, outer), Some("inner"));
        assert_eq!(ledger.name_inside(inner, sibling), None);
        assert_eq!(ledger.name_inside(outer, outer), Some("outer"));
        assert_eq!(ledger.name_inside(outer, sibling), None);
        ledger.free_requested(&entry(), Some(inner), None);
        ledger.free_requested(&entry(), Some(inner), None);
        assert_eq!(ledger.name_inside(inner, outer), None, "the record is gone");
        let again = open(&mut ledger, None, "again");
        assert_eq!(ledger.name_inside(again, again), Some("again"), "in the place of another");
    }

    #[test]
    fn a_held_scope_leads_to_the_nearest_open_one_around_until_it_is_released() {
        let mut ledger = Ledger::new(-1);
        let outer = open(&mut ledger, None, "outer");
        let middle = open(&mut ledger, Some(outer), "middle");
        let inner = open(&mut ledger, Some(middle), "inner");
        assert!(ledger.hold_scope(inner));
        assert!(ledger.hold_scope(inner), "as often as one likes");
        assert_eq!(ledger.nearest_open(inner), Some(inner));
        ledger.close_scope(inner, Outcome::Ok);
        assert_eq!(ledger.nearest_open(inner), Some(middle));
        ledger.close_scope(middle, Outcome::Ok);
        assert_eq!(ledger.nearest_open(inner), Some(outer));
        ledger.close_scope(outer, Outcome::Ok);
        assert_eq!(ledger.nearest_open(inner), None);
        ledger.release_scope(inner);
        assert_eq!(ledger.scopes.record_count(), 1, "the chain above it is not needed");
        ledger.release_scope(inner);
        assert_eq!(ledger.scopes.record_count(), 0);
        assert!(!ledger.hold_scope(inner));
        assert_eq!(ledger.nearest_open(inner), None);
    }

    #[test]
    fn an_open_scope_outlives_the_last_one_who_holds_it() {
        let mut ledger = Ledger::new(-1);
        let scope = open(&mut ledger, None, "scope");
        assert!(ledger.hold_scope(scope));
        ledger.release_scope(scope);
        assert!(ledger.close_scope(scope, Outcome::Ok).is_some());
        assert_eq!(ledger.scopes.record_count(), 0);
    }
}
