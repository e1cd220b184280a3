//! How long a crate takes to compile whose functions all have an attribute, and how large it is.
//!
//! ```text
//! attribute_builds [--rounds N] [--functions N]
//! ```
//!
//! The crates differ in the attribute only. Dependencies are built first; then the crates take turns, and only their
//! libraries are compiled anew. Times are those of the processors, which other programs disturb less than a clock on the
//! wall, and of both.

use memtrack_attribute_bench::Failure;
use memtrack_attribute_bench::sample::median;
use memtrack_attribute_bench::table::markdown;
use source::{VARIANTS, Variant};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;
use std::{env, fs};

mod source;

/// What cargo is asked to do, and how a table calls it.
const TASKS: [(&str, &[&str]); 3] =
    [("check", &["check"]), ("debug", &["build"]), ("release", &["build", "--release"])];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match Options::read(&arguments).and_then(|options| measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    rounds: usize,
    functions: usize,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self { rounds: 5, functions: 200 };
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("{option} needs a value"))?.parse()?;
            match option.as_str() {
                "--rounds" => options.rounds = value,
                "--functions" => options.functions = value,
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        Ok(options)
    }
}

/// How long a command took, in seconds: on the wall, and of processors, where the system tells.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    processor: Option<f64>,
}

fn measure(options: &Options) -> Result<(), Failure> {
    let folder = write_crates(options.functions)?;
    for (name, task) in TASKS {
        eprintln!("dependencies: {name}");
        for variant in &VARIANTS {
            cargo(&folder, task, variant)?;
        }
    }
    let mut took: Vec<Vec<Vec<Took>>> = VARIANTS.iter().map(|_| TASKS.map(|_| Vec::new()).into()).collect();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for (index, (_, task)) in TASKS.iter().enumerate() {
            for turn in 0..VARIANTS.len() {
                let turn = (turn + round) % VARIANTS.len();
                took[turn][index].push(cargo(&folder, task, &VARIANTS[turn])?);
            }
        }
    }
    print!("{}", table(&folder, options.functions, &took));
    Ok(())
}

/// Writes all crates, in a workspace of their own beside this program, with the versions of this project's lock file.
fn write_crates(functions: usize) -> Result<PathBuf, Failure> {
    let program = env::current_exe()?;
    let folder = program.parent().ok_or("the program lies in no folder")?.join("attribute-builds");
    let memtrack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    fs::create_dir_all(&folder)?;
    let members = VARIANTS.each_ref().map(|variant| variant.name);
    fs::write(folder.join("Cargo.toml"), format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n"))?;
    fs::copy(memtrack.join("../Cargo.lock"), folder.join("Cargo.lock"))?;
    for variant in &VARIANTS {
        let sources = folder.join(variant.name).join("src");
        fs::create_dir_all(&sources)?;
        fs::write(folder.join(variant.name).join("Cargo.toml"), variant.manifest(&memtrack.display().to_string()))?;
        fs::write(sources.join("lib.rs"), variant.library(functions))?;
        fs::write(sources.join("main.rs"), variant.program())?;
    }
    Ok(folder)
}

/// Compiles one crate's library, which cargo then believes to be new.
fn cargo(folder: &Path, task: &[&str], variant: &Variant) -> Result<Took, Failure> {
    let library = folder.join(variant.name).join("src/lib.rs");
    let source = fs::read(&library)?;
    fs::write(&library, source)?;
    let (start, before) = (Instant::now(), processor_seconds());
    run(folder, task, variant, "--lib")?;
    let wall = start.elapsed().as_secs_f64();
    let processor = before.zip(processor_seconds()).map(|(before, after)| after - before);
    Ok(Took { wall, processor })
}

fn run(folder: &Path, task: &[&str], variant: &Variant, what: &str) -> Result<(), Failure> {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(folder)
        .args(task)
        .args(["--quiet", "--package", variant.name, what])
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("RUSTFLAGS")
        .output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{}: {}", variant.name, String::from_utf8_lossy(&output.stderr)).into())
    }
}

/// What ended processes of this one have used of processors.
fn processor_seconds() -> Option<f64> {
    // Behind the name in brackets, which may hold anything; times of children are the 14th and 15th numbers, in hundredths.
    let status = fs::read_to_string("/proc/self/stat").ok()?;
    let numbers: Vec<&str> = status.rsplit(')').next()?.split_whitespace().collect();
    let ticks: f64 = numbers.get(13)?.parse::<f64>().ok()? + numbers.get(14)?.parse::<f64>().ok()?;
    Some(ticks / 100.0)
}

fn table(folder: &Path, functions: usize, took: &[Vec<Vec<Took>>]) -> String {
    let functions = format!("{functions} functions");
    let header = [
        functions.as_str(),
        "check: s",
        "of wall",
        "debug: s",
        "of wall",
        "release: s",
        "of wall",
        "text of the library",
        "text of the program",
    ];
    let rows = VARIANTS.iter().zip(took).map(|(variant, tasks)| {
        let seconds = tasks.iter().flat_map(|took| {
            let wall = median(&mut took.iter().map(|took| took.wall).collect::<Vec<_>>());
            let processor = median(&mut took.iter().filter_map(|took| took.processor).collect::<Vec<_>>());
            [format!("{processor:.2}"), format!("{wall:.2}")]
        });
        let library = folder.join(format!("target/release/lib{}.rlib", variant.name));
        let program = run(folder, &["build", "--release"], variant, "--bins")
            .ok()
            .and_then(|()| text_bytes(&folder.join("target/release").join(variant.name)));
        let sizes = [text_bytes(&library), program]
            .map(|bytes| bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string()));
        std::iter::once(variant.name.to_owned()).chain(seconds).chain(sizes).collect()
    });
    markdown(&header, &rows.collect::<Vec<_>>(), 1)
}

/// How many bytes of instructions and constants a file holds, where the tool `size` is there: of a library, all objects.
fn text_bytes(file: &Path) -> Option<u64> {
    let output = Command::new("size").arg("--totals").arg(file).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().last()?.split_whitespace().next()?.parse().ok()
}
