//! The sizes: what a request is rounded to, which pool serves it, how large a segment it opens, when a block is split.
//!
//! These are PyTorch 2.11's rules. Every decision uses the *rounded* size; only statistics and messages show the
//! requested one.

use std::ops::Range;

use super::compact;
use super::config::{Config, Policy};
use crate::stats::PoolKind;
use crate::units::MIB;

/// The smallest block, and the multiple of all sizes.
pub(crate) const MIN_BLOCK_BYTES: u64 = 512;
/// Rounded sizes up to this come from the small pool.
pub(crate) const SMALL_LIMIT_BYTES: u64 = MIB;
/// Every segment of the small pool.
const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// Requests from here on get a segment of their own size.
pub(crate) const MIN_LARGE_BYTES: u64 = 10 * MIB;
/// The multiple of such segments.
const LARGE_ROUNDING_BYTES: u64 = 2 * MIB;
/// A large block keeps a rest of up to this.
const LARGE_SPLIT_REST_BYTES: u64 = MIB;
/// No device has more; PyTorch refuses the same.
pub(crate) const REQUEST_LIMIT_BYTES: u64 = 1 << 60;

/// Sizes from 1 MiB up, by power of two, that can be rounded differently.
pub(crate) const INTERVAL_COUNT: usize = 16;

/// For each power of two from 1 MiB up: into how many parts it is divided for rounding. 0 means not at all, and so does 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundupDivisions([u64; INTERVAL_COUNT]);

impl RoundupDivisions {
    /// The same for every size; `None` unless it is 0 or a power of two.
    pub fn uniform(divisions: u64) -> Option<Self> {
        Self::from_table([divisions; INTERVAL_COUNT])
    }

    /// For sizes from 1 MiB, 2 MiB, 4 MiB, … 32 GiB up, the first also for all smaller ones; `None` unless each is 0 or a power
    /// of two.
    pub fn from_table(table: [u64; INTERVAL_COUNT]) -> Option<Self> {
        let accepted = |divisions: &u64| *divisions == 0 || divisions.is_power_of_two();
        table.iter().all(accepted).then_some(Self(table))
    }

    /// The divisions for sizes from 1 MiB, 2 MiB, 4 MiB, … 32 GiB up; the first also serves all smaller sizes.
    pub fn table(&self) -> [u64; INTERVAL_COUNT] {
        self.0
    }

    /// Sets entries to divisions that are 0 or a power of two.
    pub(super) fn fill(&mut self, entries: Range<usize>, divisions: u64) {
        debug_assert!(divisions == 0 || divisions.is_power_of_two());
        self.0[entries].fill(divisions);
    }

    #[inline]
    fn for_size(&self, bytes: u64) -> u64 {
        let index = bytes.ilog2().saturating_sub(MIB.ilog2()).min(INTERVAL_COUNT as u32 - 1);
        self.0[index as usize]
    }

    /// The request rounded, unless these divisions do not concern it.
    #[inline]
    fn round(&self, bytes: u64) -> Option<u64> {
        let divisions = self.for_size(bytes);
        // Wraps as PyTorch's product does: from 2^55 divisions up every size passes, with steps of nothing.
        if divisions <= 1 || bytes <= MIN_BLOCK_BYTES.wrapping_mul(divisions) {
            return None;
        }
        // Of sizes that only the raw interface lets through, what overflows comes to 0, as without divisions.
        match (1_u64 << bytes.ilog2()) >> divisions.ilog2() {
            0 => Some(bytes.checked_next_power_of_two().unwrap_or(0)),
            // Smaller steps than a block come up from 2^55 bytes on, where PyTorch's sizes would be no whole blocks.
            step => Some(bytes.checked_next_multiple_of(step.max(MIN_BLOCK_BYTES)).unwrap_or(0)),
        }
    }
}

/// A configuration as the pools use it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SizeRules {
    /// [`u64::MAX`] without a limit.
    pub(crate) max_split_size_bytes: u64,
    max_non_split_rounding_bytes: u64,
    /// Also the page of large expandable segments.
    pub(crate) large_segment_size_bytes: u64,
    divisions: Option<RoundupDivisions>,
    /// Requests that no free block serves grow expandable segments.
    pub(crate) expandable: bool,
    /// Pages move to where they are needed.
    pub(crate) is_compact: bool,
    /// Rounded sizes up to this come from the small pool.
    small_limit_bytes: u64,
    /// Larger ones up to this from the pool that their like so far speak for, where pages move; none elsewhere.
    middle_limit_bytes: u64,
    /// What is larger is counted; everywhere else nothing is.
    uncounted_limit_bytes: u64,
    /// PyTorch's numbers also where PyTorch is wrong.
    pub(crate) torch_exact: bool,
    /// A limit and a threshold are set, so the garbage collector needs to know how long blocks have been free.
    pub(crate) counts_searches: bool,
}

