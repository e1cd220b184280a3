//! `policy:compact`: pages without live bytes move to where they are needed, so that little more is reserved than was requested.
//!
//! Here lives what happens when no free block serves a request of a default pool, and how pages go back: which page is mapped where
//! ([`books`]), what becomes of blocks ([`blocks`]), whose work is over ([`work`]), where a block can be made ([`places`]), what pages are spare ([`spares`], [`spare_blocks`]), which pool middle sizes come from ([`middle`]), growing
//! ([`grow`]), mapping and moving pages ([`moving`]), and giving them back ([`giving_back`]). The path of an allocation that finds a block
//! and of a free lives with the other policy, and so do private pools: they neither give pages nor take any.

mod blocks;
mod books;
mod giving_back;
mod grow;
mod middle;
mod moving;
mod places;
mod spare_blocks;
mod spares;
mod work;

use self::books::Books;
pub(super) use self::middle::MiddleSizes;
pub(super) use self::spare_blocks::{Giving, SpareBlocks};
use self::work::Work;
use crate::device::Device;
use crate::stats::CompactStats;
use crate::units::MIB;

/// The piece in which memory is created and mapped.
pub(super) const PAGE_BYTES: u64 = 2 * MIB;
/// Rounded sizes up to this come from the small pool.
pub(super) const SMALL_LIMIT_BYTES: u64 = PAGE_BYTES / 4;
/// Larger ones up to this from the one or the other ([`middle`]).
pub(super) const MIDDLE_LIMIT_BYTES: u64 = PAGE_BYTES / 2;

/// What the policy keeps beside the pools; guarded by the lock of growing.
#[derive(Debug, Default)]
pub(super) struct Compact {
    books: Books,
    work: Work,
    /// The most bytes requested at once, as far as growths have seen.
    requested_peak_bytes: u64,
    pub(super) stats: CompactStats,
}

impl Compact {
    /// Gives the events back.
    pub(super) fn close(&mut self, device: &dyn Device) {
        self.work.close(device);
    }
}
