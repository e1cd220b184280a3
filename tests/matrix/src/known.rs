//! The known differences: lints that report about an annotated function otherwise than about the plain one, and why.
//!
//! The header of each shape in which one occurs says so, by `lost:` or `gained:`; a shape in which it does not occur may
//! not. Nothing else may differ.

use crate::shape::{Change, Shape};

/// One difference.
pub(crate) struct Known {
    pub(crate) change: Change,
    pub(crate) lint: &'static str,
    pub(crate) why: &'static str,
}

/// All of them.
pub(crate) const KNOWN: &[Known] = &[];

/// The reason of a difference.
pub(crate) fn reason(change: Change, lint: &str) -> Option<&'static str> {
    KNOWN.iter().find(|known| known.change == change && known.lint == lint).map(|known| known.why)
}

/// The reasons that no shape needs any more.
pub(crate) fn unused(shapes: &[Shape]) -> Vec<String> {
    let is_used = |known: &&Known| {
        let mut declared = shapes.iter().flat_map(|shape| &shape.declared);
        declared.any(|declared| declared.change == known.change && declared.lint == known.lint)
    };
    KNOWN
        .iter()
        .filter(|known| !is_used(known))
        .map(|known| format!("stale: no shape declares the known difference `{}`", known.lint))
        .collect()
}

/// The differences that shapes declare and for which no reason is given here.
pub(crate) fn without_reason(shapes: &[Shape]) -> Vec<String> {
    let mut problems = Vec::new();
    for shape in shapes {
        for declared in shape.declared.iter().filter(|declared| reason(declared.change, &declared.lint).is_none()) {
            problems
                .push(format!("{}: `{}` is declared, but known.rs has no reason for it", shape.name, declared.lint));
        }
    }
    problems
}