impl SizeRules {
    pub(crate) fn new(config: &Config) -> Self {
        let divisions = config.roundup_power2_divisions;
        let rules = Self {
            max_split_size_bytes: config.max_split_size_bytes.unwrap_or(u64::MAX),
            max_non_split_rounding_bytes: config.max_non_split_rounding_bytes,
            // In whole blocks, whatever a configuration given by value says.
            large_segment_size_bytes: config
                .large_segment_size_bytes
                .clamp(MIN_BLOCK_BYTES, REQUEST_LIMIT_BYTES)
                .next_multiple_of(MIN_BLOCK_BYTES),
            divisions: (divisions != RoundupDivisions::default()).then_some(divisions),
            expandable: config.expandable_segments,
            is_compact: false,
            small_limit_bytes: SMALL_LIMIT_BYTES,
            middle_limit_bytes: 0,
            uncounted_limit_bytes: u64::MAX,
            torch_exact: config.torch_exact,
            counts_searches: false,
        };
        if config.policy == Policy::Compact { rules.compact() } else { rules }
    }

    /// The rules of `policy:compact`: any free block serves any request, and all pages are alike.
    fn compact(self) -> Self {
        Self {
            max_split_size_bytes: u64::MAX,
            large_segment_size_bytes: compact::PAGE_BYTES,
            expandable: true,
            is_compact: true,
            small_limit_bytes: compact::SMALL_LIMIT_BYTES,
            middle_limit_bytes: compact::MIDDLE_LIMIT_BYTES,
            uncounted_limit_bytes: compact::SMALL_LIMIT_BYTES,
            ..self
        }
    }

    /// As on a device whose pages do not fit.
    pub(crate) fn without_pages(config: &Config) -> Self {
        let mut config = config.clone();
        (config.policy, config.expandable_segments) = (Policy::Torch, false);
        Self::new(&config)
    }

    /// The page of an expandable segment, which is mapped as a whole.
    pub(crate) fn page_bytes(&self, pool: PoolKind) -> u64 {
        match pool {
            PoolKind::Small => SMALL_SEGMENT_BYTES,
            PoolKind::Large => self.large_segment_size_bytes,
        }
    }

    /// The block size for a request below [`REQUEST_LIMIT_BYTES`].
    #[inline]
    pub(crate) fn round(&self, bytes: u64) -> u64 {
        if bytes < MIN_BLOCK_BYTES {
            return MIN_BLOCK_BYTES;
        }
        if let Some(rounded_bytes) = self.divisions.as_ref().and_then(|divisions| divisions.round(bytes)) {
            return rounded_bytes;
        }
        // Of the very last sizes, which only the raw interface lets through, PyTorch makes 0.
        bytes.wrapping_add(MIN_BLOCK_BYTES - 1) & !(MIN_BLOCK_BYTES - 1)
    }

    /// The pool of a rounded size, but for the middle ones.
    #[inline]
    pub(crate) fn pool(&self, size_bytes: u64) -> PoolKind {
        if size_bytes <= self.small_limit_bytes { PoolKind::Small } else { PoolKind::Large }
    }

    /// Whether blocks of this size are counted for what their like speak for: middle and large ones, where pages move.
    #[inline]
    pub(crate) fn is_counted(&self, size_bytes: u64) -> bool {
        size_bytes > self.uncounted_limit_bytes
    }

    /// Whether a size that is not small is a middle one.
    #[inline]
    pub(crate) fn is_middle(&self, size_bytes: u64) -> bool {
        size_bytes <= self.middle_limit_bytes
    }

    /// The segment that a block of this size opens when no free block serves it.
    pub(crate) fn segment_size(&self, size_bytes: u64) -> u64 {
        if self.is_compact {
            size_bytes.checked_next_multiple_of(compact::PAGE_BYTES).unwrap_or(u64::MAX)
        } else if size_bytes <= SMALL_LIMIT_BYTES {
            SMALL_SEGMENT_BYTES
        } else if size_bytes < MIN_LARGE_BYTES {
            // A configuration given by value may name a size below the request's.
            self.large_segment_size_bytes.max(size_bytes)
        } else {
            size_bytes.checked_next_multiple_of(LARGE_ROUNDING_BYTES).unwrap_or(u64::MAX)
        }
    }

