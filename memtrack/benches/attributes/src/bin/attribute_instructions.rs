//! How many instructions a call of each subject takes, counted by valgrind: the same on a busy machine as on an idle one.
//!
//! ```text
//! attribute_instructions [--check]
//! ```
//!
//! With `--check` it fails where `#[track_memory]` takes more than it may. Where valgrind is not there it says so and
//! succeeds.

use memtrack_attribute_bench::Failure;
use memtrack_attribute_bench::counting::Counting;
use memtrack_attribute_bench::state::{STATES, State};
use memtrack_attribute_bench::subjects::{self, Form, INSTRUMENT_AND_RECORD, Library, PLAIN, Subject};
use memtrack_attribute_bench::table::markdown;
use memtrack_instructions::callgrind;
use std::collections::BTreeMap;
use std::env;
use std::process::ExitCode;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Calls before the counted ones, after which all caches of the libraries are warm.
const WARMING_CALLS: u64 = 100;
const COUNTED_CALLS: u64 = 500;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => all_states(false),
        ["--check"] => all_states(true),
        ["in-state", state] => in_state(state),
        _ => Err("usage: attribute_instructions [--check]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// One process's part: calls the subjects, with a mark before and after each.
fn in_state(state: &str) -> Result<(), Failure> {
    let state = STATES.into_iter().find(|known| known.name() == state).ok_or("no such state")?;
    let _entered = state.enter(false)?;
    for subject in counted(state) {
        (subject.call)(WARMING_CALLS);
        callgrind::counted(|| (subject.call)(COUNTED_CALLS));
    }
    Ok(())
}

/// The subjects whose instructions are always the same ones in a state.
fn counted(state: State) -> impl Iterator<Item = &'static Subject> {
    let peers = state == State::Off;
    subjects::all().filter(move |subject| match subject.library {
        Library::Fastrace | Library::Hotpath => peers,
        library => state.concerns(library),
    })
}

type Counts = BTreeMap<String, u64>;

fn all_states(check: bool) -> Result<(), Failure> {
    if !callgrind::is_there() {
        return Ok(());
    }
    let counts: Vec<Counts> = STATES.iter().map(|state| count(*state)).collect::<Result<_, _>>()?;
    print!("{}", table(&counts));
    let exceeded: Vec<String> = limits(&counts).filter_map(|limit| limit.exceeded()).collect();
    for line in &exceeded {
        println!("{line}");
    }
    if check && !exceeded.is_empty() { Err("more instructions than there may be".into()) } else { Ok(()) }
}

/// Runs this program in a state under valgrind.
fn count(state: State) -> Result<Counts, Failure> {
    let counts = callgrind::count(&["in-state", state.name()])?;
    Ok(counted(state).zip(counts).map(|(subject, count)| (subject.title(), count / COUNTED_CALLS)).collect())
}

fn table(counts: &[Counts]) -> String {
    let header: Vec<&str> = std::iter::once("instructions").chain(STATES.iter().map(|state| state.name())).collect();
    let rows = subjects::all().map(|subject| {
        let title = subject.title();
        let cells = counts.iter().map(|state| state.get(&title).map_or_else(String::new, u64::to_string));
        std::iter::once(title.clone()).chain(cells).collect()
    });
    markdown(&header, &rows.collect::<Vec<_>>(), 1)
}

/// How many instructions a subject took in a state, and may take.
struct Limit {
    what: String,
    taken: u64,
    allowed: u64,
}

impl Limit {
    fn exceeded(&self) -> Option<String> {
        let Self { what, taken, allowed } = self;
        (taken > allowed).then(|| format!("{what}: {taken} instructions, at most {allowed} allowed"))
    }
}

/// What `#[track_memory]` may take, beside others of the same form.
fn limits(counts: &[Counts]) -> impl Iterator<Item = Limit> {
    STATES.iter().zip(counts).flat_map(|(state, counts)| {
        counted(*state).filter(|subject| subject.library == Library::Memtrack).filter_map(move |subject| {
            let taken = *counts.get(&subject.title())?;
            let other = |name| counts.get(&Subject { name, ..*subject }.title()).copied();
            let allowed = allowed(*state, subject, other(PLAIN)?, other(INSTRUMENT_AND_RECORD))?;
            Some(Limit { what: format!("{}, {}", subject.title(), state.name()), taken, allowed })
        })
    })
}

/// The aims, in instructions instead of time: so many more than the plain function for a call that is not measured, and
/// half as many again as a user's own recording for one that a subscriber hears of. What is measured for nobody but a
/// summary has no such measure, and may not grow much.
fn allowed(state: State, subject: &Subject, plain: u64, instrument_and_record: Option<u64>) -> Option<u64> {
    let (switched_off, unheard, summarised) = match subject.form {
        Form::Synchronous => (20, 30, 1800),
        Form::Asynchronous => (45, 55, 2300),
        Form::Dynamic => (62, 75, 2300),
    };
    match state {
        State::Off | State::OffText => Some(plain + switched_off),
        State::LevelOff | State::On if subject.name.contains("phase") => Some(plain + summarised),
        State::LevelOff | State::On => Some(plain + unheard),
        State::Registry | State::Text | State::Json => instrument_and_record.map(|other| other + other / 2),
    }
}
