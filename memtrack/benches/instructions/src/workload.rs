//! What the benchmark of times and the count of instructions do to an allocator; the same steps in every run.
//!
//! The device is simulated and larger than any there is, so that a million blocks of ordinary sizes fit.

use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::{AllocationError, Buffer, CachingAllocator, Config, Policy};

/// Enough for 2,000,000 blocks of the mixture, 1.7 MB on average.
const DEVICE_BYTES: u64 = 1 << 44;
/// From 512 B to 16 MiB.
const DOUBLINGS: usize = 15;
/// How often each live block is replaced before anything is measured.
const WARMING_ROUNDS: usize = 4;
/// The most slack there may be.
const MUCH_SLACK_PERCENT: f64 = 100.0;
/// Blocks every other of which is free, each with one whole page,
const SCATTERED_BYTES: usize = 3 << 20;
/// and those that grow among them.
const GROWN_BYTES: usize = 5 << 20;
/// Blocks that a churn among cached ones holds.
const FEW: usize = 64;

/// Which rules the allocator follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    Torch,
    Expandable,
    Compact,
}

impl Rules {
    /// An allocator that has nothing yet.
    pub(crate) fn allocator(self) -> CachingAllocator {
        self.allocator_with(Config::default())
    }

    fn allocator_with(self, mut config: Config) -> CachingAllocator {
        match self {
            Self::Torch => {}
            Self::Expandable => config.expandable_segments = true,
            Self::Compact => config.policy = Policy::Compact,
        }
        let device = Arc::new(Simulated::with_capacity(DEVICE_BYTES));
        match CachingAllocator::with_config(device, config) {
            Ok(allocator) => allocator,
            Err(invalid) => panic!("{invalid}"),
        }
    }
}

/// Xorshift, so that every run sees the same sizes.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 32) as usize % limit
    }

    /// Each power of two as likely as the next.
    fn size_bytes(&mut self) -> usize {
        let low = 512 << self.below(DOUBLINGS);
        low + self.below(low)
    }
}

/// Blocks that the program holds, and others that are cached.
#[derive(Debug)]
pub(crate) struct Blocks {
    allocator: CachingAllocator,
    random: Random,
    live: Vec<Option<Buffer<u8>>>,
    /// Between the cached blocks, so that these do not merge.
    _between: Vec<Buffer<u8>>,
}

fn allocate(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    let allocated: Result<_, AllocationError> = Buffer::uninit(allocator, bytes);
    match allocated {
        Ok(buffer) => buffer,
        Err(error) => panic!("{error}"),
    }
}

impl Blocks {
    /// So many live blocks, each replaced by others since, and what that left in the cache.
    pub(crate) fn live(rules: Rules, count: usize) -> Self {
        let (allocator, random) = (rules.allocator(), Random::new());
        let mut blocks = Self { allocator, random, live: Vec::new(), _between: Vec::new() };
        blocks.fill(count);
        blocks
    }

    /// Few live blocks, and so many cached ones.
    pub(crate) fn cached(rules: Rules, count: usize) -> Self {
        let (allocator, mut random) = (rules.allocator(), Random::new());
        let all: Vec<Buffer<u8>> = (0..2 * count).map(|_| allocate(&allocator, random.size_bytes())).collect();
        let mut is_kept = false;
        let mut between = Vec::with_capacity(count);
        for buffer in all {
            is_kept = !is_kept;
            if is_kept {
                between.push(buffer);
            }
        }
        let mut blocks = Self { allocator, random, live: Vec::new(), _between: between };
        blocks.fill(FEW);
        blocks
    }

    /// Every other of so many blocks is free, of which none serves [`grow`](Self::grow), and memory may be created freely.
    pub(crate) fn scattered(rules: Rules, count: usize) -> Self {
        let mut config = Config::default();
        config.compact_slack_percent = MUCH_SLACK_PERCENT;
        Self::every_other(rules.allocator_with(config), count)
    }

    /// After every other of so many blocks are holes, whose pages moved away and go to and fro between two streams since.
    pub(crate) fn holes(rules: Rules, count: usize) -> Self {
        let mut blocks = Self::every_other(rules.allocator(), count);
        // What the slack allows is created first, and once no page is spare any more, pages are created again.
        let mut at_first_move = None;
        loop {
            blocks.grow();
            let stats = blocks.allocator.compact_stats();
            if stats.moved_page_count > 0
                && stats.created_page_count > *at_first_move.get_or_insert(stats.created_page_count) + 8
            {
                break;
            }
        }
        blocks
    }

    fn every_other(allocator: CachingAllocator, count: usize) -> Self {
        let all: Vec<Buffer<u8>> = (0..count).map(|_| allocate(&allocator, SCATTERED_BYTES)).collect();
        let kept = all.into_iter().enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, buffer)| buffer);
        let between = kept.collect();
        Self { allocator, random: Random::new(), live: Vec::new(), _between: between }
    }

    /// Allocates a block that no free one serves.
    pub(crate) fn grow(&mut self) {
        self.live.push(Some(allocate(&self.allocator, GROWN_BYTES)));
    }

    /// Allocates a block on the one and then on the other stream, whose pages come from where the block before was.
    pub(crate) fn go_to_and_fro(&mut self) {
        for stream in [Stream(1), Stream::DEFAULT] {
            match self.allocator.allocate_raw(GROWN_BYTES as u64, stream) {
                // A failure would show in the count.
                Ok(address) => _ = self.allocator.free_raw(address),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn fill(&mut self, count: usize) {
        self.live.resize_with(count, || None);
        for at in 0..count {
            self.live[at] = Some(allocate(&self.allocator, self.random.size_bytes()));
        }
        (0..WARMING_ROUNDS * count).for_each(|_| self.replace_one());
    }

    /// Frees a live block and allocates one of another size in its place.
    pub(crate) fn replace_one(&mut self) {
        let at = self.random.below(self.live.len());
        self.live[at] = None;
        self.live[at] = Some(allocate(&self.allocator, self.random.size_bytes()));
    }

    /// Allocates a block and frees it.
    pub(crate) fn pair(&mut self) {
        drop(std::hint::black_box(allocate(&self.allocator, self.random.size_bytes())));
    }
}
