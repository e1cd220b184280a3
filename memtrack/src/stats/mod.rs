//! The statistics of an allocator, under PyTorch's names.
//!
//! Here live the counters, their resets and their two forms for others: [`MemoryStats::to_map`] by PyTorch's keys, and the
//! table of [`MemoryStats::memory_summary`]. What moves them lives with the ledger.
//!
//! The meaning of each counter is that of `torch.cuda.memory_stats` (PyTorch 2.11). Byte counts are rounded block sizes, except
//! `requested_bytes`, which is what callers asked for.

mod summary;

use std::collections::BTreeMap;

/// One counter: where it is, how high it has been, and all that was added and taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistic {
    /// The value now.
    pub current: i64,
    /// The highest value since the start or the last reset of peaks.
    pub peak: i64,
    /// The sum of all increases since the start or the last reset of accumulated counters.
    pub allocated: i64,
    /// The sum of all decreases since the start or the last reset of accumulated counters.
    pub freed: i64,
}

impl Statistic {
    #[inline]
    pub(crate) fn increase(&mut self, amount: i64) {
        // Wrapping, as PyTorch's do: 2^63 bytes live exist on simulated devices only, and no program has moved as many yet.
        // Saturating costs a cached pair 7 %.
        self.current = self.current.wrapping_add(amount);
        self.peak = self.peak.max(self.current);
        self.allocated = self.allocated.wrapping_add(amount);
    }

    #[inline]
    pub(crate) fn decrease(&mut self, amount: i64) {
        self.current = self.current.wrapping_sub(amount);
        self.freed = self.freed.wrapping_add(amount);
    }

    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }
}

/// Which of a stream's two pools a block belongs to: blocks of at most 1 MiB come from the small one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolKind {
    /// Blocks of at most 1 MiB, in segments of 2 MiB.
    Small,
    /// Larger blocks.
    Large,
}

/// A counter kept for both pools together and for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolStatistic {
    /// Both pools together; its peak is its own, not the sum of the pools' peaks.
    pub all: Statistic,
    /// The small pool.
    pub small_pool: Statistic,
    /// The large pool.
    pub large_pool: Statistic,
}

/// What an allocator with `policy:compact` did with its pages of 2 MiB, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CompactStats {
    /// Times that no free block served a request, attempts repeated after waiting included.
    pub growth_count: u64,
    /// Of these, those for which pages were mapped at other addresses than before.
    pub moving_allocation_count: u64,
    /// Pages that were mapped at other addresses than before.
    pub moved_page_count: u64,
    /// Pages that went back to addresses where they were mapped still, which takes no call.
    pub returned_page_count: u64,
    /// Pages that were taken from the device.
    pub created_page_count: u64,
    /// Pages that were given back to the device.
    pub released_page_count: u64,
    /// Old mappings that were taken away.
    pub unmapped_count: u64,
    /// Growths that waited for work, or had the work of their stream wait for that of others.
    pub wait_count: u64,
}

/// Everything an allocator counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Allocations handed to the program.
    pub allocation: PoolStatistic,
    /// Segments taken from the device.
    pub segment: PoolStatistic,
    /// Blocks handed to the program or waiting for another stream to be done with them.
    pub active: PoolStatistic,
    /// Free blocks that are a part of a segment in use.
    pub inactive_split: PoolStatistic,
    /// Bytes handed to the program, as rounded block sizes.
    pub allocated_bytes: PoolStatistic,
    /// Bytes taken from the device.
    pub reserved_bytes: PoolStatistic,
    /// Bytes of active blocks.
    pub active_bytes: PoolStatistic,
    /// Bytes of inactive split blocks.
    pub inactive_split_bytes: PoolStatistic,
    /// Bytes as asked for, before rounding, of active blocks.
    pub requested_bytes: PoolStatistic,
    /// Allocations of at least `max_split_size`.
    pub oversize_allocations: Statistic,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Statistic,
    /// Times an allocation had to give cached memory back to the device and ask again.
    pub num_alloc_retries: i64,
    /// Out of memory errors returned.
    pub num_ooms: i64,
    /// Times all streams were waited for.
    pub num_sync_all_streams: i64,
    /// Segments taken from the device, ever.
    pub num_device_alloc: i64,
    /// Segments given back to the device, ever.
    pub num_device_free: i64,
    /// The split limit at the allocator's start in bytes, -1 when there is none.
    pub max_split_size: i64,
}

impl MemoryStats {
    /// The same counters under exactly the keys of `torch.cuda.memory_stats`, sorted.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use memtrack::{CachingAllocator, device::Simulated};
    /// let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    /// let map = allocator.memory_stats().to_map();
    /// assert_eq!(map.len(), 122);
    /// assert_eq!(map["allocated_bytes.all.current"], 0);
    /// ```
    pub fn to_map(&self) -> BTreeMap<String, i64> {
        let mut map = BTreeMap::new();
        let mut add = |prefix: &str, statistic: &Statistic| {
            map.insert(format!("{prefix}.current"), statistic.current);
            map.insert(format!("{prefix}.peak"), statistic.peak);
            map.insert(format!("{prefix}.allocated"), statistic.allocated);
            map.insert(format!("{prefix}.freed"), statistic.freed);
        };
        let arrays = [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ];
        for (name, array) in arrays {
            add(&format!("{name}.all"), &array.all);
            add(&format!("{name}.small_pool"), &array.small_pool);
            add(&format!("{name}.large_pool"), &array.large_pool);
        }
        add("oversize_allocations", &self.oversize_allocations);
        add("oversize_segments", &self.oversize_segments);
        let singles = [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("max_split_size", self.max_split_size),
        ];
        map.extend(singles.map(|(name, value)| (name.to_owned(), value)));
        map
    }
}
