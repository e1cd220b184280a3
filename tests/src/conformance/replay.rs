//! Runs recordings and says where a subject's answers differ from PyTorch's.

use super::recording::{RecordedStep, Recording, apply, differences};
use super::subject::Subject;
use super::world::{Outcome, World};
use crate::reference_allocator::{Action, COUNTER_COUNT, Counters, Refused, TraceEntry};

/// Runs one recording; the number of steps, or the first difference.
pub fn replay<S: Subject>(recording: &Recording) -> Result<usize, String> {
    let mut world = World::<S>::start(&recording.setup)?;
    for step in &recording.preparation {
        world.run(step);
    }
    let mut expected = Counters([0; COUNTER_COUNT]);
    apply(&recording.initial, &mut expected);
    if let Some(difference) = differences(&world.subject.counters(), &expected) {
        return Err(format!("before the first step: {difference}"));
    }
    for (number, step) in recording.steps.iter().enumerate() {
        run(&mut world, step, &mut expected)
            .map_err(|difference| format!("step {number}, {}: {difference}", step.text))?;
    }
    if let Some(last) = &recording.last {
        apply(last, &mut expected);
        if let Some(difference) = differences(&world.subject.counters(), &expected) {
            return Err(format!("at the end: {difference}"));
        }
    }
    if let Some(theirs) = &recording.segments
        && let Some(ours) = world.subject.snapshot()
    {
        let differing = ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs);
        if differing.is_some() || ours.len() != theirs.len() {
            return Err(format!("segments at the end, {} and {}: {differing:?}", ours.len(), theirs.len()));
        }
    }
    if let Some(theirs) = &recording.trace
        && let Some(ours) = world.subject.trace()
    {
        let differing = ours.iter().zip(theirs).enumerate().find(|(_, (ours, theirs))| ours != theirs);
        if differing.is_some() || ours.len() != theirs.len() {
            return Err(format!("history, {} and {}: {differing:?}", ours.len(), theirs.len()));
        }
    }
    Ok(recording.steps.len())
}

fn run<S: Subject>(world: &mut World<S>, step: &RecordedStep, expected: &mut Counters) -> Result<(), String> {
    let history = if step.device.is_some() { world.subject.trace().map_or(0, |trace| trace.len()) } else { 0 };
    let outcome = step.step.as_ref().map_or(Outcome::Done, |step| world.run(step));
    match (outcome, step.address) {
        (Outcome::Allocated(Ok(ours)), Some(Some(theirs))) if ours == theirs => {}
        (Outcome::Allocated(Err(Refused::ByLimit | Refused::ByDevice)), Some(None)) => {}
        (Outcome::Allocated(Ok(_)) | Outcome::Done | Outcome::Settings(true) | Outcome::Entered(true), None) => {}
        (outcome, theirs) => return Err(format!("{outcome:?}, PyTorch {theirs:?}")),
    }
    if let Some(changes) = &step.changes {
        apply(changes, expected);
        if let Some(difference) = differences(&world.subject.counters(), expected) {
            return Err(difference);
        }
    }
    if !step.mark.is_empty() {
        let ours = world.subject.counters();
        let mut marked = ours.clone();
        apply(&step.mark, &mut marked);
        if let Some(difference) = differences(&ours, &marked) {
            return Err(difference);
        }
    }
    if let Some(theirs) = &step.device
        && let Some(trace) = world.subject.trace()
    {
        let ours: Vec<TraceEntry> =
            trace[history..].iter().filter(|entry| is_device_call(entry.action)).copied().collect();
        let same = |ours: &TraceEntry, theirs: &TraceEntry| {
            (ours.action, ours.address, ours.bytes) == (theirs.action, theirs.address, theirs.bytes)
        };
        if ours.len() != theirs.len() || !ours.iter().zip(theirs).all(|(ours, theirs)| same(ours, theirs)) {
            return Err(format!("calls to the device {ours:?}, PyTorch {theirs:?}"));
        }
    }
    Ok(())
}

fn is_device_call(action: Action) -> bool {
    matches!(action, Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap)
}

/// Runs what the subject can run, a line for each; how many it ran and the names of those that differ.
pub fn replay_all<S: Subject>(recordings: impl IntoIterator<Item = Recording>) -> (usize, Vec<String>) {
    let (mut run, mut differing) = (0, Vec::new());
    for recording in recordings {
        if !S::FEATURES.cover(&recording.needs()) {
            println!("{}: needs {:?}", recording.name, recording.needs());
            continue;
        }
        run += 1;
        match replay::<S>(&recording) {
            Ok(step_count) => println!("{}: {step_count} steps agree", recording.name),
            Err(difference) => {
                println!("{}: {difference}", recording.name);
                differing.push(recording.name);
            }
        }
    }
    (run, differing)
}
