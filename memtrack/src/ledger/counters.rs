//! The statistics as they are kept: what follows from other counters is not kept, and is computed when they are read.
//!
//! - *Freed* is what was allocated less what the current value rose by, since the accumulated counters were reset.
//! - The *current* value of both pools together is a sum that is kept, since its peak is its own; what was allocated in both is a sum
//!   that is not.
//! - A block is *active* from its allocation until it is free. It is therefore handed out or *pending*, which nearly no block ever is: the
//!   active counters are those of blocks handed out and of pending ones together. Their peak is that of blocks handed out, or one
//!   that was reached while blocks were pending, and only that one is kept.

use super::{BlockEntry, SplitChange};
use crate::stats::{MemoryStats, PoolKind, PoolStatistic, Statistic};

/// A value and how high it has been. Sums wrap, as PyTorch's do: 2^63 bytes live exist on simulated devices only.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Level {
    pub(super) current: i64,
    pub(super) peak: i64,
}

impl Level {
    #[inline(always)]
    fn increase(&mut self, amount: i64) {
        self.current = self.current.wrapping_add(amount);
        self.peak = self.peak.max(self.current);
    }

    #[inline(always)]
    fn decrease(&mut self, amount: i64) {
        self.current = self.current.wrapping_sub(amount);
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

/// A figure of one pool.
#[derive(Debug, Clone, Copy, Default)]
struct Figure {
    level: Level,
    /// All increases since the reset.
    allocated: i64,
    /// The value at the reset.
    base: i64,
}

impl Figure {
    #[inline(always)]
    fn increase(&mut self, amount: i64) {
        self.level.increase(amount);
        self.allocated = self.allocated.wrapping_add(amount);
    }

    fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.base = self.level.current;
    }

    fn statistic(&self) -> Statistic {
        let Level { current, peak } = self.level;
        let freed = self.allocated.wrapping_add(self.base).wrapping_sub(current);
        Statistic { current, peak, allocated: self.allocated, freed }
    }
}

fn of_both(all: Level, small_pool: Statistic, large_pool: Statistic) -> PoolStatistic {
    let sum = |figure: fn(&Statistic) -> i64| figure(&small_pool).wrapping_add(figure(&large_pool));
    let (allocated, freed) = (sum(|of| of.allocated), sum(|of| of.freed));
    PoolStatistic { all: Statistic { current: all.current, peak: all.peak, allocated, freed }, small_pool, large_pool }
}

/// A figure of each pool and of both.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PoolFigure {
    pub(super) all: Level,
    pools: [Figure; 2],
}

impl PoolFigure {
    #[inline]
    pub(super) fn increase(&mut self, pool: PoolKind, amount: i64) {
        self.all.increase(amount);
        self.pools[pool as usize].increase(amount);
    }

    #[inline]
    pub(super) fn decrease(&mut self, pool: PoolKind, amount: i64) {
        self.all.decrease(amount);
        self.pools[pool as usize].level.decrease(amount);
    }

    /// One net change: an increase when positive, a decrease when negative.
    #[inline]
    pub(super) fn change(&mut self, pool: PoolKind, amount: i64) {
        if amount > 0 { self.increase(pool, amount) } else { self.decrease(pool, -amount) }
    }

    fn reset_peak(&mut self) {
        self.all.reset_peak();
        self.pools.iter_mut().for_each(|figure| figure.level.reset_peak());
    }

    fn reset_accumulated(&mut self) {
        self.pools.iter_mut().for_each(Figure::reset_accumulated);
    }

    fn statistic(&self) -> PoolStatistic {
        of_both(self.all, self.pools[0].statistic(), self.pools[1].statistic())
    }
}

/// Blocks: how many, their rounded bytes, and their bytes as asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Volume {
    pub(super) count: i64,
    pub(super) bytes: i64,
    pub(super) requested_bytes: i64,
}

impl Volume {
    pub(super) fn less(self, other: Self) -> Self {
        Self {
            count: self.count.wrapping_sub(other.count),
            bytes: self.bytes.wrapping_sub(other.bytes),
            requested_bytes: self.requested_bytes.wrapping_sub(other.requested_bytes),
        }
    }
}

