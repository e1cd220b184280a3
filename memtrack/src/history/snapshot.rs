//! The data of a snapshot, with PyTorch's names.

use std::sync::Arc;

use super::action::EntryAction;
use super::options::Enabled;
use super::settings::AllocatorSettings;
use crate::device::Stream;
use crate::stats::PoolKind;

/// A call stack, innermost frame first, shared by all that came from it.
pub type Frames = Arc<[Frame]>;

/// One frame of a call stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Frame {
    /// The function.
    pub name: Arc<str>,
    /// The source file.
    pub filename: Arc<str>,
    /// The line in it.
    pub line: i64,
}

impl Frame {
    /// A frame of these parts.
    pub fn new(name: impl Into<Arc<str>>, filename: impl Into<Arc<str>>, line: i64) -> Self {
        Self { name: name.into(), filename: filename.into(), line }
    }
}

/// The memory of all devices at one moment and how it came about: what `torch.cuda.memory._snapshot()` returns.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// All segments, by device and then by address.
    pub segments: Vec<Segment>,
    /// The events of each device, oldest first, by the device's number. One list for every device that has segments, if only
    /// an empty one: PyTorch's page shows no others.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The settings of the allocator.
    pub allocator_settings: AllocatorSettings,
    /// Named stretches of the program.
    pub external_annotations: Vec<Annotation>,
    /// Since when the traces were recorded. Empty in files of PyTorch, which do not say; in files under the key
    /// `memtrack_history`, which PyTorch's tools pass over.
    pub history: Vec<DeviceHistory>,
}

/// Memory that came from the device in one piece, or one unbroken mapped range of an expandable segment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// The device's number.
    pub device: i32,
    /// Where it starts.
    pub address: u64,
    /// Its bytes.
    pub total_size: u64,
    /// The rounded bytes of its allocated blocks.
    pub allocated_size: u64,
    /// The rounded bytes of its active blocks: allocated, or given back but in use by a stream.
    pub active_size: u64,
    /// The bytes asked for of its active blocks.
    pub requested_size: u64,
    /// The stream whose allocations it serves.
    pub stream: Stream,
    /// The pool it belongs to: small or large by the sizes it serves, not by its own.
    pub segment_type: PoolKind,
    /// The private pool, `(0, 0)` for none.
    pub segment_pool_id: (u64, u64),
    /// Whether it is part of an expandable segment.
    pub is_expandable: bool,
    /// Where it was allocated; empty when that was not recorded.
    pub frames: Frames,
    /// What it is cut into: by address, without gaps, from its start to its end.
    pub blocks: Vec<Block>,
}

impl Default for Segment {
    fn default() -> Self {
        Self {
            device: 0,
            address: 0,
            total_size: 0,
            allocated_size: 0,
            active_size: 0,
            requested_size: 0,
            stream: Stream::DEFAULT,
            segment_type: PoolKind::Small,
            segment_pool_id: (0, 0),
            is_expandable: false,
            frames: Frames::default(),
            blocks: Vec::new(),
        }
    }
}

/// A piece of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Block {
    /// Where it starts.
    pub address: u64,
    /// Its rounded bytes.
    pub size: u64,
    /// The bytes asked for; stale for inactive blocks, as in PyTorch.
    pub requested_size: u64,
    /// What it is doing.
    pub state: BlockStatus,
    /// Where it was allocated; empty when that was not recorded.
    pub frames: Frames,
}

/// What a block is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum BlockStatus {
    /// `active_allocated`: the program has it.
    ActiveAllocated,
    /// `active_pending_free`: the program gave it back and a stream still uses it.
    ActivePendingFree,
    /// `inactive`: it can be handed out.
    #[default]
    Inactive,
}

impl BlockStatus {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::ActiveAllocated => "active_allocated",
            Self::ActivePendingFree => "active_pending_free",
            Self::Inactive => "inactive",
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TraceEntry {
    /// What happened.
    pub action: EntryAction,
    /// The block, the segment or the start of the range. For `oom` the free bytes of the device, which files call
    /// `device_free`.
    pub addr: u64,
    /// Bytes: asked for of blocks, rounded of segments and of `oom`, active in all for `snapshot`.
    pub size: u64,
    /// The stream.
    pub stream: Stream,
    /// When, in microseconds since 1970.
    pub time_us: i64,
    /// `N/A`, or in files of PyTorch the compiled region it happened in.
    pub compile_context: Arc<str>,
    /// What the thread's [`set_memory_metadata`](super::set_memory_metadata) said.
    pub user_metadata: Arc<str>,
    /// Where in the program; `None` when that was not recorded.
    pub frames: Option<Frames>,
}

/// Which end of a named stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// `START`.
    Start,
    /// `END`.
    End,
}

impl Stage {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::End => "END",
        }
    }
}

/// One end of a named stretch of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Annotation {
    /// Which end.
    pub stage: Stage,
    /// The name.
    pub name: Arc<str>,
    /// The device's number.
    pub device: i32,
    /// When, in microseconds since 1970.
    pub time_us: i64,
}

impl Annotation {
    /// An annotation of these parts.
    pub fn new(stage: Stage, name: impl Into<Arc<str>>, device: i32, time_us: i64) -> Self {
        Self { stage, name: name.into(), device, time_us }
    }
}

/// How one allocator's events were recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeviceHistory {
    /// The device's number.
    pub device: i32,
    /// What is kept; `None`: recording is off, which files call `off`, and the trace is empty.
    pub enabled: Option<Enabled>,
    /// Since when.
    pub start: Option<HistoryStart>,
    /// Events recorded since then, with those overwritten by later ones.
    pub recorded_entries: u64,
}

/// The moment a recording began: when it was switched on, or last cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HistoryStart {
    /// When, in microseconds since 1970.
    pub time_us: i64,
    /// How many events the allocator had recorded before, in earlier recordings.
    pub entry: u64,
    /// The rounded bytes allocated at that moment: where the curve of allocated memory starts.
    pub allocated_bytes: u64,
}
