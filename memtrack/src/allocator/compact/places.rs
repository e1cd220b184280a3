//! Where a block can be made, and what that takes. Plain data, no device.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::block::{BlockIndex, BlockState, NO_BLOCK};
use super::super::pools::StreamPools;
use super::PAGE_BYTES;
use crate::stats::PoolKind;

/// Slots whose old mapping must go and is in use count as so many pages more.
const BUSY_COST: usize = 1000;

/// All holes of a pool are looked at up to so many; training runs have up to half of it.
const HOLES_LOOKED_AT: usize = 512;
/// Of more holes, those at so many of the largest free blocks,
const FREE_BLOCKS_LOOKED_AT: usize = 128;
/// and so many others, with
const HOLES_IN_TURN: usize = 64;
/// at most so many free blocks and holes at either side.
const NEIGHBOURS_LOOKED_AT: usize = 8;

/// Addresses for a block, some of them without pages.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) start: u64,
    /// Slots without a page, in rising order.
    pub(super) missing: Vec<Range<u64>>,
    pub(super) missing_count: usize,
    /// Whole pages of the free blocks that it overlaps: these give none.
    pub(super) inside_count: usize,
    /// Of the missing slots, those at which a spare page is mapped.
    pub(super) ready_count: usize,
    /// Of the missing slots, those whose mapping must go first and is in use.
    pub(super) busy_count: usize,
}

impl Place {
    /// Whole pages behind it once it is made; a place needs no more spare ones.
    pub(super) fn page_count(&self) -> usize {
        self.missing_count + self.inside_count
    }

    /// What counts where pages are created.
    pub(super) fn cost_of_creating(&self) -> (usize, usize, u64) {
        (self.missing_count + BUSY_COST * self.busy_count, self.missing_count, self.start)
    }

    /// What neither spare pages nor those that may be created cover.
    pub(super) fn forced_count(&self, spare_count: usize, allowed_count: usize) -> usize {
        self.page_count().saturating_sub(spare_count.saturating_add(allowed_count))
    }

    /// What counts where pages move, after the forced pages.
    pub(super) fn cost_of_moving(&self) -> (usize, usize, u64) {
        let calls = (self.missing_count + BUSY_COST * self.busy_count).saturating_sub(self.ready_count);
        (calls, self.missing_count, self.start)
    }
}

/// A free block or a hole.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    address: u64,
    end: u64,
    is_hole: bool,
    /// Nothing comes after it in its range.
    is_last: bool,
}

/// The slots that lie wholly in a block.
pub(super) fn whole_slots(address: u64, size_bytes: u64) -> Range<u64> {
    let first = address.next_multiple_of(PAGE_BYTES);
    let end = (address + size_bytes) / PAGE_BYTES * PAGE_BYTES;
    first..end.max(first)
}

/// How many slots there are in a range of addresses that begins and ends with one.
pub(super) fn slot_count(range: &Range<u64>) -> usize {
    ((range.end - range.start) / PAGE_BYTES) as usize
}

impl StreamPools {
    fn is_open(&self, index: BlockIndex) -> bool {
        index != NO_BLOCK && matches!(self.blocks[index].state, BlockState::Free | BlockState::Unmapped)
    }

    /// The runs of neighbouring free blocks and holes that have a hole, of at least this size together.
    fn open_runs(&self, pool: PoolKind, size_bytes: u64) -> Vec<Vec<Stretch>> {
        let mut runs = Vec::new();
        // Holes come by address, and those up to here are of runs that were looked at.
        let mut known_until = 0;
        for &hole in self.unmapped(pool).values() {
            if self.blocks[hole].address < known_until {
                continue;
            }
            let mut first = hole;
            while self.is_open(self.blocks[first].prev) {
                first = self.blocks[first].prev;
            }
            let from = self.blocks[first].address;
            let mut at = first;
            while self.is_open(at) {
                let block = &self.blocks[at];
                known_until = block.address + block.size_bytes;
                at = block.next;
            }
            // Nothing is noted of the many that are too small.
            if known_until - from >= size_bytes {
                runs.push(self.stretches_from(first, usize::MAX));
            }
        }
        runs
    }

