//! An epoch's summary as a value.

use std::time::{Duration, Instant};

use super::growth::{self, EpochSite, Growth};
use super::origins::{BlockTotal, OriginSummary, PeakHolder};
use super::sampling::{SampledMemory, SamplingFailure};
use super::{companion, driver_view};
use crate::allocator::CachingAllocator;
use crate::diagnosis::Finding;
use crate::driver::DriverReport;
use crate::ledger::{ClosedEpoch, PeakWindow, PhaseRow};
use crate::scope::DeviceName;
use crate::source::SourceSummary;

/// One row of an epoch's summary. Sizes are rounded bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseSummary {
    /// The phase; `other` for what was booked under none.
    pub name: &'static str,
    /// Times the phase began; 0 for `other`, unless a phase of that name was begun by other means than [`phase`](crate::phase()).
    pub entered_count: u64,
    /// Bytes allocated less bytes freed by threads in this phase. The rows add up to the epoch's change.
    pub net_bytes: i64,
    /// The most bytes allocated on the device at any moment of the phase, whoever allocated them. For `other`: at any
    /// moment without a phase, and right after each allocation that no phase was told of.
    pub peak_bytes: i64,
    /// The rise of a peak above entry that half of the activations do not exceed: exact when those near it are equal, else
    /// up to 1.6 % too high.
    pub rise_median_bytes: i64,
    /// The same that 95 of a hundred activations do not exceed, as exact.
    pub rise_p95_bytes: i64,
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
    /// Spent in allocations that found no cached block: calls to the device, giving cached memory back, waiting for others that do so.
    /// Exact; what cached allocations take is not in it, since reading a clock would take as long as they do.
    pub slow_path: Duration,
    /// `net_bytes` with that of the phases inside this one. As the following, counted once where a phase is inside itself.
    pub inclusive_net_bytes: i64,
    /// `allocated_bytes` with those of the phases inside this one.
    pub inclusive_allocated_bytes: u64,
    /// `allocation_count` with those of the phases inside this one.
    pub inclusive_allocation_count: u64,
    /// Bytes that threads outside moved (allocated or freed) while the phase was open, added up over its activations.
    pub foreign_bytes: i64,
    /// How many threads did so and did nothing inside. Exact with up to 63 threads at a time; all others are counted as one.
    pub other_thread_count: u32,
}

impl PhaseSummary {
    fn new(PhaseRow { name, totals, activity }: PhaseRow) -> Self {
        let (own, inclusive) = (totals.exclusive, totals.inclusive);
        Self {
            name,
            entered_count: own.entered_count,
            net_bytes: own.net_bytes,
            peak_bytes: activity.peak_bytes,
            rise_median_bytes: activity.rise_percentile_bytes(50),
            rise_p95_bytes: activity.rise_percentile_bytes(95),
            rise_max_bytes: activity.rise_max_bytes(),
            allocated_bytes: own.allocated_bytes,
            allocation_count: own.allocation_count,
            free_count: own.free_count,
            device_allocation_count: own.device_allocation_count,
            retry_count: own.retry_count,
            oom_count: own.oom_count,
            slow_path: Duration::from_nanos(own.slow_path_nanos),
            inclusive_net_bytes: inclusive.net_bytes,
            inclusive_allocated_bytes: inclusive.allocated_bytes,
            inclusive_allocation_count: inclusive.allocation_count,
            foreign_bytes: activity.foreign_bytes,
            other_thread_count: activity.other_threads.count(),
        }
    }

