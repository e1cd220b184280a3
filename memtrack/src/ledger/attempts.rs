//! Attempts that ran out of memory: which scopes they were in, and whose blocks were theirs.
//!
//! At the moment of an out of memory every scope around the request is open, so it can be told which live blocks were allocated
//! inside which of them. That is kept by owners, not by blocks: a closed scope allocates nothing any more, so whatever is still owned by
//! one of them later was there at that moment, or came until it closed.

use super::outcome::Outcome;
use super::slot::{NO_SLOT, ScopeKey, ScopeKind};
use super::{Ledger, scopes::Scopes};

/// An attempt that ran out of memory.
#[derive(Debug)]
pub(crate) struct FailedAttempt {
    /// What was asked for.
    pub(crate) requested_bytes: u64,
    /// The scopes around the request, the innermost first. Their records are held.
    scopes: Vec<ScopeKey>,
    /// How many allocations each had seen.
    allocation_counts: Vec<i64>,
    /// Who owned live blocks inside them, each with the position of the innermost scope that it is in.
    owners: Vec<(ScopeKey, usize)>,
}

impl FailedAttempt {
    /// Whether another one failed in the very same scopes.
    pub(crate) fn is_of_the_same_scopes(&self, other: &Self) -> bool {
        self.scopes == other.scopes
    }

    /// The owners inside the scope at a position.
    pub(crate) fn owners_inside(&self, position: usize) -> impl Iterator<Item = ScopeKey> {
        self.owners.iter().filter(move |(_, innermost)| *innermost <= position).map(|(owner, _)| *owner)
    }
}

impl Scopes {
    /// The position in `chain` of the innermost scope that `owner` is, or is inside. All of the chain is open.
    fn position_inside(&self, owner: ScopeKey, chain: &[ScopeKey]) -> Option<usize> {
        let mut at = self.resolve(Some(owner));
        while at != NO_SLOT {
            let slot = self.slots.get(at as usize)?;
            if let Some(position) = chain.iter().position(|key| key.slot() == at) {
                return Some(position);
            }
            at = slot.parent;
        }
        None
    }
}

impl Ledger {
    /// Notes an attempt that just ran out of memory in `context`, with the owners of all live blocks. `None` outside of all scopes.
    pub(crate) fn note_attempt(
        &mut self,
        context: Option<ScopeKey>,
        requested_bytes: u64,
        owners: impl IntoIterator<Item = ScopeKey>,
    ) -> Option<FailedAttempt> {
        let mut scopes = Vec::new();
        let mut next = context.and_then(|key| self.nearest_open(key));
        while let Some(key) = next {
            scopes.push(key);
            next = self.open_key_around(key);
        }
        if scopes.is_empty() {
            return None;
        }
        let slots = scopes.iter().map(|key| self.scopes.slots.get(self.scopes.resolve(Some(*key)) as usize));
        let allocation_counts = slots.map(|slot| slot.map_or(0, |slot| slot.owned.allocation_count)).collect();
        let inside = |owner| Some((owner, self.scopes.position_inside(owner, &scopes)?));
        let owners = owners.into_iter().filter_map(inside).collect();
        for key in &scopes {
            self.hold_scope(*key);
        }
        Some(FailedAttempt { requested_bytes, scopes, allocation_counts, owners })
    }

    fn open_key_around(&mut self, key: ScopeKey) -> Option<ScopeKey> {
        let at = self.scopes.resolve(Some(key));
        let around = self.scopes.open_around(at);
        self.scopes.slots.get(around as usize).map(|slot| ScopeKey::new(around, slot.generation))
    }

    /// Lets go of what a noted attempt holds.
    pub(crate) fn forget_attempt(&mut self, attempt: &FailedAttempt) {
        for key in &attempt.scopes {
            self.release_scope(*key);
        }
    }

    /// Whether all of an attempt's scopes have ended, so that nothing is to be learnt of it any more.
    pub(crate) fn attempt_is_settled(&self, attempt: &FailedAttempt) -> bool {
        let slot_of = |key: &ScopeKey| self.scopes.slots.get(self.scopes.resolve(Some(*key)) as usize);
        attempt.scopes.iter().all(|key| slot_of(key).is_none_or(|slot| !slot.open))
    }

