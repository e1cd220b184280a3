//! Which pages are spare for a stream: those of its own free blocks, and those of other streams whose work is over. Plain data, no device.

use std::collections::HashSet;
use std::ops::Range;

use super::super::pools::StreamPools;
use super::PAGE_BYTES;
use super::books::{Books, slots_in};
use super::places::Place;
use super::spare_blocks::{SpareBlock, SpareBlocks};
use super::work::Work;
use crate::device::Stream;
use crate::stats::PoolKind;

/// What one stream has.
#[derive(Debug)]
struct Stock<'a> {
    stream: Stream,
    blocks: &'a SpareBlocks,
    /// The stream that asks may own the pages of what was freed up to this.
    usable_until: Option<u64>,
}

impl Stock<'_> {
    /// The usable ones of a pool, the oldest first.
    fn oldest(&self, pool: PoolKind) -> impl Iterator<Item = SpareBlock> {
        self.usable_until.into_iter().flat_map(move |until| self.blocks.oldest(pool, until))
    }

    fn has_busy(&self) -> bool {
        match self.usable_until {
            Some(until) => self.blocks.has_younger(until),
            None => self.blocks.page_count() > 0,
        }
    }

    /// The usable pages, or so many of them that there are `enough`.
    fn count(&self, enough: usize) -> usize {
        if !self.has_busy() {
            return self.blocks.page_count();
        }
        let mut count = 0;
        for block in [PoolKind::Small, PoolKind::Large].into_iter().flat_map(|pool| self.oldest(pool)) {
            if count >= enough {
                break;
            }
            count += block.page_count();
        }
        count
    }
}

/// The free blocks with whole pages of the pools that are held.
#[derive(Debug)]
pub(super) struct Spares<'a> {
    own: Stream,
    /// The own ones first, the others in the order of their streams.
    stocks: Vec<Stock<'a>>,
}

impl<'a> Spares<'a> {
    /// Of the pools of these streams, for the first of them, which waits for the work of `joined`.
    pub(super) fn of(
        pools: impl Iterator<Item = (Stream, &'a StreamPools)>,
        own: Stream,
        work: &Work,
        joined: &HashSet<Stream>,
    ) -> Self {
        let has_any = |(stream, pools): &(Stream, &StreamPools)| *stream == own || pools.spare_blocks.page_count() > 0;
        let stocks = pools.filter(has_any).map(|(stream, pools)| {
            let is_usable = stream == own || joined.contains(&stream);
            let usable_until = if is_usable { Some(u64::MAX) } else { work.over_until(stream) };
            Stock { stream, blocks: &pools.spare_blocks, usable_until }
        });
        Self { own, stocks: stocks.collect() }
    }

    fn stock(&self, stream: Stream) -> Option<&Stock<'a>> {
        let (own, others) = self.stocks.split_first()?;
        if stream == self.own {
            return Some(own);
        }
        others.binary_search_by_key(&stream, |stock| stock.stream).ok().and_then(|at| others.get(at))
    }

    /// Whether the page that this slot owns is spare and lies outside a range.
    fn is_spare(&self, books: &Books, slot: u64, except: &Range<u64>) -> bool {
        if slot + PAGE_BYTES > except.start && slot < except.end {
            return false;
        }
        let Some(stock) = books.range_of(slot).and_then(|range| self.stock(range.stream)) else { return false };
        let is_usable = |block: &&SpareBlock| stock.usable_until.is_some_and(|until| block.freed_at <= until);
        stock.blocks.containing(slot).filter(is_usable).is_some_and(|block| slot + PAGE_BYTES <= block.end())
    }

    /// The missing slots at which a page is mapped that is spare: slot, page.
    pub(super) fn ready(&self, books: &Books, place: &Place, range: &Range<u64>) -> Vec<(u64, u64)> {
        let old = place.missing.iter().flat_map(|slots| books.old_mappings(slots.clone()));
        let ready = old.filter(|(_, _, page)| self.is_spare(books, page.owner, range));
        ready.map(|(slot, _, page)| (slot, page.memory.handle)).collect()
    }

    /// Counts what is ready of a place, and what is busy.
    pub(super) fn weigh(&self, books: &Books, work: &Work, place: &mut Place, size_bytes: u64) {
        let range = place.start..place.start + size_bytes;
        (place.ready_count, place.busy_count) = (0, 0);
        for slots in &place.missing {
            for (_, freed_at, page) in books.old_mappings(slots.clone()) {
                if self.is_spare(books, page.owner, &range) {
                    place.ready_count += 1;
                } else if !work.is_over(self.own, freed_at) {
                    place.busy_count += 1;
                }
            }
        }
    }

    /// How many there are, or so many of them that there are `enough`.
    pub(super) fn count(&self, enough: usize) -> usize {
        let mut count: usize = 0;
        for stock in &self.stocks {
            if count >= enough {
                break;
            }
            count += stock.count(enough - count);
        }
        count
    }

    /// Whether there are pages that would be spare if another stream were waited for.
    pub(super) fn has_busy(&self) -> bool {
        self.stocks.iter().any(Stock::has_busy)
    }

    /// The slots that give their pages to a place, in the order in which they should, at most so many.
    pub(super) fn givers(&self, except: &Range<u64>, count: usize) -> Vec<u64> {
        let mut givers = Vec::with_capacity(count);
        let is_outside = |block: &SpareBlock| block.end() <= except.start || block.address >= except.end;
        for pool in [PoolKind::Large, PoolKind::Small] {
            let Some((own, others)) = self.stocks.split_first() else { break };
            let lacking = count - givers.len();
            // Each block has a page, so that no stream gives more blocks than pages are lacking.
            givers.extend(own.oldest(pool).filter(is_outside).flat_map(slots_from_the_end).take(lacking));
            let lacking = count - givers.len();
            if lacking == 0 {
                break;
            }
            let of_others = others.iter().flat_map(|stock| stock.oldest(pool).filter(is_outside).take(lacking));
            let mut of_others: Vec<SpareBlock> = of_others.collect();
            of_others.sort_unstable_by_key(|block| (block.freed_at, block.address));
            givers.extend(of_others.into_iter().flat_map(slots_from_the_end).take(lacking));
        }
        givers
    }
}

fn slots_from_the_end(block: SpareBlock) -> impl Iterator<Item = u64> {
    let slots = block.slots();
    let end = slots.end;
    slots_in(slots.clone()).map(move |slot| end - PAGE_BYTES - (slot - slots.start))
}
