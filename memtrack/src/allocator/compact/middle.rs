//! Which pool a block of middle size comes from: more than a quarter of a page, and no more than half of one.
//!
//! Such a block keeps a page from moving as long as it lives. One that outlives the large blocks around it belongs among its like, where
//! several share a page; one that goes with them belongs in the ends that they leave, else two pools each keep what the other lacks. Of a single block
//! nobody knows that when it is allocated, so what its size has done on the stream decides.

use crate::stats::PoolKind;

/// Middle sizes outlive large ones if they turn over so many times more slowly.
const SLOWER_TIMES: u128 = 8;

/// How many blocks there are, and how many there were.
#[derive(Debug, Clone, Copy, Default)]
struct Turnover {
    live_count: u64,
    freed_count: u64,
}

impl Turnover {
    fn allocated(&mut self) {
        self.live_count = self.live_count.saturating_add(1);
    }

    fn freed(&mut self) {
        self.live_count = self.live_count.saturating_sub(1);
        self.freed_count = self.freed_count.saturating_add(1);
    }
}

/// What the middle and the large sizes of one stream have done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct MiddleSizes {
    middle: Turnover,
    large: Turnover,
}

impl MiddleSizes {
    /// A block of middle or large size was handed out.
    pub(in super::super) fn allocated(&mut self, is_middle: bool) {
        if is_middle { self.middle.allocated() } else { self.large.allocated() }
    }

    /// It came back.
    pub(in super::super) fn freed(&mut self, is_middle: bool) {
        if is_middle { self.middle.freed() } else { self.large.freed() }
    }

    /// The pool of the next block of middle size: the small one as long as two thirds of all its like are still live, and where they live
    /// far longer than large ones do.
    pub(in super::super) fn pool(&self) -> PoolKind {
        let Self { middle, large } = self;
        let mostly_live = middle.freed_count.saturating_mul(2) < middle.live_count;
        // The mean time that a block lives is as many frees as there are live blocks for each that was freed of its size.
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let ours = product(middle.live_count, large.freed_count);
        let theirs = product(large.live_count, middle.freed_count);
        if mostly_live || ours > theirs.saturating_mul(SLOWER_TIMES) { PoolKind::Small } else { PoolKind::Large }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(middle: (u64, u64), large: (u64, u64)) -> PoolKind {
        let turnover = |(live_count, freed_count)| Turnover { live_count, freed_count };
        MiddleSizes { middle: turnover(middle), large: turnover(large) }.pool()
    }

    #[test]
    fn blocks_that_stay_are_small_and_those_that_come_and_go_large() {
        assert_eq!(MiddleSizes::default().pool(), PoolKind::Large, "nothing is known yet");
        assert_eq!(after((100, 49), (10, 10)), PoolKind::Small, "parameters");
        assert_eq!(after((100, 50), (100, 50)), PoolKind::Large, "activations");
    }

    #[test]
    fn blocks_that_live_far_longer_than_large_ones_are_small() {
        // Pages of a cache of keys and values beside a prefill's scratch.
        assert_eq!(after((1000, 20_000), (2, 6000)), PoolKind::Small);
        assert_eq!(after((1000, 20_000), (100, 6000)), PoolKind::Large);
        assert_eq!(after((u64::MAX, u64::MAX), (u64::MAX, u64::MAX)), PoolKind::Large);
    }

    #[test]
    fn each_size_counts_for_itself() {
        let mut sizes = MiddleSizes::default();
        for _ in 0..4 {
            sizes.allocated(true);
        }
        sizes.freed(true);
        assert_eq!(sizes.pool(), PoolKind::Small, "three live, one freed");
        sizes.freed(true);
        assert_eq!(sizes.pool(), PoolKind::Large, "two live, two freed, and no large one");
        sizes.allocated(false);
        sizes.freed(false);
        assert_eq!(sizes.pool(), PoolKind::Small, "no large one stays, and two of four did");
        // Pages that come to a hole, for a small block say.
        sizes.freed(false);
        assert_eq!(sizes.large.live_count, 0);
    }
}
