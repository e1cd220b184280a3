//! What all calls of a call site came to, on one device.
//!
//! *Inclusive* figures count an allocation once for a site, however many of the site's calls it was made in: they are those of
//! the outermost calls, which no other call of the same site is around. *Exclusive* bytes belong to the innermost call of any
//! site, so that those of all sites and of what happens outside them add up to all that was allocated.
//!
//! A call's figures are kept with its scope and come here when it ends. What is said in between is thus the sum of what is
//! here and what is open; and whoever takes something away while a call is open subtracts what the call will bring.

use super::Ledger;
use super::call_site::{CallSite, SiteId};
use super::counters::Volume;
use super::outcome::Outcome;
use super::slot::{Call, Owned, ScopeKey, ScopeKind, Slot};

/// What is counted once, whatever it is counted for. Sizes are as asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Inclusive {
    pub(crate) allocated_bytes: i64,
    /// Allocated less given back, both in the calls. Not kept of what is in none: no free asks what its block was outside of.
    pub(crate) net_bytes: i64,
    pub(crate) allocation_count: i64,
    pub(crate) retry_count: i64,
    pub(crate) oom_count: i64,
}

impl Inclusive {
    fn add(&mut self, owned: &Owned) {
        self.allocated_bytes = self.allocated_bytes.wrapping_add(owned.allocated_bytes);
        self.net_bytes = self.net_bytes.wrapping_add(owned.live_bytes());
        self.allocation_count += owned.allocation_count;
        self.retry_count += owned.retry_count;
        self.oom_count += owned.oom_count;
    }

    fn subtract(&mut self, owned: &Owned) {
        self.allocated_bytes = self.allocated_bytes.wrapping_sub(owned.allocated_bytes);
        self.net_bytes = self.net_bytes.wrapping_sub(owned.live_bytes());
        self.allocation_count -= owned.allocation_count;
        self.retry_count -= owned.retry_count;
        self.oom_count -= owned.oom_count;
    }
}

/// What the calls of one site came to since the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SiteTotals {
    /// A call was measured on this device, if only before the reset.
    pub(crate) seen: bool,
    /// Calls that began since the reset or were open then.
    pub(crate) call_count: u64,
    pub(crate) outermost_call_count: u64,
    pub(crate) open_call_count: u64,
    pub(crate) ok_count: u64,
    pub(crate) err_count: u64,
    pub(crate) panic_count: u64,
    pub(crate) cancelled_count: u64,
    pub(crate) inclusive: Inclusive,
    pub(crate) exclusive_bytes: i64,
    /// The highest of all calls.
    pub(crate) own_peak_bytes: i64,
    /// The highest of all calls.
    pub(crate) peak_delta_bytes: i64,
    /// The site's unmeasured calls up to the reset.
    pub(crate) unmeasured_before: u64,
}

impl SiteTotals {
    fn began(&mut self, is_outermost: bool) {
        self.seen = true;
        self.call_count += 1;
        self.open_call_count += 1;
        self.outermost_call_count += u64::from(is_outermost);
    }

    fn ended(&mut self, outcome: Outcome) {
        self.open_call_count -= 1;
        let count = match outcome {
            Outcome::Ok => &mut self.ok_count,
            Outcome::Err => &mut self.err_count,
            Outcome::Panic => &mut self.panic_count,
            Outcome::Cancelled => &mut self.cancelled_count,
        };
        *count += 1;
    }

    /// Takes in what a call has brought so far; `peak_bytes` is the device's since it began.
    fn include(&mut self, call: &Slot, is_outermost: bool, peak_bytes: i64) {
        self.exclusive_bytes = self.exclusive_bytes.wrapping_add(call.exclusive_bytes_of_site());
        self.own_peak_bytes = self.own_peak_bytes.max(call.owned.peak_bytes);
        self.peak_delta_bytes = self.peak_delta_bytes.max(peak_bytes.wrapping_sub(call.before_bytes));
        if is_outermost {
            self.inclusive.add(&call.owned);
        }
    }

    /// Takes away what an open call has brought so far.
    fn exclude(&mut self, call: &Slot, is_outermost: bool) {
        self.exclusive_bytes = self.exclusive_bytes.wrapping_sub(call.exclusive_bytes_of_site());
        if is_outermost {
            self.inclusive.subtract(&call.owned);
        }
    }
}

/// The totals of all sites, by number, and of what happened in no call of any.
#[derive(Debug)]
pub(super) struct CallSites {
    totals: Vec<SiteTotals>,
    outside: Inclusive,
    /// Of all sites together.
    open_call_count: usize,
}

impl Default for CallSites {
    /// Nothing measured yet. Calls that others left unmeasured before now do not count here.
    fn default() -> Self {
        let mut sites = Self { totals: Vec::new(), outside: Inclusive::default(), open_call_count: 0 };
        sites.reset();
        sites
    }
}

