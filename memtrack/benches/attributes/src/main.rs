//! Times and allocations of every subject in every state, side by side in one run.
//!
//! ```text
//! attributes [--rounds N] [--samples N] [--without-features PROGRAM] [--with-hotpath-alloc PROGRAM]
//!            [--beside PROGRAM] [--short]
//! ```
//!
//! Every state is a process of its own. They take turns, and within each the subjects do: a round is a turn of all. The
//! programs named by the options are this one: built without its features or with more of them, to measure the attributes in those states; or,
//! with `--beside`, which can be given several times, of another commit, to compare `#[track_memory]` there; its rows bear the
//! program's name. `--short` prints a line for each subject.

use memtrack_attribute_bench::Failure;
use memtrack_attribute_bench::counting::Counting;
use memtrack_attribute_bench::sample::{Measured, measure};
use memtrack_attribute_bench::state::{STATES, State};
use memtrack_attribute_bench::subjects::Library;
use report::{Process, full_table, short_table};
use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

mod report;

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("in-state") => in_state(&arguments[1..]),
        _ => Options::read(&arguments).and_then(|options| all_states(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// One process's part: measures in one state, and prints a line for each subject.
fn in_state(arguments: &[String]) -> Result<(), Failure> {
    let [state, samples] = arguments else { return Err("in-state needs the state and the number of samples".into()) };
    let state = STATES.into_iter().find(|known| known.name() == state).ok_or("no such state")?;
    let samples = samples.parse()?;
    let entered = state.enter(true)?;
    for Measured { title, nanoseconds, allocations } in measure(state, samples) {
        println!("{title}\t{nanoseconds}\t{allocations}");
    }
    drop(entered);
    Ok(())
}

struct Options {
    rounds: usize,
    samples: usize,
    without_features: Option<PathBuf>,
    with_hotpath_alloc: Option<PathBuf>,
    beside: Vec<PathBuf>,
    short: bool,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self {
            rounds: 7,
            samples: 200,
            without_features: None,
            with_hotpath_alloc: None,
            beside: Vec::new(),
            short: false,
        };
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "--rounds" => options.rounds = value()?.parse()?,
                "--samples" => options.samples = value()?.parse()?,
                "--without-features" => options.without_features = Some(value()?.into()),
                "--with-hotpath-alloc" => options.with_hotpath_alloc = Some(value()?.into()),
                "--beside" => options.beside.push(value()?.into()),
                "--short" => options.short = true,
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        if options.rounds == 0 || options.samples == 0 {
            return Err("--rounds and --samples must be at least 1".into());
        }
        Ok(options)
    }
}

/// Starts the processes in turns, and prints the table.
fn all_states(options: &Options) -> Result<(), Failure> {
    let this = env::current_exe()?;
    let mut processes: Vec<Process> = STATES.map(|state| Process::new(&this, state, |_| true, "")).into();
    if let Some(program) = &options.without_features {
        let without = |library| matches!(library, Library::Fastrace | Library::Hotpath | Library::Memtrack);
        processes.push(Process::new(program, State::Off, without, ", feature off"));
    }
    if let Some(program) = &options.with_hotpath_alloc {
        let hotpath = |library| matches!(library, Library::Hotpath);
        processes.push(Process::new(program, State::Off, hotpath, ", hotpath-alloc"));
        processes.push(Process::new(program, State::On, hotpath, ", hotpath-alloc"));
    }
    for program in &options.beside {
        let compared = |library| matches!(library, Library::Plain | Library::Memtrack);
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        processes.extend(STATES.map(|state| Process::new(program, state, compared, &format!(", {name}"))));
    }
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        let first = round % processes.len();
        processes.rotate_left(first);
        for process in &mut processes {
            process.run(options.samples)?;
        }
        processes.rotate_right(first);
    }
    print!("{}", if options.short { short_table(&processes) } else { full_table(&processes) });
    Ok(())
}