/// Blocks that were given back and wait for other streams, by pool, with what the active counters need besides.
#[derive(Debug, Clone, Copy, Default)]
struct Pending {
    count: Level,
    bytes: Level,
    /// The values at the reset of accumulated counters.
    count_base: i64,
    bytes_base: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct HandedOut {
    count: Figure,
    bytes: Figure,
    requested: Figure,
}

/// All counters of one device.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) all_count: Level,
    /// Rounded.
    pub(super) all_bytes: Level,
    /// As asked for, of pending blocks too.
    pub(super) all_requested: Level,
    handed_out: [HandedOut; 2],
    pending_count: i64,
    pending: [Pending; 2],
    /// The highest active count and bytes of both pools while blocks were pending.
    pending_peaks: [i64; 2],
    pub(super) inactive_split: PoolFigure,
    pub(super) inactive_split_bytes: PoolFigure,
    pub(super) segment: PoolFigure,
    pub(super) reserved_bytes: PoolFigure,
    pub(super) oversize_segments: Statistic,
    oversize_allocations: Statistic,
    pub(super) num_alloc_retries: i64,
    pub(super) num_ooms: i64,
    pub(super) num_sync_all_streams: i64,
    pub(super) num_device_alloc: i64,
    pub(super) num_device_free: i64,
    max_split_size: i64,
}

impl Counters {
    pub(super) fn new(max_split_size: i64) -> Self {
        Self { max_split_size, ..Self::default() }
    }

    /// A block was handed out.
    #[inline(always)]
    pub(super) fn allocated(&mut self, entry: &BlockEntry, split: SplitChange) {
        let BlockEntry { pool, size_bytes, requested_bytes, oversize, .. } = *entry;
        self.all_count.increase(1);
        self.all_bytes.increase(size_bytes);
        self.all_requested.increase(requested_bytes);
        let pool_figures = &mut self.handed_out[pool as usize];
        pool_figures.count.increase(1);
        pool_figures.bytes.increase(size_bytes);
        pool_figures.requested.increase(requested_bytes);
        self.split(pool, split);
        if oversize {
            self.oversize_allocations.increase(1);
        }
        if self.pending_count != 0 {
            self.raise_active();
        }
    }

    /// A block was given back, and is free.
    #[inline(always)]
    pub(super) fn freed(&mut self, entry: &BlockEntry, split: SplitChange) {
        self.given_back(entry);
        self.all_requested.decrease(entry.requested_bytes);
        self.handed_out[entry.pool as usize].requested.level.decrease(entry.requested_bytes);
        self.split(entry.pool, split);
    }

    #[inline(always)]
    fn given_back(&mut self, entry: &BlockEntry) {
        let BlockEntry { pool, size_bytes, oversize, .. } = *entry;
        self.all_count.decrease(1);
        self.all_bytes.decrease(size_bytes);
        let pool_figures = &mut self.handed_out[pool as usize];
        pool_figures.count.level.decrease(1);
        pool_figures.bytes.level.decrease(size_bytes);
        if oversize {
            self.oversize_allocations.decrease(1);
        }
    }

    #[inline(always)]
    fn split(&mut self, pool: PoolKind, split: SplitChange) {
        if split != SplitChange::default() {
            self.inactive_split.change(pool, split.count);
            self.inactive_split_bytes.change(pool, split.bytes);
        }
    }

    /// A block was given back and waits for other streams.
    pub(super) fn pends(&mut self, entry: &BlockEntry) {
        self.given_back(entry);
        let pending = &mut self.pending[entry.pool as usize];
        pending.count.current += 1;
        pending.bytes.current = pending.bytes.current.wrapping_add(entry.size_bytes);
        self.pending_count += 1;
    }

    /// A block that waited is free.
    pub(super) fn pends_no_more(&mut self, entry: &BlockEntry, split: SplitChange) {
        let BlockEntry { pool, size_bytes, requested_bytes, .. } = *entry;
        let pending = &mut self.pending[pool as usize];
        pending.count.current -= 1;
        pending.bytes.current = pending.bytes.current.wrapping_sub(size_bytes);
        self.pending_count -= 1;
        self.all_requested.decrease(requested_bytes);
        self.handed_out[pool as usize].requested.level.decrease(requested_bytes);
        self.split(pool, split);
    }

    /// The active counters rose while blocks are pending.
    #[cold]
    #[inline(never)]
    fn raise_active(&mut self) {
        for (pending, handed_out) in self.pending.iter_mut().zip(&self.handed_out) {
            let count = handed_out.count.level.current.wrapping_add(pending.count.current);
            let bytes = handed_out.bytes.level.current.wrapping_add(pending.bytes.current);
            pending.count.peak = pending.count.peak.max(count);
            pending.bytes.peak = pending.bytes.peak.max(bytes);
        }
        let [count, bytes] = self.active();
        self.pending_peaks = [self.pending_peaks[0].max(count), self.pending_peaks[1].max(bytes)];
    }

    /// Active blocks and their rounded bytes.
    fn active(&self) -> [i64; 2] {
        let pending_bytes = self.pending.iter().fold(0_i64, |sum, of| sum.wrapping_add(of.bytes.current));
        [self.all_count.current + self.pending_count, self.all_bytes.current.wrapping_add(pending_bytes)]
    }

    pub(super) fn active_bytes(&self) -> i64 {
        self.active()[1]
    }

