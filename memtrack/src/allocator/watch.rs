//! Code that wants to know when memory runs out on the thread that it runs on.

use std::cell::RefCell;

use super::error::OutOfMemory;
use super::inner::Inner;
use crate::ledger::ScopeKey;

/// Told of each out of memory that a request of this thread met. Called with no lock held.
pub(crate) trait OomWatch: Sync {
    /// A request on `inner` ran out of memory inside `scope`, the innermost with which this watcher watches.
    fn out_of_memory(&self, inner: &Inner, scope: ScopeKey, error: &OutOfMemory);
}

/// Somebody who watches an allocator, for as long as a scope is entered.
#[derive(Clone)]
struct Entry {
    allocator: u64,
    scope: ScopeKey,
    watch: &'static dyn OomWatch,
}

thread_local! {
    /// Who watches which allocator on this thread, the innermost last.
    static WATCHES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Begins to watch an allocator on this thread, for a scope that was entered.
pub(crate) fn enter(allocator: u64, scope: ScopeKey, watch: &'static dyn OomWatch) {
    // Without thread locals there is nobody to tell; the allocator's own event does not depend on this.
    let _ = WATCHES.try_with(|watches| watches.borrow_mut().push(Entry { allocator, scope, watch }));
}

/// Ends what [`enter`] began, wherever among the watches it stands.
pub(crate) fn leave(allocator: u64, scope: ScopeKey) {
    let _ = WATCHES.try_with(|watches| {
        let mut watches = watches.borrow_mut();
        let is_meant = |entry: &Entry| entry.allocator == allocator && entry.scope == scope;
        if let Some(position) = watches.iter().rposition(is_meant) {
            watches.remove(position);
        }
    });
}

/// Tells everybody who watches, the innermost first and each once: a recursive function is one watcher.
#[cold]
pub(super) fn tell(inner: &Inner, error: &OutOfMemory) {
    // A copy, since a watcher may run code that watches.
    let watches = WATCHES.try_with(|watches| watches.borrow().clone()).unwrap_or_default();
    let mut told: Vec<&'static dyn OomWatch> = Vec::new();
    for Entry { scope, watch, .. } in watches.into_iter().rev().filter(|entry| entry.allocator == inner.id) {
        if !told.iter().any(|earlier| std::ptr::addr_eq(*earlier, watch)) {
            told.push(watch);
            watch.out_of_memory(inner, scope, error);
        }
    }
}
