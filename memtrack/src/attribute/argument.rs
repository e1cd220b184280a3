//! Arguments as fields, by the options `args` and `skip`: numbers, texts and truth values as what they are, everything else
//! by its `Debug`.
//!
//! Which of them an argument is depends on its type and not on the type's name, so it is rustc's choice of a method: of the
//! first of the three traits that the type has, found at one, two and three references to [`Argument`]. What that gives
//! asks the type for what it needs, so that rustc names the trait that is missing.

use std::fmt::{self, Debug};
use tracing::Value;
use tracing::field::{self, DebugValue};

/// An argument to be recorded.
#[derive(Debug)]
pub struct Argument<'a, T: ?Sized>(pub &'a T);

/// What is recorded of an argument.
pub enum Recorded<'a> {
    /// As it is.
    Value(&'a dyn Value),
    /// A number that is counted from 0, where it fits: exporters turn unsigned numbers into text.
    Signed(i64),
    /// By its `Debug`.
    Debug(DebugValue<&'a (dyn Debug + 'a)>),
}

impl fmt::Debug for Recorded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value"),
            Self::Signed(number) => number.fmt(f),
            Self::Debug(value) => value.fmt(f),
        }
    }
}

impl Recorded<'_> {
    /// As a field's value.
    pub fn as_value(&self) -> &dyn Value {
        match self {
            Self::Value(value) => *value,
            Self::Signed(number) => number,
            Self::Debug(value) => value,
        }
    }
}

/// An unsigned number, or a reference to one.
pub trait Unsigned: Value {
    /// The number, if it fits.
    fn signed(&self) -> Option<i64>;
}

impl Unsigned for u64 {
    fn signed(&self) -> Option<i64> {
        i64::try_from(*self).ok()
    }
}

impl Unsigned for usize {
    fn signed(&self) -> Option<i64> {
        i64::try_from(*self).ok()
    }
}

impl<T: Unsigned> Unsigned for &T {
    fn signed(&self) -> Option<i64> {
        (**self).signed()
    }
}

impl<T: Unsigned> Unsigned for &mut T {
    fn signed(&self) -> Option<i64> {
        (**self).signed()
    }
}

/// How an argument of a type is recorded. The method's name is one that no trait of the user's has.
pub trait SignedKind {
    /// As a signed number.
    fn __memtrack_kind(&self) -> AsSigned {
        AsSigned
    }
}

impl<T: Unsigned> SignedKind for &&Argument<'_, T> {}

/// See [`SignedKind`].
pub trait ValueKind {
    /// As it is.
    fn __memtrack_kind(&self) -> AsValue {
        AsValue
    }
}

impl<T: Value> ValueKind for &Argument<'_, T> {}

/// See [`SignedKind`]. For every type: one without a `Debug` is then reported as such.
pub trait DebugKind {
    /// By its `Debug`.
    fn __memtrack_kind(&self) -> AsDebug {
        AsDebug
    }
}

impl<T> DebugKind for Argument<'_, T> {}

/// Recorded as a signed number.
#[derive(Debug)]
pub struct AsSigned;

impl AsSigned {
    /// What is recorded.
    pub fn recorded<T: Unsigned>(self, value: &T) -> Recorded<'_> {
        value.signed().map_or(Recorded::Value(value), Recorded::Signed)
    }
}

/// Recorded as it is.
#[derive(Debug)]
pub struct AsValue;

impl AsValue {
    /// What is recorded.
    pub fn recorded<T: Value>(self, value: &T) -> Recorded<'_> {
        Recorded::Value(value)
    }
}

/// Recorded by its `Debug`.
#[derive(Debug)]
pub struct AsDebug;

impl AsDebug {
    /// What is recorded.
    pub fn recorded<'a, T: Debug>(self, value: &'a T) -> Recorded<'a> {
        Recorded::Debug(field::debug(value as &'a (dyn Debug + 'a)))
    }
}
