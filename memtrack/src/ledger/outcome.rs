//! How a scope ended.

use std::fmt;

/// How a scope ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The code ran to its end.
    Ok,
    /// It ran to its end and returned an error.
    Err,
    /// A panic that began inside it went through.
    Panic,
    /// A future was dropped before it was done.
    Cancelled,
}

impl Outcome {
    /// As in the field `mem.outcome`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Err => "err",
            Self::Panic => "panic",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
