//! Records and totals as they are compared.

use memtrack::scope::{CallSiteTotals, Outcome, ScopeRecord};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) name: &'static str,
    pub(crate) device: String,
    pub(crate) phase: Option<&'static str>,
    pub(crate) outcome: Outcome,
    pub(crate) before: i64,
    pub(crate) after: i64,
    pub(crate) peak: i64,
    /// Allocations, frees, retries, out of memory.
    pub(crate) counts: [i64; 4],
    pub(crate) reserved_delta: i64,
    pub(crate) own_delta: i64,
    pub(crate) own_peak: i64,
    pub(crate) own_allocated: i64,
    pub(crate) exclusive: i64,
    pub(crate) own_counts: [i64; 4],
    pub(crate) foreign: i64,
}

impl From<&ScopeRecord> for Figures {
    fn from(record: &ScopeRecord) -> Self {
        Self {
            name: record.name,
            device: record.device.to_string(),
            phase: record.phase,
            outcome: record.outcome,
            before: record.before_bytes,
            after: record.after_bytes,
            peak: record.peak_bytes,
            counts: [record.allocation_count, record.free_count, record.retry_count, record.oom_count],
            reserved_delta: record.reserved_delta_bytes,
            own_delta: record.own_delta_bytes,
            own_peak: record.own_peak_bytes,
            own_allocated: record.own_allocated_bytes,
            exclusive: record.exclusive_allocated_bytes,
            own_counts: [
                record.own_allocation_count,
                record.own_free_count,
                record.own_retry_count,
                record.own_oom_count,
            ],
            foreign: record.foreign_bytes,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) name: &'static str,
    /// Calls, outermost ones, open ones, unmeasured ones.
    pub(crate) calls: [u64; 4],
    /// Ended well, with an error, by a panic, cancelled.
    pub(crate) ended: [u64; 4],
    pub(crate) inclusive: i64,
    pub(crate) exclusive: i64,
    pub(crate) net: i64,
    pub(crate) own_peak: i64,
    pub(crate) peak_delta: i64,
    /// Allocations, retries, out of memory.
    pub(crate) counts: [i64; 3],
}

impl From<&CallSiteTotals> for Totals {
    fn from(totals: &CallSiteTotals) -> Self {
        Self {
            name: totals.name(),
            calls: [
                totals.call_count,
                totals.outermost_call_count,
                totals.open_call_count,
                totals.unmeasured_call_count,
            ],
            ended: [totals.ok_count, totals.err_count, totals.panic_count, totals.cancelled_count],
            inclusive: totals.inclusive_allocated_bytes,
            exclusive: totals.exclusive_allocated_bytes,
            net: totals.net_bytes,
            own_peak: totals.own_peak_bytes,
            peak_delta: totals.peak_delta_bytes,
            counts: [totals.allocation_count, totals.retry_count, totals.oom_count],
        }
    }
}
