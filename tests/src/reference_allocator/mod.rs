//! PyTorch 2.11's caching rules once more, written down as plainly as possible and as slowly as need be: the second
//! opinion that memtrack's allocator is compared with.
//!
//! Segments are a list, each with the list of its blocks in address order; every search looks at every block, every sum is
//! taken anew. Nothing is shared with memtrack, its settings' parser included. It has a device of its own that hands out
//! given addresses and is full at a given number of bytes. Three rules are memtrack's, unless
//! [`torch_exact`](ReferenceAllocator::torch_exact) is set: after waiting for other streams in vain the pool is searched
//! once more, a split block is never given back to the device, and an entered pool is no capture, so events go on.
//!
//! Not in here: the reuse of blocks within a capture (`graph_capture_record_stream_reuse`), pools with an allocator of
//! their own, and the checkpoints of a pool.
//!
//! `state` is the data, `settings` the texts; `allocate` finds and hands out, `grow` gets memory, `expandable` maps it,
//! `reclaim` gives it back, `free` and `events` take blocks back, `pools` routes.

mod allocate;
mod counters;
mod events;
mod expandable;
mod free;
mod grow;
mod pools;
mod reclaim;
mod settings;
mod state;
mod view;

use std::collections::{BTreeMap, VecDeque};

use counters::Counter;
pub use counters::{COUNTER_COUNT, Counters, counter_names, flatten};
use settings::Settings;
pub use settings::SettingsError;
pub use state::{Action, Activity, BlockState, Kind, PoolId, Routed, SegmentState, TraceEntry};
use state::{Event, Place, Pool, PrivatePool, Segment};

const MIB: u64 = 1 << 20;

/// Why there is no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The device is full.
    ByDevice,
    /// The memory fraction.
    ByLimit,
    /// 2^60 bytes or more, which nobody has.
    TooLarge,
    /// The device was to take back a part of a segment, which it does not: PyTorch's own mistake, made when it is followed
    /// exactly.
    PartOfSegment,
}

/// The slow allocator with a device of its own.
#[derive(Debug)]
pub struct ReferenceAllocator {
    torch_exact: bool,
    settings: Settings,
    total_bytes: u64,
    other_use_bytes: u64,
    limit: Option<u64>,
    addresses: VecDeque<u64>,
    segments: Vec<Segment>,
    private_pools: Vec<PrivatePool>,
    next_pool: u64,
    /// Pools that nobody uses any more, but that still have memory, in the order in which they came to that.
    freeable: Vec<PoolId>,
    /// Whose allocations go to which pool; the last that fits counts.
    routes: Vec<(PoolId, Routed)>,
    /// By stream, in the order in which each stream's first outstanding event came.
    events: Vec<(u64, VecDeque<Event>)>,
    next_event: u64,
    /// Blocks whose events wait until nothing is routed any more.
    deferred: Vec<u64>,
    busy: Vec<u64>,
    /// How often each pool was searched, for the garbage collector.
    searches: BTreeMap<Pool, u64>,
    counters: Counters,
    trace: Vec<TraceEntry>,
}

impl ReferenceAllocator {
    /// An allocator with these settings, on a device of `total_bytes` that hands out these addresses.
    pub fn new(
        settings: &str,
        total_bytes: u64,
        addresses: impl IntoIterator<Item = u64>,
    ) -> Result<Self, SettingsError> {
        let mut read = Settings::default();
        read.apply(settings)?;
        let mut allocator = Self {
            torch_exact: false,
            counters: Counters::new(read.max_split as i64),
            total_bytes,
            other_use_bytes: 0,
            limit: None,
            addresses: addresses.into_iter().collect(),
            segments: Vec::new(),
            private_pools: Vec::new(),
            next_pool: 1,
            freeable: Vec::new(),
            routes: Vec::new(),
            events: Vec::new(),
            next_event: 0,
            deferred: Vec::new(),
            busy: Vec::new(),
            searches: BTreeMap::new(),
            trace: Vec::new(),
            settings: read,
        };
        allocator.set_memory_fraction(allocator.settings.memory_fraction);
        Ok(allocator)
    }

    /// Follows PyTorch also where memtrack does not.
    pub fn torch_exact(mut self, exact: bool) -> Self {
        self.torch_exact = exact;
        self
    }

    /// Applies a text of settings; what stands before a mistake is in force.
    pub fn apply_settings(&mut self, text: &str) -> Result<(), SettingsError> {
        self.settings.apply(text)
    }

    /// Limits what is reserved.
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        self.limit = (fraction < 1.0).then_some((fraction * self.total_bytes as f64) as u64);
    }

    /// What other processes have.
    pub fn set_other_use(&mut self, bytes: u64) {
        self.other_use_bytes = bytes;
    }

    /// Sets every peak to the present.
    pub fn reset_peak(&mut self) {
        self.counters.reset_peak();
    }

    /// Zeroes what accumulates.
    pub fn reset_accumulated(&mut self) {
        self.counters.reset_accumulated();
    }

    fn place_of(&self, address: u64) -> Option<Place> {
        let holds = |segment: &&Segment| segment.address <= address;
        let nearest = self.segments.iter().filter(holds).max_by_key(|segment| segment.address)?.address;
        let s = self.segments.iter().position(|segment| segment.address == nearest)?;
        let b = self.segments[s].blocks.iter().position(|block| block.mapped && block.address == address)?;
        Some((s, b))
    }

    fn searches(&self, pool: Pool) -> u64 {
        self.searches.get(&pool).copied().unwrap_or(0)
    }

    fn record(&mut self, action: Action, address: u64, bytes: u64, stream: u64) {
        self.trace.push(TraceEntry { action, address, bytes, stream });
    }
}
