//! Comparing a run with what the file says PyTorch answered.

use std::fmt;

use memtrack::MemoryStats;
use serde::Serialize;

use super::figures::Figures;
use super::history;
use crate::operation::Operation;
use crate::recording::{Answer, Expected, Kind, Recording, Step};
use crate::session::{Outcome, Place, Session, SessionError, Setup};
use crate::statistics::{Expectation, Values};

/// What came of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Verification {
    /// The first thing that is not as expected; nothing behind it was run.
    pub difference: Option<Difference>,
    /// How many values of statistics agree.
    pub statistics: usize,
    /// How many addresses agree.
    pub addresses: usize,
    /// How many operations were done.
    pub operations: usize,
    /// The run's figures, up to the difference.
    pub figures: Figures,
}

/// What a run did, to be compared with another's.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Trail {
    /// How many steps were done.
    pub(super) step_count: usize,
    /// What each allocation came to.
    pub(super) answers: Vec<Outcome>,
    /// The statistics at the end.
    pub(super) stats: MemoryStats,
}

/// Something that is not as PyTorch had it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The step's number in the file, from 0; in a trace the line's, from 1; `None` before the first step and after the last.
    pub step: Option<usize>,
    /// What was done there, or `start` or `end`.
    pub operation: String,
    /// The statistic, or `address`, or `memory_summary`.
    pub key: String,
    /// What the file says.
    pub expected: Figure,
    /// What came out.
    pub got: Figure,
}

/// A side of a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Figure {
    /// A statistic.
    Statistic(i64),
    /// An address.
    Address(u64),
    /// What no number says.
    Text(String),
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Statistic(value) => value.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Difference {
    /// For people; `kind` says what the numbers of steps are.
    pub fn describe(&self, kind: Kind) -> String {
        let Self { step, operation, key, expected, got } = self;
        let place = match step {
            Some(number) if kind == Kind::Trace => format!("line {number}, {operation}"),
            Some(number) => format!("step {number}, {operation}"),
            None => operation.clone(),
        };
        format!("{place}: {key}: expected {expected}, got {got}")
    }
}

const OUT_OF_MEMORY: &str = "out of memory";
const MEMORY: &str = "memory";

/// Runs a recording until something is not as expected.
pub(super) fn verify(
    recording: &Recording,
    expected: &Expected,
    setup: &Setup,
) -> Result<(Verification, Trail), SessionError> {
    let mut session = Session::new(setup, recording.block_count)?;
    session.follow(&recording.script);
    let mut run = Run {
        expected,
        compares_addresses: setup.place == Place::Simulated,
        table: Expectation::default(),
        done: Verification {
            difference: None,
            statistics: 0,
            addresses: 0,
            operations: 0,
            figures: Figures::default(),
        },
        trail: Trail::default(),
    };
    if run.compares_addresses {
        history::start(expected, &session);
    }
    run.done.difference = run.run(recording, &mut session)?;
    run.trail.stats = session.stats();
    run.done.figures.at_end(&run.trail.stats);
    Ok((run.done, run.trail))
}

struct Run<'a> {
    expected: &'a Expected,
    compares_addresses: bool,
    /// What statistics should be now, where steps only say what changes.
    table: Expectation,
    done: Verification,
    trail: Trail,
}

