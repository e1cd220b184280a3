//! What is printed of a recording, as a JSON object.

use std::path::Path;

use serde::Serialize;

use super::GRANULARITY_BYTES;
use super::answer::{Answer, FitError};
use super::options::{Card, Limited};
use super::program::Program;
use super::trial::{Failure, LimitBy, Outcome};
use crate::recording::Kind;

/// What came of one recording. Its fields are those of the JSON object, `None` where one does not apply.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The file, as it was named.
    pub file: String,
    /// Its format.
    pub kind: Option<Kind>,
    /// Which of the file's histories, from 1, where it has several: one for each device.
    pub history: Option<usize>,
    /// The most bytes that have to be there at once, as asked for.
    pub requested_peak_bytes: Option<u64>,
    /// Allocations of the recording.
    pub allocations: Option<usize>,
    /// Those that found no memory there.
    pub recorded_ooms: Option<usize>,
    /// Limits are multiples of it.
    pub granularity_bytes: u64,
    /// What stands for a limit.
    pub limit_by: LimitBy,
    /// What the device has, of which a limit is a part.
    pub device_bytes: u64,
    /// What is not as recorded, or not in the recording.
    pub notes: Vec<String>,
    /// The card that was asked about.
    pub card: Option<Card>,
    /// Whether a policy fits that card.
    pub fits: Option<bool>,
    /// What was found, by settings.
    pub policies: Vec<PolicyReport>,
    /// Why the file has no result.
    pub error: Option<String>,
}

/// What was found for some settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PolicyReport {
    /// The policies, or settings, whose runs are the same.
    pub names: Vec<String>,
    /// The most bytes taken from the device without a limit.
    pub unlimited_peak_bytes: Option<u64>,
    /// The smallest limit from which on all tested limits hold.
    pub smallest_limit_bytes: Option<u64>,
    /// Allocations that gave cached memory back and asked again under it, those apart that found no memory then and may.
    pub retries: Option<u64>,
    /// The same, of a thousand allocations.
    pub retries_per_1000: Option<f64>,
    /// Retries in the second half of the allocations.
    pub late_retries: Option<u64>,
    /// Calls under it that took memory from the device.
    pub device_allocations: Option<u64>,
    /// The smallest limit from which on all tested limits hold without a retry in the second half of the allocations.
    pub calm_limit_bytes: Option<u64>,
    /// The smallest limit under which the run is the one without a limit.
    pub unfelt_limit_bytes: Option<u64>,
    /// The smallest tested limit that holds: smaller than the answer when one between them does not.
    pub first_limit_bytes: Option<u64>,
    /// Where the run fails one step below the answer.
    pub fails_below: Option<Failure>,
    /// Limits above `first_limit_bytes` under which the run fails.
    pub fails_above: Vec<Gap>,
    /// Limits that were tested up to the answer.
    pub limits_tested: Option<usize>,
    /// Limits that were tested above it.
    pub limits_tested_above: Option<usize>,
    /// Whether all were, up to where the limit is not felt: then every larger limit will do too.
    pub all_above_tested: Option<bool>,
    /// On the card that was asked about.
    pub on_card: Option<OnCard>,
    /// Why there is no answer.
    pub error: Option<String>,
}

/// A limit that does not hold, above one that does.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Gap {
    /// The limit.
    pub limit_bytes: u64,
    /// Where the run fails.
    #[serde(flatten)]
    pub failure: Failure,
}

/// Whether it fits a card.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OnCard {
    /// Whether what is left of the card is at least the smallest limit.
    pub fits: bool,
    /// What is left less the smallest limit; negative when it does not fit.
    pub margin_bytes: i64,
    /// Retries under what is left.
    pub retries: Option<u64>,
    /// Retries there in the second half of the allocations.
    pub late_retries: Option<u64>,
    /// Calls there that take memory from the device.
    pub device_allocations: Option<u64>,
    /// Where the run fails under what is left, `None` also when that is less than what is requested.
    pub fails: Option<Failure>,
}

impl Report {
    fn empty(path: &Path, history: Option<usize>, limited: Limited) -> Self {
        let Limited { card, by } = limited;
        Self {
            file: path.display().to_string(),
            kind: None,
            history,
            requested_peak_bytes: None,
            allocations: None,
            recorded_ooms: None,
            granularity_bytes: GRANULARITY_BYTES,
            limit_by: by,
            device_bytes: limited.device().bytes(),
            notes: Vec::new(),
            card,
            fits: None,
            policies: Vec::new(),
            error: None,
        }
    }

