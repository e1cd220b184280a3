//! What all calls of each function came to.

use std::cmp::Reverse;

use super::DeviceName;
use crate::allocator::CachingAllocator;
use crate::ledger::{CallSite, Inclusive, SiteTotals};

/// What all measured calls of one call site came to on one device, since the start or the last
/// [`reset_call_sites`](CachingAllocator::reset_call_sites); calls that are open count as far as they got. Sizes are in bytes
/// as asked for, save `peak_delta_bytes`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallSiteTotals {
    /// The device.
    pub device: DeviceName,
    /// The site; `None` for everything that happened in no call of any site.
    pub site: Option<&'static CallSite>,
    /// Measured calls that began since the reset or were open then.
    pub call_count: u64,
    /// Those of them that no other call of the same site was around. The others are recursive.
    pub outermost_call_count: u64,
    /// Those that are open now.
    pub open_call_count: u64,
    /// Calls that were not measured, on whatever device they would have been.
    pub unmeasured_call_count: u64,
    /// Measured calls that ran to their end.
    pub ok_count: u64,
    /// Measured calls that returned an error.
    pub err_count: u64,
    /// Measured calls that panicked.
    pub panic_count: u64,
    /// Measured calls that were cancelled.
    pub cancelled_count: u64,
    /// Bytes of all allocations made in the calls and whatever they called; recursive calls count once.
    pub inclusive_allocated_bytes: i64,
    /// Bytes of the allocations that the site itself made: without those in calls of other sites inside. They add up over all
    /// sites, with those outside, to all that was allocated.
    pub exclusive_allocated_bytes: i64,
    /// What was allocated in a call and not given back before it ended, call by call. Not kept of what is outside all sites: 0
    /// there.
    pub net_bytes: i64,
    /// The most bytes allocated in one call that were live at once.
    pub own_peak_bytes: i64,
    /// The highest rise of the device's allocated bytes above those at the start of one call; rounded bytes.
    pub peak_delta_bytes: i64,
    /// Allocations made in the calls and whatever they called; recursive calls count once.
    pub allocation_count: i64,
    /// Allocations that gave cached memory back and asked again.
    pub retry_count: i64,
    /// Allocations that ran out of memory.
    pub oom_count: i64,
}

impl CallSiteTotals {
    fn new(device: DeviceName, site: &'static CallSite, totals: &SiteTotals) -> Self {
        Self {
            call_count: totals.call_count,
            outermost_call_count: totals.outermost_call_count,
            open_call_count: totals.open_call_count,
            unmeasured_call_count: site.unmeasured_call_count().saturating_sub(totals.unmeasured_before),
            ok_count: totals.ok_count,
            err_count: totals.err_count,
            panic_count: totals.panic_count,
            cancelled_count: totals.cancelled_count,
            exclusive_allocated_bytes: totals.exclusive_bytes,
            own_peak_bytes: totals.own_peak_bytes,
            peak_delta_bytes: totals.peak_delta_bytes,
            site: Some(site),
            ..Self::outside(device, &totals.inclusive)
        }
    }

    fn outside(device: DeviceName, inclusive: &Inclusive) -> Self {
        Self {
            device,
            site: None,
            call_count: 0,
            outermost_call_count: 0,
            open_call_count: 0,
            unmeasured_call_count: 0,
            ok_count: 0,
            err_count: 0,
            panic_count: 0,
            cancelled_count: 0,
            inclusive_allocated_bytes: inclusive.allocated_bytes,
            exclusive_allocated_bytes: inclusive.allocated_bytes,
            net_bytes: inclusive.net_bytes,
            own_peak_bytes: 0,
            peak_delta_bytes: 0,
            allocation_count: inclusive.allocation_count,
            retry_count: inclusive.retry_count,
            oom_count: inclusive.oom_count,
        }
    }

    /// The site's name, or that this is what happened outside of all of them.
    pub fn name(&self) -> &'static str {
        self.site.map_or("outside of tracked functions", CallSite::name)
    }
}

impl CachingAllocator {
    /// What all calls of each call site came to: the one with the most inclusive bytes first, equal ones by name, module and
    /// place; what happened outside all of them last. Sites without a call since the reset, measured or not, are left out.
    ///
    /// One lock, and a copy of the totals. [`CallSiteTable`](super::CallSiteTable) shows them as a table.
    pub fn call_sites(&self) -> Vec<CallSiteTotals> {
        let inner = self.inner();
        let (sites, outside) = inner.ledger().call_sites();
        let device = DeviceName::new(&inner.name);
        let mut all: Vec<_> = sites
            .into_iter()
            .filter_map(|(site, totals)| Some(CallSiteTotals::new(device.clone(), CallSite::of_id(site)?, &totals)))
            .filter(|totals| totals.call_count > 0 || totals.unmeasured_call_count > 0)
            .collect();
        all.sort_by_key(|totals| {
            let place = totals.site.map(|site| (site.name(), site.module_path(), site.file(), site.line()));
            (Reverse(totals.inclusive_allocated_bytes), place)
        });
        all.push(CallSiteTotals::outside(device, &outside));
        all
    }

    /// Begins the totals of [`call_sites`](Self::call_sites) anew. Calls that are open stay in them, with what they do from
    /// here on; their peaks are those of the whole call. Open scopes and their records are not concerned.
    pub fn reset_call_sites(&self) {
        self.inner().ledger().reset_call_sites();
    }
}
