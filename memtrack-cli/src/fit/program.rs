//! What is run of a recording.

use std::collections::HashMap;

use memtrack::plain_text::counted;

use crate::operation::Operation;
use crate::recording::{Answer, Kind, Recording};

/// One thing to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doing<'a> {
    /// Its number in the file.
    pub(super) number: usize,
    pub(super) operation: &'a Operation,
    pub(super) need: Need,
}

/// Whether an operation has to get memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// It asks for none.
    None,
    /// It got some in the recording.
    Served,
    /// It got none there, and the program went on without: it may fail again. What it gets is given back at once.
    MayFail,
    /// It got none there and has to have it here. What it gets is given back at once.
    ServedOnce,
}

/// The operations of a recording without those that set a limit of their own or forget statistics.
#[derive(Debug)]
pub struct Program<'a> {
    pub(super) kind: Kind,
    pub(super) steps: Vec<Doing<'a>>,
    pub(super) block_count: usize,
    requested_peak_bytes: u64,
    allocation_count: usize,
    refused_count: usize,
    notes: Vec<String>,
}

impl<'a> Program<'a> {
    /// What is run of a recording; with `serves_ooms` what it was refused has to be served.
    pub fn new(recording: &'a Recording, serves_ooms: bool) -> Self {
        let mut program = Self {
            kind: recording.kind,
            steps: Vec::with_capacity(recording.steps.len()),
            block_count: recording.block_count,
            requested_peak_bytes: 0,
            allocation_count: 0,
            refused_count: 0,
            notes: Vec::new(),
        };
        let mut live: HashMap<usize, u64> = HashMap::new();
        let (mut live_bytes, mut limits) = (0_u64, 0_u64);
        for step in &recording.steps {
            let mut need = Need::None;
            match &step.operation {
                Operation::Allocate { block, bytes, .. } => {
                    let was_refused = block.id.is_none() || step.answer == Some(Answer::OutOfMemory);
                    need = match (was_refused, serves_ooms) {
                        (false, _) => Need::Served,
                        (true, false) => Need::MayFail,
                        (true, true) => Need::ServedOnce,
                    };
                    program.allocation_count += 1;
                    program.refused_count += usize::from(was_refused);
                    if need != Need::MayFail {
                        program.requested_peak_bytes =
                            program.requested_peak_bytes.max(live_bytes.saturating_add(*bytes));
                    }
                    if need == Need::Served {
                        live_bytes = live_bytes.saturating_add(*bytes);
                        live.insert(block.index, *bytes);
                    }
                }
                Operation::Free { block } | Operation::FreeInUse { block } => {
                    live_bytes -= live.remove(&block.index).unwrap_or(0);
                }
                Operation::SetFraction { .. } => {
                    limits += 1;
                    continue;
                }
                Operation::ResetPeak | Operation::ResetAccumulated | Operation::Mark { .. } => continue,
                _ => {}
            }
            program.steps.push(Doing { number: step.number, operation: &step.operation, need });
        }
        program.notes = notes(recording, program.refused_count, limits, serves_ooms);
        program
    }

    /// Whether a recording applies settings at run time.
    pub fn changes_settings(recording: &Recording) -> bool {
        recording.steps.iter().any(|step| matches!(step.operation, Operation::Settings { .. }))
    }

    /// The most bytes that have to be there at once, as asked for. No limit below it will do.
    pub fn requested_peak_bytes(&self) -> u64 {
        self.requested_peak_bytes
    }

    /// How many allocations there are.
    pub fn allocation_count(&self) -> usize {
        self.allocation_count
    }

    /// How many of them the recording was refused.
    pub fn refused_count(&self) -> usize {
        self.refused_count
    }

    /// What is not as recorded, or not in the recording.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// An operation's place in the file, and what it is.
    pub(super) fn describe(&self, doing: &Doing<'_>) -> String {
        let what = match self.kind {
            Kind::Trace => "line",
            Kind::Snapshot => "entry",
            Kind::Program | Kind::Golden => "step",
        };
        format!("{what} {}, {}", doing.number, doing.operation)
    }
}

fn notes(recording: &Recording, refused: usize, limits: u64, serves_ooms: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if recording.initial_block_count > 0 {
        let blocks = counted(recording.initial_block_count as u64, "block");
        let come = if recording.initial_block_count == 1 { "comes" } else { "come" };
        notes.push(format!(
            "the recording begins in the middle of a run: {blocks} allocated before it {come} first, and what \
             the run needed before is not known"
        ));
    }
    if refused > 0 {
        let requests = counted(refused as u64, "request");
        notes.push(if serves_ooms {
            format!("{requests} that found no memory in the recording must be served here")
        } else {
            format!(
                "{requests} found no memory in the recording and may fail here too; --serve-ooms says they must not"
            )
        });
    }
    if limits > 0 {
        let times = counted(limits, "time");
        notes.push(format!("the recording sets its memory limit {times}, which is passed over"));
    }
    if Program::changes_settings(recording) {
        notes.push(
            "the recording changes its settings at run time, which only the policy `recorded` does too".to_owned(),
        );
    }
    notes.extend(recording.left_out.clone());
    notes
}
