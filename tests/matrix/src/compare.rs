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
