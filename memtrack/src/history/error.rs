//! Why a snapshot was not read or written, and how much of a file is believed.

use std::io;

/// How large a file may be and what it may hold, so that a small or hostile one cannot take much memory or time.
///
/// The defaults read snapshots of about three million entries. Memory is bounded by about 40 bytes an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadLimits {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Operations of a pickle or values of JSON; separately, the values that a snapshot has once all that the file shares is
    /// written out.
    pub operations: u64,
    /// Lists, dicts and tuples begun and not ended.
    pub depth: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { file_bytes: 1 << 30, operations: 1 << 26, depth: 100 }
    }
}

/// Why a file or bytes are not a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("the snapshot cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is larger than allowed.
    #[error("the snapshot has more than {limit_bytes} bytes; raise `ReadLimits::file_bytes` if it is a genuine one")]
    TooLarge {
        /// [`ReadLimits::file_bytes`].
        limit_bytes: u64,
    },
    /// The pickle is damaged, or does more than hold data.
    #[error("the pickle is refused at byte {offset}, {opcode}: {problem}")]
    Pickle {
        /// Of the operation, from the start.
        offset: usize,
        /// Its name in Python's documentation.
        opcode: &'static str,
        /// What is wrong.
        problem: PickleProblem,
    },
    /// The text is not JSON.
    #[error("the JSON is refused: {problem}")]
    Json {
        /// What is wrong and where.
        problem: String,
    },
    /// JSON was given to a build that cannot read it.
    #[error("this build reads snapshots as pickles only; build memtrack with its feature `json` to read JSON")]
    JsonNotBuilt,
    /// The data is not a snapshot's.
    #[error("not a snapshot: {path} should be {expected} and is {found}")]
    Shape {
        /// Where, such as `segments[3].blocks[0].size`; `the whole` for the outermost value.
        path: String,
        /// What PyTorch writes there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// Written out, what the file shares becomes too much.
    #[error(
        "the snapshot refers to the same data so often that it becomes more than {limit} values; raise `ReadLimits::operations` if it is a genuine one"
    )]
    Expands {
        /// [`ReadLimits::operations`].
        limit: u64,
    },
}

/// What is wrong with a pickle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleProblem {
    /// The file ends inside an operation or before the last one.
    #[error("the file ends here; {needed_bytes} bytes are needed and {left_bytes} are left")]
    Truncated {
        /// What the operation needs.
        needed_bytes: u64,
        /// What there is.
        left_bytes: u64,
    },
    /// An operation that snapshots have no use for, among them all that call or import something.
    #[error("snapshots hold data only, and this operation is not allowed")]
    NotAllowed,
    /// No operation has this number.
    #[error("no operation has the number {byte:#04x}")]
    UnknownOperation {
        /// The number.
        byte: u8,
    },
    /// A format that this library does not know.
    #[error("protocol {version} is not between 2 and 5")]
    Protocol {
        /// As given.
        version: u8,
    },
    /// The operation needs values that are not there.
    #[error("it takes more values than there are")]
    MissingValue,
    /// The operation ends something that was not begun.
    #[error("there is no mark to go back to")]
    MissingMark,
    /// The operation adds to something else than it can add to.
    #[error("it adds to {found}")]
    WrongTarget {
        /// What it adds to.
        found: &'static str,
    },
    /// A dict's keys and values do not pair up.
    #[error("a key has no value")]
    MissingItem,
    /// A reference to something not yet remembered.
    #[error("nothing is remembered under {index}")]
    UnknownMemo {
        /// The number it was to be remembered under.
        index: u32,
    },
    /// A whole number beyond 64 bits.
    #[error("a whole number of {length} bytes is more than 64 bits")]
    IntegerTooLarge {
        /// Its bytes.
        length: usize,
    },
    /// Deeper than [`ReadLimits::depth`].
    #[error("more than {limit} values inside each other")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// More than [`ReadLimits::operations`].
    #[error("more than {limit} operations; raise `ReadLimits::operations` if the snapshot is a genuine one")]
    TooManyOperations {
        /// The limit.
        limit: u64,
    },
}

/// Why a snapshot was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The target takes no more.
    #[error("the snapshot cannot be written: {0}")]
    Io(#[from] io::Error),
    /// JSON has no such number; pickles do.
    #[error("a setting is {value}, which JSON cannot express; write a pickle")]
    NotFinite {
        /// As found.
        value: f64,
    },
    /// A text of 4 GiB or more.
    #[error("a text of {length_bytes} bytes is too long for the file; the limit is 2^32 - 1")]
    TextTooLong {
        /// Its bytes.
        length_bytes: usize,
    },
}
