//! A plain model of a device's memory: physical pages, addresses, streams. It checks every rule a policy must keep, and counts
//! what the policy asks of the driver.

use std::collections::HashMap;

/// The piece in which memory is created and mapped.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;

/// A physical page.
pub(crate) type Page = u32;
/// A page's worth of addresses: the address over [`PAGE_BYTES`].
pub(crate) type Slot = u64;

#[derive(Debug, Default)]
struct PageState {
    slots: u32,
    /// Live byte ranges within the page.
    live: Vec<(u32, u32)>,
    /// By stream: when a block in it was last freed.
    last_free: Vec<(u8, u64)>,
}

#[derive(Debug)]
struct SlotState {
    page: Page,
    live_blocks: u32,
    last_free: Vec<(u8, u64)>,
}

/// Calls for the driver.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Calls {
    pub(crate) created: u64,
    pub(crate) mapped: u64,
    pub(crate) unmapped: u64,
    /// Maps of pages that were mapped elsewhere before.
    pub(crate) moved: u64,
    /// Times the policy had to wait for a stream.
    pub(crate) waits: u64,
}

/// The device.
#[derive(Debug)]
pub(crate) struct Machine {
    pages: Vec<PageState>,
    slots: HashMap<Slot, SlotState>,
    now: u64,
    /// How many operations later the work is over that used a block when it was freed.
    lag: u64,
    /// All work given before is over, since the policy waited then.
    waited_at: u64,
    pub(crate) calls: Calls,
    pub(crate) reserved_bytes: u64,
    pub(crate) reserved_peak_bytes: u64,
    pub(crate) most_slots_of_a_page: u32,
}

impl Machine {
    pub(crate) fn new(lag: u64) -> Self {
        Self {
            pages: Vec::new(),
            slots: HashMap::new(),
            now: 0,
            lag,
            waited_at: 0,
            calls: Calls::default(),
            reserved_bytes: 0,
            reserved_peak_bytes: 0,
            most_slots_of_a_page: 0,
        }
    }

    /// One more operation of the program.
    pub(crate) fn tick(&mut self) {
        self.now += 1;
    }

    fn is_over(&self, at: u64) -> bool {
        at < self.waited_at || at + self.lag <= self.now
    }

    /// Waits for all streams.
    pub(crate) fn wait(&mut self) {
        self.calls.waits += 1;
        self.waited_at = self.now + 1;
    }

    pub(crate) fn create(&mut self) -> Page {
        self.calls.created += 1;
        self.reserved_bytes += PAGE_BYTES;
        self.reserved_peak_bytes = self.reserved_peak_bytes.max(self.reserved_bytes);
        self.pages.push(PageState::default());
        (self.pages.len() - 1) as Page
    }

    /// A page may be mapped at several slots.
    pub(crate) fn map(&mut self, slot: Slot, page: Page) {
        let state = &mut self.pages[page as usize];
        if !state.last_free.is_empty() || state.slots > 0 {
            self.calls.moved += 1;
        }
        state.slots += 1;
        self.most_slots_of_a_page = self.most_slots_of_a_page.max(state.slots);
        let old = self.slots.insert(slot, SlotState { page, live_blocks: 0, last_free: Vec::new() });
        assert!(old.is_none(), "slot {slot} is mapped already");
        self.calls.mapped += 1;
    }

    /// Whether the slot may be unmapped: no live block was handed out there, and work that used one is over.
    pub(crate) fn is_idle(&self, slot: Slot) -> bool {
        let state = &self.slots[&slot];
        state.live_blocks == 0 && state.last_free.iter().all(|&(_, at)| self.is_over(at))
    }

    pub(crate) fn unmap(&mut self, slot: Slot) {
        assert!(self.is_idle(slot), "slot {slot} is unmapped under work");
        let state = self.slots.remove(&slot).expect("is_idle found it");
        self.pages[state.page as usize].slots -= 1;
        self.calls.unmapped += 1;
    }

    /// Whether a stream may use the page: work of other streams in it is over.
    pub(crate) fn is_usable(&self, page: Page, stream: u8) -> bool {
        self.pages[page as usize].last_free.iter().all(|&(other, at)| other == stream || self.is_over(at))
    }

