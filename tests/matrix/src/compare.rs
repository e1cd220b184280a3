//! The difference between what is reported about a shape with and without the attribute.

use crate::form::{Edition, Form};
use crate::lints::{Compiled, Report};
use crate::shape::{Change, Shape};
use std::collections::BTreeSet;

/// One report that only one of the two has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) change: Change,
    pub(crate) report: Report,
    pub(crate) count: usize,
}

/// What differs between `plain` and `annotated`.
pub(crate) fn differences(plain: &Compiled, annotated: &Compiled) -> Vec<Difference> {
    let reports: BTreeSet<&Report> = plain.reports.keys().chain(annotated.reports.keys()).collect();
    let mut differences = Vec::new();
    for report in reports {
        let count = |compiled: &Compiled| compiled.reports.get(report).copied().unwrap_or(0);
        let (before, after) = (count(plain), count(annotated));
        if before != after {
            let change = if before > after { Change::Lost } else { Change::Gained };
            differences.push(Difference { change, report: report.clone(), count: before.abs_diff(after) });
        }
    }
    reword(differences)
}

/// Makes one difference of two: a report lost and one of the same lint gained on the same line.
fn reword(differences: Vec<Difference>) -> Vec<Difference> {
    let (lost, mut rest): (Vec<_>, Vec<_>) =
        differences.into_iter().partition(|difference| difference.change == Change::Lost);
    for lost in lost {
        let same = |other: &&mut Difference| {
            other.change == Change::Gained
                && other.count == lost.count
                && other.report.lint == lost.report.lint
                && other.report.lines.0 == lost.report.lines.0
        };
        match rest.iter_mut().find(same) {
            Some(gained) => gained.change = Change::Reworded,
            None => rest.push(lost),
        }
    }
    rest.sort_by(|a, b| a.report.cmp(&b.report));
    rest
}

/// The differences that the shape does not declare for this cell, and the declared that do not occur.
pub(crate) fn judge(shape: &Shape, edition: Edition, form: Form, found: &[Difference]) -> Judgement {
    let declares = |difference: &&Difference| {
        let same = |change, lint: &str| change == difference.change && lint == difference.report.lint;
        shape.declared.iter().any(|declared| declared.covers(edition, form) && same(declared.change, &declared.lint))
    };
    let (known, unknown) = found.iter().partition::<Vec<_>, _>(declares);
    let stale = shape.declared.iter().filter(|declared| {
        declared.covers(edition, form)
            && !known.iter().any(|found| found.change == declared.change && found.report.lint == declared.lint)
    });
    Judgement {
        known: known.len(),
        stale: stale.map(|declared| (declared.change, declared.lint.clone())).collect(),
        unknown: unknown.into_iter().cloned().collect(),
    }
}

/// What came of the comparison of one cell.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) known: usize,
    pub(crate) unknown: Vec<Difference>,
    pub(crate) stale: Vec<(Change, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lint: &str, line: u64, message: &str) -> Report {
        Report { lint: lint.to_owned(), lines: (line, line), caret: "x".to_owned(), message: message.to_owned() }
    }

    fn compiled(reports: &[(Report, usize)]) -> Compiled {
        Compiled { reports: reports.iter().cloned().collect(), errors: Vec::new() }
    }

    fn shape(header: &str) -> Shape {
        let text = format!("//! shape: 1\n//! title: t\n{header}\n#[track(+err)]\nfn f() {{}}\n");
        Shape::parse("name".to_owned(), &text).unwrap()
    }

    fn changes(found: &[Difference]) -> Vec<(Change, &str, usize)> {
        found.iter().map(|found| (found.change, found.report.lint.as_str(), found.count)).collect()
    }

    #[test]
    fn what_both_have_is_no_difference() {
        let both = compiled(&[(report("a", 1, "m"), 2)]);
        assert_eq!(differences(&both, &both), []);
    }

    #[test]
    fn more_and_fewer_reports_are_gained_and_lost() {
        let plain = compiled(&[(report("a", 1, "m"), 3), (report("b", 1, "m"), 1)]);
        let annotated = compiled(&[(report("a", 1, "m"), 1), (report("b", 1, "m"), 1), (report("c", 2, "m"), 1)]);
        let found = differences(&plain, &annotated);
        assert_eq!(changes(&found), [(Change::Lost, "a", 2), (Change::Gained, "c", 1)]);
    }

    #[test]
    fn other_words_on_the_same_line_are_one_difference_and_on_another_line_two() {
        let plain = compiled(&[(report("a", 1, "m"), 1), (report("b", 1, "m"), 1)]);
        let annotated = compiled(&[(report("a", 1, "n"), 1), (report("b", 2, "n"), 1)]);
        let found = differences(&plain, &annotated);
        assert_eq!(changes(&found), [(Change::Reworded, "a", 1), (Change::Lost, "b", 1), (Change::Gained, "b", 1)]);
    }

    #[test]
    fn only_what_the_header_declares_for_the_cell_is_known() {
        let shape = shape("//! lost: a in err 2021");
        let found = differences(&compiled(&[(report("a", 1, "m"), 1)]), &compiled(&[]));
        let known = judge(&shape, Edition::E2021, Form::Err, &found);
        assert_eq!((known.known, known.unknown.len(), known.stale.len()), (1, 0, 0));
        let other_form = judge(&shape, Edition::E2021, Form::Phase, &found);
        assert_eq!((other_form.known, other_form.unknown.len(), other_form.stale.len()), (0, 1, 0));
        let other_edition = judge(&shape, Edition::E2018, Form::Err, &found);
        assert_eq!((other_edition.known, other_edition.unknown.len()), (0, 1));
    }

    #[test]
    fn what_is_declared_and_does_not_occur_is_stale() {
        let shape = shape("//! gained: a");
        let judged = judge(&shape, Edition::E2024, Form::Phase, &[]);
        assert_eq!(judged.stale, [(Change::Gained, "a".to_owned())]);
    }
}
