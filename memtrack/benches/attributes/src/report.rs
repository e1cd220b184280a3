//! What the processes measured, as tables.

use memtrack_attribute_bench::Failure;
use memtrack_attribute_bench::sample::{Measured, median};
use memtrack_attribute_bench::state::{STATES, State, fields_recorded};
use memtrack_attribute_bench::subjects::{self, Form, INSTRUMENT, INSTRUMENT_AND_RECORD, Library, PLAIN, Subject};
use memtrack_attribute_bench::table::{markdown, number};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program, a state for it, and which subjects it is there for.
pub(crate) struct Process {
    program: PathBuf,
    state: State,
    shows: fn(Library) -> bool,
    /// What tells this build's subjects apart in the table.
    suffix: String,
    /// By a subject's title, what was measured in each round.
    rounds: BTreeMap<String, Vec<Measured>>,
}

impl Process {
    pub(crate) fn new(program: &Path, state: State, shows: fn(Library) -> bool, suffix: &str) -> Self {
        Self { program: program.to_owned(), state, shows, suffix: suffix.to_owned(), rounds: BTreeMap::new() }
    }

    /// One round.
    pub(crate) fn run(&mut self, samples: usize) -> Result<(), Failure> {
        let state = self.state.name();
        let output = Command::new(&self.program).args(["in-state", state, &samples.to_string()]).output()?;
        if !output.status.success() {
            return Err(format!("in state {state}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        for line in String::from_utf8(output.stdout)?.lines() {
            let [title, nanoseconds, allocations] = line.split('\t').collect::<Vec<_>>()[..] else {
                return Err(format!("in state {state}: not a line of results: {line}").into());
            };
            let measured = Measured {
                title: title.to_owned(),
                nanoseconds: nanoseconds.parse()?,
                allocations: allocations.parse()?,
            };
            self.rounds.entry(title.to_owned()).or_default().push(measured);
        }
        Ok(())
    }

    /// The subjects that were measured and are to be shown, with what was measured.
    fn shown(&self) -> impl Iterator<Item = (&'static Subject, &[Measured])> {
        let shown = subjects::all().filter(|subject| (self.shows)(subject.library));
        shown.filter_map(|subject| Some((subject, self.rounds.get(&subject.title())?.as_slice())))
    }

    /// The median over the rounds of a figure of two subjects' times in one round. None for a subject beside itself.
    fn beside(&self, subject: &Subject, other: &str, figure: fn(f64, f64) -> f64) -> Option<f64> {
        let other = subjects::all().find(|known| known.form == subject.form && known.name == other)?;
        if other.name == subject.name {
            return None;
        }
        let (these, those) = (self.rounds.get(&subject.title())?, self.rounds.get(&other.title())?);
        let figures = these.iter().zip(those).map(|(a, b)| figure(a.nanoseconds, b.nanoseconds));
        Some(median(&mut figures.collect::<Vec<_>>()))
    }
}

/// A row for each subject in each state.
pub(crate) fn full_table(processes: &[Process]) -> String {
    let header =
        ["state", "function", "ns", "of rounds", "− fn", "÷ instrument", "÷ + record_all", "allocations", "fields"];
    let mut rows = Vec::new();
    for process in processes {
        for (subject, measured) in process.shown() {
            let times = Times::of(measured);
            let or_none = |value: Option<f64>| value.map_or_else(String::new, number);
            rows.push(vec![
                process.state.name().to_owned(),
                format!("{}{}", subject.title(), process.suffix),
                number(times.median),
                format!("{}–{}", number(times.least), number(times.most)),
                or_none(process.beside(subject, PLAIN, |a, b| a - b)),
                or_none(process.beside(subject, INSTRUMENT, |a, b| a / b)),
                or_none(process.beside(subject, INSTRUMENT_AND_RECORD, |a, b| a / b)),
                number(allocations(measured)),
                fields_recorded(subject.call).to_string(),
            ]);
        }
    }
    markdown(&header, &rows, 2)
}

/// A row for each subject, a column for each state. The last columns are the widest spread of rounds in any state, and the
/// allocations of a call in each.
pub(crate) fn short_table(processes: &[Process]) -> String {
    let mut rows: Vec<Row> = Vec::new();
    for process in processes {
        for (subject, measured) in process.shown() {
            let title = format!("{}{}", subject.title(), process.suffix);
            let index = rows.iter().position(|row| row.title == title).unwrap_or_else(|| {
                rows.push(Row { title, form: subject.form, cells: STATES.map(|_| None), spread: 0.0 });
                rows.len() - 1
            });
            let times = Times::of(measured);
            let row = &mut rows[index];
            row.spread = row.spread.max((times.most - times.least) / times.median);
            if let Some(column) = STATES.iter().position(|state| *state == process.state) {
                row.cells[column] = Some((times.median, allocations(measured)));
            }
        }
    }
    rows.sort_by_key(|row| row.form as usize);
    let header = std::iter::once("ns").chain(STATES.map(State::name)).chain(["spread", "allocations"]);
    let rows = rows.into_iter().map(|row| {
        let times = row.cells.iter().map(|cell| cell.map_or_else(String::new, |(time, _)| number(time)));
        let made = row.cells.iter().map(|cell| cell.map_or_else(|| "–".to_owned(), |(_, made)| format!("{made:.0}")));
        let last = [format!("{:.0} %", row.spread * 100.0), made.collect::<Vec<_>>().join("/")];
        std::iter::once(row.title).chain(times).chain(last).collect()
    });
    markdown(&header.collect::<Vec<_>>(), &rows.collect::<Vec<_>>(), 1)
}

struct Row {
    title: String,
    form: Form,
    /// By state, the time and the allocations of a call.
    cells: [Option<(f64, f64)>; STATES.len()],
    spread: f64,
}

/// The times of a call over the rounds.
struct Times {
    median: f64,
    least: f64,
    most: f64,
}

impl Times {
    fn of(measured: &[Measured]) -> Self {
        let mut times: Vec<f64> = measured.iter().map(|measured| measured.nanoseconds).collect();
        let median = median(&mut times);
        let bound = |bound: fn(f64, f64) -> f64| times.iter().copied().fold(median, bound);
        Self { median, least: bound(f64::min), most: bound(f64::max) }
    }
}

fn allocations(measured: &[Measured]) -> f64 {
    median(&mut measured.iter().map(|measured| measured.allocations).collect::<Vec<_>>())
}
