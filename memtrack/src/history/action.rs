//! What a trace entry reports.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What happened, under PyTorch's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum TraceAction {
    /// `alloc`: a block was handed out.
    Alloc,
    /// `free_requested`: the program gave a block back.
    FreeRequested,
    /// `free_completed`: no stream uses the block any more; it can be handed out again.
    FreeCompleted,
    /// `segment_alloc`: a segment was taken from the device.
    SegmentAlloc,
    /// `segment_free`: a segment was given back to the device.
    SegmentFree,
    /// `segment_map`: an expandable segment grew.
    SegmentMap,
    /// `segment_unmap`: an expandable segment shrank.
    SegmentUnmap,
    /// `snapshot`: a snapshot was taken. It shows in the next one.
    Snapshot,
    /// `oom`: a request failed.
    Oom,
}

impl TraceAction {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::Oom,
    ];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::Oom => "oom",
        }
    }

    /// One bit of a set of actions.
    pub(super) fn bit(self) -> u16 {
        1 << self as u8
    }
}

impl fmt::Display for TraceAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no action's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Unknown TraceEntry action: {name}; the actions are alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, snapshot and oom"
)]
#[non_exhaustive]
pub struct UnknownAction {
    /// As given.
    pub name: String,
}

impl FromStr for TraceAction {
    type Err = UnknownAction;

    fn from_str(name: &str) -> Result<Self, UnknownAction> {
        let found = Self::ALL.into_iter().find(|action| action.name() == name);
        found.ok_or_else(|| UnknownAction { name: name.to_owned() })
    }
}

/// The action of an entry that may come from a file newer than this library.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryAction {
    /// One of PyTorch 2.11's.
    Known(TraceAction),
    /// Any other name; such entries are kept and written again, and otherwise passed over, as PyTorch's page does.
    Other(Arc<str>),
}

impl EntryAction {
    /// The name in files.
    pub fn name(&self) -> &str {
        match self {
            Self::Known(action) => action.name(),
            Self::Other(name) => name,
        }
    }

    /// The action, if this library knows it.
    pub fn known(&self) -> Option<TraceAction> {
        match self {
            Self::Known(action) => Some(*action),
            Self::Other(_) => None,
        }
    }

    pub(super) fn from_name(name: &Arc<str>) -> Self {
        name.parse().map_or_else(|_| Self::Other(Arc::clone(name)), Self::Known)
    }
}

impl Default for EntryAction {
    fn default() -> Self {
        Self::Known(TraceAction::Alloc)
    }
}

impl From<TraceAction> for EntryAction {
    fn from(action: TraceAction) -> Self {
        Self::Known(action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_refused_or_kept() {
        for action in TraceAction::ALL {
            assert_eq!(action.name().parse(), Ok(action));
        }
        let error = "Alloc".parse::<TraceAction>().unwrap_err().to_string();
        assert!(error.starts_with("Unknown TraceEntry action: Alloc"), "{error}");
        let newer = EntryAction::from_name(&Arc::from("user_defined"));
        assert_eq!((newer.name(), newer.known()), ("user_defined", None));
        let bits = TraceAction::ALL.into_iter().fold(0, |bits, action| bits | action.bit());
        assert_eq!(bits, 0x1ff);
    }
}
