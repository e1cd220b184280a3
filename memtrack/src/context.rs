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
    static ENTERED: RefCell<Entered> = const { RefCell::new(Entered(Vec::new())) };

    /// The last of them, which each allocation and free asks for. It has no destructor, so that asking is a load.
    static INNERMOST: Cell<Option<Entry>> = const { Cell::new(None) };

    /// How many reasons there are to panic on this thread when a budget is breached.
    static STRICT: Cell<usize> = const { Cell::new(0) };
}

/// What stands in `ENTERED`.
struct Entered(Vec<Entry>);

impl Entered {
    fn note_innermost(&self) {
        INNERMOST.set(self.0.last().copied());
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        INNERMOST.set(None);
    }
}

/// The innermost scope of `allocator` on this thread. `None` while the thread's locals are being destroyed.
#[inline(always)]
pub(crate) fn current(allocator: u64) -> Option<ScopeKey> {
    match INNERMOST.get() {
        Some(innermost) if innermost.allocator == allocator => Some(innermost.scope),
        None => None,
        Some(_) => current_further_out(allocator),
    }
}

/// The thread's innermost scope is of another allocator.
#[cold]
#[inline(never)]
fn current_further_out(allocator: u64) -> Option<ScopeKey> {
    let find = |entered: &RefCell<Entered>| {
        entered.borrow().0.iter().rev().find(|entry| entry.allocator == allocator).map(|entry| entry.scope)
    };
    ENTERED.try_with(find).unwrap_or(None)
}

/// The innermost scope on this thread, with the number of its allocator.
pub(crate) fn innermost() -> Option<(u64, ScopeKey)> {
    INNERMOST.get().map(|Entry { allocator, scope }| (allocator, scope))
}

/// The innermost scope of each allocator on this thread.
pub(crate) fn everywhere() -> Vec<(u64, ScopeKey)> {
    let collect = |entered: &RefCell<Entered>| {
        let mut innermost: Vec<(u64, ScopeKey)> = Vec::new();
        for Entry { allocator, scope } in entered.borrow().0.iter().rev() {
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
    let entry = Entry { allocator, scope };
    let _ = ENTERED.try_with(|entered| {
        entered.borrow_mut().0.push(entry);
        INNERMOST.set(Some(entry));
    });
}

/// Leaves a scope on this thread, wherever among the entered ones it stands.
pub(crate) fn leave(allocator: u64, scope: ScopeKey) {
    let entry = Entry { allocator, scope };
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        // Nearly always the innermost.
        if entered.0.pop_if(|last| *last == entry).is_none()
            && let Some(position) = entered.0.iter().rposition(|found| *found == entry)
        {
            entered.0.remove(position);
        }
        entered.note_innermost();
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