    #[inline]
    pub(crate) fn is_oversize(&self, size_bytes: u64) -> bool {
        size_bytes >= self.max_split_size_bytes
    }

    /// Whether the best fit may serve the request: never an oversize block to a smaller request, nor one much too large.
    #[inline]
    pub(crate) fn may_serve(&self, block_bytes: u64, size_bytes: u64) -> bool {
        if size_bytes < self.max_split_size_bytes {
            block_bytes < self.max_split_size_bytes
        } else {
            block_bytes < size_bytes.saturating_add(self.max_non_split_rounding_bytes)
        }
    }

    /// Whether the rest of a block goes back to the pool. `expandable` is the mode of the request, whatever the block is.
    #[inline]
    pub(crate) fn should_split(&self, pool: PoolKind, expandable: bool, block_bytes: u64, size_bytes: u64) -> bool {
        let rest_bytes = block_bytes - size_bytes;
        if expandable || pool == PoolKind::Small {
            rest_bytes >= MIN_BLOCK_BYTES
        } else {
            size_bytes < self.max_split_size_bytes && rest_bytes > LARGE_SPLIT_REST_BYTES
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_as_measured_on_pytorch() {
        let rows: [(u64, [u64; 5]); 10] = [
            (1000, [1024; 5]),
            (1025, [1536; 5]),
            (3000, [3072; 5]),
            (5000, [5120, 6144, 5120, 5120, 5120]),
            (100_000, [100_352, 131_072, 114_688, 106_496, 100_352]),
            (700_000, [700_416, 786_432, 786_432, 720_896, 704_512]),
            (1_048_577, [1_049_088, 1_572_864, 1_310_720, 1_179_648, 1_064_960]),
            (9 * MIB, [9 * MIB, 12 * MIB, 10 * MIB, 9 * MIB, 9 * MIB]),
            (100 * MIB, [100 * MIB, 128 * MIB, 112 * MIB, 104 * MIB, 100 * MIB]),
            (1000 * MIB, [1000 * MIB, 1024 * MIB, 1024 * MIB, 1024 * MIB, 1000 * MIB]),
        ];
        for (column, divisions) in [1, 2, 4, 8, 64].into_iter().enumerate() {
            let config = Config::from_torch(&format!("roundup_power2_divisions:{divisions}")).unwrap();
            let rules = SizeRules::new(&config);
            for (requested, expected) in rows {
                assert_eq!(rules.round(requested), expected[column], "{requested} with {divisions} divisions");
            }
        }
    }

    #[test]
    fn absurd_divisions_round_without_overflow() {
        let round = |divisions: u64, bytes| {
            let config = Config::from_torch(&format!("roundup_power2_divisions:{divisions}")).unwrap();
            SizeRules::new(&config).round(bytes)
        };
        // Up to 512 bytes a division: plain rounding.
        assert_eq!(round(1 << 54, 1025), 1536);
        assert_eq!(round(1 << 54, REQUEST_LIMIT_BYTES - 1), REQUEST_LIMIT_BYTES);
        for exponent in 55..64 {
            assert_eq!(round(1 << exponent, 100), 512);
            assert_eq!(round(1 << exponent, 1024), 1024);
            assert_eq!(round(1 << exponent, 1025), 2048);
            assert_eq!(round(1 << exponent, REQUEST_LIMIT_BYTES - 1), REQUEST_LIMIT_BYTES);
        }
        assert_eq!(RoundupDivisions::uniform(3), None);
        assert_eq!(RoundupDivisions::from_table([0; 16]), Some(RoundupDivisions::default()));
    }

    #[test]
    fn segments_follow_the_rounded_size() {
        let rules = SizeRules::new(&Config::default());
        assert_eq!(rules.segment_size(512), 2 * MIB);
        assert_eq!(rules.segment_size(MIB), 2 * MIB);
        assert_eq!(rules.segment_size(MIB + 512), 20 * MIB);
        assert_eq!(rules.segment_size(10 * MIB - 512), 20 * MIB);
        assert_eq!(rules.segment_size(rules.round(10 * MIB - 1)), 10 * MIB);
        assert_eq!(rules.segment_size(25 * MIB), 26 * MIB);
        assert!(!rules.should_split(PoolKind::Large, false, 26 * MIB, 25 * MIB), "a rest of exactly 1 MiB is kept");
    }
}
