//! Counting: what happens to memory, told in one way to the right counters and to PyTorch 2.11's.

use super::stats::{DurationStatistic, HostMemoryStats};
use super::torch_counters::TorchCounters;
use crate::stats::Statistic;
use crate::units::signed;

/// Where memory of a block comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The device, for this block alone.
    Device,
    /// The device, for the reserve segment.
    ReserveSegment,
    /// The reserve segment, for a block.
    Reserve,
}

/// The counters of one allocator.
#[derive(Debug)]
pub(super) enum Counters {
    Right(Box<RightCounters>),
    Torch(Box<TorchCounters>),
}

impl Counters {
    pub(super) fn new(torch_exact: bool) -> Self {
        if torch_exact { Self::Torch(Box::default()) } else { Self::Right(Box::default()) }
    }

    /// Memory was taken; the device's call took so many microseconds.
    pub(super) fn taken(&mut self, source: Source, bytes: u64, took_us: i64) {
        match self {
            Self::Right(counters) => counters.taken(source, signed(bytes), took_us),
            Self::Torch(counters) => counters.taken(source, signed(bytes), took_us),
        }
    }

    /// Memory was given back.
    pub(super) fn given_back(&mut self, source: Source, bytes: u64, took_us: i64) {
        match self {
            Self::Right(counters) => counters.given_back(source, signed(bytes), took_us),
            Self::Torch(counters) => counters.given_back(source, signed(bytes), took_us),
        }
    }

    /// A block went to the program.
    pub(super) fn handed_out(&mut self, size_bytes: u64) {
        match self {
            Self::Right(counters) => counters.handed_out(signed(size_bytes)),
            Self::Torch(counters) => counters.handed_out(size_bytes),
        }
    }

    /// A block came back that no stream uses.
    pub(super) fn returned(&mut self, size_bytes: u64) {
        match self {
            Self::Right(counters) => counters.returned(signed(size_bytes)),
            // PyTorch 2.11 counts nothing here.
            Self::Torch(_) => {}
        }
    }

    /// The streams are done with a block that came back before.
    pub(super) fn completed(&mut self, size_bytes: u64) {
        match self {
            Self::Right(counters) => counters.returned(signed(size_bytes)),
            Self::Torch(counters) => counters.completed(size_bytes),
        }
    }

    pub(super) fn reset_peak(&mut self) {
        match self {
            Self::Right(counters) => counters.reset_peak(),
            Self::Torch(counters) => counters.reset_peak(),
        }
    }

    pub(super) fn reset_accumulated(&mut self) {
        match self {
            Self::Right(counters) => counters.reset_accumulated(),
            Self::Torch(counters) => counters.reset_accumulated(),
        }
    }

    pub(super) fn stats(&self) -> HostMemoryStats {
        match self {
            Self::Right(counters) => counters.stats,
            Self::Torch(counters) => counters.stats(),
        }
    }
}

pub(super) fn reset_peak(statistic: &mut Statistic) {
    statistic.peak = statistic.current;
}

pub(super) fn reset_accumulated(statistic: &mut Statistic) {
    statistic.allocated = 0;
    statistic.freed = 0;
}

/// What is so.
#[derive(Debug, Default)]
pub(super) struct RightCounters {
    stats: HostMemoryStats,
    /// Calls since the last reset of peaks, for which alone there is a shortest.
    timed_allocs: bool,
    timed_frees: bool,
}

fn add_time(time: &mut DurationStatistic, has_shortest: &mut bool, took_us: i64) {
    time.total += took_us;
    time.count += 1;
    time.max = time.max.max(took_us);
    time.min = if *has_shortest { time.min.min(took_us) } else { took_us };
    *has_shortest = true;
}

impl RightCounters {
    fn taken(&mut self, source: Source, bytes: i64, took_us: i64) {
        if source == Source::Reserve {
            return;
        }
        self.stats.allocations.increase(1);
        self.stats.allocated_bytes.increase(bytes);
        self.stats.num_host_alloc += 1;
        add_time(&mut self.stats.host_alloc_time, &mut self.timed_allocs, took_us);
    }

    fn given_back(&mut self, source: Source, bytes: i64, took_us: i64) {
        if source == Source::Reserve {
            return;
        }
        self.stats.allocations.decrease(1);
        self.stats.allocated_bytes.decrease(bytes);
        self.stats.num_host_free += 1;
        add_time(&mut self.stats.host_free_time, &mut self.timed_frees, took_us);
    }

    fn handed_out(&mut self, size_bytes: i64) {
        self.stats.active_requests.increase(1);
        self.stats.active_bytes.increase(size_bytes);
    }

    fn returned(&mut self, size_bytes: i64) {
        self.stats.active_requests.decrease(1);
        self.stats.active_bytes.decrease(size_bytes);
    }

    fn statistics(&mut self) -> [&mut Statistic; 4] {
        let stats = &mut self.stats;
        [&mut stats.allocations, &mut stats.active_requests, &mut stats.allocated_bytes, &mut stats.active_bytes]
    }

    fn reset_peak(&mut self) {
        self.statistics().into_iter().for_each(reset_peak);
        for time in [&mut self.stats.host_alloc_time, &mut self.stats.host_free_time] {
            (time.max, time.min) = (0, 0);
        }
        (self.timed_allocs, self.timed_frees) = (false, false);
    }

    fn reset_accumulated(&mut self) {
        self.statistics().into_iter().for_each(reset_accumulated);
        for time in [&mut self.stats.host_alloc_time, &mut self.stats.host_free_time] {
            (time.total, time.count) = (0, 0);
        }
    }
}
