//! A program together with what PyTorch answered, whatever file it was in.

use std::collections::HashMap;

use serde_json::Value;

use super::features::Features;
use super::step::Step;
use super::subject::Setup;
use crate::reference_allocator::{COUNTER_COUNT, Counters, SegmentState, TraceEntry, counter_names};

/// Statistics by their place in [`Counters`], with their values.
pub type Changes = Vec<(usize, i64)>;

/// A recorded program.
#[derive(Debug, Clone)]
pub struct Recording {
    /// As its file.
    pub name: String,
    /// How to start.
    pub setup: Setup,
    /// What to do before [`initial`](Self::initial) is compared.
    pub preparation: Vec<Step>,
    /// Statistics before the first step.
    pub initial: Changes,
    /// The steps with their answers.
    pub steps: Vec<RecordedStep>,
    /// Statistics after the last step, if the file has them.
    pub last: Option<Changes>,
    /// The history from the first to the last step, if the file has it.
    pub trace: Option<Vec<TraceEntry>>,
    /// Segments after the last step, if the file has them.
    pub segments: Option<Vec<SegmentState>>,
}

/// One step with its answers.
#[derive(Debug, Clone)]
pub struct RecordedStep {
    /// How a message names it.
    pub text: String,
    /// The step; nothing where only statistics were recorded.
    pub step: Option<Step>,
    /// The address, or none for out of memory; for an allocation whose address was recorded.
    pub address: Option<Option<u64>>,
    /// Every statistic that this step changed.
    pub changes: Option<Changes>,
    /// Some statistics as they must be now.
    pub mark: Changes,
    /// Calls to the device, if they were recorded.
    pub device: Option<Vec<TraceEntry>>,
}

impl RecordedStep {
    /// A step without answers.
    pub fn bare(step: Step) -> Self {
        Self {
            text: format!("{step:?}"),
            step: Some(step),
            address: None,
            changes: None,
            mark: Vec::new(),
            device: None,
        }
    }
}

impl Recording {
    /// What it needs of a subject.
    pub fn needs(&self) -> Features {
        let steps = self.preparation.iter().chain(self.steps.iter().filter_map(|step| step.step.as_ref()));
        Features::needed(&self.setup.settings, steps)
    }
}

/// Statistics' names to their places.
#[derive(Debug)]
pub struct Names(HashMap<String, usize>);

impl Default for Names {
    fn default() -> Self {
        let names: HashMap<_, _> = counter_names().into_iter().enumerate().map(|(at, name)| (name, at)).collect();
        assert_eq!(names.len(), COUNTER_COUNT);
        Self(names)
    }
}

impl Names {
    /// Where a statistic is.
    pub fn place(&self, name: &str) -> usize {
        self.0[name]
    }

    /// An object of statistics by name.
    pub fn changes(&self, object: &Value) -> Changes {
        object.as_object().unwrap().iter().map(|(name, value)| (self.place(name), value.as_i64().unwrap())).collect()
    }

    /// The same, with all 122 there.
    pub fn all(&self, object: &Value) -> Changes {
        let changes = self.changes(object);
        assert_eq!(changes.len(), COUNTER_COUNT);
        changes
    }
}

/// Sets what changed.
pub fn apply(changes: &Changes, counters: &mut Counters) {
    for (at, value) in changes {
        counters.0[*at] = *value;
    }
}

/// The differences between statistics, in words; nothing if there are none.
pub fn differences(ours: &Counters, theirs: &Counters) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let names = counter_names();
    let differing = (0..COUNTER_COUNT).filter(|at| ours.0[*at] != theirs.0[*at]);
    let lines: Vec<String> =
        differing.map(|at| format!("{} is {}, not {}", names[at], ours.0[at], theirs.0[at])).collect();
    Some(lines.join("; "))
}
