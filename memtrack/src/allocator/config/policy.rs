//! Which rules an allocator follows.

use std::fmt;
use std::str::FromStr;

/// Which rules an allocator follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Policy {
    /// PyTorch's: the settings decide, and PyTorch's defaults are the defaults.
    #[default]
    Torch,
    /// As little reserved memory as can be: wherever the device has virtual memory, pages without live bytes move to where they are
    /// needed, whatever `expandable_segments`, `max_split_size_mb` and `large_segment_size_mb` say. On a device without, the same as
    /// [`Torch`](Self::Torch).
    Compact,
}

impl Policy {
    /// As it is written in a configuration: `torch` or `compact`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Torch => "torch",
            Self::Compact => "compact",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no policy; accepted are `torch` and `compact`")]
pub struct ParsePolicyError {
    text: String,
}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        let known = [Self::Torch, Self::Compact].into_iter().find(|policy| policy.name() == text);
        known.ok_or_else(|| ParsePolicyError { text: text.to_owned() })
    }
}
