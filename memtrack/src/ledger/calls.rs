//! Calls of call sites among the scopes: which of several calls of one site is the outermost.
//!
//! It is decided when a call begins, and kept with its scope, so that recursion of any depth costs a look at the next call out.
//! An outermost call that ends before a call inside it hands its part on to that.

use super::call_site::SiteId;
use super::scopes::Scopes;
use super::slot::{Call, NO_SLOT, ScopeKey, ScopeKind, Slot};

impl Slot {
    /// Of a call: what no inner call of any site allocated.
    pub(super) fn exclusive_bytes_of_site(&self) -> i64 {
        self.owned.exclusive_bytes.wrapping_add(self.call.beside_bytes)
    }
}

impl Scopes {
    #[inline]
    pub(super) fn slot(&self, at: u32) -> &Slot {
        &self.slots[at as usize]
    }

    /// The call site that an open scope is a call of.
    #[inline]
    pub(super) fn site_of(&self, key: ScopeKey) -> Option<SiteId> {
        match self.slot(key.slot()).kind {
            ScopeKind::CallSite(site) => Some(site),
            ScopeKind::Function | ScopeKind::Step(_) | ScopeKind::Epoch => None,
        }
    }

    /// The nearest open call of a site around `at`.
    pub(super) fn call_around(&mut self, at: u32, site: SiteId) -> Option<u32> {
        self.call_around_but(at, site, NO_SLOT)
    }

    fn call_around_but(&mut self, at: u32, site: SiteId, but: u32) -> Option<u32> {
        let mut around = self.open_around(at);
        while let Some(slot) = self.slots.get(around as usize) {
            if slot.kind == ScopeKind::CallSite(site) && around != but {
                return Some(around);
            }
            around = self.open_around(around);
        }
        None
    }

    /// The innermost open call of any site that `context` is in.
    pub(super) fn innermost_call(&mut self, context: u32) -> Option<&mut Call> {
        let mut at = context;
        while let Some(slot) = self.slots.get(at as usize) {
            if slot.open && matches!(slot.kind, ScopeKind::CallSite(_)) {
                return Some(&mut self.slots[at as usize].call);
            }
            at = self.open_around(at);
        }
        None
    }

    /// A scope just opened is a call, with this one of the same site around it.
    pub(super) fn begin_call(&mut self, at: u32, around: Option<u32>) {
        let outermost = around.map_or(at, |around| self.slot(around).call.outermost);
        self.slots[at as usize].call = Call { beside_bytes: 0, outermost, inner_count: 0 };
        if outermost != at {
            self.slots[outermost as usize].call.inner_count += 1;
        }
    }

    /// A call inside an outermost one ended.
    pub(super) fn end_inner_call(&mut self, outermost: u32) {
        self.slots[outermost as usize].call.inner_count -= 1;
    }

    /// The outermost call `ended` closes, and calls inside it do not: returns those that are outermost now.
    #[cold]
    pub(super) fn promote_inner_calls(&mut self, ended: u32, site: SiteId) -> Vec<u32> {
        let is_inner = |at: u32, slot: &Slot| {
            slot.kind == ScopeKind::CallSite(site) && slot.call.outermost == ended && at != ended
        };
        let mut inner: Vec<u32> =
            self.open_slots().filter(|(at, slot)| is_inner(*at, slot)).map(|(at, _)| at).collect();
        // From the oldest on, so that a call is settled before those inside it.
        inner.reverse();
        inner.retain(|at| {
            let around = self.call_around_but(*at, site, ended);
            self.begin_call_again(*at, around);
            around.is_none()
        });
        inner
    }

    fn begin_call_again(&mut self, at: u32, around: Option<u32>) {
        let beside_bytes = self.slot(at).call.beside_bytes;
        self.begin_call(at, around);
        self.slots[at as usize].call.beside_bytes = beside_bytes;
    }
}