    /// Whether phases inside this one did anything to memory.
    pub fn has_inner(&self) -> bool {
        self.inclusive_allocation_count != self.allocation_count || self.inclusive_net_bytes != self.net_bytes
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
    /// The number of the allocator in this process, from 1 in the order in which allocators were made: a device may have several.
    pub allocator: u64,
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
    /// When the peak was reached, since the epoch began: not before this. Clocks are read where steps begin and end, and at phase
    /// boundaries where a sample is taken, never at a new maximum; between two such looks the moment is not known.
    pub peak_earliest: Duration,
    /// And not after this. Both are 0 when nothing rose above what was allocated at the beginning.
    pub peak_latest: Duration,
    /// Who held the peak, the most bytes first: they add up to `peak_bytes`.
    pub peak_holders: Vec<PeakHolder>,
    /// Bytes taken from the device at the moment of the peak.
    pub peak_reserved_bytes: i64,
    /// Bytes at the moment of the peak of blocks that were handed out, or given back and still waiting for another stream.
    pub peak_active_bytes: i64,
    /// What became of each phase's blocks, in order of first sight; `other` last.
    pub origins: Vec<OriginSummary>,
    /// The blocks that were live when the epoch ended, by where they were allocated: the most bytes first.
    pub live: Vec<EpochSite>,
    /// What ended larger than at the end of the epoch before; `None` for the first.
    pub growth: Option<Growth>,
    /// Bytes taken from the device when the epoch ended.
    pub reserved_bytes: i64,
    /// Bytes when the epoch ended of blocks that were handed out, or given back and still waiting for another stream.
    pub active_bytes: i64,
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
    /// What was sampled of the device's memory during the epoch, if that was asked for.
    pub sampled: Option<SampledMemory>,
    /// Samples that could not be taken, and why; `None` when none failed.
    pub sampling_failure: Option<SamplingFailure>,
    /// What costs memory, or may: of the state at the epoch's end, of its retries, and of the floors of steps and epochs so far. The
    /// gravest first.
    pub findings: Vec<Finding>,
    /// What each [source](crate::source) said that was registered when the epoch began, in the order of registration.
    pub sources: Vec<SourceSummary>,
    /// Whether an allocator of memtrack's was measured. Without one, `device` and the epoch's `before_bytes`, `after_bytes`,
    /// `peak_bytes` and `reserved_bytes` are those of the first of the `sources`, and all else is empty or 0.
    pub has_allocator: bool,
}

impl EpochSummary {
    pub(super) fn new(
        allocator: &CachingAllocator,
        closed: ClosedEpoch,
        started: Instant,
        sources: Vec<SourceSummary>,
    ) -> Self {
        let device = allocator.device();
        let inner = allocator.inner();
        let companion = companion::of(allocator);
        let (live, growth) = growth::at_end(companion, inner, closed.scope.after_bytes);
        let limit_bytes = allocator.limit_bytes().unwrap_or(device.total_bytes());
        let findings = companion.watched.at_end(allocator, &closed, &live, limit_bytes);
        let scope = closed.scope;
        let (sampled, sampling_failure) = companion.sampling.take();
        let (peak_earliest, peak_latest) = since(started, closed.peak_window, closed.lasted);
        let mut summary = Self {
            number: closed.number,
            device: DeviceName::new(&inner.name),
            model: device.model().to_owned(),
            allocator: inner.id,
            step_count: closed.step_count,
            lasted: closed.lasted,
            phases: closed.rows.into_iter().map(PhaseSummary::new).collect(),
            before_bytes: scope.before_bytes,
            after_bytes: scope.after_bytes,
            previous: closed.previous,
            peak_bytes: scope.peak_bytes,
            peak_phase: closed.peak_phase,
            peak_step: scope.peak_place.step,
            peak_earliest,
            peak_latest,
            peak_holders: closed.held_at_peak.into_iter().map(PeakHolder::from).collect(),
            peak_reserved_bytes: closed.reserved_at_peak_bytes,
            peak_active_bytes: closed.active_at_peak_bytes,
            origins: closed.origins.into_iter().map(OriginSummary::from).collect(),
            live,
            growth,
            reserved_bytes: closed.reserved_bytes,
            active_bytes: closed.active_bytes,
            largest_free_block_bytes: inner.largest_free_block_bytes(),
            limit_bytes,
            retry_count: scope.retry_count,
            oom_count: scope.oom_count,
            driver: driver_view::report(allocator, scope.after_bytes, closed.reserved_bytes),
            sampled,
            sampling_failure,
            findings,
            sources,
            has_allocator: !inner.is_stand_in,
        };
        if !summary.has_allocator {
            summary.stand_in();
        }
        summary
    }

    /// Allocated bytes at the end less those at the start.
    pub fn net_bytes(&self) -> i64 {
        self.after_bytes - self.before_bytes
    }

    /// Cached bytes: reserved, but not allocated.
    pub fn cached_bytes(&self) -> i64 {
        self.reserved_bytes - self.after_bytes
    }

    /// Bytes in free blocks when the epoch ended: reserved, but not in use by the program nor by a stream.
    pub fn free_bytes(&self) -> i64 {
        self.reserved_bytes - self.active_bytes
    }

    /// Cached bytes at the moment of the peak: reserved, but not allocated.
    pub fn peak_cached_bytes(&self) -> i64 {
        self.peak_reserved_bytes - self.peak_bytes
    }

    /// How much of the free bytes is outside the largest free block when the epoch ended, from 0 to 1: `1 - largest / free`. `None`
    /// without free bytes, or where the driver's own pool has them and nobody can see its blocks.
    pub fn fragmentation(&self) -> Option<f64> {
        let free_bytes =
            u64::try_from(self.free_bytes()).ok().filter(|bytes| *bytes > 0 && self.largest_free_block_bytes > 0)?;
        // Other threads may have merged blocks since the free bytes were read.
        let largest_bytes = self.largest_free_block_bytes.min(free_bytes);
        Some(1.0 - largest_bytes as f64 / free_bytes as f64)
    }

    /// The share of what was reserved at the moment of the peak that was cached, from 0 to 1: what fragmentation and rounding to segments
    /// cost when it mattered most. `None` with nothing reserved.
    pub fn peak_cached_share(&self) -> Option<f64> {
        let cached_bytes = self.peak_cached_bytes().max(0);
        (self.peak_reserved_bytes > 0).then(|| cached_bytes as f64 / self.peak_reserved_bytes as f64)
    }

    /// Who held the peak by phase of origin, the most bytes first: they add up to `peak_bytes`.
    pub fn peak_by_phase(&self) -> Vec<(&'static str, BlockTotal)> {
        let mut phases: Vec<(&'static str, BlockTotal)> = Vec::new();
        for PeakHolder { phase, held, .. } in &self.peak_holders {
            let at = phases.iter().position(|(name, _)| name == phase).unwrap_or_else(|| {
                phases.push((phase, BlockTotal::default()));
                phases.len() - 1
            });
            let total = &mut phases[at].1;
            total.bytes = total.bytes.saturating_add(held.bytes);
            total.block_count += held.block_count;
        }
        phases.sort_by_key(|(name, total)| (std::cmp::Reverse(total.bytes), *name));
        phases
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

fn since(started: Instant, window: Option<PeakWindow>, lasted: Duration) -> (Duration, Duration) {
    let Some((earliest, latest)) = window else { return Default::default() };
    // Another thread may look while the epoch begins.
    let since_start = |at: Instant| at.saturating_duration_since(started).min(lasted);
    (earliest.map_or(Duration::ZERO, since_start), latest.map_or(lasted, since_start))
}
