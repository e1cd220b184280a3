//! Which scope this thread is in, on each allocator.

use std::cell::RefCell;

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
        if let Some(position) = entered.iter().rposition(|found| *found == entry) {
            entered.remove(position);
        }
    });
}
