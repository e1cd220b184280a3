//! PyTorch's caching rules once more, written down as plainly as possible and as slowly as need be: the second opinion
//! that memtrack's allocator is compared with.
//!
//! Segments are a list, each with the list of its blocks in address order; every search looks at every block. Nothing is
//! shared with memtrack but the settings. One rule is memtrack's own: after waiting for other streams in vain the pool is
//! searched once more.

mod counters;
mod reclaim;

use std::collections::{HashSet, VecDeque};

pub use counters::{COUNTER_COUNT, Counters, counter_names, flatten};
use counters::{Counter, Pool};
use memtrack::Config;

const MIB: u64 = 1 << 20;

/// Who refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The device is full.
    ByDevice,
    /// The memory fraction.
    ByLimit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Allocated,
    /// So many events to go.
    Pending(usize),
}

#[derive(Debug, Clone)]
struct Block {
    address: u64,
    size: u64,
    requested: u64,
    state: State,
    /// Other streams that use it.
    used_on: Vec<u64>,
    /// The pool's search count when it became free.
    age_base: u64,
}

#[derive(Debug, Clone)]
struct Segment {
    address: u64,
    size: u64,
    stream: u64,
    pool: Pool,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Event {
    stream: u64,
    block: u64,
    done: bool,
}

/// Where a block is: which segment, which of its blocks.
type Place = (usize, usize);

/// The slow allocator with a device of its own.
#[derive(Debug)]
pub struct ReferenceAllocator {
    config: Config,
    total_bytes: u64,
    other_use_bytes: u64,
    limit: Option<u64>,
    addresses: VecDeque<u64>,
    segments: Vec<Segment>,
    /// By stream, in the order in which each stream's first outstanding event came.
    events: Vec<(u64, VecDeque<Event>)>,
    busy: HashSet<u64>,
    searches: [u64; 2],
    counters: Counters,
}

impl ReferenceAllocator {
    /// An allocator on a device of `total_bytes` that hands out these addresses.
    pub fn new(config: Config, total_bytes: u64, addresses: impl IntoIterator<Item = u64>) -> Self {
        let max_split = config.max_split_size_bytes.map_or(-1, |bytes| bytes as i64);
        Self {
            config,
            total_bytes,
            other_use_bytes: 0,
            limit: None,
            addresses: addresses.into_iter().collect(),
            segments: Vec::new(),
            events: Vec::new(),
            busy: HashSet::new(),
            searches: [0; 2],
            counters: Counters::new(max_split),
        }
    }

    /// All statistics.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Segments as (address, bytes) in address order.
    pub fn segments(&self) -> Vec<(u64, u64)> {
        let mut segments: Vec<_> = self.segments.iter().map(|segment| (segment.address, segment.size)).collect();
        segments.sort_unstable();
        segments
    }

    /// Bytes in all segments.
    pub fn reserved_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// The largest free block of any stream.
    pub fn largest_free_block_bytes(&self) -> u64 {
        self.all_blocks().filter(|block| block.state == State::Free).map(|block| block.size).max().unwrap_or(0)
    }

    /// The limit in force.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.limit
    }

    fn all_blocks(&self) -> impl Iterator<Item = &Block> {
        self.segments.iter().flat_map(|segment| &segment.blocks)
    }

    /// Allocates; the address of the block.
    pub fn allocate(&mut self, requested: u64, stream: u64) -> Result<u64, Refused> {
        self.process_events();
        let size = round(&self.config, requested);
        let pool = if size <= MIB { Pool::Small } else { Pool::Large };
        if self.limit.is_some() && self.config.garbage_collection_threshold.is_some() {
            self.searches[pool as usize] += 1;
        }
        let place = match self.find(size, stream, pool) {
            Some(place) => place,
            None => self.grow(size, stream, pool)?,
        };
        Ok(self.hand_out(place, size, requested))
    }

    /// The best fit: smallest size, then lowest address, and only that one is considered.
    fn find(&self, size: u64, stream: u64, pool: Pool) -> Option<Place> {
        let (_, _, place) = self.free_places(stream, pool).filter(|(bytes, ..)| *bytes >= size).min()?;
        let bytes = self.block(place).size;
        let max_split = self.max_split();
        let too_large_for_small = size < max_split && bytes >= max_split;
        let wasteful = size >= max_split && bytes >= size.saturating_add(self.config.max_non_split_rounding_bytes);
        (!too_large_for_small && !wasteful).then_some(place)
    }

