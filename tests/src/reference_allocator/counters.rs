//! The 122 statistics as plain numbers.

use memtrack::{MemoryStats, PoolStatistic, Statistic};

use super::state::Kind;

/// How many there are.
pub const COUNTER_COUNT: usize = 122;

const ARRAYS: [&str; 9] = [
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
];
const POOLS: [&str; 3] = ["all", "small_pool", "large_pool"];
const METRICS: [&str; 4] = ["current", "peak", "allocated", "freed"];
const EVENTS: [&str; 6] =
    ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size"];

const OVERSIZE_ALLOCATIONS: usize = 9 * 3 * 4;
const OVERSIZE_SEGMENTS: usize = OVERSIZE_ALLOCATIONS + 4;
const FIRST_EVENT: usize = OVERSIZE_SEGMENTS + 4;

/// The nine kept by pool, in the order of [`ARRAYS`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Counter {
    Allocation,
    Segment,
    Active,
    InactiveSplit,
    AllocatedBytes,
    ReservedBytes,
    ActiveBytes,
    InactiveSplitBytes,
    RequestedBytes,
}

/// The event counters, in the order of [`EVENTS`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Count {
    Retries,
    Ooms,
    Syncs,
    DeviceAllocs,
    DeviceFrees,
}

/// All statistics, in the order of [`counter_names`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(pub [i64; COUNTER_COUNT]);

/// The names, as `torch.cuda.memory_stats` has them.
pub fn counter_names() -> Vec<String> {
    let mut names = Vec::new();
    for array in ARRAYS {
        for pool in POOLS {
            names.extend(METRICS.map(|metric| format!("{array}.{pool}.{metric}")));
        }
    }
    for single in ["oversize_allocations", "oversize_segments"] {
        names.extend(METRICS.map(|metric| format!("{single}.{metric}")));
    }
    names.extend(EVENTS.map(str::to_owned));
    names
}

impl Counters {
    pub(super) fn new(max_split_size: i64) -> Self {
        let mut values = [0; COUNTER_COUNT];
        values[COUNTER_COUNT - 1] = max_split_size;
        Self(values)
    }

    fn add(&mut self, at: usize, amount: i64) {
        let values = &mut self.0;
        values[at] += amount;
        values[at + 1] = values[at + 1].max(values[at]);
        values[if amount > 0 { at + 2 } else { at + 3 }] += amount.abs();
    }

    pub(super) fn change(&mut self, counter: Counter, kind: Kind, amount: i64) {
        let first = counter as usize * 12;
        self.add(first, amount);
        self.add(first + 4 + 4 * kind as usize, amount);
    }

    pub(super) fn current(&self, counter: Counter) -> i64 {
        self.0[counter as usize * 12]
    }

    pub(super) fn oversize_allocations(&mut self, amount: i64) {
        self.add(OVERSIZE_ALLOCATIONS, amount);
    }

    pub(super) fn oversize_segments(&mut self, amount: i64) {
        self.add(OVERSIZE_SEGMENTS, amount);
    }

    pub(super) fn count(&mut self, event: Count) {
        self.0[FIRST_EVENT + event as usize] += 1;
    }

    pub(super) fn reset_peak(&mut self) {
        for quadruple in self.0[..FIRST_EVENT].chunks_exact_mut(4) {
            quadruple[1] = quadruple[0];
        }
    }

    pub(super) fn reset_accumulated(&mut self) {
        for quadruple in self.0[..FIRST_EVENT].chunks_exact_mut(4) {
            quadruple[2..].fill(0);
        }
        self.0[FIRST_EVENT..COUNTER_COUNT - 1].fill(0);
    }
}

/// memtrack's statistics in the same order.
pub fn flatten(stats: &MemoryStats) -> Counters {
    let mut values = [0; COUNTER_COUNT];
    let metrics = |s: &Statistic| [s.current, s.peak, s.allocated, s.freed];
    let arrays: [&PoolStatistic; 9] = [
        &stats.allocation,
        &stats.segment,
        &stats.active,
        &stats.inactive_split,
        &stats.allocated_bytes,
        &stats.reserved_bytes,
        &stats.active_bytes,
        &stats.inactive_split_bytes,
        &stats.requested_bytes,
    ];
    for (array, values) in arrays.iter().zip(values.chunks_exact_mut(12)) {
        values[..4].copy_from_slice(&metrics(&array.all));
        values[4..8].copy_from_slice(&metrics(&array.small_pool));
        values[8..].copy_from_slice(&metrics(&array.large_pool));
    }
    values[OVERSIZE_ALLOCATIONS..OVERSIZE_SEGMENTS].copy_from_slice(&metrics(&stats.oversize_allocations));
    values[OVERSIZE_SEGMENTS..FIRST_EVENT].copy_from_slice(&metrics(&stats.oversize_segments));
    values[FIRST_EVENT..].copy_from_slice(&[
        stats.num_alloc_retries,
        stats.num_ooms,
        stats.num_sync_all_streams,
        stats.num_device_alloc,
        stats.num_device_free,
        stats.max_split_size,
    ]);
    Counters(values)
}
