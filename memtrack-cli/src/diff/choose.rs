//! Which epochs of a file are compared: of each allocator one.

use std::path::{Path, PathBuf};

use super::run_file::read_each;
use super::{DiffError, EpochLine, joined};

/// Which epoch of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    First,
    Last,
    Number(u64),
}

/// The chosen epoch of one allocator.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) line: EpochLine,
    /// Its allocator's place among those of its device, in the order in which processes come and allocators were made.
    place: usize,
    /// The device, and what tells the allocator from others on it.
    pub(super) label: String,
}

impl Chosen {
    /// Whether both are of the same allocator, or, of two runs, of those that correspond.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.line.device == other.line.device && self.place == other.place
    }
}

/// A file, and the epoch after an `@`. A file that has the whole text as its name is that file.
pub(super) fn choice(argument: &Path) -> (PathBuf, Option<Choice>) {
    let number = argument.to_str().and_then(|text| text.rsplit_once('@'));
    match number.and_then(|(file, number)| Some((file, number.parse().ok()?))) {
        Some((file, number)) if !argument.exists() => (PathBuf::from(file), Some(Choice::Number(number))),
        _ => (argument.to_owned(), None),
    }
}

/// An allocator of a file, and the epoch chosen of it.
struct Allocator {
    device: String,
    /// The place of its process in the file.
    process: usize,
    number: u64,
    chosen: Option<EpochLine>,
}

/// The chosen epoch of each allocator, by allocator in order of first sight.
pub(super) fn chosen(file: &Path, choice: Choice) -> Result<Vec<Chosen>, DiffError> {
    let mut processes: Vec<u64> = Vec::new();
    let mut known: Vec<u64> = Vec::new();
    let mut allocators: Vec<Allocator> = Vec::new();
    read_each(file, |line| {
        let process = processes.iter().position(|process| *process == line.process).unwrap_or_else(|| {
            processes.push(line.process);
            processes.len() - 1
        });
        known.push(line.epoch);
        let is_of = |allocator: &Allocator| {
            allocator.process == process && allocator.number == line.allocator && allocator.device == line.device
        };
        let at = allocators.iter().position(is_of).unwrap_or_else(|| {
            let (device, number) = (line.device.clone(), line.allocator);
            allocators.push(Allocator { device, process, number, chosen: None });
            allocators.len() - 1
        });
        let chosen = &mut allocators[at].chosen;
        let is_chosen = match choice {
            Choice::First => chosen.is_none(),
            Choice::Last => true,
            Choice::Number(number) => number == line.epoch,
        };
        if is_chosen {
            *chosen = Some(line);
        }
    })?;
    let order = |allocator: &Allocator| (allocator.process, allocator.number);
    let label = |allocator: &Allocator, line: &EpochLine| {
        let device = &allocator.device;
        let others = || allocators.iter().filter(|other| other.device == *device);
        let mut label = device.clone();
        if others().any(|other| other.process == allocator.process && other.number != allocator.number) {
            label += &format!(" allocator {}", allocator.number);
        }
        if others().any(|other| other.process != allocator.process) {
            label += &format!(" of process {}", line.process);
        }
        label
    };
    let chosen: Vec<Chosen> = allocators
        .iter()
        .filter_map(|allocator| {
            let line = allocator.chosen.clone()?;
            let before = |other: &&Allocator| other.device == allocator.device && order(other) < order(allocator);
            let place = allocators.iter().filter(before).count();
            Some(Chosen { label: label(allocator, &line), line, place })
        })
        .collect();
    match choice {
        Choice::Number(number) if chosen.is_empty() => {
            Err(DiffError::NoEpoch { file: file.to_owned(), number, known: joined(known.into_iter()) })
        }
        _ => Ok(chosen),
    }
}
