//! What pools have free, and which of their pages are spare. Plain data, no device.

use std::collections::HashSet;
use std::ops::Range;

use super::super::pools::StreamPools;
use super::PAGE_BYTES;
use super::books::{Books, slots_in};
use super::places::{Place, slot_count, whole_slots};
use super::work::Work;
use crate::device::Stream;
use crate::stats::PoolKind;

/// A free block with a whole page.
#[derive(Debug)]
struct FreeStretch {
    address: u64,
    end: u64,
    pool: PoolKind,
    freed_at: u64,
    is_own: bool,
    /// The stream that asks may own its pages.
    is_usable: bool,
}

impl FreeStretch {
    fn slots(&self) -> Range<u64> {
        whole_slots(self.address, self.end - self.address)
    }
}

/// The free blocks with whole pages, by address.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<FreeStretch>);

impl Spares {
    /// Of the pools of these streams, for the stream `own`, which waits for the work of `joined`.
    pub(super) fn of<'a>(
        pools: impl Iterator<Item = (Stream, &'a StreamPools)>,
        own: Stream,
        work: &Work,
        joined: &HashSet<Stream>,
    ) -> Self {
        let mut stretches = Vec::new();
        for (stream, pools) in pools {
            for pool in [PoolKind::Small, PoolKind::Large] {
                // A smaller block has no whole page.
                for free in pools.free_blocks_from(pool, PAGE_BYTES) {
                    if whole_slots(free.address, free.size_bytes).is_empty() {
                        continue;
                    }
                    let freed_at = pools.blocks[free.index].freed_at_search;
                    stretches.push(FreeStretch {
                        address: free.address,
                        end: free.address + free.size_bytes,
                        pool,
                        freed_at,
                        is_own: stream == own,
                        is_usable: stream == own || joined.contains(&stream) || work.is_over(stream, freed_at),
                    });
                }
            }
        }
        stretches.sort_unstable_by_key(|stretch| stretch.address);
        Self(stretches)
    }

    /// Whether the page that this slot owns is spare and lies outside a range.
    fn is_spare(&self, slot: u64, except: &Range<u64>) -> bool {
        if slot + PAGE_BYTES > except.start && slot < except.end {
            return false;
        }
        let after = self.0.partition_point(|stretch| stretch.address <= slot);
        let stretch = after.checked_sub(1).and_then(|at| self.0.get(at));
        stretch.is_some_and(|stretch| stretch.is_usable && slot + PAGE_BYTES <= stretch.end)
    }

    /// The missing slots at which a page is mapped that is spare: slot, page.
    pub(super) fn ready(&self, books: &Books, place: &Place, range: &Range<u64>) -> Vec<(u64, u64)> {
        let old = place.missing.iter().flat_map(|slots| books.old_mappings(slots.clone()));
        let ready = old.filter(|(_, _, page)| self.is_spare(page.owner, range));
        ready.map(|(slot, _, page)| (slot, page.memory.handle)).collect()
    }

    /// Counts what is ready of a place, and what is busy.
    pub(super) fn weigh(&self, books: &Books, work: &Work, stream: Stream, place: &mut Place, size_bytes: u64) {
        let range = place.start..place.start + size_bytes;
        (place.ready_count, place.busy_count) = (0, 0);
        for slots in &place.missing {
            for (_, freed_at, page) in books.old_mappings(slots.clone()) {
                if self.is_spare(page.owner, &range) {
                    place.ready_count += 1;
                } else if !work.is_over(stream, freed_at) {
                    place.busy_count += 1;
                }
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|stretch| stretch.is_usable).map(|stretch| slot_count(&stretch.slots())).sum()
    }

    /// Whether there are pages that would be spare if another stream were waited for.
    pub(super) fn has_busy(&self) -> bool {
        self.0.iter().any(|stretch| !stretch.is_usable)
    }

    /// The slots that give their pages to a place, in the order in which they should, at most so many.
    pub(super) fn givers(&self, except: &Range<u64>, count: usize) -> Vec<u64> {
        let outside = |stretch: &&FreeStretch| stretch.end <= except.start || stretch.address >= except.end;
        let mut givers: Vec<&FreeStretch> = self.0.iter().filter(|stretch| stretch.is_usable).filter(outside).collect();
        let order = |stretch: &&FreeStretch| {
            (stretch.pool == PoolKind::Small, !stretch.is_own, stretch.freed_at, stretch.address)
        };
        givers.sort_unstable_by_key(order);
        givers
            .into_iter()
            .flat_map(|stretch| slots_in(stretch.slots()).collect::<Vec<_>>().into_iter().rev())
            .take(count)
            .collect()
    }
}
