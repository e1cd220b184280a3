//! The smallest limit for one recording and one choice of settings.

use std::collections::BTreeMap;

use memtrack::plain_text::shown;
use memtrack::units::Bytes;
use memtrack::{Backend, TorchConfigError};

use super::GRANULARITY_BYTES;
use super::candidate::Candidate;
use super::program::Program;
use super::search::{Found, Range, search};
use super::trial::{Cost, DEVICE_BYTES, Failure, LimitedDevice, Outcome, run_under};
use crate::session::SessionError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// PyTorch would have refused what the file says it was configured with.
    #[error("the recorded configuration is refused: {0}; leave `recorded` out of --policy")]
    Configuration(TorchConfigError),
    /// It was recorded with the driver's own pool.
    #[error("recorded with the backend {0}, whose placement the driver decides; leave `recorded` out of --policy")]
    Backend(Backend),
    /// A run failed, not for want of memory.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// No limit will do.
    #[error("does not complete with {}, all that the simulated device has: {} finds no memory", Bytes::unsigned(DEVICE_BYTES), shown(.0))]
    Never(String),
    /// Runs under ever larger limits failed.
    #[error("completes without a limit, and under none that was tried; try other --config")]
    NoLimit,
}

/// What was found for a recording with some settings. All limits are multiples of [`GRANULARITY_BYTES`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The most bytes taken from the device without a limit.
    pub unlimited_peak_bytes: u64,
    /// The smallest limit under which the run is the one without a limit.
    pub unfelt_bytes: u64,
    /// The limits, in steps of the granularity.
    pub found: Found,
    /// What the run takes under the answer.
    pub cost: Cost,
    /// Where it fails one step below, `None` when less than what is requested is there.
    pub below: Option<Failure>,
    /// Where it fails above the smallest limit that holds, by limit.
    pub gaps: Vec<(u64, Failure)>,
    /// The smallest limit from which on all tested limits hold without a retry in the second half of the allocations.
    pub calm_bytes: Option<u64>,
    /// What came of the run under the limit that was asked about, `None` when that is below the requested peak.
    pub asked: Option<Outcome>,
}

impl Answer {
    /// The smallest limit from which on all tested limits hold.
    pub fn limit_bytes(&self) -> u64 {
        self.found.answer * GRANULARITY_BYTES
    }

    /// The smallest tested limit that holds.
    pub fn smallest_bytes(&self) -> u64 {
        self.found.smallest * GRANULARITY_BYTES
    }
}

/// Searches for the smallest limit. Above it `checks` limits are tested, and `asked_bytes`, rounded down, if given.
///
/// # Errors
///
/// Settings that make no sense, failures other than want of memory, and recordings that no limit suffices for.
pub fn fit(
    program: &Program<'_>,
    candidate: &Candidate,
    device: LimitedDevice,
    checks: usize,
    asked_bytes: Option<u64>,
) -> Result<Answer, FitError> {
    let unlimited = match run_under(program, candidate, device, None)? {
        Outcome::Completed(cost) => cost,
        Outcome::Failed(failure) => return Err(FitError::Never(failure.operation)),
    };
    let mut range = Range {
        first: program.requested_peak_bytes().div_ceil(GRANULARITY_BYTES),
        upper: unlimited.reserved_peak_bytes.div_ceil(GRANULARITY_BYTES),
        most: DEVICE_BYTES / GRANULARITY_BYTES,
    };
    let asked = asked_bytes.map(|bytes| bytes / GRANULARITY_BYTES);
    let mut trials = Trials { program, candidate, device, outcomes: BTreeMap::new() };
    // Under a limit that refuses nothing the run is the one without. It can be larger than what that takes: a fraction is compared with all
    // of a request before some of its pages are mapped.
    let is_unfelt = |limit| Ok::<_, FitError>(trials.at(limit)?.cost() == Some(&unlimited));
    let unfelt = search(range, 0, &[], is_unfelt)?;
    range.upper = unfelt.map_or(range.most, |unfelt| unfelt.answer);
    let also: Vec<u64> = asked.into_iter().collect();
    let completes = |limit| Ok::<_, FitError>(trials.at(limit)?.cost().is_some());
    let found = search(range, checks, &also, completes)?.ok_or(FitError::NoLimit)?;
    let is_calm = |limit| Ok::<_, FitError>(trials.at(limit)?.cost().is_some_and(|cost| cost.late_retries == 0));
    let calm = search(Range { first: found.answer, ..range }, checks, &[], is_calm)?;
    let cost = trials.at(found.answer)?.cost().copied().ok_or(FitError::NoLimit)?;
    let below = match found.answer.checked_sub(1).filter(|below| *below >= range.first) {
        Some(below) => trials.at(below)?.failure().cloned(),
        None => None,
    };
    let mut gaps = Vec::new();
    for gap in &found.gaps {
        gaps.extend(trials.at(*gap)?.failure().map(|failure| (gap * GRANULARITY_BYTES, failure.clone())));
    }
    let asked = match asked.filter(|asked| *asked >= range.first) {
        Some(asked) => Some(trials.at(asked)?.clone()),
        None => None,
    };
    Ok(Answer {
        unlimited_peak_bytes: unlimited.reserved_peak_bytes,
        unfelt_bytes: range.upper * GRANULARITY_BYTES,
        found,
        cost,
        below,
        gaps,
        calm_bytes: calm.map(|calm| calm.answer * GRANULARITY_BYTES),
        asked,
    })
}

/// The runs under each limit, each run once.
struct Trials<'a> {
    program: &'a Program<'a>,
    candidate: &'a Candidate,
    device: LimitedDevice,
    outcomes: BTreeMap<u64, Outcome>,
}

impl Trials<'_> {
    fn at(&mut self, limit: u64) -> Result<&Outcome, SessionError> {
        use std::collections::btree_map::Entry;
        match self.outcomes.entry(limit) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let limit_bytes = limit.saturating_mul(GRANULARITY_BYTES);
                Ok(place.insert(run_under(self.program, self.candidate, self.device, Some(limit_bytes))?))
            }
        }
    }
}
