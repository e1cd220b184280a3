//! Which page is mapped at which addresses, and at which of them its memory may be handed out. Plain data, no device.
//!
//! A *slot* is the address of a page's worth of addresses. Each page has one *owner* among the slots that it is mapped at; the others are
//! old mappings, and lie in holes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::PAGE_BYTES;
use crate::device::{PhysicalMemory, Stream};
use crate::stats::PoolKind;

/// A piece of physical memory.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) memory: PhysicalMemory,
    /// The pool that it was created for: statistics count it there.
    pub(super) pool: PoolKind,
    /// The slot at which it may be handed out.
    pub(super) owner: u64,
    /// Every slot that it is mapped at.
    pub(super) mapped_at: Vec<u64>,
}

/// What is mapped at a slot.
#[derive(Debug, Clone, Copy)]
struct Mapping {
    handle: u64,
    /// Of an old mapping: when the last block there was freed.
    freed_at: u64,
}

/// A range of addresses, of one pool of one stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressRange {
    pub(super) bytes: u64,
    pub(super) stream: Stream,
    pub(super) pool: PoolKind,
}

/// Pages, slots and ranges.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By handle.
    pages: HashMap<u64, Page>,
    slots: BTreeMap<u64, Mapping>,
    ranges: BTreeMap<u64, AddressRange>,
    /// Slots at which a call failed, so that nobody knows what is there.
    barred: BTreeSet<u64>,
}

impl Books {
    pub(super) fn add_range(&mut self, address: u64, range: AddressRange) {
        self.ranges.insert(address, range);
    }

    /// The range that an address lies in.
    pub(super) fn range_of(&self, address: u64) -> Option<AddressRange> {
        let (start, range) = self.ranges.range(..=address).next_back()?;
        (address - start < range.bytes).then_some(*range)
    }

    /// The ranges of one pool of one stream.
    pub(super) fn ranges_of(&self, stream: Stream, pool: PoolKind) -> Vec<Range<u64>> {
        let of_pool = self.ranges.iter().filter(|(_, range)| range.stream == stream && range.pool == pool);
        of_pool.map(|(start, range)| *start..start + range.bytes).collect()
    }

    pub(super) fn remove_range(&mut self, address: u64) {
        self.ranges.remove(&address);
    }

    /// Whether nothing is mapped in a range, as far as anybody knows.
    pub(super) fn is_bare(&self, range: Range<u64>) -> bool {
        self.slots.range(range.clone()).next().is_none() && !self.has_barred(range)
    }

    pub(super) fn has_barred(&self, range: Range<u64>) -> bool {
        self.barred.range(range).next().is_some()
    }

    /// Nobody knows what is mapped at these slots.
    pub(super) fn bar(&mut self, slots: impl Iterator<Item = u64>) {
        self.barred.extend(slots);
    }

    pub(super) fn page(&self, handle: u64) -> Option<&Page> {
        self.pages.get(&handle)
    }

    /// The page that owns a slot.
    pub(super) fn owned_by(&self, slot: u64) -> Option<&Page> {
        let page = self.pages.get(&self.slots.get(&slot)?.handle)?;
        (page.owner == slot).then_some(page)
    }

    /// Whether any page is mapped at more than one slot.
    pub(super) fn has_old_mappings(&self) -> bool {
        self.slots.len() > self.pages.len()
    }

    /// The old mappings in a range of slots: slot, when the last block there was freed, page.
    pub(super) fn old_mappings(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64, &Page)> {
        self.slots.range(range).filter_map(|(slot, mapping)| {
            let page = self.pages.get(&mapping.handle)?;
            (page.owner != *slot).then_some((*slot, mapping.freed_at, page))
        })
    }

    /// A new page, mapped at a slot.
    pub(super) fn add_page(&mut self, memory: PhysicalMemory, slot: u64, pool: PoolKind) {
        self.slots.insert(slot, Mapping { handle: memory.handle, freed_at: 0 });
        self.pages.insert(memory.handle, Page { memory, pool, owner: slot, mapped_at: vec![slot] });
    }

