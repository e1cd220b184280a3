//! The values of options, where their types and contents are checked.
//!
//! These functions are called at the user's expressions, so that rustc reports there what is wrong with them. What they
//! return does not depend on the expression's type, or rustc would report it a second time.

use super::private::Name;
use std::fmt::{Debug, Display};
use tracing::field::{self, DebugValue, DisplayValue};
use tracing::{Level, Value};

/// A field's value as it is.
#[inline]
pub fn value<T: Value>(value: &T) -> &dyn Value {
    value
}

/// A field's value for `%`. Takes a reference to a reference, since the value may be unsized.
#[inline]
pub fn display<'a, T: Display>(value: &'a T) -> DisplayValue<&'a (dyn Display + 'a)> {
    field::display(value)
}

/// A field's value for `?`.
#[inline]
pub fn debug<'a, T: Debug>(value: &'a T) -> DebugValue<&'a (dyn Debug + 'a)> {
    field::debug(value)
}

/// The level that a constant gives.
pub const fn level(level: Level) -> Level {
    level
}

/// The text that a constant gives.
///
/// # Panics
///
/// Panics if it is empty, which stops the compilation: it is called in constants only.
pub const fn not_empty(name: Name) -> Name {
    assert!(!name.is_empty(), "a name, a phase and a target cannot be empty");
    name
}
