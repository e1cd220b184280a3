//! What an allocator did over time, in the form PyTorch's tools read.
//!
//! A [`Snapshot`] holds the segments with their blocks at one moment, the events that led there (*device traces*), the
//! allocator's settings and annotations. Its names are those of `torch.cuda.memory._snapshot()` in PyTorch 2.11, and its two
//! file forms, pickle and JSON, are what the page pytorch.org/memory_viz and `torch.cuda._memory_viz` open. Files of
//! PyTorch are read too, without running anything that they hold.
//!
//! Here live the data, both file forms, the recording of events ([`recording`]) and what is derived from a snapshot: a
//! consistency check, sums, and a list of events to replay. Nothing here knows an allocator's policy or calls a device.

mod action;
mod check;
mod decode;
mod encode;
mod error;
mod files;
mod json;
mod metadata;
mod options;
mod pickle;
#[doc(hidden)]
pub mod recording;
mod replay;
mod settings;
mod snapshot;
mod usage;
mod value;

pub use action::{EntryAction, TraceAction, UnknownAction};
pub use check::Inconsistency;
pub use error::{PickleProblem, ReadError, ReadLimits, WriteError};
pub use metadata::{memory_metadata, set_memory_metadata};
pub use options::{ContextLevel, Enabled, HistoryOptions, InvalidOption, Stacks};
pub use replay::{Replay, ReplayEvent, ReplayKind, ReplayedAllocation};
pub use settings::{AllocatorSettings, SettingValue};
pub use snapshot::{
    Annotation, Block, BlockStatus, DeviceHistory, Frame, Frames, HistoryStart, Segment, Snapshot, Stage, TraceEntry,
};
pub use usage::{MemoryUsage, UsageGroup};