    /// A page is owned by another slot now, where it is mapped. Its mapping at the slot before, where the last block was freed at
    /// `freed_at`, is old.
    pub(super) fn give_to(&mut self, handle: u64, slot: u64, freed_at: u64) {
        let Some(page) = self.pages.get_mut(&handle) else { return };
        let before = std::mem::replace(&mut page.owner, slot);
        if !page.mapped_at.contains(&slot) {
            page.mapped_at.push(slot);
        }
        if let Some(mapping) = self.slots.get_mut(&before) {
            mapping.freed_at = freed_at;
        }
        self.slots.insert(slot, Mapping { handle, freed_at: 0 });
    }

    /// An old mapping is gone.
    pub(super) fn forget_mapping(&mut self, slot: u64) {
        let Some(mapping) = self.slots.remove(&slot) else { return };
        if let Some(page) = self.pages.get_mut(&mapping.handle) {
            page.mapped_at.retain(|at| *at != slot);
        }
    }

    /// The page that owns a slot is mapped nowhere any more.
    pub(super) fn remove_owned(&mut self, slot: u64) -> Option<Page> {
        let handle = self.owned_by(slot)?.memory.handle;
        let page = self.pages.remove(&handle)?;
        for at in &page.mapped_at {
            self.slots.remove(at);
        }
        Some(page)
    }
}

/// The slots in a range of addresses that begins and ends with one.
pub(super) fn slots_in(range: Range<u64>) -> impl Iterator<Item = u64> {
    range.step_by(PAGE_BYTES as usize)
}

/// Slots in rising order as unbroken ranges of addresses.
pub(super) fn unbroken(slots: &[u64]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for &slot in slots {
        match ranges.last_mut() {
            Some(last) if last.end == slot => last.end += PAGE_BYTES,
            _ => ranges.push(slot..slot + PAGE_BYTES),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: u64 = 1 << 30;

    fn with_page() -> Books {
        let mut books = Books::default();
        let range = AddressRange { bytes: 100 * PAGE_BYTES, stream: Stream(1), pool: PoolKind::Large };
        books.add_range(SLOT, range);
        books.add_page(PhysicalMemory { handle: 7, bytes: PAGE_BYTES }, SLOT, PoolKind::Large);
        books
    }

    #[test]
    fn a_page_that_moves_keeps_its_old_mapping_until_that_goes() {
        let mut books = with_page();
        assert!(!books.has_old_mappings());
        let new = SLOT + 5 * PAGE_BYTES;
        books.give_to(7, new, 3);
        assert!(books.has_old_mappings() && books.owned_by(SLOT).is_none());
        assert_eq!(books.owned_by(new).map(|page| page.mapped_at.clone()), Some(vec![SLOT, new]));
        let old: Vec<(u64, u64)> = books.old_mappings(SLOT..new).map(|(slot, at, _)| (slot, at)).collect();
        assert_eq!(old, [(SLOT, 3)]);
        books.forget_mapping(SLOT);
        assert!(!books.has_old_mappings() && books.is_bare(SLOT..new));
        assert_eq!(books.remove_owned(new).map(|page| page.mapped_at), Some(vec![new]));
        assert!(books.is_bare(SLOT..SLOT + 100 * PAGE_BYTES));
    }

    #[test]
    fn a_page_goes_back_to_an_old_mapping_of_its_own() {
        let mut books = with_page();
        books.give_to(7, SLOT + PAGE_BYTES, 3);
        books.give_to(7, SLOT, 4);
        assert_eq!(books.owned_by(SLOT).map(|page| page.mapped_at.len()), Some(2));
        let old = books.old_mappings(SLOT..SLOT + 2 * PAGE_BYTES).map(|(slot, at, _)| (slot, at));
        assert_eq!(old.collect::<Vec<_>>(), [(SLOT + PAGE_BYTES, 4)]);
    }

    #[test]
    fn addresses_belong_to_the_range_they_lie_in() {
        let books = with_page();
        let end = SLOT + 100 * PAGE_BYTES;
        assert!(books.range_of(SLOT).is_some() && books.range_of(end - 1).is_some());
        assert!(books.range_of(SLOT - 1).is_none() && books.range_of(end).is_none());
        assert_eq!(unbroken(&[SLOT, SLOT + PAGE_BYTES, end]), [SLOT..SLOT + 2 * PAGE_BYTES, end..end + PAGE_BYTES]);
    }
}
