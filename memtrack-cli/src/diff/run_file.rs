//! Reads run files: what `diff` needs of each line. Keys that are not known are passed over.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The newest version that is understood.
const SCHEMA_VERSION: u64 = 1;

/// A line of a run with a hundred thousand call sites has some 50 MB.
const MOST_LINE_BYTES: u64 = 256 << 20;

/// Why a run file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunFileError {
    /// The system does not give it.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is a folder, a pipe, a device: to read it could have no end.
    #[error("{}: it is no plain file; write what it has into one first", file.display())]
    NotAFile {
        /// The file.
        file: PathBuf,
    },
    /// A line is no line of a run file.
    #[error("{}:{line}: not a line of a run file: {problem}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A newer memtrack wrote it.
    #[error("{}:{line}: version {version} of the run file; this program knows versions up to {SCHEMA_VERSION}", file.display())]
    TooNew {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Its version.
        version: u64,
    },
    /// No epoch is in it.
    #[error("{}: no epoch in it; a program writes one when it ends", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
}

#[derive(Debug, Deserialize)]
struct Head {
    schema: String,
    version: u64,
    kind: String,
}

/// An epoch of a run file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct EpochLine {
    /// Its number.
    pub epoch: u64,
    /// The device.
    pub device: String,
    /// The process; 0 in files that do not say.
    #[serde(default)]
    pub process: u64,
    /// Which allocator of the process; 0 in files of before that was written.
    #[serde(default)]
    pub allocator: u64,
    /// Allocated bytes at its end.
    pub after_bytes: i64,
    /// Bytes taken from the device at its end.
    pub reserved_bytes: i64,
    /// Its peak.
    pub peak: PeakLine,
    /// Rows by phase.
    pub phases: Vec<PhaseLine>,
    /// Rows by phase of origin.
    pub origins: Vec<OriginLine>,
    /// Live blocks at its end.
    pub live: Vec<SiteLine>,
    /// Whether an allocator was measured; without one the epoch's own figures repeat those of its first source.
    #[serde(default = "yes")]
    pub has_allocator: bool,
    /// What memory sources said.
    #[serde(default)]
    pub sources: Vec<SourceLine>,
}

fn yes() -> bool {
    true
}

/// What a memory source said in an epoch. What it could not say is absent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SourceLine {
    /// Its name.
    pub name: String,
    /// Bytes in use at the epoch's end.
    pub after_bytes: Option<i64>,
    /// The most in use during it.
    pub peak_bytes: Option<i64>,
    /// Bytes that it has of the device at the epoch's end.
    pub reserved_after_bytes: Option<i64>,
    /// Rows by phase.
    pub phases: Vec<SourcePhaseLine>,
}

/// What a memory source said in one phase of an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SourcePhaseLine {
    /// The phase.
    pub name: String,
    /// The sum of its activations' changes.
    pub net_bytes: Option<i64>,
    /// The most in use during it.
    pub peak_bytes: Option<i64>,
    /// The most that one activation added at its peak.
    pub rise_max_bytes: Option<i64>,
}

/// An epoch's peak.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct PeakLine {
    /// Allocated bytes.
    pub bytes: i64,
    /// The phase that reached it.
    pub phase: String,
}

/// One phase of an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct PhaseLine {
    /// The phase.
    pub name: String,
    /// The most bytes allocated on the device during it.
    pub peak_bytes: i64,
    /// Bytes allocated in it.
    pub allocated_bytes: u64,
    /// Allocations in it.
    pub allocations: u64,
}

/// What became of the blocks of one phase.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct OriginLine {
    /// The phase that allocated.
    pub phase: String,
    /// Live at the end of the epoch.
    pub live: TotalLine,
}

/// So many blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[non_exhaustive]
pub struct TotalLine {
    /// Rounded bytes.
    pub bytes: u64,
    /// How many.
    pub blocks: u64,
}

/// Live blocks that one line of the program allocated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SiteLine {
    /// The phase in which they were allocated.
    pub phase: String,
    /// The innermost scope.
    pub scope: Option<String>,
    /// The file of the program.
    pub file: String,
    /// The line in it.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// Rounded bytes.
    pub bytes: u64,
    /// How many.
    pub blocks: u64,
}

/// The epochs of a file, in its order. A last line that was cut short, as of a run that was killed, is passed over.
///
/// # Errors
///
/// [`RunFileError`] names the file and the line.
pub fn read(file: &Path) -> Result<Vec<EpochLine>, RunFileError> {
    let mut epochs = Vec::new();
    read_each(file, |epoch| epochs.push(epoch))?;
    Ok(epochs)
}

/// The same, one after the other: a file may be larger than the memory.
pub(super) fn read_each(file: &Path, mut each: impl FnMut(EpochLine)) -> Result<(), RunFileError> {
    let failed = |error| RunFileError::Io { file: file.to_owned(), error };
    // Looked at first: to open a pipe waits for somebody who writes.
    if !std::fs::metadata(file).map_err(failed)?.is_file() {
        return Err(RunFileError::NotAFile { file: file.to_owned() });
    }
    let mut reader = BufReader::new(File::open(file).map_err(failed)?);
    let mut is_empty = true;
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        if reader.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
            break;
        }
        if bytes.len() as u64 == MOST_LINE_BYTES {
            let problem = format!("it has more than {MOST_LINE_BYTES} bytes");
            return Err(RunFileError::Malformed { file: file.to_owned(), line, problem });
        }
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        match parse(&bytes) {
            Ok(None) => {}
            Ok(Some(epoch)) => {
                is_empty = false;
                each(epoch);
            }
            Err(LineError::TooNew(version)) => {
                return Err(RunFileError::TooNew { file: file.to_owned(), line, version });
            }
            Err(LineError::Json(error)) if error.is_eof() && bytes.last() != Some(&b'\n') => break,
            Err(LineError::Json(error)) => {
                return Err(RunFileError::Malformed { file: file.to_owned(), line, problem: error.to_string() });
            }
            Err(LineError::Schema(schema)) => {
                let problem = format!("its schema is {schema:?}, not \"memtrack.run\"");
                return Err(RunFileError::Malformed { file: file.to_owned(), line, problem });
            }
        }
    }
    if is_empty { Err(RunFileError::Empty { file: file.to_owned() }) } else { Ok(()) }
}

enum LineError {
    Json(serde_json::Error),
    Schema(String),
    TooNew(u64),
}

impl From<serde_json::Error> for LineError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

/// `None` for a line of another kind.
fn parse(bytes: &[u8]) -> Result<Option<EpochLine>, LineError> {
    let Head { schema, version, kind } = serde_json::from_slice(bytes)?;
    match schema.as_str() {
        "memtrack.run" if version > SCHEMA_VERSION => Err(LineError::TooNew(version)),
        "memtrack.run" if kind == "epoch" => Ok(Some(serde_json::from_slice(bytes)?)),
        "memtrack.run" => Ok(None),
        _ => Err(LineError::Schema(schema)),
    }
}
