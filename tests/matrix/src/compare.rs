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
    differences
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
