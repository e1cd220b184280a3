//! Two epochs compared: exact differences in bytes and blocks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::choose::Chosen;
use super::run_file::{EpochLine, SiteLine};
use super::sources::{SourceChange, sources};

/// A figure in both epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// In the earlier.
    pub before: i64,
    /// In the later.
    pub after: i64,
    /// The later less the earlier.
    pub change: i64,
}

impl Change {
    pub(super) fn new(before: i64, after: i64) -> Self {
        Self { before, after, change: after.saturating_sub(before) }
    }

    fn unsigned(before: u64, after: u64) -> Self {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        Self::new(signed(before), signed(after))
    }
}

/// What changed in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PhaseChange {
    /// The phase.
    pub phase: String,
    /// Bytes live at the end that were allocated in it.
    pub live_bytes: Change,
    /// Blocks live at the end that were allocated in it.
    pub live_blocks: Change,
    /// The most bytes allocated on the device during it.
    pub peak_bytes: Change,
    /// Bytes allocated in it.
    pub allocated_bytes: Change,
    /// Allocations in it.
    pub allocations: Change,
}

impl PhaseChange {
    /// Whether anything differs.
    pub fn is_change(&self) -> bool {
        let all = [&self.live_bytes, &self.live_blocks, &self.peak_bytes, &self.allocated_bytes, &self.allocations];
        all.into_iter().any(|figure| figure.change != 0)
    }
}

/// What changed in the live blocks of one line of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SiteChange {
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
    /// Their rounded bytes.
    pub bytes: Change,
    /// How many.
    pub blocks: Change,
}

/// What differs between two epochs on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The file of the earlier.
    pub earlier_file: String,
    /// Its number.
    pub earlier_epoch: u64,
    /// Its device.
    pub earlier_device: String,
    /// The number of its allocator in its process; 0 in files that do not say.
    pub earlier_allocator: u64,
    /// Its process.
    pub earlier_process: u64,
    /// The file of the later.
    pub later_file: String,
    /// Its number.
    pub later_epoch: u64,
    /// Its device.
    pub later_device: String,
    /// The number of its allocator.
    pub later_allocator: u64,
    /// Its process.
    pub later_process: u64,
    /// Allocated at the end.
    pub live_bytes: Change,
    /// The epoch's peak.
    pub peak_bytes: Change,
    /// Taken from the device at the end.
    pub reserved_bytes: Change,
    /// By phase; what grew most first.
    pub phases: Vec<PhaseChange>,
    /// By line of the program; what grew most first, what shrank most last.
    pub sites: Vec<SiteChange>,
    /// By memory source, in the order of the earlier; without those of one side alone.
    pub sources: Vec<SourceChange>,
    /// Whether an allocator was measured on both sides. Else the figures above are those of each side's first source, and nobody knows of
    /// blocks and lines.
    pub has_allocator: bool,
    /// The devices as people tell them apart: with the allocator where a device has several.
    #[serde(skip)]
    pub(super) labels: (String, String),
}

impl Difference {
    /// From the first to the second.
    pub(super) fn new((earlier_file, earlier): (&Path, &Chosen), (later_file, later): (&Path, &Chosen)) -> Self {
        let labels = (earlier.label.clone(), later.label.clone());
        let (earlier, later) = (&earlier.line, &later.line);
        Self {
            labels,
            earlier_file: earlier_file.display().to_string(),
            earlier_epoch: earlier.epoch,
            earlier_device: earlier.device.clone(),
            earlier_allocator: earlier.allocator,
            earlier_process: earlier.process,
            later_file: later_file.display().to_string(),
            later_epoch: later.epoch,
            later_device: later.device.clone(),
            later_allocator: later.allocator,
            later_process: later.process,
            live_bytes: Change::new(earlier.after_bytes, later.after_bytes),
            peak_bytes: Change::new(earlier.peak.bytes, later.peak.bytes),
            reserved_bytes: Change::new(earlier.reserved_bytes, later.reserved_bytes),
            phases: phases(earlier, later),
            sites: sites(earlier, later),
            sources: sources(earlier, later),
            has_allocator: earlier.has_allocator && later.has_allocator,
        }
    }
}

fn phases(earlier: &EpochLine, later: &EpochLine) -> Vec<PhaseChange> {
    let mut names: Vec<&str> = Vec::new();
    for line in [earlier, later] {
        let of_line = line.phases.iter().map(|phase| phase.name.as_str());
        for name in of_line.chain(line.origins.iter().map(|origin| origin.phase.as_str())) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let change = |name: &str| {
        let row = |line: &EpochLine| {
            let found = line.phases.iter().find(|phase| phase.name == name);
            found.map(|phase| (phase.peak_bytes, phase.allocated_bytes, phase.allocations)).unwrap_or_default()
        };
        let live = |line: &EpochLine| {
            let found = line.origins.iter().find(|origin| origin.phase == name);
            found.map(|origin| origin.live).unwrap_or_default()
        };
        let (before, after) = (row(earlier), row(later));
        let (live_before, live_after) = (live(earlier), live(later));
        PhaseChange {
            phase: name.to_owned(),
            live_bytes: Change::unsigned(live_before.bytes, live_after.bytes),
            live_blocks: Change::unsigned(live_before.blocks, live_after.blocks),
            peak_bytes: Change::new(before.0, after.0),
            allocated_bytes: Change::unsigned(before.1, after.1),
            allocations: Change::unsigned(before.2, after.2),
        }
    };
    let mut phases: Vec<PhaseChange> = names.into_iter().map(change).filter(PhaseChange::is_change).collect();
    // Stable: equals stay in the order of the file.
    phases.sort_by_key(|phase| Reverse((phase.live_bytes.change, phase.peak_bytes.change)));
    phases
}

type SiteKey<'a> = (&'a str, u32, u32, Option<&'a str>, &'a str);

fn sites(earlier: &EpochLine, later: &EpochLine) -> Vec<SiteChange> {
    let mut both: BTreeMap<SiteKey<'_>, [(u64, u64); 2]> = BTreeMap::new();
    for (side, line) in [earlier, later].into_iter().enumerate() {
        for site in &line.live {
            let SiteLine { phase, scope, file, line, column, bytes, blocks } = site;
            let sums = both.entry((file, *line, *column, scope.as_deref(), phase)).or_default();
            sums[side].0 = sums[side].0.saturating_add(*bytes);
            sums[side].1 = sums[side].1.saturating_add(*blocks);
        }
    }
    let change = |((file, line, column, scope, phase), [before, after]): (SiteKey<'_>, [(u64, u64); 2])| SiteChange {
        phase: phase.to_owned(),
        scope: scope.map(str::to_owned),
        file: file.to_owned(),
        line,
        column,
        bytes: Change::unsigned(before.0, after.0),
        blocks: Change::unsigned(before.1, after.1),
    };
    let mut sites: Vec<SiteChange> = both.into_iter().map(change).collect();
    sites.retain(|site| site.bytes.change != 0 || site.blocks.change != 0);
    sites.sort_by_key(|site| Reverse((site.bytes.change, site.blocks.change)));
    sites
}
