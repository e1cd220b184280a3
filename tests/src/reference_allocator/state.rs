//! What there is: segments with their blocks, the pools they belong to, and what can be seen of them.

/// An id as PyTorch writes it; `(0, 0)` are the default pools.
pub type PoolId = (u64, u64);

/// The two pools that every owner has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// For requests of up to 1 MiB.
    Small,
    /// For all others.
    Large,
}

/// One pool: whose, and which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pool {
    pub(super) owner: PoolId,
    pub(super) kind: Kind,
}

impl Pool {
    pub(super) fn is_private(self) -> bool {
        self.owner != (0, 0)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) size: u64,
    /// What was last requested of it.
    pub(super) requested: u64,
    pub(super) allocated: bool,
    /// False for the part of an expandable segment that has no memory.
    pub(super) mapped: bool,
    /// Events to go.
    pub(super) events: usize,
    /// Other streams that use it.
    pub(super) used_on: Vec<u64>,
    /// Those of them that were recorded while allocations were routed.
    pub(super) used_on_while_routed: Vec<u64>,
    /// The pool's search count when it became free.
    pub(super) age_base: u64,
}

impl Block {
    pub(super) fn free(address: u64, size: u64, mapped: bool, age_base: u64) -> Self {
        Self {
            address,
            size,
            requested: 0,
            allocated: false,
            mapped,
            events: 0,
            used_on: Vec::new(),
            used_on_while_routed: Vec::new(),
            age_base,
        }
    }

    /// Nobody has it and nobody is waited for; it may have no memory.
    pub(super) fn is_idle(&self) -> bool {
        !self.allocated && self.events == 0 && self.used_on.is_empty()
    }

    /// Can be handed out as it is.
    pub(super) fn is_free(&self) -> bool {
        self.mapped && self.is_idle()
    }
}

/// One range of addresses, with its blocks in address order.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) stream: u64,
    pub(super) pool: Pool,
    /// The page size of an expandable one.
    pub(super) page: Option<u64>,
    pub(super) blocks: Vec<Block>,
}

impl Segment {
    pub(super) fn end(&self) -> u64 {
        self.address + self.blocks.iter().map(|block| block.size).sum::<u64>()
    }

    pub(super) fn mapped_bytes(&self) -> u64 {
        self.blocks.iter().filter(|block| block.mapped).map(|block| block.size).sum()
    }

    /// PyTorch's notion: a block that has a neighbour.
    pub(super) fn is_split(&self) -> bool {
        self.blocks.len() > 1
    }

    /// A free block with its free or unmapped neighbours, the one before first; what the two statistics of split blocks
    /// lose and gain by it.
    pub(super) fn merge(&mut self, mut at: usize) -> Merged {
        let (mut count, mut bytes) = (0, 0);
        let mapped = self.blocks[at].mapped;
        let mergeable = |block: &Block| block.is_idle() && block.mapped == mapped;
        if at > 0 && mergeable(&self.blocks[at - 1]) {
            let before = self.blocks.remove(at - 1);
            at -= 1;
            self.blocks[at].address = before.address;
            self.blocks[at].size += before.size;
            count -= 1;
            bytes -= before.size as i64;
        }
        if self.blocks.get(at + 1).is_some_and(mergeable) {
            let after = self.blocks.remove(at + 1);
            self.blocks[at].size += after.size;
            count -= 1;
            bytes -= after.size as i64;
        }
        if self.is_split() {
            count += 1;
            bytes += self.blocks[at].size as i64;
        }
        Merged { at, split_count: count, split_bytes: bytes }
    }
}

/// Where the merged block is now, and the net change of split blocks.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) at: usize,
    pub(super) split_count: i64,
    pub(super) split_bytes: i64,
}

/// Where a block is: which segment, which of its blocks.
pub(super) type Place = (usize, usize);

/// A pool that somebody made.
#[derive(Debug)]
pub(super) struct PrivatePool {
    pub(super) id: PoolId,
    pub(super) use_count: u64,
    pub(super) use_on_oom: bool,
    pub(super) no_split: bool,
}

/// Whose allocations go to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// Those of one thread.
    Thread(usize),
    /// Those on one stream, as a capture of it.
    Stream(u64),
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) number: u64,
    /// The block's address.
    pub(super) block: u64,
    pub(super) done: bool,
}

/// A segment as a snapshot shows it: of an expandable one, each range that has memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentState {
    /// Its first address.
    pub address: u64,
    /// The stream its blocks are handed out on.
    pub stream: u64,
    /// Which pool.
    pub kind: Kind,
    /// Whose pool.
    pub pool: PoolId,
    /// Whether it is part of an expandable segment.
    pub expandable: bool,
    /// In address order, without gaps.
    pub blocks: Vec<BlockState>,
}

/// A block as a snapshot shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockState {
    /// Its first address.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// What was last requested of it; kept by a free block.
    pub requested: u64,
    /// Whether somebody has it.
    pub activity: Activity,
}

/// PyTorch's three states of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// `active_allocated`
    Allocated,
    /// `active_pending_free`
    Pending,
    /// `inactive`
    Inactive,
}

/// What the allocator's history names an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A block is handed out; with the requested bytes.
    Alloc,
    /// A block is given back; with the requested bytes.
    FreeRequested,
    /// The block is free; with the requested bytes.
    FreeCompleted,
    /// A segment came from the device.
    SegmentAlloc,
    /// A segment goes back to the device.
    SegmentFree,
    /// Pages of an expandable segment got memory.
    SegmentMap,
    /// Pages of an expandable segment lost their memory.
    SegmentUnmap,
    /// Out of memory; with the rounded bytes, at address 0.
    Oom,
}

/// One entry of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEntry {
    /// What happened.
    pub action: Action,
    /// Where.
    pub address: u64,
    /// To how many bytes.
    pub bytes: u64,
    /// On which stream.
    pub stream: u64,
}
