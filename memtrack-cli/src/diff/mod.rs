//! `memtrack diff`: what grew between two epochs, of one run or of two.
//!
//! Run files are read here (`run_file`), of each allocator an epoch is chosen (`choose`), two epochs are compared (`compare`, and what
//! memory sources said in them in `sources`) and the differences printed (`text`), each in a file of its own. What a run file holds
//! is written by the library.

mod choose;
mod compare;
mod run_file;
mod sources;
mod text;

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
pub use compare::{Change, Difference, PhaseChange, SiteChange};
use memtrack::plain_text::shown;
pub use run_file::{EpochLine, RunFileError, read};
pub use sources::{SourceChange, SourcePhaseChange};

use self::choose::{Choice, Chosen, choice, chosen};

/// Compares two epochs of run files.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
A run file has one JSON line for each epoch; a program writes it where MEMTRACK_RUN_FILE=PATH says. docs/summary.md describes it.

FILE@EPOCH is the epoch of that number, the last of several; FILE alone is the last epoch. With one FILE its first and last \
epoch are compared. Devices are compared by name, or whatever their names if each side has one. Where a device has several \
allocators, or a file has several processes, each is compared with itself: of two runs the first with the first, and so on.

Exit status: 0 when the comparison was made, 2 when a file cannot be read or has no such epoch.")]
pub struct DiffOptions {
    /// The earlier epoch, as run.jsonl@1
    #[arg(value_name = "A")]
    pub earlier: PathBuf,

    /// The later epoch
    #[arg(value_name = "B")]
    pub later: Option<PathBuf>,

    /// Write one JSON object a device and line, with every phase and call site
    #[arg(long)]
    pub json: bool,
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// A file is none of ours, or cannot be read.
    #[error(transparent)]
    RunFile(#[from] RunFileError),
    /// The file has no epoch of this number.
    #[error("{}: no epoch {number}; it has {known}", file.display())]
    NoEpoch {
        /// The file.
        file: PathBuf,
        /// The number asked for.
        number: u64,
        /// Those that are there.
        known: String,
    },
    /// No device is on both sides.
    #[error("the epochs have no device in common: {earlier} and {later}")]
    NoCommonDevice {
        /// The devices of the one.
        earlier: String,
        /// Those of the other.
        later: String,
    },
}

/// Runs the command; the exit status.
pub fn run(options: &DiffOptions, output: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let differences = match differences(options) {
        Ok(differences) => differences,
        Err(error) => {
            // Where standard error is closed or full, the status still says it.
            let _ = writeln!(errors, "memtrack: {}", shown(&error.to_string()));
            return 2;
        }
    };
    let written = differences.iter().try_for_each(|difference| match options.json {
        true => writeln!(output, "{}", serde_json::to_string(difference).unwrap_or_default()),
        false => write!(output, "{difference}"),
    });
    match written.and_then(|()| output.flush()) {
        Ok(()) => 0,
        // Nobody reads any more, as behind `head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            let _ = writeln!(errors, "memtrack: cannot write the results: {error}");
            2
        }
    }
}

/// The differences, by device in the order of the earlier file.
///
/// # Errors
///
/// [`DiffError`] says which file or epoch is missing.
pub fn differences(options: &DiffOptions) -> Result<Vec<Difference>, DiffError> {
    let (earlier_file, earlier_choice) = choice(&options.earlier);
    let earlier_choice = match (earlier_choice, &options.later) {
        (None, None) => Choice::First,
        (choice, _) => choice.unwrap_or(Choice::Last),
    };
    let (later_file, later_choice) = match &options.later {
        Some(later) => choice(later),
        None => (earlier_file.clone(), None),
    };
    let earlier = chosen(&earlier_file, earlier_choice)?;
    let later = chosen(&later_file, later_choice.unwrap_or(Choice::Last))?;
    let pairs: Vec<(&Chosen, &Chosen)> = match (&earlier[..], &later[..]) {
        ([earlier], [later]) => vec![(earlier, later)],
        _ => earlier.iter().filter_map(|line| Some((line, later.iter().find(|other| other.is_like(line))?))).collect(),
    };
    if pairs.is_empty() {
        let devices = |lines: &[Chosen]| joined(lines.iter().map(|line| &line.label));
        return Err(DiffError::NoCommonDevice { earlier: devices(&earlier), later: devices(&later) });
    }
    let compare = |(a, b)| Difference::new((&earlier_file, a), (&later_file, b));
    Ok(pairs.into_iter().map(compare).collect())
}

fn joined(items: impl Iterator<Item = impl fmt::Display>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
