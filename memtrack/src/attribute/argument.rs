//! Arguments as fields, by the options `args` and `skip`: numbers, texts and truth values as what they are, everything else
//! by its `Debug`.
//!
//! Which of them an argument is depends on its type and not on the type's name, so it is rustc's choice of a method: the
//! first of the three traits that the type has, found at one, two and three references to [`Argument`].

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

/// Recorded as a signed number.
pub trait RecordedAsSigned<'a> {
    /// What is recorded.
    fn recorded(&self) -> Recorded<'a>;
}

impl<'a, T: Unsigned> RecordedAsSigned<'a> for &&Argument<'a, T> {
    fn recorded(&self) -> Recorded<'a> {
        self.0.signed().map_or(Recorded::Value(self.0), Recorded::Signed)
    }
}

/// Recorded as it is.
pub trait RecordedAsValue<'a> {
    /// What is recorded.
    fn recorded(&self) -> Recorded<'a>;
}

impl<'a, T: Value> RecordedAsValue<'a> for &Argument<'a, T> {
    fn recorded(&self) -> Recorded<'a> {
        Recorded::Value(self.0)
    }
}

/// Recorded by its `Debug`.
pub trait RecordedAsDebug<'a> {
    /// What is recorded.
    fn recorded(&self) -> Recorded<'a>;
}

impl<'a, T: Debug> RecordedAsDebug<'a> for Argument<'a, T> {
    fn recorded(&self) -> Recorded<'a> {
        Recorded::Debug(field::debug(self.0 as &dyn Debug))
    }
}
