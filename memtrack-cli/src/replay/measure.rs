//! Figures of a recording that there is nothing to compare with.

use std::time::{Duration, Instant};

use super::figures::Figures;
use crate::recording::Recording;
use crate::session::{Session, SessionError, Setup};

/// The fastest of so many runs counts: whatever else the machine does only makes a run slower.
const TIMED_RUNS: usize = 3;

/// Runs a recording once for its figures and then over the warm cache for the time.
pub(super) fn measure(recording: &Recording, setup: &Setup) -> Result<Figures, SessionError> {
    let mut session = Session::new(setup, recording.block_count)?;
    let mut figures = Figures::default();
    for step in &recording.steps {
        figures.before(&step.operation, &session);
        session.perform(&step.operation)?;
    }
    figures.at_end(&session.stats());
    if recording.operation_count == 0 {
        return Ok(figures);
    }
    let mut fastest = Duration::MAX;
    for _ in 0..TIMED_RUNS {
        session.rewind()?;
        let started = Instant::now();
        for step in &recording.steps {
            session.perform(&step.operation)?;
        }
        fastest = fastest.min(started.elapsed());
    }
    figures.ns_per_operation = Some(fastest.as_nanos() as f64 / recording.operation_count as f64);
    Ok(figures)
}
