//! Code that wants to know when memory runs out on the thread that it runs on.

use std::cell::RefCell;

use super::error::OutOfMemory;
use super::inner::Inner;

/// Told of each out of memory that a request of this thread met. Called with no lock held.
pub(crate) trait OomWatch: Sync {
    /// A request on `inner` ran out of memory.
    fn out_of_memory(&self, inner: &Inner, error: &OutOfMemory);
}

thread_local! {
    /// Who watches which allocator on this thread, the innermost last.
    static WATCHES: RefCell<Vec<(u64, &'static dyn OomWatch)>> = const { RefCell::new(Vec::new()) };
}

fn same(one: &'static dyn OomWatch, other: &'static dyn OomWatch) -> bool {
    std::ptr::addr_eq(one, other)
}

/// Begins to watch an allocator on this thread.
pub(crate) fn enter(allocator: u64, watch: &'static dyn OomWatch) {
    // Without thread locals there is nobody to tell; the allocator's own event does not depend on this.
    let _ = WATCHES.try_with(|watches| watches.borrow_mut().push((allocator, watch)));
}

/// Ends what [`enter`] began, wherever among the watches it stands.
pub(crate) fn leave(allocator: u64, watch: &'static dyn OomWatch) {
    let _ = WATCHES.try_with(|watches| {
        let mut watches = watches.borrow_mut();
        if let Some(position) = watches.iter().rposition(|(id, found)| *id == allocator && same(*found, watch)) {
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
    for (_, watch) in watches.into_iter().rev().filter(|(id, _)| *id == inner.id) {
        if !told.iter().any(|earlier| same(*earlier, watch)) {
            told.push(watch);
            watch.out_of_memory(inner, error);
        }
    }
}
