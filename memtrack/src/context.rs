//! Which scope this thread is in, on each allocator, and whether budgets are strict on it.

use std::cell::{Cell, RefCell};

use crate::ledger::ScopeKey;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    allocator: u64,
    scope: ScopeKey,
}

thread_local! {
    /// Scopes that this thread has entered and not left, the innermost last. A thread is in few scopes at a time, so a
    /// scan from the end finds the innermost one of an allocator at once.
    static ENTERED: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };

    /// How many reasons there are to panic on this thread when a budget is breached.
    static STRICT: Cell<usize> = const { Cell::new(0) };
}

/// The innermost scope of `allocator` on this thread. `None` while the thread's locals are being destroyed.
#[inline]
pub(crate) fn current(allocator: u64) -> Option<ScopeKey> {
    ENTERED
        .try_with(|entered| {
            entered.borrow().iter().rev().find(|entry| entry.allocator == allocator).map(|entry| entry.scope)
        })
        .unwrap_or(None)
}

/// The innermost scope of each allocator on this thread.
pub(crate) fn everywhere() -> Vec<(u64, ScopeKey)> {
    let collect = |entered: &RefCell<Vec<Entry>>| {
        let mut innermost: Vec<(u64, ScopeKey)> = Vec::new();
        for Entry { allocator, scope } in entered.borrow().iter().rev() {
            if innermost.iter().all(|(known, _)| known != allocator) {
                innermost.push((*allocator, *scope));
            }
        }
        innermost
    };
    ENTERED.try_with(collect).unwrap_or_default()
}

/// Whether this thread still has its locals; without them nothing it does belongs to a scope.
pub(crate) fn is_available() -> bool {
    ENTERED.try_with(|_| ()).is_ok()
}

/// Enters a scope on this thread.
pub(crate) fn enter(allocator: u64, scope: ScopeKey) {
    // Without thread locals there is nothing to attribute to; the device's own figures do not depend on this.
    let _ = ENTERED.try_with(|entered| entered.borrow_mut().push(Entry { allocator, scope }));
}

/// Leaves a scope on this thread, wherever among the entered ones it stands.
pub(crate) fn leave(allocator: u64, scope: ScopeKey) {
    let entry = Entry { allocator, scope };
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        // Nearly always the innermost.
        if entered.pop_if(|last| *last == entry).is_some() {
            return;
        }
        if let Some(position) = entered.iter().rposition(|found| *found == entry) {
            entered.remove(position);
        }
    });
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
