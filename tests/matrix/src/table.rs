//! The matrix as text: a line for each shape, what the signs mean, the problems and the totals.

use crate::cells::{Cell, Place};
use crate::form::{Edition, Form};
use crate::known::{KNOWN, reason};
use crate::lints::NOT_COMPARED;
use crate::shape::{Declared, Shape};
use std::collections::{BTreeMap, BTreeSet};

/// Prints the matrix, and returns what does not hold.
pub(crate) fn print(shapes: &[Shape], cells: &BTreeMap<Place, Cell>, editions: &[Edition]) -> Vec<String> {
    let width = shapes.iter().map(|shape| label(shape).chars().count()).max().unwrap_or(0);
    heading(width, editions);
    let mut problems: Vec<(String, String, Vec<String>)> = Vec::new();
    let mut reasons = Reasons::default();
    for (index, shape) in shapes.iter().enumerate() {
        let label = label(shape);
        print!("{label}{}", " ".repeat(width - label.chars().count()));
        for &edition in editions {
            print!("  ");
            for form in Form::ALL {
                print!(" {:<5}", sign(shape, edition, form, cells.get(&(index, edition, form)), &mut reasons));
                let found = cells.get(&(index, edition, form)).into_iter().flat_map(|cell| &cell.problems);
                for problem in found {
                    let place = format!("{edition} {form}");
                    let key = format!("{}: {}", shape.name, problem.headline);
                    match problems.iter_mut().find(|(earlier, ..)| *earlier == key) {
                        Some((.., places)) => places.push(place),
                        None => problems.push((key, problem.detail.clone(), vec![place])),
                    }
                }
            }
        }
        println!("  {}", known_numbers(shape));
    }
    legend(&reasons, shapes);
    totals(shapes, cells, editions);
    let text = |(headline, detail, places): (String, String, Vec<String>)| {
        format!("{headline}\n    in {}{detail}", places.join(", "))
    };
    problems.into_iter().map(text).collect()
}

fn label(shape: &Shape) -> String {
    format!("{:>3} {}", shape.number, shape.title)
}

fn heading(width: usize, editions: &[Edition]) {
    println!(
        "{}    {}",
        " ".repeat(width),
        editions.iter().map(|edition| format!("{:<32}", edition.to_string())).collect::<String>()
    );
    print!("{}", " ".repeat(width));
    for _ in editions {
        print!("  ");
        for form in Form::ALL {
            print!(" {:<5.5}", form.word());
        }
    }
    println!();
}

/// Why cells are empty, each reason under a letter.
#[derive(Default)]
struct Reasons(Vec<String>);

impl Reasons {
    fn code(&mut self, reason: &str) -> String {
        let index = self.0.iter().position(|known| known == reason).unwrap_or_else(|| {
            self.0.push(reason.to_owned());
            self.0.len() - 1
        });
        letters(index)
    }
}

/// a, b, … z, aa, ab, …
fn letters(index: usize) -> String {
    let letter = |index: usize| char::from(b'a' + u8::try_from(index % 26).unwrap_or(0));
    match index / 26 {
        0 => letter(index).to_string(),
        more => format!("{}{}", letter(more - 1), letter(index)),
    }
}

fn sign(shape: &Shape, edition: Edition, form: Form, cell: Option<&Cell>, reasons: &mut Reasons) -> String {
    match cell {
        Some(cell) if !cell.problems.is_empty() => "✗".to_owned(),
        Some(cell) if cell.known > 0 => "~".to_owned(),
        Some(_) => "✓".to_owned(),
        None if !shape.editions.contains(&edition) => {
            reasons.code(shape.other_editions.as_deref().unwrap_or("not for this edition"))
        }
        None => reasons.code(shape.reason_against(form).unwrap_or("not for this form")),
    }
}

/// The numbers of the known differences that the shape declares.
fn known_numbers(shape: &Shape) -> String {
    let position = |declared: &Declared| {
        KNOWN.iter().position(|known| known.change == declared.change && known.lint == declared.lint)
    };
    let numbers: BTreeSet<usize> = shape.declared.iter().filter_map(position).map(|index| index + 1).collect();
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn legend(reasons: &Reasons, shapes: &[Shape]) {
    println!("\n✓ compiles, the same lints at the same places, the same results, one record of each call");
    println!("~ the same but for known differences, whose numbers stand at the end of the line");
    println!("✗ not the same, see below");
    println!("\nNot applicable:");
    for (index, reason) in reasons.0.iter().enumerate() {
        println!("  {:<3} {reason}", letters(index));
    }
    println!("\nLints that are not compared:");
    for (lint, why) in NOT_COMPARED {
        println!("  {lint}: {why}");
    }
    println!("\nKnown differences in lints:");
    for (index, known) in KNOWN.iter().enumerate() {
        let declares = |shape: &&Shape| {
            shape.declared.iter().any(|declared| declared.change == known.change && declared.lint == known.lint)
        };
        let change = known.change.word();
        let count = shapes.iter().filter(declares).count();
        println!(
            "  {:<3} {change}: {}, in {count} shapes: {}",
            index + 1,
            known.lint,
            reason(known.change, known.lint).unwrap_or_default()
        );
    }
}

fn totals(shapes: &[Shape], cells: &BTreeMap<Place, Cell>, editions: &[Edition]) {
    let good = cells.values().filter(|cell| cell.problems.is_empty()).count();
    let known = cells.values().filter(|cell| cell.problems.is_empty() && cell.known > 0).count();
    let all = shapes.len() * editions.len() * Form::ALL.len();
    let reports: usize = cells.values().map(|cell| cell.reports).sum();
    let lints: BTreeSet<&String> = cells.values().flat_map(|cell| &cell.lints).collect();
    let calls: usize = shapes.iter().map(|shape| shape.calls.values().sum::<usize>()).sum();
    println!(
        "\n{} shapes, {all} cells: {good} hold ({known} of them with known differences), {} do not, {} do not apply",
        shapes.len(),
        cells.len() - good,
        all - cells.len(),
    );
    println!(
        "{reports} reports of {} lints compared; {calls} annotated calls in each column, each recorded once",
        lints.len()
    );
}
