//! Why a file is no recording.

use std::io;

/// Why a file cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is not there, or cannot be read.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// It begins as gzip and goes wrong.
    #[error("cannot be unpacked: the gzip data is damaged or cut off ({0})")]
    Gzip(io::Error),
    /// It is called `.gz` and is something else.
    #[error("is not gzip, though its name ends in .gz")]
    NotGzip,
    /// More than is read.
    #[error("has more than {limit_bytes} bytes, unpacked; no more is read")]
    TooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// More JSON than is read.
    #[error("has more than {limit_bytes} bytes of JSON, unpacked; no more is read")]
    TooLargeJson {
        /// The limit.
        limit_bytes: usize,
    },
    /// More to do than is kept.
    #[error("has more than {limit} steps; no more are read")]
    TooManySteps {
        /// The limit.
        limit: usize,
    },
    /// Nothing in it.
    #[error("is empty")]
    Empty,
    /// Neither JSON nor text.
    #[error(
        "is no recording: it is neither JSON, nor text with an allocator event a line, nor a snapshot (byte {offset} is not text)"
    )]
    NotText {
        /// Where.
        offset: usize,
    },
    /// A damaged snapshot, or something else that is pickled.
    #[error(transparent)]
    Snapshot(#[from] memtrack::history::ReadError),
    /// Not JSON, though it begins like it.
    #[error("is not JSON: {0}")]
    Json(serde_json::Error),
    /// JSON of another shape.
    #[error("{path}: expected {expected}, found {found}")]
    Shape {
        /// Where, such as `ops[3].op[2]`; `the file` for the whole.
        path: String,
        /// What should be there.
        expected: String,
        /// What is.
        found: String,
    },
    /// JSON whose parts do not fit together.
    #[error("{path}: {problem}")]
    Content {
        /// Where.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A line of a text that is no event.
    #[error("line {line}: {problem}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong and what is accepted.
        problem: String,
    },
}
