//! Replaying recordings: what they are replayed with, and what came of it.
//!
//! Here live the plan for a recording (`plan`), its *verification* against what the file says PyTorch answered (`verify`),
//! its *measurement* where there is nothing to compare with (`measure`), and what is printed of either (`report`). How files are
//! read and how operations are done lives elsewhere.

mod divergence;
mod figures;
mod history;
mod measure;
mod plan;
mod report;
mod verify;

use std::path::Path;

use memtrack::plain_text::counted;

pub use figures::Figures;
pub use plan::{Choices, PlanError};
pub use report::Report;
pub use verify::{Difference, Figure, Verification};

use self::plan::Plan;
pub(crate) use self::plan::recorded_config;
use crate::recording::{ReadError, Recording};
use crate::session::{Place, SessionError};

/// Why a file has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It is no recording.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be run with these settings.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It could not be run to its end.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// What came of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Replayed {
    /// Compared with what the file expects.
    Verified(Verification),
    /// There was nothing to compare with, or the settings were others.
    Measured(Figures),
}

/// Reads a file and replays it, the recordings of several devices one after the other.
pub fn replay_file(path: &Path, choices: &Choices) -> Report {
    let recordings = match Recording::read(path) {
        Ok(recordings) => recordings,
        Err(error) => return Report::unreadable(path, &error.into()),
    };
    let mut report = Report::empty(path);
    for recording in &recordings {
        match replay(recording, choices) {
            Ok((replayed, skipped)) => report.add(recording, replayed, skipped),
            Err(error) => return Report::failed(path, recording, &error),
        }
    }
    report
}

/// Replays a recording; also says what could not be done as recorded.
///
/// # Errors
///
/// Settings that the recording cannot be run with, and failures other than want of memory.
pub fn replay(recording: &Recording, choices: &Choices) -> Result<(Replayed, Option<String>), ReplayError> {
    let Plan { setup, verifies, skipped } = Plan::new(recording, choices)?;
    let mut skipped = skipped.map(str::to_owned);
    if let Some(left_out) = &recording.left_out {
        skipped = Some(skipped.map_or(left_out.clone(), |skipped| format!("{skipped}; {left_out}")));
    }
    if let (true, Some(expected)) = (verifies, &recording.expected) {
        let (verification, trail) = verify::verify(recording, expected, &setup)?;
        let goes_its_own_way = setup.place != Place::Simulated
            && verification.difference.is_some()
            && divergence::is_of_addresses(recording, &setup, &trail)?;
        if !goes_its_own_way {
            return Ok((Replayed::Verified(verification), skipped));
        }
        skipped = Some(format!(
            "the GPU's addresses decide otherwise between equal blocks, so only {} could be compared: {} agree",
            counted(verification.operations as u64, "operation"),
            counted(verification.statistics as u64, "statistic"),
        ));
    }
    Ok((Replayed::Measured(measure::measure(recording, &setup)?), skipped))
}