    fn parts(address: u64, bytes: u64) -> impl Iterator<Item = (Slot, u32, u32)> {
        let end = address + bytes;
        (address / PAGE_BYTES..=(end - 1) / PAGE_BYTES).map(move |slot| {
            let start = slot * PAGE_BYTES;
            let first = address.max(start) - start;
            let last = end.min(start + PAGE_BYTES) - start;
            (slot, first as u32, last as u32)
        })
    }

    /// A block is handed out at the address.
    pub(crate) fn occupy(&mut self, address: u64, bytes: u64, stream: u8) {
        for (slot, first, last) in Self::parts(address, bytes) {
            let page = self.slots.get(&slot).unwrap_or_else(|| panic!("nothing is mapped at slot {slot}")).page;
            assert!(self.is_usable(page, stream), "page {page} is still used by another stream");
            self.slots.get_mut(&slot).expect("found above").live_blocks += 1;
            let live = &mut self.pages[page as usize].live;
            assert!(live.iter().all(|&(from, to)| last <= from || to <= first), "two live blocks in page {page}");
            live.push((first, last));
        }
    }

    /// The block is freed: its stream may go on using it for a while.
    pub(crate) fn vacate(&mut self, address: u64, bytes: u64, stream: u8) {
        let now = self.now;
        let note = |uses: &mut Vec<(u8, u64)>| match uses.iter_mut().find(|(other, _)| *other == stream) {
            Some((_, at)) => *at = now,
            None => uses.push((stream, now)),
        };
        for (slot, first, last) in Self::parts(address, bytes) {
            let state = self.slots.get_mut(&slot).expect("a live block's slots stay mapped");
            state.live_blocks -= 1;
            note(&mut state.last_free);
            let page = &mut self.pages[state.page as usize];
            let at = page.live.iter().position(|&range| range == (first, last)).expect("occupied before");
            page.live.swap_remove(at);
            note(&mut page.last_free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_pages(lag: u64, slots: &[Slot]) -> (Machine, Page) {
        let mut machine = Machine::new(lag);
        let page = machine.create();
        for &slot in slots {
            machine.map(slot, page);
        }
        (machine, page)
    }

    #[test]
    #[should_panic(expected = "two live blocks")]
    fn two_live_blocks_never_share_bytes_of_a_page_at_any_address() {
        let (mut machine, _) = with_pages(0, &[1, 5]);
        machine.occupy(PAGE_BYTES, 4096, 0);
        machine.occupy(5 * PAGE_BYTES + 2048, 4096, 0);
    }

    #[test]
    fn two_addresses_of_a_page_may_hold_blocks_side_by_side() {
        let (mut machine, _) = with_pages(0, &[1, 5]);
        machine.occupy(PAGE_BYTES, 4096, 0);
        machine.occupy(5 * PAGE_BYTES + 4096, 4096, 0);
    }

    #[test]
    #[should_panic(expected = "unmapped under work")]
    fn a_slot_is_not_unmapped_while_work_may_use_it() {
        let (mut machine, _) = with_pages(10, &[1]);
        machine.occupy(PAGE_BYTES, 4096, 0);
        machine.vacate(PAGE_BYTES, 4096, 0);
        machine.unmap(1);
    }

    #[test]
    #[should_panic(expected = "another stream")]
    fn a_page_waits_for_the_work_of_another_stream_at_any_address() {
        let (mut machine, _) = with_pages(10, &[1, 5]);
        machine.occupy(PAGE_BYTES, 4096, 0);
        machine.vacate(PAGE_BYTES, 4096, 0);
        machine.occupy(5 * PAGE_BYTES, 4096, 1);
    }

    #[test]
    fn the_same_stream_may_use_a_page_at_a_second_address_at_once() {
        let (mut machine, page) = with_pages(10, &[1, 5]);
        machine.occupy(PAGE_BYTES, 4096, 0);
        machine.vacate(PAGE_BYTES, 4096, 0);
        machine.occupy(5 * PAGE_BYTES, 4096, 0);
        assert!(!machine.is_usable(page, 1));
        machine.wait();
        assert!(machine.is_usable(page, 1), "all work is over after a wait");
    }

    #[test]
    #[should_panic(expected = "nothing is mapped")]
    fn a_block_needs_pages_behind_all_of_it() {
        let (mut machine, _) = with_pages(0, &[1]);
        machine.occupy(PAGE_BYTES, PAGE_BYTES + 512, 0);
    }
}
