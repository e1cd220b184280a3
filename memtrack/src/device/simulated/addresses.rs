//! Where segments and reservations lie: at scripted addresses as long as there are any, then one behind the other.

use std::collections::{BTreeMap, VecDeque};

use crate::units::MIB;

/// Generated addresses start here, far from zero and from host pointers a test could confuse them with.
const FIRST_ADDRESS: u64 = 0x7_0000_0000_0000;

/// Segments start at multiples of this on every device.
pub(super) const SEGMENT_ALIGNMENT_BYTES: u64 = 512;

/// Why a range cannot be placed.
#[derive(Debug)]
pub(super) enum Misplaced {
    /// A scripted address does not do.
    Scripted { address: u64, reason: &'static str },
    /// No address is left that has so many behind it.
    TooLarge,
}

/// Live ranges, and where the next ones go.
#[derive(Debug)]
pub(super) struct Addresses {
    next: u64,
    scripted: VecDeque<u64>,
    /// Segments and reservations, address to the first address behind.
    live: BTreeMap<u64, u64>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { next: FIRST_ADDRESS, scripted: VecDeque::new(), live: BTreeMap::new() }
    }
}

impl Addresses {
    pub(super) fn script(&mut self, addresses: impl IntoIterator<Item = u64>) {
        self.scripted.extend(addresses);
    }

    pub(super) fn clear_scripted(&mut self) {
        self.scripted.clear();
    }

    /// Places a range of at least one byte. A scripted address is used up even if it does not do.
    pub(super) fn place(&mut self, bytes: u64, alignment_bytes: u64) -> Result<u64, Misplaced> {
        let (address, end) = match self.scripted.pop_front() {
            Some(address) => (address, self.check_scripted(address, bytes, alignment_bytes)?),
            None => self.generate(bytes, alignment_bytes).ok_or(Misplaced::TooLarge)?,
        };
        self.live.insert(address, end);
        Ok(address)
    }

    /// The end of the range at a scripted address.
    fn check_scripted(&self, address: u64, bytes: u64, alignment_bytes: u64) -> Result<u64, Misplaced> {
        let refuse = |reason| Err(Misplaced::Scripted { address, reason });
        if address == 0 {
            return refuse("the script puts a range at address 0, which is none");
        }
        if !address.is_multiple_of(SEGMENT_ALIGNMENT_BYTES) {
            return refuse("a scripted address is no multiple of 512");
        }
        if !address.is_multiple_of(alignment_bytes) {
            return refuse("a reservation's scripted address is no multiple of the granularity");
        }
        let Some(end) = address.checked_add(bytes) else {
            return refuse("from a scripted address the range reaches past the end of the address space");
        };
        if self.overlapped_end(address, end).is_some() {
            return refuse("at a scripted address the range overlaps a live segment or reservation");
        }
        Ok(end)
    }

    fn generate(&mut self, bytes: u64, alignment_bytes: u64) -> Option<(u64, u64)> {
        let mut address = self.next.checked_next_multiple_of(alignment_bytes)?;
        let mut end = address.checked_add(bytes)?;
        // A scripted range may lie in the way.
        while let Some(behind) = self.overlapped_end(address, end) {
            address = behind.checked_next_multiple_of(alignment_bytes)?;
            end = address.checked_add(bytes)?;
        }
        // A gap behind each range, so that two ranges never look like one; at the end of the address space there is none.
        let gap_end = end.checked_next_multiple_of(2 * MIB).and_then(|end| end.checked_add(2 * MIB));
        self.next = gap_end.unwrap_or(u64::MAX);
        Some((address, end))
    }

    /// The end of a live range that overlaps this one.
    fn overlapped_end(&self, address: u64, end: u64) -> Option<u64> {
        self.live.range(..end).next_back().map(|(_, live_end)| *live_end).filter(|live_end| *live_end > address)
    }

    pub(super) fn remove(&mut self, address: u64) {
        self.live.remove(&address);
    }
}