impl Run<'_> {
    fn run(&mut self, recording: &Recording, session: &mut Session) -> Result<Option<Difference>, SessionError> {
        let at_start = self.expected.start.iter().copied().collect();
        if let Some(difference) = self.compare(&at_start, None, &"start", session) {
            return Ok(Some(difference));
        }
        if self.expected.cumulative {
            self.table = at_start;
        }
        let mut steps = recording.steps.iter().peekable();
        while let Some(step) = steps.next() {
            if let Some(difference) = self.answer(step, recording.kind, session)? {
                return Ok(Some(difference));
            }
            step.statistics.iter().for_each(|(key, value)| self.table.set(*key, *value));
            // One step of the file can be several things to do.
            if steps.peek().is_some_and(|next| next.number == step.number) {
                continue;
            }
            let table = std::mem::take(&mut self.table);
            let difference = self.compare(&table, Some(step.number), &step.operation, session);
            let difference = difference.or_else(|| self.compare_device_calls(step, session));
            if difference.is_some() {
                return Ok(difference);
            }
            if self.expected.cumulative {
                self.table = table;
            }
            let asks = match step.operation {
                Operation::CompleteFree { .. } => false,
                Operation::Mark { .. } => recording.kind != Kind::Trace,
                _ => true,
            };
            self.done.operations += usize::from(asks);
        }
        let at_end = self.expected.end.iter().copied().collect();
        let difference = self.compare(&at_end, None, &"end", session);
        let difference = difference.or_else(|| self.compare_history(recording.kind, session));
        Ok(difference.or_else(|| self.compare_summaries(session)))
    }

    fn compare_device_calls(&self, step: &Step, session: &Session) -> Option<Difference> {
        if !self.compares_addresses || self.expected.device_calls.is_none() {
            return None;
        }
        history::compare_step(self.expected, step.number, &step.operation.to_string(), session)
    }

    /// What the allocator did by itself, and its segments.
    fn compare_history(&self, kind: Kind, session: &Session) -> Option<Difference> {
        if !self.compares_addresses {
            return None;
        }
        let history = self.expected.history.as_ref();
        let difference = history.and_then(|expected| history::compare_whole(expected, kind, session));
        let segments = self.expected.segments.as_ref();
        difference.or_else(|| segments.and_then(|expected| history::compare_segments(expected, history, session)))
    }

    /// Does one thing; the difference, if it did not come to what it should.
    fn answer(&mut self, step: &Step, kind: Kind, session: &mut Session) -> Result<Option<Difference>, SessionError> {
        self.done.figures.before(&step.operation, session);
        if let Operation::CompleteEvents { count } = step.operation {
            // An event for each block that was given back and is still in use.
            let stats = session.stats();
            let outstanding = stats.active.all.current - stats.allocation.all.current;
            if count as u128 > outstanding.max(0) as u128 {
                return Ok(Some(Difference {
                    step: Some(step.number),
                    operation: step.operation.to_string(),
                    key: "events_completed".to_owned(),
                    expected: Figure::Text(format!("{count} outstanding events")),
                    got: Figure::Text(outstanding.to_string()),
                }));
            }
        }
        if let Some(answer) = step.answer {
            session.expect_answer(if let Answer::Address(address) = answer { Some(address) } else { None });
        }
        let contradiction = match session.perform(&step.operation) {
            Ok(outcome) => {
                self.trail.step_count += 1;
                if matches!(step.operation, Operation::Allocate { .. }) {
                    self.trail.answers.push(outcome);
                }
                self.contradiction(step.answer, outcome)
            }
            // A device without bytes fails only where its script and the run contradict each other.
            Err(SessionError::Allocation(error)) if self.compares_addresses => {
                let place = if kind == Kind::Trace { "line" } else { "step" };
                return Err(SessionError::Script {
                    place: format!("{place} {}, {}", step.number, step.operation),
                    error,
                });
            }
            Err(error) => return Err(error),
        };
        Ok(contradiction.map(|got| {
            let expected = match step.answer {
                Some(Answer::Address(address)) => Figure::Address(address),
                Some(Answer::OutOfMemory) => Figure::Text(OUT_OF_MEMORY.to_owned()),
                Some(Answer::Served) | None => Figure::Text(MEMORY.to_owned()),
            };
            let operation = step.operation.to_string();
            Difference { step: Some(step.number), operation, key: "address".to_owned(), expected, got }
        }))
    }

    /// What an allocation came to, if that is not what it should.
    fn contradiction(&mut self, answer: Option<Answer>, outcome: Outcome) -> Option<Figure> {
        match (answer?, outcome) {
            (Answer::Address(expected), Outcome::Address(got)) if self.compares_addresses => {
                self.done.addresses += usize::from(expected == got);
                (expected != got).then_some(Figure::Address(got))
            }
            (Answer::OutOfMemory, Outcome::Address(got)) => Some(Figure::Address(got)),
            (Answer::Address(_) | Answer::Served, Outcome::OutOfMemory) => Some(Figure::Text(OUT_OF_MEMORY.to_owned())),
            _ => None,
        }
    }

    fn compare(
        &mut self,
        expectation: &Expectation,
        step: Option<usize>,
        operation: &dyn fmt::Display,
        session: &Session,
    ) -> Option<Difference> {
        let count = expectation.len();
        if count == 0 {
            return None;
        }
        let Some((key, expected, got)) = expectation.first_difference(&Values::from(&session.stats())) else {
            self.done.statistics += count;
            return None;
        };
        let (expected, got) = (Figure::Statistic(expected), Figure::Statistic(got));
        Some(Difference { step, operation: operation.to_string(), key: key.name().to_owned(), expected, got })
    }

    fn compare_summaries(&self, session: &Session) -> Option<Difference> {
        let stats = session.stats();
        self.expected.summaries.iter().find_map(|(abbreviated, expected)| {
            let got = stats.torch_memory_summary(0, *abbreviated);
            let differs = |(expected, got): &(&str, &str)| expected != got;
            let mut lines = expected.lines().zip(got.lines()).enumerate();
            let (line, (expected, got)) = match lines.find(|(_, lines)| differs(lines)) {
                Some(found) => found,
                None if *expected == got => return None,
                None => {
                    let lengths = (expected.lines().count(), got.lines().count());
                    (lengths.0.min(lengths.1), ("a table as long as memtrack's", "another length"))
                }
            };
            let name = if *abbreviated { "memory_summary_abbreviated" } else { "memory_summary" };
            let key = format!("{name}, line {}", line + 1);
            let text = |text: &str| Figure::Text(text.to_owned());
            Some(Difference { step: None, operation: "end".to_owned(), key, expected: text(expected), got: text(got) })
        })
    }
}
