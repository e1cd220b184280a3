//! How a returned value tells success from failure.

use crate::scope::Outcome;

/// A return type that `#[track_memory(err)]` can tell apart.
#[diagnostic::on_unimplemented(
    message = "`err` needs a function that returns a `Result`, and this one returns `{Self}`",
    label = "not a `Result`"
)]
pub trait Fallible {
    /// Whether the value is a failure.
    fn is_failure(&self) -> bool;
}

impl<T, E> Fallible for Result<T, E> {
    fn is_failure(&self) -> bool {
        self.is_err()
    }
}

/// The outcome of a function that returned `value`.
#[inline]
pub fn outcome_of<T: Fallible>(value: &T) -> Outcome {
    if value.is_failure() { Outcome::Err } else { Outcome::Ok }
}

/// The outcome of a function that returned, where success and failure are not told apart.
#[inline]
pub fn outcome_ok<T>(_: &T) -> Outcome {
    Outcome::Ok
}
