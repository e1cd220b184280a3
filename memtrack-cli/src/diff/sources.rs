//! What memory sources said in two epochs, compared.

use std::cmp::Reverse;

use serde::Serialize;

use super::compare::Change;
use super::run_file::{EpochLine, SourceLine, SourcePhaseLine};

/// What changed in what a memory source said. What it did not say on one side cannot be compared, and is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SourceChange {
    /// The source.
    pub source: String,
    /// In use at the epoch's end.
    pub live_bytes: Option<Change>,
    /// The most in use during the epoch.
    pub peak_bytes: Option<Change>,
    /// What it has of the device at the epoch's end.
    pub reserved_bytes: Option<Change>,
    /// By phase; where the peak grew most first. Phases of which every figure is known and the same are left out.
    pub phases: Vec<SourcePhaseChange>,
}

/// What changed in one phase. A phase that one side has not counts as 0 there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SourcePhaseChange {
    /// The phase.
    pub phase: String,
    /// What it left in use: the sum of its activations' changes.
    pub net_bytes: Option<Change>,
    /// The most in use during it.
    pub peak_bytes: Option<Change>,
    /// The most that one activation added at its peak.
    pub rise_max_bytes: Option<Change>,
}

impl SourcePhaseChange {
    /// Whether anything differs, as far as it is known.
    fn may_differ(&self) -> bool {
        let figures = [self.net_bytes, self.peak_bytes, self.rise_max_bytes];
        figures.into_iter().any(|figure| figure.is_none_or(|figure| figure.change != 0))
    }
}

/// The sources that both epochs have, by name.
pub(super) fn sources(earlier: &EpochLine, later: &EpochLine) -> Vec<SourceChange> {
    let pair = |source: &SourceLine| {
        let other = later.sources.iter().find(|other| other.name == source.name)?;
        Some(SourceChange {
            source: source.name.clone(),
            live_bytes: change(source.after_bytes, other.after_bytes),
            peak_bytes: change(source.peak_bytes, other.peak_bytes),
            reserved_bytes: change(source.reserved_after_bytes, other.reserved_after_bytes),
            phases: phases(&source.phases, &other.phases),
        })
    };
    earlier.sources.iter().filter_map(pair).collect()
}

fn phases(earlier: &[SourcePhaseLine], later: &[SourcePhaseLine]) -> Vec<SourcePhaseChange> {
    let find = |lines: &[SourcePhaseLine], name: &str| {
        let absent =
            SourcePhaseLine { name: name.to_owned(), net_bytes: Some(0), peak_bytes: Some(0), rise_max_bytes: Some(0) };
        lines.iter().find(|line| line.name == name).cloned().unwrap_or(absent)
    };
    let pair = |name: &str| {
        let (before, after) = (find(earlier, name), find(later, name));
        SourcePhaseChange {
            phase: name.to_owned(),
            net_bytes: change(before.net_bytes, after.net_bytes),
            peak_bytes: change(before.peak_bytes, after.peak_bytes),
            rise_max_bytes: change(before.rise_max_bytes, after.rise_max_bytes),
        }
    };
    let is_new = |line: &&SourcePhaseLine| !earlier.iter().any(|other| other.name == line.name);
    let names = earlier.iter().chain(later.iter().filter(is_new)).map(|line| line.name.as_str());
    let mut phases: Vec<_> = names.map(pair).filter(SourcePhaseChange::may_differ).collect();
    let grown = |figure: Option<Change>| figure.map_or(0, |figure| figure.change);
    // Stable: equals stay in the order of the file.
    phases.sort_by_key(|phase| Reverse((grown(phase.peak_bytes), grown(phase.net_bytes))));
    phases
}

fn change(before: Option<i64>, after: Option<i64>) -> Option<Change> {
    Some(Change::new(before?, after?))
}
