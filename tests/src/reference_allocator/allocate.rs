//! From a request to a block: rounding, searching, splitting, counting.

use super::state::{Block, Kind, Place, Pool};
use super::{Action, Counter, MIB, ReferenceAllocator, Refused};

/// A request on its way. A pool that stands in for the default one takes the request over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// Rounded.
    pub(super) size: u64,
    pub(super) segment_size: u64,
    pub(super) stream: u64,
    pub(super) pool: Pool,
    pub(super) expandable: bool,
}

impl ReferenceAllocator {
    /// Allocates for a thread; the address of the block, 0 for no bytes.
    pub fn allocate(&mut self, requested: u64, stream: u64, thread: usize) -> Result<u64, Refused> {
        if requested == 0 {
            return Ok(0);
        }
        if requested >= 1 << 60 {
            return Err(Refused::TooLarge);
        }
        if !self.holds_events() {
            self.process_events();
        }
        let size = self.round(requested);
        let kind = if size <= MIB { Kind::Small } else { Kind::Large };
        let request = Request {
            size,
            segment_size: self.segment_size(size),
            stream,
            pool: Pool { owner: self.route(thread, stream), kind },
            expandable: self.settings.expandable,
        };
        self.count_search(request.pool);
        match self.find(&request) {
            Some(place) => Ok(self.hand_out(place, &request, requested)),
            None => {
                let (place, request) = self.grow(request)?;
                Ok(self.hand_out(place, &request, requested))
            }
        }
    }

    /// What a request is rounded to.
    fn round(&self, bytes: u64) -> u64 {
        if bytes < 512 {
            return 512;
        }
        let interval = (i64::from(bytes.ilog2()) - 20).clamp(0, 15) as usize;
        let divisions = self.settings.roundup_divisions[interval];
        if divisions > 1 && bytes > divisions.saturating_mul(512) {
            let step = (1 << bytes.ilog2()) / divisions;
            return bytes.div_ceil(step) * step;
        }
        bytes.div_ceil(512) * 512
    }

    fn segment_size(&self, size: u64) -> u64 {
        if size <= MIB {
            2 * MIB
        } else if size < 10 * MIB {
            self.settings.large_segment
        } else {
            size.div_ceil(2 * MIB) * 2 * MIB
        }
    }

    /// Searches are counted only while garbage could be collected.
    pub(super) fn count_search(&mut self, pool: Pool) {
        if self.limit.is_some() && self.settings.garbage_collection_threshold > 0.0 {
            *self.searches.entry(pool).or_default() += 1;
        }
    }

    /// The best fit: smallest size, then lowest address. An unfit one is a miss, whatever comes behind it.
    pub(super) fn find(&self, request: &Request) -> Option<Place> {
        let mut fitting: Vec<(u64, u64, Place)> = self
            .free_places(request.pool)
            .filter(|(stream, size, ..)| *stream == request.stream && *size >= request.size)
            .map(|(_, size, address, place)| (size, address, place))
            .collect();
        fitting.sort_unstable();
        let is_expandable = |place: Place| self.segments[place.0].page.is_some();
        let mut at = 0;
        let first = fitting.first()?.2;
        if is_expandable(first) && request.expandable {
            while is_expandable(fitting[at].2)
                && at + 1 < fitting.len()
                && self.growable_size(fitting[at + 1].2) < self.growable_size(fitting[at].2)
            {
                at += 1;
            }
        } else if is_expandable(first) {
            at = fitting.iter().position(|(_, _, place)| !is_expandable(*place))?;
        }
        let (found, _, place) = fitting[at];
        let max_split = self.settings.max_split;
        let too_large_for_small = request.size < max_split && found >= max_split;
        let wasteful =
            request.size >= max_split && found >= request.size.saturating_add(self.settings.max_non_split_rounding);
        (!too_large_for_small && !wasteful).then_some(place)
    }

    /// A block with the room behind it that it could be extended into.
    fn growable_size(&self, (s, b): Place) -> u64 {
        let blocks = &self.segments[s].blocks;
        blocks[b].size + blocks.get(b + 1).filter(|next| !next.mapped).map_or(0, |next| next.size)
    }

    /// Free blocks of a pool as (stream, size, address, place), in no order.
    pub(super) fn free_places(&self, pool: Pool) -> impl Iterator<Item = (u64, u64, u64, Place)> {
        let segments = self.segments.iter().enumerate().filter(move |(_, segment)| segment.pool == pool);
        segments.flat_map(|(s, segment)| {
            let free = segment.blocks.iter().enumerate().filter(|(_, block)| block.is_free());
            free.map(move |(b, block)| (segment.stream, block.size, block.address, (s, b)))
        })
    }

    /// Splits if the rules say so and hands the front out.
    fn hand_out(&mut self, (s, b): Place, request: &Request, requested: u64) -> u64 {
        let max_split = self.settings.max_split;
        let no_split = self.private_pools.iter().any(|pool| pool.id == request.pool.owner && pool.no_split);
        let age_base = self.searches(request.pool);
        let segment = &mut self.segments[s];
        let counts_splits = segment.page.is_none();
        let was_split = segment.is_split();
        let block = &mut segment.blocks[b];
        let rest = block.size - request.size;
        let splits = if no_split {
            false
        } else if request.pool.kind == Kind::Small || request.expandable {
            rest >= 512
        } else {
            request.size < max_split && rest > MIB
        };
        if splits {
            let front = Block::free(block.address, request.size, true, 0);
            block.address += request.size;
            block.size = rest;
            block.age_base = age_base;
            segment.blocks.insert(b, front);
        }
        let block = &mut segment.blocks[b];
        block.allocated = true;
        block.requested = requested;
        let (size, address, kind) = (block.size as i64, block.address, request.pool.kind);
        let counters = &mut self.counters;
        match (was_split, splits) {
            _ if !counts_splits => {}
            (false, false) => {}
            (false, true) => {
                counters.change(Counter::InactiveSplit, kind, 1);
                counters.change(Counter::InactiveSplitBytes, kind, rest as i64);
            }
            (true, true) => counters.change(Counter::InactiveSplitBytes, kind, -size),
            (true, false) => {
                counters.change(Counter::InactiveSplit, kind, -1);
                counters.change(Counter::InactiveSplitBytes, kind, -size);
            }
        }
        counters.change(Counter::Allocation, kind, 1);
        counters.change(Counter::AllocatedBytes, kind, size);
        counters.change(Counter::Active, kind, 1);
        counters.change(Counter::ActiveBytes, kind, size);
        counters.change(Counter::RequestedBytes, kind, requested as i64);
        if size as u64 >= max_split {
            counters.oversize_allocations(1);
        }
        self.record(Action::Alloc, address, requested, request.stream);
        address
    }
}
