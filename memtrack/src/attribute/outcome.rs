//! How a returned value tells success from failure.

use crate::scope::Outcome;
use std::fmt;
use std::marker::PhantomData;

/// A return type that `#[track_memory(err)]` can tell apart.
#[diagnostic::on_unimplemented(
    message = "`err` needs a function that returns a `Result`, and this one returns `{Self}`",
    label = "not a `Result`"
)]
pub trait Fallible {
    /// What a success holds.
    type Success;
    /// What a failure holds.
    type Error;

    /// The value as a result.
    fn as_result(&self) -> Result<&Self::Success, &Self::Error>;
}

impl<T, E> Fallible for Result<T, E> {
    type Success = T;
    type Error = E;

    #[inline]
    fn as_result(&self) -> Result<&T, &E> {
        self.as_ref()
    }
}

/// The type that a function returns, as a value of no size: generated code hands the type on by it without naming it.
pub struct Returns<T>(PhantomData<fn() -> T>);

impl<T> Clone for Returns<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Returns<T> {}

impl<T> fmt::Debug for Returns<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Returns")
    }
}

impl<T> Returns<T> {
    /// Of a type that rustc infers.
    #[expect(clippy::new_without_default, reason = "not for people")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    /// A value for a `return` that never runs.
    ///
    /// # Panics
    ///
    /// Always.
    #[cold]
    pub fn value(self) -> T {
        unreachable!("the `return` behind an `if false` ran")
    }
}

/// The outcome of a function that returned `value`.
#[inline]
pub fn outcome_of<T: Fallible>(value: &T) -> Outcome {
    if value.as_result().is_err() { Outcome::Err } else { Outcome::Ok }
}

/// The outcome of a function that returned, where success and failure are not told apart.
#[inline]
pub fn outcome_ok<T>(_: &T) -> Outcome {
    Outcome::Ok
}

/// Calls `tell` with the error, if the value is one.
#[inline]
pub fn tell_error<T: Fallible>(value: &T, tell: impl FnOnce(&T::Error)) {
    if let Err(error) = value.as_result() {
        tell(error);
    }
}

/// Calls `tell` with what a success holds, if the value is one.
#[inline]
pub fn tell_success<T: Fallible>(value: &T, tell: impl FnOnce(&T::Success)) {
    if let Ok(success) = value.as_result() {
        tell(success);
    }
}

/// Calls `tell` with the value.
#[inline]
pub fn tell_value<T>(value: &T, tell: impl FnOnce(&T)) {
    tell(value);
}
