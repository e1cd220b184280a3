//! The shape matrix of `#[track_memory]`: each shape of `tests/shapes` as the plain function and in each annotated form,
//! in each edition.
//!
//! A cell holds if the shape compiles, if rustc and clippy report the same as about the plain function, if its functions
//! return the same, and if each call leaves one record. `cargo run -p memtrack-matrix` prints all cells and fails if one
//! does not hold. Words after `--` choose shapes whose names contain one of them, and a year chooses an edition.

mod cells;
mod compare;
mod form;
mod known;
mod lints;
mod marker;
mod pairs;
mod program;
mod shape;
mod table;
mod toolchain;
mod workers;

use crate::form::Edition;
use crate::shape::Shape;
use crate::toolchain::Toolchain;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut editions, mut words) = (Vec::new(), Vec::new());
    for word in std::env::args().skip(1) {
        match Edition::parse(&word) {
            Some(edition) => editions.push(edition),
            None => words.push(word),
        }
    }
    let is_whole = editions.is_empty() && words.is_empty();
    if editions.is_empty() {
        editions = Edition::ALL.to_vec();
    }
    match matrix(&words, &editions, is_whole) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the matrix and prints it; whether every cell holds.
fn matrix(words: &[String], editions: &[Edition], is_whole: bool) -> Result<bool, String> {
    let shapes: Vec<Shape> = shapes()?
        .into_iter()
        .filter(|shape| words.is_empty() || words.iter().any(|word| shape.name.contains(word.as_str())))
        .collect();
    if shapes.is_empty() {
        return Err(format!("no shape of tests/shapes is named like {words:?}"));
    }
    let toolchain = Toolchain::prepare()?;
    let cells = cells::run(&toolchain, &shapes, editions)?;
    let mut problems = table::print(&shapes, &cells, editions);
    if is_whole {
        problems.extend(known::unused(&shapes));
    }
    problems.extend(known::without_reason(&shapes));
    for problem in &problems {
        println!("\n✗ {problem}");
    }
    Ok(problems.is_empty())
}

/// All shapes in the order of their names: the files, and the one that is written here.
fn shapes() -> Result<Vec<Shape>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shapes");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.sort();
    let mut shapes = paths.iter().map(|path| Shape::read(path)).collect::<Result<Vec<_>, _>>()?;
    shapes.extend(pairs::shapes()?);
    shapes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(shapes)
}
