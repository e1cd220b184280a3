//! For shapes that are tests themselves, which the test harness calls: one at a time, in the order of their names.

use crate::calls::{Expected, Form, problems, spans};
use crate::device;

/// The variable that says in which form the shape was compiled.
pub const FORM_VARIABLE: &str = "SHAPE_FORM";

/// To be called by the first test.
pub fn begin() {
    spans();
    memtrack::set_default(device());
}

/// To be called by the last test, with the tests before it.
///
/// # Panics
///
/// Panics when a call left no record, or more than one.
pub fn end(expected: Expected) {
    let form = match std::env::var(FORM_VARIABLE) {
        Ok(form) if form == "plain" => Form::Plain,
        _ => Form::Current,
    };
    let problems: Vec<String> = problems(form, expected, &spans().all(), &spans().journal())
        .into_iter()
        // No phase is open around a test.
        .filter(|problem| !problem.starts_with("mem.phase"))
        .collect();
    assert!(problems.is_empty(), "{problems:?}");
}
