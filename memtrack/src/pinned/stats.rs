//! The statistics of a pinned allocator, under PyTorch's names.

use std::collections::BTreeMap;

use crate::stats::Statistic;

/// How long the device took for calls of one kind, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DurationStatistic {
    /// All calls together since the start or the last reset of accumulated counters.
    pub total: i64,
    /// The longest call since the start or the last reset of peaks; 0 without one.
    pub max: i64,
    /// The shortest call since then; 0 without one.
    pub min: i64,
    /// How many calls `total` is of.
    pub count: i64,
}

impl DurationStatistic {
    /// The mean in whole microseconds, rounded down; 0 without calls.
    pub fn avg(&self) -> i64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

/// Everything a pinned allocator counts: what `torch.cuda.host_memory_stats` shows.
///
/// *Active* is what the program holds or a stream is not done with; *allocated* what is page-locked, cached memory included.
/// A reserve segment is one allocation of its whole size, whatever is cut from it.
///
/// With [`torch_exact`](super::PinnedConfig::torch_exact) the figures are PyTorch 2.11's:
///
/// - nothing is taken off `active_*` when a buffer is freed that no stream uses; when one is freed that a stream used,
///   `active_requests` goes down by one and `active_bytes` up by one byte, which is booked as -1 freed;
/// - the peaks of `active_*` are the sum of the peaks of each block size;
/// - `num_host_alloc` and `num_host_free` start anew with the other accumulated counters;
/// - the shortest time takes 0 for "none yet";
/// - blocks cut from the reserve segment are counted as allocations each, and the segment itself is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HostMemoryStats {
    /// Pieces of memory that are page-locked.
    pub allocations: Statistic,
    /// Blocks in use.
    pub active_requests: Statistic,
    /// Bytes that are page-locked.
    pub allocated_bytes: Statistic,
    /// Bytes of the blocks in use, as rounded sizes.
    pub active_bytes: Statistic,
    /// Times memory was page-locked, ever.
    pub num_host_alloc: i64,
    /// Times page-locked memory was given back, ever.
    pub num_host_free: i64,
    /// What page-locking took.
    pub host_alloc_time: DurationStatistic,
    /// What giving back took.
    pub host_free_time: DurationStatistic,
}

impl HostMemoryStats {
    /// The same counters under exactly the keys of `torch.cuda.host_memory_stats`, sorted.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use memtrack::{PinnedAllocator, device::Host};
    /// let map = PinnedAllocator::new(Arc::new(Host::new()))?.host_memory_stats().to_map();
    /// assert_eq!(map.len(), 28);
    /// assert_eq!(map["active_bytes.current"], 0);
    /// # Ok::<(), memtrack::pinned::PinnedError>(())
    /// ```
    pub fn to_map(&self) -> BTreeMap<String, i64> {
        let mut map = BTreeMap::new();
        let statistics = [
            ("allocations", &self.allocations),
            ("active_requests", &self.active_requests),
            ("allocated_bytes", &self.allocated_bytes),
            ("active_bytes", &self.active_bytes),
        ];
        for (name, Statistic { current, peak, allocated, freed }) in statistics {
            let entries = [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)];
            map.extend(entries.map(|(metric, value)| (format!("{name}.{metric}"), *value)));
        }
        for (name, time) in [("host_alloc_time", &self.host_alloc_time), ("host_free_time", &self.host_free_time)] {
            let DurationStatistic { total, max, min, count } = *time;
            let entries = [("total", total), ("max", max), ("min", min), ("count", count), ("avg", time.avg())];
            map.extend(entries.map(|(metric, value)| (format!("{name}.{metric}"), value)));
        }
        map.insert("num_host_alloc".to_owned(), self.num_host_alloc);
        map.insert("num_host_free".to_owned(), self.num_host_free);
        map
    }
}
