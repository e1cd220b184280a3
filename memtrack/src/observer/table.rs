//! The scopes that are observed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, RwLock};

use super::{Observed, Observer};
use crate::ledger::ScopeKey;
use crate::sync::{read, write};

/// How many observations there are. Who allocates inside one has learnt of it from whoever began it, so it sees the count too.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// By allocator and slot: a scope that takes the place of another that is gone takes it here too.
type Table = HashMap<(u64, u32), (ScopeKey, Arc<Observed>)>;

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(RwLock::default);

/// Whether anybody observes anything in this process.
#[inline]
pub(crate) fn any_observer() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Who observes a scope of `allocator`.
#[cold]
pub(crate) fn observed(allocator: u64, scope: Option<ScopeKey>) -> Option<Arc<Observed>> {
    let scope = scope?;
    let table = read(&TABLE);
    let (of, observed) = table.get(&(allocator, scope.slot()))?;
    (*of == scope).then(|| Arc::clone(observed))
}

fn enter(allocator: u64, scope: ScopeKey, observed: Arc<Observed>) {
    write(&TABLE).insert((allocator, scope.slot()), (scope, observed));
}

/// A scope was opened inside `parent`: whoever observes that one observes it too.
#[inline]
pub(crate) fn opened(allocator: u64, parent: Option<ScopeKey>, scope: ScopeKey, name: &'static str) {
    if any_observer() {
        opened_inside(allocator, parent, scope, name);
    }
}

#[cold]
fn opened_inside(allocator: u64, parent: Option<ScopeKey>, scope: ScopeKey, name: &'static str) {
    if let Some(around) = observed(allocator, parent) {
        enter(allocator, scope, around.inside(name));
    }
}

/// An observer at work: it counts allocations until this is dropped.
#[derive(Debug)]
pub(crate) struct Observation {
    observer: Arc<Observer>,
}

impl Observation {
    /// Observes a scope that was just opened inside `parent`.
    pub(crate) fn begin(allocator: u64, parent: Option<ScopeKey>, scope: ScopeKey) -> Self {
        let observer = Observer::new(observed(allocator, parent));
        COUNT.fetch_add(1, Ordering::Relaxed);
        enter(allocator, scope, Observed::by(&observer));
        Self { observer }
    }

    /// Ends it; the observer has what was counted.
    pub(crate) fn end(self) -> Arc<Observer> {
        Arc::clone(&self.observer)
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.observer.end();
        COUNT.fetch_sub(1, Ordering::Relaxed);
        // Work of an inner one that is not done yet still counts to those around.
        if self.observer.around.is_none() {
            let is_inside = |observed: &Observed| std::ptr::eq(observed.observer.outermost(), &*self.observer);
            write(&TABLE).retain(|_, (_, observed)| !is_inside(observed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, Outcome, ScopeKind};
    use std::panic::Location;

    /// No allocator has this number.
    const ALLOCATOR: u64 = u64::MAX;

    fn open(ledger: &mut Ledger, parent: Option<ScopeKey>) -> ScopeKey {
        let scope = ledger.open_scope(parent, ScopeKind::Function, None);
        opened(ALLOCATOR, parent, scope, "inner");
        scope
    }

    fn entry_count() -> usize {
        read(&TABLE).keys().filter(|(allocator, _)| *allocator == ALLOCATOR).count()
    }

    #[test]
    fn scopes_are_observed_while_the_outermost_observation_around_them_lasts() {
        let here = Location::caller();
        let mut ledger = Ledger::new(-1);
        let unobserved = open(&mut ledger, None);
        let outer = open(&mut ledger, None);
        let around = Observation::begin(ALLOCATOR, None, outer);
        assert!(observed(ALLOCATOR, Some(unobserved)).is_none());
        let inner = open(&mut ledger, Some(outer));
        let within = Observation::begin(ALLOCATOR, Some(outer), inner);
        let innermost = open(&mut ledger, Some(inner));
        for scope in [outer, inner, innermost] {
            observed(ALLOCATOR, Some(scope)).unwrap().allocated(here, 1);
        }
        assert_eq!(within.end().allocation_count(), 2);
        observed(ALLOCATOR, Some(innermost)).unwrap().allocated(here, 1);

        ledger.close_scope(innermost, Outcome::Ok);
        let in_its_place = open(&mut ledger, Some(unobserved));
        assert_eq!(in_its_place.slot(), innermost.slot());
        assert!(observed(ALLOCATOR, Some(in_its_place)).is_none());
        assert_eq!(entry_count(), 3);
        assert_eq!(around.end().allocation_count(), 4);
        assert!(observed(ALLOCATOR, Some(outer)).is_none());
        assert_eq!(entry_count(), 0);
    }
}
