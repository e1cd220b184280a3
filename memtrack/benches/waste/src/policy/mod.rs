//! Placement policies: where a block goes, and which pages are behind the addresses.

pub(crate) mod compact;
pub(crate) mod expandable;
pub(crate) mod middle;
pub(crate) mod space;

use crate::machine::Machine;

/// A placement policy. Sizes are rounded to 512 bytes.
pub(crate) trait Policy {
    /// An address with pages behind all of the block. `live_peak_bytes` is the most ever requested at once, this request included.
    fn allocate(&mut self, machine: &mut Machine, bytes: u64, stream: u8, live_peak_bytes: u64) -> u64;

    /// The block is freed.
    fn free(&mut self, machine: &mut Machine, address: u64, bytes: u64, stream: u8);

    /// What is behind blocks of the small pool.
    fn small_pages_bytes(&self) -> u64 {
        0
    }

    /// How often no free block served, and the most places that were looked at then.
    fn growths(&self) -> (u64, u64) {
        (0, 0)
    }
}