impl CallSites {
    fn totals(&mut self, site: SiteId) -> &mut SiteTotals {
        if self.totals.len() <= site.index() {
            self.totals.resize_with(site.index() + 1, SiteTotals::default);
        }
        &mut self.totals[site.index()]
    }

    fn reset(&mut self) {
        self.outside = Inclusive::default();
        let unmeasured_call_counts = CallSite::unmeasured_call_counts();
        // The list only grows, and what is here is in it.
        self.totals.resize_with(unmeasured_call_counts.len(), SiteTotals::default);
        for (totals, unmeasured_before) in self.totals.iter_mut().zip(unmeasured_call_counts) {
            *totals = SiteTotals { seen: totals.seen, unmeasured_before, ..SiteTotals::default() };
        }
    }
}

impl Ledger {
    /// A call of a site begins: its scope was just opened.
    #[inline(never)]
    pub(super) fn begin_call(&mut self, key: ScopeKey, site: SiteId) {
        self.call_sites.open_call_count += 1;
        let totals = self.call_sites.totals(site);
        // Mostly no other call is open, so none need be looked for.
        let around = if totals.open_call_count == 0 { None } else { self.scopes.call_around(key.slot(), site) };
        totals.began(around.is_none());
        self.scopes.begin_call(key.slot(), around);
    }

    /// A call of a site ends: its scope is about to close, and the peaks were just cut.
    #[inline(never)]
    pub(super) fn end_call(&mut self, key: ScopeKey, site: SiteId, outcome: Outcome) {
        self.call_sites.open_call_count -= 1;
        let totals = self.call_sites.totals(site);
        let slot = self.scopes.slot(key.slot());
        let Call { outermost, inner_count, .. } = slot.call;
        totals.ended(outcome);
        totals.include(slot, outermost == key.slot(), slot.peak_bytes);
        if outermost != key.slot() {
            self.scopes.end_inner_call(outermost);
        } else if inner_count > 0 {
            for promoted in self.scopes.promote_inner_calls(key.slot(), site) {
                // So far it was counted for the call around it.
                totals.inclusive.subtract(&self.scopes.slot(promoted).owned);
            }
        }
    }

    /// Blocks were allocated by no call of a site itself: by a function of no site, whose site is the next call out, or outside
    /// all calls.
    #[inline]
    pub(super) fn allocated_beside_calls(&mut self, owner: u32, allocated: &Volume) {
        let requested_bytes = allocated.requested_bytes;
        match self.call_around(owner) {
            Some(call) => call.beside_bytes = call.beside_bytes.wrapping_add(requested_bytes),
            None => {
                let outside = &mut self.call_sites.outside;
                outside.allocated_bytes = outside.allocated_bytes.wrapping_add(requested_bytes);
                outside.allocation_count += allocated.count;
            }
        }
    }

    /// An allocation in `context` gave cached memory back and asked again.
    pub(super) fn retried_in(&mut self, context: u32) {
        self.scopes.retried(context);
        if self.call_around(context).is_none() {
            self.call_sites.outside.retry_count += 1;
        }
    }

    /// An allocation in `context` ran out of memory.
    pub(super) fn out_of_memory_in(&mut self, context: u32) {
        self.scopes.out_of_memory(context);
        if self.call_around(context).is_none() {
            self.call_sites.outside.oom_count += 1;
        }
    }

    #[inline]
    fn call_around(&mut self, context: u32) -> Option<&mut Call> {
        if self.call_sites.open_call_count == 0 { None } else { self.scopes.innermost_call(context) }
    }

    /// The totals of all sites with a call measured here, and of what happened in none.
    pub(crate) fn call_sites(&self) -> (Vec<(SiteId, SiteTotals)>, Inclusive) {
        let mut all = self.call_sites.totals.clone();
        for (index, site, slot) in self.open_calls() {
            all[site.index()].include(slot, slot.call.outermost == index, self.scopes.peak_bytes_now(slot));
        }
        let sites = (0..).map(SiteId::of_index).zip(all);
        (sites.filter(|(_, totals)| totals.seen).collect(), self.call_sites.outside)
    }

    /// Begins all totals anew. Calls that are open count from here, save that their peaks are those of the whole call.
    pub(crate) fn reset_call_sites(&mut self) {
        let mut sites = std::mem::take(&mut self.call_sites);
        sites.reset();
        for (index, site, slot) in self.open_calls() {
            let is_outermost = slot.call.outermost == index;
            let totals = sites.totals(site);
            totals.began(is_outermost);
            totals.exclude(slot, is_outermost);
        }
        self.call_sites = sites;
    }

    fn open_calls(&self) -> impl Iterator<Item = (u32, SiteId, &Slot)> {
        self.scopes.open_slots().filter_map(|(index, slot)| match slot.kind {
            ScopeKind::CallSite(site) => Some((index, site, slot)),
            ScopeKind::Function | ScopeKind::Step(_) | ScopeKind::Epoch => None,
        })
    }
}