    /// The free blocks and holes from this one on, up to one that is neither, at most so many.
    fn stretches_from(&self, first: BlockIndex, at_most: usize) -> Vec<Stretch> {
        let mut at = first;
        let mut run = Vec::new();
        while self.is_open(at) && run.len() < at_most {
            let block = &self.blocks[at];
            run.push(Stretch {
                address: block.address,
                end: block.address + block.size_bytes,
                is_hole: block.state == BlockState::Unmapped,
                is_last: block.next == NO_BLOCK,
            });
            at = block.next;
        }
        run
    }

    /// Of too many holes, some that promise most, with what is around them: those at the largest free blocks, the last one, which is of
    /// any size, and others in turn, so that all are looked at in time.
    fn some_runs(&mut self, pool: PoolKind, size_bytes: u64) -> Vec<Vec<Stretch>> {
        let mut chosen: BTreeMap<u64, BlockIndex> = BTreeMap::new();
        let mut free = self.largest_free(pool);
        for _ in 0..FREE_BLOCKS_LOOKED_AT {
            let Some(block) = free else { break };
            for neighbour in [self.blocks[block.index].prev, self.blocks[block.index].next] {
                if self.is_in_state(neighbour, BlockState::Unmapped) {
                    chosen.insert(self.blocks[neighbour].address, neighbour);
                }
            }
            free = self.free_before(pool, (block.size_bytes, block.address));
        }
        let holes = self.unmapped(pool);
        chosen.extend(holes.last_key_value());
        chosen.extend(holes.range(self.next_hole[pool as usize]..).take(HOLES_IN_TURN));
        let next = holes.range(self.next_hole[pool as usize]..).nth(HOLES_IN_TURN);
        self.next_hole[pool as usize] = next.map_or(0, |(address, _)| *address);
        let is_wide = |run: &Vec<Stretch>| ends(run).is_some_and(|(from, to)| to - from >= size_bytes);
        let runs = chosen.into_values().map(|hole| {
            let mut first = hole;
            for _ in 0..NEIGHBOURS_LOOKED_AT {
                if !self.is_open(self.blocks[first].prev) {
                    break;
                }
                first = self.blocks[first].prev;
            }
            self.stretches_from(first, 1 + 2 * NEIGHBOURS_LOOKED_AT)
        });
        runs.filter(is_wide).collect()
    }

    /// Where a block of this size could be made: beginning at a free block or a hole, or ending where one ends. There may be too many
    /// to look at all.
    pub(super) fn places(&mut self, pool: PoolKind, size_bytes: u64) -> Vec<Place> {
        let has_few = self.unmapped(pool).len() <= HOLES_LOOKED_AT;
        let runs = if has_few { self.open_runs(pool, size_bytes) } else { self.some_runs(pool, size_bytes) };
        let mut places = Vec::new();
        for run in runs {
            let Some((from, to)) = ends(&run) else { continue };
            let mut starts: Vec<u64> = Vec::new();
            for stretch in &run {
                if to - stretch.address >= size_bytes {
                    starts.push(stretch.address);
                }
                // The end of a range is as good as never reached.
                if stretch.end - from >= size_bytes && !(stretch.is_last && stretch.is_hole) {
                    starts.push(stretch.end - size_bytes);
                }
            }
            starts.sort_unstable();
            starts.dedup();
            places.extend(starts.into_iter().map(|start| place(&run, start, size_bytes)));
        }
        if !has_few {
            places.sort_unstable_by_key(|place: &Place| place.start);
            places.dedup_by_key(|place| place.start);
        }
        places
    }
}

/// Where a run begins and ends.
fn ends(run: &[Stretch]) -> Option<(u64, u64)> {
    run.first().zip(run.last()).map(|(first, last)| (first.address, last.end))
}

