//! Runs one program on a subject and on the slow allocator and finds the first difference; makes the program small.

use std::panic::{AssertUnwindSafe, catch_unwind};

use memtrack_tests::conformance::recording::differences;
use memtrack_tests::conformance::step::Step;
use memtrack_tests::conformance::subject::Subject;
use memtrack_tests::conformance::world::{Outcome, World};
use memtrack_tests::reference_allocator::{ReferenceAllocator, Refused, SegmentState};

use crate::program::Program;

/// Runs a program on both, compares after every step, then frees everything and compares on. A panic is a difference too.
pub(crate) fn compare<S: Subject>(program: &Program, torch_exact: bool) -> Result<(), String> {
    let run = AssertUnwindSafe(|| run_both::<S>(program, torch_exact));
    catch_unwind(run).unwrap_or_else(|_| Err(String::from("a panic, see above")))
}

fn run_both<S: Subject>(program: &Program, torch_exact: bool) -> Result<(), String> {
    let setup = program.setup(torch_exact);
    let (mut ours, mut theirs) = (World::<S>::start(&setup)?, World::<ReferenceAllocator>::start(&setup)?);
    for (number, step) in program.steps.iter().enumerate() {
        run_step(&mut ours, &mut theirs, step)
            .map_err(|difference| format!("step {number}, {step:?}: {difference}"))?;
    }
    for step in theirs.closing_steps() {
        run_step(&mut ours, &mut theirs, &step)
            .map_err(|difference| format!("after the end, {step:?}: {difference}"))?;
    }
    let history = ours.subject.trace().filter(|history| history.as_slice() != theirs.subject.trace());
    if let Some(history) = history {
        let first = history.iter().zip(theirs.subject.trace()).find(|(ours, theirs)| ours != theirs);
        return Err(format!("the history, first {first:?}"));
    }
    Ok(())
}

fn run_step<S: Subject>(
    ours: &mut World<S>,
    theirs: &mut World<ReferenceAllocator>,
    step: &Step,
) -> Result<(), String> {
    let (outcome, expected) = (ours.run(step), theirs.run(step));
    if outcome != expected {
        return Err(format!("{outcome:x?}, the slow allocator {expected:x?}"));
    }
    theirs.subject.check();
    if let Some(difference) = differences(&ours.subject.counters(), theirs.subject.counters()) {
        return Err(difference);
    }
    if let Outcome::Allocated(Err(Refused::ByDevice | Refused::ByLimit)) = outcome {
        equal("the refusal", &ours.subject.last_refusal(), &theirs.subject.last_refusal())?;
    }
    equal("segments on the device", &ours.subject.device_segments(), &theirs.subject.device_segments())?;
    equal("bytes of the device", &ours.subject.device_used_bytes(), &theirs.subject.device_used_bytes())?;
    if let Some(snapshot) = ours.subject.snapshot() {
        equal("the snapshot", &numbered(snapshot, ours), &numbered(theirs.subject.snapshot(), theirs))?;
    }
    Ok(())
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what}: {ours:x?}, the slow allocator {theirs:x?}")) }
}

/// With the program's numbers for pools: ids are each allocator's own.
fn numbered<S: Subject>(mut segments: Vec<SegmentState>, world: &World<S>) -> Vec<SegmentState> {
    for segment in &mut segments {
        segment.pool = (0, world.pool_number(segment.pool).unwrap_or(u64::MAX));
    }
    segments
}

/// Leaves out whatever can be left out so that `fails` still holds: halves, quarters, at last single steps.
pub(crate) fn shrink(program: &Program, fails: impl Fn(&Program) -> bool) -> Program {
    let mut small = program.clone();
    let mut length = small.steps.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at < small.steps.len() {
            let mut candidate = small.clone();
            candidate.steps.drain(at..(at + length).min(candidate.steps.len()));
            if fails(&candidate) {
                small = candidate;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    small
}