    /// Free blocks of one pool and stream as (size, address, place).
    fn free_places(&self, stream: u64, pool: Pool) -> impl Iterator<Item = (u64, u64, Place)> {
        let segments = self.segments.iter().enumerate();
        segments.filter(move |(_, segment)| segment.stream == stream && segment.pool == pool).flat_map(
            |(s, segment)| {
                let blocks = segment.blocks.iter().enumerate();
                blocks
                    .filter(|(_, block)| block.state == State::Free)
                    .map(move |(b, block)| (block.size, block.address, (s, b)))
            },
        )
    }

    fn block(&self, (segment, block): Place) -> &Block {
        &self.segments[segment].blocks[block]
    }

    fn max_split(&self) -> u64 {
        self.config.max_split_size_bytes.unwrap_or(u64::MAX)
    }

    /// Splits if the rules say so and hands the front out.
    fn hand_out(&mut self, (s, b): Place, size: u64, requested: u64) -> u64 {
        let max_split = self.max_split();
        let segment = &mut self.segments[s];
        let pool = segment.pool;
        let was_split = segment.blocks.len() > 1;
        let whole = segment.blocks[b].size;
        let rest = whole - size;
        let splits = match pool {
            Pool::Small => rest >= 512,
            Pool::Large => size < max_split && rest > MIB,
        };
        if splits {
            let age_base = self.searches[pool as usize];
            let address = segment.blocks[b].address + size;
            let tail = Block { address, size: rest, requested: 0, state: State::Free, used_on: Vec::new(), age_base };
            segment.blocks.insert(b + 1, tail);
        }
        let block = &mut segment.blocks[b];
        block.size = if splits { size } else { whole };
        block.state = State::Allocated;
        block.requested = requested;
        let (size, address) = (block.size as i64, block.address);
        let counters = &mut self.counters;
        match (was_split, splits) {
            (false, false) => {}
            (false, true) => {
                counters.change(Counter::InactiveSplit, pool, 1);
                counters.change(Counter::InactiveSplitBytes, pool, rest as i64);
            }
            (true, true) => counters.change(Counter::InactiveSplitBytes, pool, -size),
            (true, false) => {
                counters.change(Counter::InactiveSplit, pool, -1);
                counters.change(Counter::InactiveSplitBytes, pool, -size);
            }
        }
        counters.change(Counter::Allocation, pool, 1);
        counters.change(Counter::AllocatedBytes, pool, size);
        counters.change(Counter::Active, pool, 1);
        counters.change(Counter::ActiveBytes, pool, size);
        counters.change(Counter::RequestedBytes, pool, requested as i64);
        if size as u64 >= max_split {
            counters.oversize_allocations(1);
        }
        address
    }

    fn place_of(&self, address: u64) -> Place {
        for (s, segment) in self.segments.iter().enumerate() {
            if let Some(b) = segment.blocks.iter().position(|block| block.address == address) {
                return (s, b);
            }
        }
        panic!("no block at {address:#x}")
    }

    /// Gives a block back.
    pub fn free(&mut self, address: u64) {
        let (s, b) = self.place_of(address);
        let max_split = self.max_split();
        let pool = self.segments[s].pool;
        let block = &mut self.segments[s].blocks[b];
        assert_eq!(block.state, State::Allocated);
        self.counters.change(Counter::Allocation, pool, -1);
        self.counters.change(Counter::AllocatedBytes, pool, -(block.size as i64));
        if block.size >= max_split {
            self.counters.oversize_allocations(-1);
        }
        let streams = std::mem::take(&mut block.used_on);
        if streams.is_empty() {
            return self.complete(address);
        }
        block.state = State::Pending(streams.len());
        for stream in streams {
            let event = Event { stream, block: address, done: !self.busy.contains(&stream) };
            match self.events.iter_mut().find(|(of, _)| *of == stream) {
                Some((_, queue)) => queue.push_back(event),
                None => self.events.push((stream, VecDeque::from([event]))),
            }
        }
    }