    /// Which of an attempt's scopes was the attempt, and its name; `None` while none of them has ended, or has failed.
    ///
    /// It is the outermost that ended with an error, by a panic or cancelled. Where nobody said so, it is the outermost function that
    /// ended: steps and epochs end after an error that was dealt with inside. A function that allocated again after it had run out of
    /// memory dealt with it too.
    pub(crate) fn ended_attempt(&self, attempt: &FailedAttempt) -> Option<(usize, &'static str)> {
        let ended = |failed: bool| {
            attempt.scopes.iter().enumerate().rev().find_map(|(position, key)| {
                let slot = self.scopes.slots.get(self.scopes.resolve(Some(*key)) as usize).filter(|slot| !slot.open)?;
                let is_meant = if failed {
                    !matches!(slot.outcome, Outcome::Ok)
                } else {
                    let has_recovered = slot.owned.allocation_count > attempt.allocation_counts[position];
                    matches!(slot.kind, ScopeKind::Function | ScopeKind::CallSite(_)) && !has_recovered
                };
                is_meant.then_some((position, slot.name))
            })
        };
        ended(true).or_else(|| ended(false))
    }

    /// The name of a scope, open or closed, that still has its record.
    pub(crate) fn scope_name(&self, key: ScopeKey) -> Option<&'static str> {
        self.scopes.slots.get(self.scopes.resolve(Some(key)) as usize).map(|slot| slot.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::threads::ThreadNumber;
    use crate::ledger::{BlockEntry, SplitChange};
    use crate::stats::PoolKind;

    fn open(ledger: &mut Ledger, parent: Option<ScopeKey>, name: &'static str, kind: ScopeKind) -> ScopeKey {
        let key = ledger.open_scope(parent, kind, None);
        ledger.name_scope(key, name);
        key
    }

    fn allocate(ledger: &mut Ledger, owner: ScopeKey) {
        let entry = BlockEntry {
            pool: PoolKind::Small,
            size_bytes: 512,
            requested_bytes: 1,
            oversize: false,
            thread: ThreadNumber::of_test(0),
        };
        ledger.allocated(&entry, SplitChange::default(), Some(owner));
    }

    fn owners(attempt: &FailedAttempt, position: usize) -> Vec<ScopeKey> {
        attempt.owners_inside(position).collect()
    }

    #[test]
    fn the_attempt_is_the_outermost_scope_that_ended_with_an_error() {
        let mut ledger = Ledger::new(-1);
        let step = open(&mut ledger, None, "step", ScopeKind::Step(1));
        let train = open(&mut ledger, Some(step), "train", ScopeKind::Function);
        let forward = open(&mut ledger, Some(train), "forward", ScopeKind::Function);
        let layer = open(&mut ledger, Some(forward), "layer", ScopeKind::Function);
        let all = [step, train, forward, layer];
        all.iter().for_each(|owner| allocate(&mut ledger, *owner));
        ledger.close_scope(layer, Outcome::Ok);
        let attempt = ledger.note_attempt(Some(forward), 100, all).expect("in scopes");
        assert_eq!(ledger.ended_attempt(&attempt), None, "all are open");
        ledger.close_scope(forward, Outcome::Err);
        assert_eq!(ledger.ended_attempt(&attempt), Some((0, "forward")));
        assert_eq!(owners(&attempt, 0), [forward, layer], "and what was opened in it");
        ledger.close_scope(train, Outcome::Err);
        assert_eq!(ledger.ended_attempt(&attempt), Some((1, "train")));
        ledger.close_scope(step, Outcome::Ok);
        assert_eq!(ledger.ended_attempt(&attempt), Some((1, "train")));
        assert_eq!(owners(&attempt, 1), [train, forward, layer]);
        ledger.forget_attempt(&attempt);
        assert_eq!(ledger.ended_attempt(&attempt), Some((1, "train")), "records stay while blocks have owners");
    }

    #[test]
    fn without_outcomes_it_is_the_outermost_function_that_ended() {
        let mut ledger = Ledger::new(-1);
        let step = open(&mut ledger, None, "step", ScopeKind::Step(1));
        let attempt_scope = open(&mut ledger, Some(step), "attempt", ScopeKind::Function);
        let attempt = ledger.note_attempt(Some(attempt_scope), 100, []).expect("in scopes");
        ledger.close_scope(attempt_scope, Outcome::Ok);
        ledger.close_scope(step, Outcome::Ok);
        assert_eq!(ledger.ended_attempt(&attempt), Some((0, "attempt")));
        ledger.forget_attempt(&attempt);
        assert_eq!(ledger.ended_attempt(&attempt), None, "the records are gone");
        assert!(ledger.note_attempt(None, 100, []).is_none(), "outside of all scopes");
    }
}
