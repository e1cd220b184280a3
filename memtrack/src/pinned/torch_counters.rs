//! The counting of PyTorch 2.11, mistakes included.

use super::counters::{Source, reset_accumulated, reset_peak};
use super::stats::{DurationStatistic, HostMemoryStats};
use crate::stats::Statistic;
use crate::units::signed;

/// One block size: blocks in use are counted by size, and added up when somebody asks.
#[derive(Debug, Clone, Copy, Default)]
struct SizeCounters {
    requests: Statistic,
    bytes: Statistic,
}

#[derive(Debug)]
pub(super) struct TorchCounters {
    allocations: Statistic,
    allocated_bytes: Statistic,
    /// By the logarithm of the size.
    active: [SizeCounters; 64],
    alloc_time: DurationStatistic,
    free_time: DurationStatistic,
}

impl Default for TorchCounters {
    fn default() -> Self {
        let none = Statistic::default();
        let time = DurationStatistic::default();
        let active = [SizeCounters::default(); 64];
        Self { allocations: none, allocated_bytes: none, active, alloc_time: time, free_time: time }
    }
}

/// A shortest time of 0 is taken for none yet.
fn add_time(time: &mut DurationStatistic, took_us: i64) {
    time.total += took_us;
    time.count += 1;
    time.max = time.max.max(took_us);
    time.min = if time.min == 0 { took_us } else { time.min.min(took_us) };
}

/// Peaks of sizes are added too, though they were not at one time.
fn add_up<'a>(statistics: impl Iterator<Item = &'a Statistic>) -> Statistic {
    statistics.fold(Statistic::default(), |mut sum, one| {
        sum.current += one.current;
        sum.peak += one.peak;
        sum.allocated += one.allocated;
        sum.freed += one.freed;
        sum
    })
}

impl TorchCounters {
    pub(super) fn taken(&mut self, source: Source, bytes: i64, took_us: i64) {
        if source == Source::ReserveSegment {
            return;
        }
        self.allocations.increase(1);
        self.allocated_bytes.increase(bytes);
        if source == Source::Device {
            add_time(&mut self.alloc_time, took_us);
        }
    }

    pub(super) fn given_back(&mut self, source: Source, bytes: i64, took_us: i64) {
        if source == Source::ReserveSegment {
            return;
        }
        self.allocations.decrease(1);
        self.allocated_bytes.decrease(bytes);
        if source == Source::Device {
            add_time(&mut self.free_time, took_us);
        }
    }

    fn of_size(&mut self, size_bytes: u64) -> &mut SizeCounters {
        &mut self.active[size_bytes.ilog2() as usize]
    }

    pub(super) fn handed_out(&mut self, size_bytes: u64) {
        let counters = self.of_size(size_bytes);
        counters.requests.increase(1);
        counters.bytes.increase(signed(size_bytes));
    }

    pub(super) fn completed(&mut self, size_bytes: u64) {
        let counters = self.of_size(size_bytes);
        counters.requests.decrease(1);
        // Where the size belongs, PyTorch 2.11 has -1, its mark for "blocks of any size".
        counters.bytes.decrease(-1);
    }

    pub(super) fn reset_peak(&mut self) {
        reset_peak(&mut self.allocations);
        reset_peak(&mut self.allocated_bytes);
        for SizeCounters { requests, bytes } in &mut self.active {
            reset_peak(requests);
            reset_peak(bytes);
        }
        for time in [&mut self.alloc_time, &mut self.free_time] {
            (time.max, time.min) = (0, 0);
        }
    }

    pub(super) fn reset_accumulated(&mut self) {
        reset_accumulated(&mut self.allocations);
        reset_accumulated(&mut self.allocated_bytes);
        for SizeCounters { requests, bytes } in &mut self.active {
            reset_accumulated(requests);
            reset_accumulated(bytes);
        }
        for time in [&mut self.alloc_time, &mut self.free_time] {
            (time.total, time.count) = (0, 0);
        }
    }

    pub(super) fn stats(&self) -> HostMemoryStats {
        HostMemoryStats {
            allocations: self.allocations,
            active_requests: add_up(self.active.iter().map(|counters| &counters.requests)),
            allocated_bytes: self.allocated_bytes,
            active_bytes: add_up(self.active.iter().map(|counters| &counters.bytes)),
            // The same counts, so that a reset of the one is a reset of the other.
            num_host_alloc: self.allocations.allocated,
            num_host_free: self.allocations.freed,
            host_alloc_time: self.alloc_time,
            host_free_time: self.free_time,
        }
    }
}