    /// Of a file that is no recording.
    pub(super) fn unreadable(path: &Path, limited: Limited, error: String) -> Self {
        Self { error: Some(error), ..Self::empty(path, None, limited) }
    }

    /// Of a recording; `history` where the file has several.
    pub(super) fn new(
        path: &Path,
        history: Option<usize>,
        program: &Program<'_>,
        limited: Limited,
        policies: Vec<PolicyReport>,
    ) -> Self {
        let fits = |policy: &PolicyReport| policy.on_card.as_ref().is_some_and(|on_card| on_card.fits);
        Self {
            kind: Some(program.kind),
            requested_peak_bytes: Some(program.requested_peak_bytes()),
            allocations: Some(program.allocation_count()),
            recorded_ooms: Some(program.refused_count()),
            notes: program.notes().to_vec(),
            fits: limited.card.map(|_| policies.iter().any(fits)),
            policies,
            ..Self::empty(path, history, limited)
        }
    }

    /// The file, and which of its histories.
    pub(super) fn title(&self) -> String {
        match self.history {
            Some(history) => format!("{}, history {history}", self.file),
            None => self.file.clone(),
        }
    }

    /// What there is no answer for, and why.
    pub fn problems(&self) -> Vec<String> {
        let title = self.title();
        let whole = self.error.iter().map(|error| format!("{title}: {error}"));
        let of_policy = |policy: &PolicyReport| {
            let error = policy.error.as_ref()?;
            Some(format!("{title}: {}: {error}", policy.names.join(", ")))
        };
        whole.chain(self.policies.iter().filter_map(of_policy)).collect()
    }

    /// 0 when all is well, 1 when no policy fits the card, 2 when something has no answer.
    pub fn status(&self) -> u8 {
        match self.fits {
            _ if self.error.is_some() || self.policies.iter().any(|policy| policy.error.is_some()) => 2,
            Some(false) => 1,
            _ => 0,
        }
    }
}

impl PolicyReport {
    pub(super) fn failed(names: Vec<String>, error: &FitError) -> Self {
        Self {
            names,
            unlimited_peak_bytes: None,
            smallest_limit_bytes: None,
            retries: None,
            retries_per_1000: None,
            late_retries: None,
            device_allocations: None,
            calm_limit_bytes: None,
            unfelt_limit_bytes: None,
            first_limit_bytes: None,
            fails_below: None,
            fails_above: Vec::new(),
            limits_tested: None,
            limits_tested_above: None,
            all_above_tested: None,
            on_card: None,
            error: Some(error.to_string()),
        }
    }

    pub(super) fn new(names: Vec<String>, answer: &Answer, allocation_count: usize, card: Option<Card>) -> Self {
        let gaps = answer.gaps.iter().map(|(limit, failure)| Gap { limit_bytes: *limit, failure: failure.clone() });
        // Hundredths are all that is meant.
        let per_1000 = answer.cost.retries as f64 * 1000.0 / allocation_count.max(1) as f64;
        Self {
            names,
            unlimited_peak_bytes: Some(answer.unlimited_peak_bytes),
            smallest_limit_bytes: Some(answer.limit_bytes()),
            retries: Some(answer.cost.retries),
            retries_per_1000: Some((per_1000 * 100.0).round() / 100.0),
            late_retries: Some(answer.cost.late_retries),
            device_allocations: Some(answer.cost.device_allocations),
            calm_limit_bytes: answer.calm_bytes,
            unfelt_limit_bytes: Some(answer.unfelt_bytes),
            first_limit_bytes: Some(answer.smallest_bytes()),
            fails_below: answer.below.clone(),
            fails_above: gaps.collect(),
            limits_tested: Some(answer.found.tested),
            limits_tested_above: Some(answer.found.tested_above),
            all_above_tested: Some(answer.found.is_complete),
            on_card: card.map(|card| OnCard::new(answer, card)),
            error: None,
        }
    }
}

impl OnCard {
    fn new(answer: &Answer, card: Card) -> Self {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let cost = answer.asked.as_ref().and_then(Outcome::cost);
        Self {
            fits: card.available_bytes >= answer.limit_bytes(),
            margin_bytes: signed(card.available_bytes) - signed(answer.limit_bytes()),
            retries: cost.map(|cost| cost.retries),
            late_retries: cost.map(|cost| cost.late_retries),
            device_allocations: cost.map(|cost| cost.device_allocations),
            fails: answer.asked.as_ref().and_then(Outcome::failure).cloned(),
        }
    }
}
