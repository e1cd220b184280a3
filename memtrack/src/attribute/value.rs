//! The values of options, where their types and contents are checked.
//!
//! These functions are called at the user's expressions, so that rustc reports there what is wrong with them. What they
//! return does not depend on the expression's type, or rustc would report it a second time.

use super::private::Name;
use std::fmt::{Debug, Display};
use tracing::field::{self, DebugValue, DisplayValue};
use tracing::span::Id;
use tracing::{Level, Span, Value};

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

/// A number that a constant gives for a budget.
#[derive(Debug)]
pub struct Limit<T>(pub T);

macro_rules! limits {
    ($($ty:ty)*) => {$(
        impl Limit<$ty> {
            /// The number.
            ///
            /// # Panics
            ///
            /// Panics if it is negative or more than 2^63 - 1, which stops the compilation: it is called in constants only.
            pub const fn get(self) -> i64 {
                let number = self.0 as i128;
                assert!(number >= 0, "a limit cannot be negative");
                assert!(number <= i64::MAX as i128, "a limit is at most 2^63 - 1");
                number as i64
            }
        }
    )*};
}

limits!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

/// The rate that the expression of `sample` gives.
#[inline]
pub const fn rate(rate: u64) -> u64 {
    rate
}

/// The span of a call follows from these spans.
pub fn follows_from<C>(span: &Span, causes: C)
where
    C: IntoIterator,
    C::Item: Into<Option<Id>>,
{
    for cause in causes {
        span.follows_from(cause);
    }
}
