//! How many instructions an allocation, a free and a scope take, and how they grow with the number of blocks.
//!
//! ```text
//! hot_path_instructions [--check | --bless | --million]
//! ```
//!
//! With `--check` it fails where one takes more than the file `limits.txt` and the tolerance allow, or grows faster than it may;
//! `--bless` writes the file anew. `--million` counts with a million blocks too, which takes minutes, and judges nothing. Where
//! valgrind is not there it says that nothing was checked, and succeeds.

mod cases;
mod workload;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use memtrack_instructions::limits::{Limits, TOLERANCE_PERCENT, Verdict};
use memtrack_instructions::{Failure, callgrind};

use self::cases::{COUNTED, Growth, MILLION, growths, plain};

/// What the file says of itself.
const HEADING: &str = "\
# Instructions of an operation, counted by valgrind. Written by
#     cargo run --release -p memtrack-instructions -- --bless
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Show,
    Check,
    Bless,
    Million,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => all(Mode::Show),
        ["--check"] => all(Mode::Check),
        ["--bless"] => all(Mode::Bless),
        ["--million"] => all(Mode::Million),
        ["case", name] => cases::run(name),
        _ => Err("usage: hot_path_instructions [--check | --bless | --million]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("limits.txt")
}

fn count(name: &str) -> Result<u64, Failure> {
    let counts = callgrind::count(&["case", name])?;
    Ok(counts.first().ok_or("the case marked nothing")? / COUNTED)
}

fn all(mode: Mode) -> Result<(), Failure> {
    if !callgrind::is_there() {
        return Ok(());
    }
    let limits = if mode == Mode::Bless { Limits::default() } else { Limits::read(&file())? };
    let mut counts = Vec::new();
    println!("| instructions | now | limit |\n|---|---:|---:|");
    for name in plain() {
        let count = count(&name)?;
        let known = limits.of(&name).map_or_else(|| "–".to_owned(), |known| known.to_string());
        println!("| {name} | {count} | {known} |");
        counts.push((name, count));
    }
    let too_fast = show_growths(mode == Mode::Million)?;
    if mode == Mode::Bless {
        Limits::write(&file(), HEADING, &counts)?;
        println!("\nwritten: {}", file().display());
    }
    let exceeded = if mode == Mode::Bless { 0 } else { show_verdicts(&limits, &counts) };
    if mode == Mode::Check && exceeded > 0 {
        return Err("more instructions than there may be; if that is meant, run with --bless".into());
    }
    // No file may allow this.
    if matches!(mode, Mode::Check | Mode::Bless) && too_fast > 0 {
        return Err("the instructions of an operation grow faster than a logarithm".into());
    }
    Ok(())
}

/// Says what is above and below the limits. Returns how many are above.
fn show_verdicts(limits: &Limits, counts: &[(String, u64)]) -> usize {
    let mut exceeded = 0;
    println!();
    for (name, count) in counts {
        match (limits.judge(name, *count), limits.of(name)) {
            (Verdict::Kept, _) => {}
            (Verdict::Exceeded, Some(known)) => {
                exceeded += 1;
                println!("{name}: {count} instructions, at most {known} and {TOLERANCE_PERCENT} % allowed");
            }
            (Verdict::Exceeded, None) => {
                exceeded += 1;
                println!("{name}: {count} instructions, and no limit is known: run with --bless");
            }
            (Verdict::Undercut, known) => {
                let known = known.unwrap_or_default();
                println!("notice: {name}: {count} instructions in place of {known}; run with --bless to keep that");
            }
        }
    }
    for name in limits.unused(counts) {
        println!("notice: {name}: nothing of this name is counted any more; run with --bless");
    }
    exceeded
}

/// Shows what operations take among few and many blocks. Returns how many grow faster than they may.
fn show_growths(with_million: bool) -> Result<usize, Failure> {
    let million = with_million.then_some(MILLION);
    println!(
        "\n| blocks | {} | may grow to |",
        cases::COUNTS.into_iter().chain(million).map(|count| count.to_string()).collect::<Vec<_>>().join(" | ")
    );
    println!("|---{}|---:|", "|---:".repeat(cases::COUNTS.len() + usize::from(with_million)));
    let mut too_fast = 0;
    for Growth { name, counts, case } in growths() {
        let sizes = counts.into_iter().chain(million);
        let taken: BTreeMap<usize, u64> =
            sizes.map(|size| Ok((size, count(&case(size))?))).collect::<Result<_, Failure>>()?;
        let (few, many) = (taken[&counts[0]], taken[&counts[1]]);
        let allowed = cases::allowed(few);
        let cells = taken.values().map(|count| format!("{count} | ")).collect::<String>();
        let note = if counts == cases::COUNTS { String::new() } else { format!(" (among {counts:?})") };
        println!("| {name}{note} | {cells}{allowed} |");
        if many > allowed {
            too_fast += 1;
            println!("{name}: {many} instructions among {} blocks, at most {allowed} allowed", counts[1]);
        }
    }
    Ok(too_fast)
}