    /// Blocks handed out since the accumulated counters were reset, and those that are out now.
    #[inline]
    pub(super) fn volumes(&self) -> (Volume, Volume) {
        let [small, large] = &self.handed_out;
        let allocated = Volume {
            count: small.count.allocated.wrapping_add(large.count.allocated),
            bytes: small.bytes.allocated.wrapping_add(large.bytes.allocated),
            requested_bytes: small.requested.allocated.wrapping_add(large.requested.allocated),
        };
        let current = Volume {
            count: self.all_count.current,
            bytes: self.all_bytes.current,
            requested_bytes: self.all_requested.current,
        };
        (allocated, current)
    }

    /// Sets every peak to the value now; to the live bytes, never to zero.
    pub(super) fn reset_peak(&mut self) {
        for level in [&mut self.all_count, &mut self.all_bytes, &mut self.all_requested] {
            level.reset_peak();
        }
        for HandedOut { count, bytes, requested } in &mut self.handed_out {
            [count, bytes, requested].into_iter().for_each(|figure| figure.level.reset_peak());
        }
        for (pending, handed_out) in self.pending.iter_mut().zip(&self.handed_out) {
            pending.count.peak = handed_out.count.level.current.wrapping_add(pending.count.current);
            pending.bytes.peak = handed_out.bytes.level.current.wrapping_add(pending.bytes.current);
        }
        self.pending_peaks = self.active();
        for figure in
            [&mut self.inactive_split, &mut self.inactive_split_bytes, &mut self.segment, &mut self.reserved_bytes]
        {
            figure.reset_peak();
        }
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
    }

    /// Sets every accumulated counter and the five event counters to zero.
    pub(super) fn reset_accumulated(&mut self) {
        for HandedOut { count, bytes, requested } in &mut self.handed_out {
            [count, bytes, requested].into_iter().for_each(Figure::reset_accumulated);
        }
        for pending in &mut self.pending {
            pending.count_base = pending.count.current;
            pending.bytes_base = pending.bytes.current;
        }
        for figure in
            [&mut self.inactive_split, &mut self.inactive_split_bytes, &mut self.segment, &mut self.reserved_bytes]
        {
            figure.reset_accumulated();
        }
        self.oversize_allocations.reset_accumulated();
        self.oversize_segments.reset_accumulated();
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
    }

    /// All counters in the form for users.
    pub(super) fn read(&self) -> MemoryStats {
        let pools = |figure: fn(&HandedOut) -> &Figure, all| {
            of_both(all, figure(&self.handed_out[0]).statistic(), figure(&self.handed_out[1]).statistic())
        };
        let [active_count, active_bytes] = self.active();
        let [count_peak, bytes_peak] = self.pending_peaks;
        MemoryStats {
            allocation: pools(|of| &of.count, self.all_count),
            active: of_both(
                Level { current: active_count, peak: self.all_count.peak.max(count_peak) },
                self.active_statistic(PoolKind::Small, |of| &of.count, |of| (of.count, of.count_base)),
                self.active_statistic(PoolKind::Large, |of| &of.count, |of| (of.count, of.count_base)),
            ),
            segment: self.segment.statistic(),
            inactive_split: self.inactive_split.statistic(),
            allocated_bytes: pools(|of| &of.bytes, self.all_bytes),
            reserved_bytes: self.reserved_bytes.statistic(),
            active_bytes: of_both(
                Level { current: active_bytes, peak: self.all_bytes.peak.max(bytes_peak) },
                self.active_statistic(PoolKind::Small, |of| &of.bytes, |of| (of.bytes, of.bytes_base)),
                self.active_statistic(PoolKind::Large, |of| &of.bytes, |of| (of.bytes, of.bytes_base)),
            ),
            inactive_split_bytes: self.inactive_split_bytes.statistic(),
            requested_bytes: pools(|of| &of.requested, self.all_requested),
            oversize_allocations: self.oversize_allocations,
            oversize_segments: self.oversize_segments,
            num_alloc_retries: self.num_alloc_retries,
            num_ooms: self.num_ooms,
            num_sync_all_streams: self.num_sync_all_streams,
            num_device_alloc: self.num_device_alloc,
            num_device_free: self.num_device_free,
            max_split_size: self.max_split_size,
        }
    }

    fn active_statistic(
        &self,
        pool: PoolKind,
        handed_out: fn(&HandedOut) -> &Figure,
        pending: fn(&Pending) -> (Level, i64),
    ) -> Statistic {
        let figure = handed_out(&self.handed_out[pool as usize]);
        let (pending, pending_base) = pending(&self.pending[pool as usize]);
        let active = Figure {
            level: Level {
                current: figure.level.current.wrapping_add(pending.current),
                peak: figure.level.peak.max(pending.peak),
            },
            allocated: figure.allocated,
            base: figure.base.wrapping_add(pending_base),
        };
        active.statistic()
    }
}
