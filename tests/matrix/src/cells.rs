//! The cells of the matrix: compiling, calling and comparing.

use crate::compare::{Difference, Judgement, differences, judge};
use crate::form::{Edition, Form};
use crate::lints::{Compiled, compile, folder};
use crate::program::{Called, call};
use crate::shape::Shape;
use crate::toolchain::Toolchain;
use crate::workers;
use std::collections::BTreeMap;

/// Where a cell is: the shape's place in the list, the edition and the form.
pub(crate) type Place = (usize, Edition, Form);

/// What came of one cell.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    /// What does not hold; empty is good.
    pub(crate) problems: Vec<Problem>,
    /// Declared differences that were found.
    pub(crate) known: usize,
    /// How many reports were compared, and the lints that made them.
    pub(crate) reports: usize,
    pub(crate) lints: Vec<String>,
}

/// Something that does not hold.
#[derive(Debug)]
pub(crate) struct Problem {
    /// What is the same in every cell where it occurs.
    pub(crate) headline: String,
    pub(crate) detail: String,
}

impl Problem {
    fn new(headline: String) -> Self {
        Self { headline, detail: String::new() }
    }

    /// An error of rustc's: its first line, and the whole.
    fn error(rendered: &str) -> Self {
        let headline = format!("does not compile: {}", rendered.lines().next().unwrap_or_default());
        Self { headline, detail: format!("\n{rendered}") }
    }
}

/// Runs every cell.
pub(crate) fn run(
    toolchain: &Toolchain,
    shapes: &[Shape],
    editions: &[Edition],
) -> Result<BTreeMap<Place, Cell>, String> {
    for (edition, form) in columns(editions) {
        let folder = folder(toolchain, edition, form);
        // What an earlier run compiled must not be called.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    std::fs::write(toolchain.output.join("clippy.toml"), "").map_err(|error| format!("clippy.toml: {error}"))?;
    let places: Vec<Place> = columns(editions)
        .flat_map(|(edition, form)| (0..shapes.len()).map(move |index| (index, edition, form)))
        .filter(|(index, edition, form)| shapes[*index].applies(*edition, *form))
        .collect();
    let compiled = workers::map(&places, |(index, edition, form)| compile(toolchain, &shapes[*index], *edition, *form));
    let compiled: BTreeMap<Place, Compiled> = places
        .iter()
        .copied()
        .zip(compiled)
        .map(|(place, compiled)| Ok((place, compiled?)))
        .collect::<Result<_, String>>()?;
    let columns: Vec<(Edition, Form)> = columns(editions).collect();
    let called = workers::map(&columns, |(edition, form)| {
        let ready = places.iter().filter(|place| (place.1, place.2) == (*edition, *form));
        let ready = ready.filter(|place| compiled[place].errors.is_empty()).map(|place| &shapes[place.0]);
        call(toolchain, &ready.collect::<Vec<_>>(), *edition, *form)
    });
    let called: BTreeMap<(Edition, Form), Result<BTreeMap<String, Called>, String>> =
        columns.into_iter().zip(called).collect();
    Ok(places.iter().map(|place| (*place, cell(&shapes[place.0], *place, &compiled, &called))).collect())
}

fn columns(editions: &[Edition]) -> impl Iterator<Item = (Edition, Form)> {
    editions.iter().copied().flat_map(|edition| Form::ALL.into_iter().map(move |form| (edition, form)))
}

/// What the calls of each program came to, by shape; or why it did not run.
type Calls = BTreeMap<(Edition, Form), Result<BTreeMap<String, Called>, String>>;

fn cell(shape: &Shape, place: Place, compiled: &BTreeMap<Place, Compiled>, called: &Calls) -> Cell {
    let (index, edition, form) = place;
    let here = &compiled[&place];
    let plain = &compiled[&(index, edition, Form::Plain)];
    let mut cell = Cell {
        reports: here.reports.values().sum(),
        lints: here.reports.keys().map(|report| report.lint.clone()).collect(),
        ..Cell::default()
    };
    if !here.errors.is_empty() {
        cell.problems.extend(here.errors.iter().map(|error| Problem::error(error)));
        return cell;
    }
    if form != Form::Plain && plain.errors.is_empty() {
        let Judgement { known, unknown, stale } = judge(shape, edition, form, &differences(plain, here));
        cell.known = known;
        cell.problems.extend(unknown.iter().map(describe).map(Problem::new));
        cell.problems.extend(stale.iter().map(|(change, lint)| {
            let change = change.word();
            Problem::new(format!("stale: the header declares `{change}: {lint}`, and it does not occur here"))
        }));
    }
    let result_of = |form| match &called[&(edition, form)] {
        Ok(called) => Ok(called.get(&shape.name).cloned().unwrap_or_default()),
        Err(error) => Err(error.clone()),
    };
    match result_of(form) {
        Err(error) => {
            let headline = "the program of this column cannot be run".to_owned();
            cell.problems.push(Problem { headline, detail: format!("\n{error}") });
        }
        Ok(called) => {
            cell.problems.extend(called.problems.into_iter().map(Problem::new));
            let plain = result_of(Form::Plain).ok().and_then(|plain| plain.returned);
            if called.returned.is_none() {
                cell.problems.push(Problem::new("was not called".to_owned()));
            } else if plain.is_some() && plain != called.returned {
                let text = |returned: Option<String>| returned.unwrap_or_default();
                let detail = format!("\n    plain     {}\n    annotated {}", text(plain), text(called.returned));
                cell.problems.push(Problem { headline: "returns something else".to_owned(), detail });
            }
        }
    }
    cell
}

fn describe(difference: &Difference) -> String {
    let Difference { change, report, count } = difference;
    let change = change.word();
    let caret = report.caret.lines().next().unwrap_or_default();
    let times = if *count == 1 { String::new() } else { format!(", {count} times") };
    format!("{change}: {} at line {}, `{caret}`{times}: {}", report.lint, report.lines.0, report.message)
}
