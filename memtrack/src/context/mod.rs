//! What this thread works for: its innermost scope on each allocator, who watches its allocations, and whether budgets are
//! strict.
//!
//! Here live thread locals, and the [`Observer`] of tests, which is told of allocations by the allocator. What a scope is
//! belongs to the ledger, and who opens one to the scopes.

mod observer;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

pub(crate) use observer::{Observed, Observer, Site, SiteCount, any_observer};

use crate::ledger::ScopeKey;

#[derive(Debug)]
struct Entry {
    allocator: u64,
    here: Here,
}

/// Where a thread is on one allocator.
#[derive(Debug, Clone, Default)]
pub(crate) struct Here {
    /// The scope that allocations belong to. None: to nobody, whatever other scopes the thread has entered.
    pub(crate) scope: Option<ScopeKey>,
    /// Who watches them, if anybody does.
    pub(crate) observed: Option<Arc<Observed>>,
}

thread_local! {
    /// What this thread has entered and not left, the innermost last. A thread is in few scopes at a time, so a scan from
    /// the end finds the innermost one of an allocator at once.
    static ENTERED: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };

    /// How many reasons there are to panic on this thread when a budget is breached.
    static STRICT: Cell<usize> = const { Cell::new(0) };
}

/// The scope that this thread's allocations belong to. `None` while the thread's locals are being destroyed.
#[inline]
pub(crate) fn current(allocator: u64) -> Option<ScopeKey> {
    ENTERED
        .try_with(|entered| {
            entered.borrow().iter().rev().find(|entry| entry.allocator == allocator).and_then(|entry| entry.here.scope)
        })
        .unwrap_or(None)
}

/// Where this thread is on `allocator`.
pub(crate) fn here(allocator: u64) -> Here {
    let find = |entered: &RefCell<Vec<Entry>>| {
        entered.borrow().iter().rev().find(|entry| entry.allocator == allocator).map(|entry| entry.here.clone())
    };
    ENTERED.try_with(find).ok().flatten().unwrap_or_default()
}

/// Where this thread is on each allocator it has entered a scope of.
pub(crate) fn everywhere() -> Vec<(u64, Here)> {
    let collect = |entered: &RefCell<Vec<Entry>>| {
        let mut found: Vec<(u64, Here)> = Vec::new();
        for Entry { allocator, here } in entered.borrow().iter().rev() {
            if found.iter().all(|(known, _)| known != allocator) {
                found.push((*allocator, here.clone()));
            }
        }
        found
    };
    ENTERED.try_with(collect).unwrap_or_default()
}

/// Whether this thread still has its locals; without them nothing it does belongs to a scope.
pub(crate) fn is_available() -> bool {
    ENTERED.try_with(|_| ()).is_ok()
}

/// Enters a scope on this thread.
pub(crate) fn enter(allocator: u64, here: Here) {
    // Without thread locals there is nothing to attribute to; the device's own figures do not depend on this.
    let _ = ENTERED.try_with(|entered| entered.borrow_mut().push(Entry { allocator, here }));
}

/// Leaves a scope on this thread, wherever among the entered ones it stands.
pub(crate) fn leave(allocator: u64, scope: Option<ScopeKey>) {
    let left = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        let is_meant = |entry: &Entry| entry.allocator == allocator && entry.here.scope == scope;
        entered.iter().rposition(is_meant).map(|position| entered.remove(position))
    });
    drop(left);
}

/// Whether a breached budget is to panic on this thread.
pub(crate) fn is_strict() -> bool {
    STRICT.try_with(Cell::get).is_ok_and(|reasons| reasons > 0)
}

/// Adds a reason to be strict on this thread.
pub(crate) fn enter_strict() {
    let _ = STRICT.try_with(|reasons| reasons.set(reasons.get() + 1));
}

/// Takes a reason to be strict away.
pub(crate) fn leave_strict() {
    let _ = STRICT.try_with(|reasons| reasons.set(reasons.get().saturating_sub(1)));
}
