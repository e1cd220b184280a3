//! An epoch's summary as a value.

use std::time::Duration;

use super::driver_view;
use crate::allocator::CachingAllocator;
use crate::driver::DriverReport;
use crate::ledger::{ClosedEpoch, PhaseActivity, PhaseTotals};
use crate::scope::DeviceName;

/// One row of an epoch's summary. Sizes are rounded bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseSummary {
    /// The phase; `other` for what was booked under none.
    pub name: &'static str,
    /// Times the phase began; 0 for `other`, unless a phase is named so.
    pub entered_count: u64,
    /// Bytes allocated less bytes freed by threads in this phase. The rows add up to the epoch's change.
    pub net_bytes: i64,
    /// The most bytes allocated on the device at any moment of the phase, whoever allocated them. For `other`: at any
    /// moment without a phase, and right after each allocation that no phase was told of.
    pub peak_bytes: i64,
    /// The rise of a peak above entry that half of the activations do not exceed: exact when those near it are equal, else
    /// up to 1.6 % too high.
    pub rise_median_bytes: i64,
    /// The highest rise of a peak above entry.
    pub rise_max_bytes: i64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Allocations.
    pub allocation_count: u64,
    /// Frees.
    pub free_count: u64,
    /// Allocations that had to take a segment from the device.
    pub device_allocation_count: u64,
    /// Allocations that gave cached memory back and asked again.
    pub retry_count: u64,
    /// Allocations that ran out of memory.
    pub oom_count: u64,
}

impl PhaseSummary {
    fn new((name, totals, activity): (&'static str, PhaseTotals, PhaseActivity)) -> Self {
        Self {
            name,
            entered_count: totals.entered_count,
            net_bytes: totals.net_bytes,
            peak_bytes: activity.peak_bytes,
            rise_median_bytes: activity.rise_median_bytes(),
            rise_max_bytes: activity.rise_max_bytes(),
            allocated_bytes: totals.allocated_bytes,
            allocation_count: totals.allocation_count,
            free_count: totals.free_count,
            device_allocation_count: totals.device_allocation_count,
            retry_count: totals.retry_count,
            oom_count: totals.oom_count,
        }
    }

    /// The share of allocations served from cached memory, from 0 to 1; `None` without allocations.
    pub fn hit_rate(&self) -> Option<f64> {
        let served = self.allocation_count.checked_sub(self.device_allocation_count)?;
        (self.allocation_count > 0).then(|| served as f64 / self.allocation_count as f64)
    }
}

/// What happened to a device's memory in an epoch. Its `Display` is a table for people.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EpochSummary {
    /// The epoch's number, as given.
    pub number: u64,
    /// The device.
    pub device: DeviceName,
    /// What a person calls the device.
    pub model: String,
    /// Steps begun.
    pub step_count: u64,
    /// How long the epoch took.
    pub lasted: Duration,
    /// One row per phase, in order of first sight; `other` last.
    pub phases: Vec<PhaseSummary>,
    /// Allocated bytes when the epoch began.
    pub before_bytes: i64,
    /// Allocated bytes when it ended.
    pub after_bytes: i64,
    /// The number of the epoch that ended before this one, and its allocated bytes then.
    pub previous: Option<(u64, i64)>,
    /// The most bytes allocated at any moment.
    pub peak_bytes: i64,
    /// The phase whose allocation reached the peak.
    pub peak_phase: &'static str,
    /// The step in which the peak was reached.
    pub peak_step: Option<u64>,
    /// Bytes taken from the device when the epoch ended.
    pub reserved_bytes: i64,
    /// The largest free block when the epoch ended.
    pub largest_free_block_bytes: u64,
    /// What may be reserved: the memory fraction's limit, or all the device has.
    pub limit_bytes: u64,
    /// Retries in the epoch, all phases together.
    pub retry_count: i64,
    /// Out of memory errors in the epoch, all phases together.
    pub oom_count: i64,
    /// The driver's figures when the epoch ended, compared with the allocator's.
    pub driver: DriverReport,
}

impl EpochSummary {
    pub(super) fn new(allocator: &CachingAllocator, closed: ClosedEpoch) -> Self {
        let device = allocator.device();
        let ClosedEpoch { number, lasted, step_count, scope, peak_phase, rows, previous, reserved_bytes } = closed;
        Self {
            number,
            device: DeviceName::new(&allocator.inner().name),
            model: device.model().to_owned(),
            step_count,
            lasted,
            phases: rows.into_iter().map(PhaseSummary::new).collect(),
            before_bytes: scope.before_bytes,
            after_bytes: scope.after_bytes,
            previous,
            peak_bytes: scope.peak_bytes,
            peak_phase,
            peak_step: scope.peak_place.step,
            reserved_bytes,
            largest_free_block_bytes: allocator.inner().largest_free_block_bytes(),
            limit_bytes: allocator.limit_bytes().unwrap_or(device.total_bytes()),
            retry_count: scope.retry_count,
            oom_count: scope.oom_count,
            driver: driver_view::report(allocator, scope.after_bytes, reserved_bytes),
        }
    }

    /// Allocated bytes at the end less those at the start.
    pub fn net_bytes(&self) -> i64 {
        self.after_bytes - self.before_bytes
    }

    /// Cached bytes: reserved, but not allocated.
    pub fn cached_bytes(&self) -> i64 {
        self.reserved_bytes - self.after_bytes
    }

    /// Whether the rows' net bytes add up to the epoch's change. They always should; the table says so when not.
    pub fn adds_up(&self) -> bool {
        self.phases.iter().map(|phase| phase.net_bytes).sum::<i64>() == self.net_bytes()
    }

    /// How much lower than the limit a peak was.
    pub fn headroom_bytes(&self, peak_bytes: i64) -> i64 {
        i64::try_from(self.limit_bytes).unwrap_or(i64::MAX).saturating_sub(peak_bytes)
    }
}
