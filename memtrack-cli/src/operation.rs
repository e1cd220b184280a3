//! What a recording asks of an allocator, one thing at a time.

use std::fmt;

use memtrack::plain_text::counted;

/// A block of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// The number that the file gives it; a file may use a number again once the block is freed. `None` for a request that
    /// found no memory and names no block.
    pub id: Option<u64>,
    /// Its place among all allocations of the recording, never used again.
    pub index: usize,
}

/// One thing to do with an allocator or its device.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Ask for memory on a stream.
    Allocate {
        /// What the answer is called.
        block: BlockId,
        /// As asked for.
        bytes: u64,
        /// The stream's handle.
        stream: u64,
    },
    /// Give a block back; nothing when it was never had.
    Free {
        /// Which.
        block: BlockId,
    },
    /// Give a block back that another stream still uses: the free completes with [`CompleteFree`](Self::CompleteFree).
    FreeInUse {
        /// Which.
        block: BlockId,
    },
    /// The other stream is done with a block that was given back.
    CompleteFree {
        /// Which.
        block: BlockId,
    },
    /// A block is used on another stream too.
    RecordStream {
        /// Which.
        block: BlockId,
        /// The other stream's handle.
        stream: u64,
    },
    /// Events recorded on the stream from now on do not complete by themselves.
    SetBusy {
        /// The stream's handle.
        stream: u64,
    },
    /// So many of the oldest events complete.
    CompleteEvents {
        /// How many.
        count: usize,
    },
    /// Wait for the device: all streams are idle.
    Synchronize,
    /// Give cached memory back.
    EmptyCache,
    /// Set peaks to the values now.
    ResetPeak,
    /// Set accumulated counters to zero.
    ResetAccumulated,
    /// Limit what is taken from the device to a share of its memory.
    SetFraction {
        /// From 0 to 1; 1 is no limit.
        fraction: f64,
    },
    /// Change settings at run time, in PyTorch's grammar.
    Settings {
        /// The text.
        text: Box<str>,
    },
    /// Make a private pool.
    CreatePool {
        /// What the file calls it.
        pool: PoolName,
        /// Its cached memory serves other requests that would find none.
        use_on_oom: bool,
        /// Its blocks are whole segments.
        no_split: bool,
    },
    /// Lead allocations into a pool.
    EnterPool {
        /// Which.
        pool: PoolName,
    },
    /// End that.
    LeavePool {
        /// Which.
        pool: PoolName,
    },
    /// Let go of a pool.
    DeletePool {
        /// Which.
        pool: PoolName,
    },
    /// Nothing: a place with a name.
    Mark {
        /// The name.
        name: Box<str>,
    },
}

/// A private pool as files name it, after PyTorch's pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolName(pub u64, pub u64);

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => id.fmt(f),
            None => f.write_str("what an oom got"),
        }
    }
}

impl fmt::Display for Operation {
    /// In the words of the files, as short as a message needs it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate { block, bytes, stream } => match block.id {
                Some(id) => write!(f, "alloc {id}, {} on stream {stream}", counted(*bytes, "byte")),
                None => write!(f, "oom, {} on stream {stream}", counted(*bytes, "byte")),
            },
            Self::Free { block } | Self::FreeInUse { block } => write!(f, "free {block}"),
            Self::CompleteFree { block } => write!(f, "free of {block} complete"),
            Self::RecordStream { block, stream } => write!(f, "record_stream {block}, stream {stream}"),
            Self::SetBusy { stream } => write!(f, "sleep on stream {stream}"),
            Self::CompleteEvents { count } => write!(f, "{} complete", counted(*count as u64, "event")),
            Self::Synchronize => f.write_str("sync"),
            Self::EmptyCache => f.write_str("empty_cache"),
            Self::ResetPeak => f.write_str("reset_peak"),
            Self::ResetAccumulated => f.write_str("reset_accumulated"),
            Self::SetFraction { fraction } => write!(f, "set_fraction {fraction}"),
            Self::Settings { text } => write!(f, "settings `{text}`"),
            Self::CreatePool { pool, .. } => write!(f, "pool_new {pool}"),
            Self::EnterPool { pool } => write!(f, "pool_begin {pool}"),
            Self::LeavePool { pool } => write!(f, "pool_end {pool}"),
            Self::DeletePool { pool } => write!(f, "pool_delete {pool}"),
            Self::Mark { name } => f.write_str(name),
        }
    }
}
