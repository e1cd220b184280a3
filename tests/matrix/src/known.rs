//! The known differences: lints that report about an annotated function otherwise than about the plain one, and why.
//!
//! The header of each shape in which one occurs says so, by `lost:`, `gained:` or `reworded:`; a shape in which it does not
//! occur may not. Nothing else may differ.

use crate::shape::{Change, Shape};

/// One difference.
pub(crate) struct Known {
    pub(crate) change: Change,
    pub(crate) lint: &'static str,
    pub(crate) why: &'static str,
}

/// All of them.
pub(crate) const KNOWN: &[Known] = &[
    lost("clippy::missing_const_for_fn", "measuring happens at run time, so an annotated function cannot be `const`"),
    lost("clippy::unused_async", "an annotated `async fn` awaits its body, which it did not before"),
    lost(
        "clippy::needless_pass_by_value",
        "an argument is moved inside the measured call, to be dropped before the figures are read",
    ),
    lost("clippy::boxed_local", "as above: a box is moved inside the call"),
    lost("clippy::only_used_in_recursion", "as above: a moved argument is used, and so is all that a closure uses"),
    lost(
        "clippy::needless_pass_by_ref_mut",
        "the body is in a closure, with a budget, into which the reference is moved",
    ),
    lost(
        "unconditional_recursion",
        "the body is in a closure, with a budget, and rustc looks for calls in the function alone",
    ),
    lost(
        "clippy::explicit_auto_deref",
        "of a last expression, which stands in braces of ours: they drop its temporaries before the figures are read",
    ),
    lost("clippy::manual_async_fn", "an annotated function does more than to return an `async` block"),
    lost("clippy::unnecessary_wraps", "the body is in a closure, with `err` or a `self` taken by value"),
    lost("clippy::unused_self", "a `self` taken by value is moved into a closure, which is a use"),
    lost("clippy::unwrap_in_result", "the body is in a closure, with `err`"),
    lost("clippy::derivable_impls", "an implementation with a measured function is none that could be derived"),
    lost(
        "clippy::missing_panics_doc",
        "above `#[tokio::main]`, whose own panic it reports: tokio places its code where the body's last statement is",
    ),
    lost(
        "clippy::allow_attributes_without_reason",
        "of an `#[expect]` that names only lints which fall silent: it becomes an `#[allow]` of ours",
    ),
    lost("clippy::needless_pub_self", "on a function whose visibility is a fragment of `macro_rules!`"),
    lost("clippy::pub_with_shorthand", "on a function whose visibility is a fragment of `macro_rules!`"),
    gained("clippy::single_call_fn", "on a function whose body is a fragment of `macro_rules!`"),
    gained(
        "clippy::result_large_err",
        "with `err` it reports the closure that the body is in beside the function; an `#[allow]` on that covers both",
    ),
    reworded("clippy::missing_errors_doc", "on a function whose visibility is a fragment of `macro_rules!`"),
    reworded("clippy::cognitive_complexity", "the number: it counts the questions whether to measure"),
    reworded("clippy::large_futures", "the number: a future keeps another copy of each argument taken by value"),
    reworded("clippy::large_stack_frames", "the number: measuring needs some variables"),
    reworded(
        "unused_assignments",
        "an argument declared `mut` that is moved inside the call is a variable assigned, and no value passed",
    ),
];

const fn lost(lint: &'static str, why: &'static str) -> Known {
    Known { change: Change::Lost, lint, why }
}

const fn gained(lint: &'static str, why: &'static str) -> Known {
    Known { change: Change::Gained, lint, why }
}

const fn reworded(lint: &'static str, why: &'static str) -> Known {
    Known { change: Change::Reworded, lint, why }
}

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