    /// The block is free and merges with free neighbours: the one before first.
    fn complete(&mut self, address: u64) {
        let (s, mut b) = self.place_of(address);
        let segment = &mut self.segments[s];
        let pool = segment.pool;
        let (size, requested) = (segment.blocks[b].size as i64, segment.blocks[b].requested as i64);
        self.counters.change(Counter::Active, pool, -1);
        self.counters.change(Counter::ActiveBytes, pool, -size);
        self.counters.change(Counter::RequestedBytes, pool, -requested);
        let (mut count, mut bytes) = (0, 0);
        if b > 0 && segment.blocks[b - 1].state == State::Free {
            let before = segment.blocks.remove(b - 1);
            b -= 1;
            segment.blocks[b].address = before.address;
            segment.blocks[b].size += before.size;
            count -= 1;
            bytes -= before.size as i64;
        }
        if segment.blocks.get(b + 1).is_some_and(|after| after.state == State::Free) {
            let after = segment.blocks.remove(b + 1);
            segment.blocks[b].size += after.size;
            count -= 1;
            bytes -= after.size as i64;
        }
        if segment.blocks.len() > 1 {
            count += 1;
            bytes += segment.blocks[b].size as i64;
        }
        let block = &mut segment.blocks[b];
        block.state = State::Free;
        block.age_base = self.searches[pool as usize];
        self.counters.change(Counter::InactiveSplit, pool, count);
        self.counters.change(Counter::InactiveSplitBytes, pool, bytes);
    }

    /// Another stream uses the block.
    pub fn record_stream(&mut self, address: u64, stream: u64) {
        let (s, b) = self.place_of(address);
        let segment = &mut self.segments[s];
        let block = &mut segment.blocks[b];
        if segment.stream != stream && !block.used_on.contains(&stream) {
            block.used_on.push(stream);
        }
    }

    /// Sets every peak to the present.
    pub fn reset_peak(&mut self) {
        self.counters.reset_peak();
    }

    /// Zeroes what accumulates.
    pub fn reset_accumulated(&mut self) {
        self.counters.reset_accumulated();
    }

    /// Limits what is reserved.
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        self.limit = (fraction < 1.0).then_some((fraction * self.total_bytes as f64) as u64);
    }

    /// What other processes have.
    pub fn set_other_use(&mut self, bytes: u64) {
        self.other_use_bytes = bytes;
    }

    /// Blocks tile their segments, free neighbours are merged, and the sums are what the counters say.
    pub fn check(&self) {
        let mut sums = [0_i64; 3];
        for segment in &self.segments {
            let mut at = segment.address;
            for pair in segment.blocks.windows(2) {
                assert!(pair[0].state != State::Free || pair[1].state != State::Free, "free neighbours");
            }
            for block in &segment.blocks {
                assert_eq!(block.address, at, "a gap or an overlap");
                at += block.size;
                let size = block.size as i64;
                sums[0] += if block.state == State::Allocated { size } else { 0 };
                sums[1] += if block.state == State::Free { 0 } else { size };
                sums[2] += if block.state == State::Free && segment.blocks.len() > 1 { size } else { 0 };
            }
            assert_eq!(at, segment.address + segment.size, "blocks tile the segment");
        }
        assert_eq!(self.counters.current(Counter::AllocatedBytes), sums[0]);
        assert_eq!(self.counters.current(Counter::ActiveBytes), sums[1]);
        assert_eq!(self.counters.current(Counter::InactiveSplitBytes), sums[2]);
        assert_eq!(self.counters.current(Counter::ReservedBytes), self.reserved_bytes() as i64);
    }
}

/// What a request is rounded to.
fn round(config: &Config, bytes: u64) -> u64 {
    if bytes < 512 {
        return 512;
    }
    let interval = (bytes.ilog2() as i64 - 20).clamp(0, 15) as usize;
    let divisions = config.roundup_power2_divisions.table()[interval];
    if divisions > 1 && bytes > 512 * divisions {
        let step = (1 << bytes.ilog2()) / divisions;
        return bytes.div_ceil(step) * step;
    }
    bytes.div_ceil(512) * 512
}