fn place(run: &[Stretch], start: u64, size_bytes: u64) -> Place {
    let end = start + size_bytes;
    let mut place = Place { start, ..Place::default() };
    let first = run.partition_point(|stretch| stretch.end <= start);
    for stretch in run[first..].iter().take_while(|stretch| stretch.address < end) {
        if stretch.is_hole {
            // A hole begins and ends with a slot.
            let first = stretch.address.max(start) / PAGE_BYTES * PAGE_BYTES;
            let last = stretch.end.min(end).next_multiple_of(PAGE_BYTES);
            place.missing_count += slot_count(&(first..last));
            place.missing.push(first..last);
        } else {
            place.inside_count += slot_count(&whole_slots(stretch.address, stretch.end - stretch.address));
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::super::super::block::Block;
    use super::super::super::pools::SizedRequest;
    use super::super::super::rounding::SizeRules;
    use super::*;
    use crate::{Config, Policy};

    const START: u64 = 1 << 40;

    /// Page by page: live (`#`), free (`.`) or a hole (space), then a hole.
    fn pools(pages: &str) -> StreamPools {
        let mut config = Config::default();
        config.policy = Policy::Compact;
        let mut pools = StreamPools::new(SizeRules::new(&config), false);
        let count = pages.len() as u64;
        pools.add_range(PoolKind::Large, START, (count + 1000) * PAGE_BYTES);
        let slots = START..START + count * PAGE_BYTES;
        pools.enter_pages(PoolKind::Large, &slots, Default::default());
        let expandable = true;
        let request = SizedRequest { size_bytes: PAGE_BYTES, requested_bytes: 1, search_count: 0, expandable };
        let live: Vec<BlockIndex> = pages.chars().filter_map(|_| Some(pools.serve(&request)?.0)).collect();
        let free: Vec<(char, BlockIndex)> = pages.chars().zip(live).filter(|(page, _)| *page != '#').collect();
        for &(page, index) in &free {
            let Block { address, .. } = pools.blocks[index];
            pools.take_back(index, 0);
            if page == ' ' {
                pools.enter_hole(PoolKind::Large, &(address..address + PAGE_BYTES));
            }
        }
        pools
    }

    #[test]
    fn places_begin_or_end_with_what_is_free_or_a_hole() {
        let mut pools = pools("#. .# #");
        let page = |page: u64| START + page * PAGE_BYTES;
        let places = pools.places(PoolKind::Large, 2 * PAGE_BYTES);
        let found: Vec<(u64, usize, usize)> =
            places.iter().map(|place| (place.start, place.missing_count, place.inside_count)).collect();
        // The single hole is too small; the last one has no end.
        assert_eq!(found, [(page(1), 1, 1), (page(2), 1, 1), (page(7), 2, 0)]);
    }

    #[test]
    fn of_very_many_holes_the_best_are_looked_at_and_each_of_the_others_in_time() {
        // A hole of three pages after every live page, and one with two free pages before it.
        let mut pages = "#   ".repeat(2000);
        pages.push_str("#..  #");
        let mut pools = pools(&pages);
        let hole_count = pools.unmapped(PoolKind::Large).len();
        assert_eq!(hole_count, 2002);
        let mut starts = std::collections::HashSet::new();
        let best = START + (4 * 2000 + 1) * PAGE_BYTES;
        for _ in 0..hole_count.div_ceil(HOLES_IN_TURN) {
            let places = pools.places(PoolKind::Large, 3 * PAGE_BYTES);
            assert!(places.len() <= 2 * (2 * FREE_BLOCKS_LOOKED_AT + HOLES_IN_TURN + 1));
            assert!(places.windows(2).all(|pair| pair[0].start < pair[1].start));
            let cheapest = places.iter().min_by_key(|place| place.cost_of_creating());
            assert_eq!(cheapest.map(|place| (place.start, place.missing_count)), Some((best, 1)));
            starts.extend(places.into_iter().map(|place| place.start));
        }
        assert!((0..2000).all(|at| starts.contains(&(START + (4 * at + 1) * PAGE_BYTES))));
    }

    #[test]
    fn of_as_many_holes_as_are_all_looked_at_no_place_is_left_out() {
        let pages = "#  ".repeat(HOLES_LOOKED_AT - 1) + "#";
        let mut pools = pools(&pages);
        assert_eq!(pools.unmapped(PoolKind::Large).len(), HOLES_LOOKED_AT);
        assert_eq!(pools.places(PoolKind::Large, 2 * PAGE_BYTES).len(), HOLES_LOOKED_AT);
    }
}
