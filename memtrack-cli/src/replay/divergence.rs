//! Why a run on a GPU went another way than PyTorch's.
//!
//! Of equal free blocks the one at the lowest address is taken. A GPU puts segments where it likes, so after such a choice two runs that follow
//! the same rules can differ, first in what is split and then in everything.

use super::verify::Trail;
use crate::operation::Operation;
use crate::recording::{Recording, Script};
use crate::session::{Outcome, Place, Session, SessionError, Setup};

/// Whether the same run on a simulated device that has its segments where the GPU had them goes the GPU's way: the same addresses and
/// outcomes, and the same statistics at the end. Then the addresses explain it, and nothing else has to.
pub(super) fn is_of_addresses(recording: &Recording, setup: &Setup, trail: &Trail) -> Result<bool, SessionError> {
    let setup = Setup { place: Place::Simulated, ..setup.clone() };
    let mut session = Session::new(&setup, recording.block_count)?;
    session.follow(&Script::AtAnswer);
    let mut answers = trail.answers.iter();
    for step in recording.steps.iter().take(trail.step_count) {
        if !matches!(step.operation, Operation::Allocate { .. }) {
            session.perform(&step.operation)?;
            continue;
        }
        let Some(answer) = answers.next() else { return Ok(false) };
        session.expect_answer(if let Outcome::Address(address) = answer { Some(*address) } else { None });
        match session.perform(&step.operation) {
            Ok(outcome) if outcome == *answer => {}
            // Also where the device cannot follow.
            _ => return Ok(false),
        }
    }
    Ok(session.stats() == trail.stats)
}
