//! Scopes over several devices: the peak of the sum, which is not the sum of the peaks.
//!
//! The devices' books know nothing of each other. While such a scope is open, each of them also moves one pair of counters
//! that all share: what is live, and the most that was. The additions to the first are in one order, each of the sums they make
//! is put to the second, and so the second is the highest of all sums in that order.
//!
//! The order is one in which things happened. Two events of one device are entered one after the other under its lock. Of
//! events of two devices, one that ended before the other began was added before, provided that each is entered before its
//! operation returns: [`SharedLedger`](super::SharedLedger) sees to that. Events that overlap have no order, and get one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::Ledger;
use super::slot::ScopeKey;

/// Bytes that several devices have live together. Relaxed throughout: one variable's changes are in one order for all, and the
/// books' locks are between the last change and the reading.
#[derive(Debug, Default)]
struct Sum {
    live_bytes: AtomicI64,
    peak_bytes: AtomicI64,
}

impl Sum {
    fn starting_at(live_bytes: i64) -> Self {
        Self { live_bytes: AtomicI64::new(live_bytes), peak_bytes: AtomicI64::new(live_bytes) }
    }

    fn raise(&self, bytes: i64) {
        let live_bytes = self.live_bytes.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        self.peak_bytes.fetch_max(live_bytes, Ordering::Relaxed);
    }

    fn lower(&self, bytes: i64) {
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn peak_bytes(&self) -> i64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }
}

/// What the devices of one scope have together.
#[derive(Debug)]
pub(crate) struct Combined {
    /// Rounded, whoever allocated it.
    device: Sum,
    /// As asked for, what was allocated inside the scope.
    own: Sum,
}

impl Combined {
    /// All devices' books are held, and have so much live together.
    pub(crate) fn new(live_bytes: i64) -> Self {
        Self { device: Sum::starting_at(live_bytes), own: Sum::default() }
    }

    /// The most that was live on all devices together. All books are held.
    pub(crate) fn peak_bytes(&self) -> i64 {
        self.device.peak_bytes()
    }

    /// The most that was live of what was allocated inside the scope. All books are held.
    pub(crate) fn own_peak_bytes(&self) -> i64 {
        self.own.peak_bytes()
    }
}

/// One device's part of a scope over several.
#[derive(Debug)]
pub(super) struct Part {
    scope: ScopeKey,
    combined: Arc<Combined>,
}

impl Ledger {
    /// An open scope becomes this device's part of one over several.
    pub(crate) fn join(&mut self, scope: ScopeKey, combined: &Arc<Combined>) {
        // From here on each event counts for itself.
        self.settle();
        self.parts.push(Part { scope, combined: Arc::clone(combined) });
    }

    /// The scope was a part of one over several, and is no more.
    pub(crate) fn part(&mut self, scope: ScopeKey) {
        self.parts.retain(|part| part.scope != scope);
    }

    #[cold]
    pub(super) fn raise_sums(&mut self, owner: u32, size_bytes: i64, requested_bytes: i64) {
        for part in &self.parts {
            part.combined.device.raise(size_bytes);
            if self.scopes.is_inside(owner, part.scope) {
                part.combined.own.raise(requested_bytes);
            }
        }
    }

    /// Before the block's owner forgets it.
    #[cold]
    pub(super) fn lower_sums(&mut self, owner: u32, size_bytes: i64, requested_bytes: i64) {
        for part in &self.parts {
            part.combined.device.lower(size_bytes);
            if self.scopes.is_inside(owner, part.scope) {
                part.combined.own.lower(requested_bytes);
            }
        }
    }
}
