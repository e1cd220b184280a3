//! JSON values that know where they stand in their file, so that a wrong one is named.

use std::fmt;

use serde_json::Value;

use super::error::ReadError;

/// A value and its place.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    value: &'a Value,
    place: Place<'a>,
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Whole,
    Field { parent: &'a Place<'a>, name: &'a str },
    Item { parent: &'a Place<'a>, index: usize },
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("the file"),
            Self::Field { parent: Self::Whole, name } => f.write_str(name),
            Self::Item { parent: Self::Whole, index } => write!(f, "item {index}"),
            Self::Field { parent, name } => write!(f, "{parent}.{name}"),
            Self::Item { parent, index } => write!(f, "{parent}[{index}]"),
        }
    }
}

impl<'a> At<'a> {
    pub(super) fn whole(value: &'a Value) -> Self {
        Self { value, place: Place::Whole }
    }

    fn wrong(&self, expected: &str) -> ReadError {
        let found = match self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(flag) => flag.to_string(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => format!("the text {}", shortened(text)),
            Value::Array(items) => format!("a list of {}", items.len()),
            Value::Object(_) => "an object".to_owned(),
        };
        ReadError::Shape { path: self.place.to_string(), expected: expected.to_owned(), found }
    }

    /// An error about this place.
    pub(super) fn problem(&self, problem: impl Into<String>) -> ReadError {
        ReadError::Content { path: self.place.to_string(), problem: problem.into() }
    }

    /// A field that may be missing or null.
    pub(super) fn optional(&'a self, name: &'a str) -> Result<Option<At<'a>>, ReadError> {
        let object = self.value.as_object().ok_or_else(|| self.wrong("an object"))?;
        let value = object.get(name).filter(|value| !value.is_null());
        Ok(value.map(|value| At { value, place: Place::Field { parent: &self.place, name } }))
    }

    /// A field that must be there.
    pub(super) fn field(&'a self, name: &'a str) -> Result<At<'a>, ReadError> {
        self.optional(name)?.ok_or_else(|| self.problem(format!("`{name}` is missing")))
    }

    /// Whether there is a field, if only null.
    pub(super) fn has(&self, name: &str) -> bool {
        self.value.get(name).is_some()
    }

    pub(super) fn is_text(&self) -> bool {
        self.value.is_string()
    }

    /// The entries of an object.
    pub(super) fn entries(&'a self) -> Result<impl Iterator<Item = (&'a str, At<'a>)>, ReadError> {
        let object = self.value.as_object().ok_or_else(|| self.wrong("an object"))?;
        Ok(object.iter().map(|(name, value)| {
            let name = name.as_str();
            (name, At { value, place: Place::Field { parent: &self.place, name } })
        }))
    }

    /// The items of a list.
    pub(super) fn items(&'a self) -> Result<impl ExactSizeIterator<Item = At<'a>>, ReadError> {
        let items = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let place = &self.place;
        Ok(items.iter().enumerate().map(|(index, value)| At { value, place: Place::Item { parent: place, index } }))
    }

    /// An item that must be there; `what` it is, for the message.
    pub(super) fn item(&'a self, index: usize, what: &str) -> Result<At<'a>, ReadError> {
        let missing = || self.problem(format!("item {index}, {what}, is missing"));
        let items = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let value = items.get(index).ok_or_else(missing)?;
        Ok(At { value, place: Place::Item { parent: &self.place, index } })
    }

    pub(super) fn text(&self) -> Result<&'a str, ReadError> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    pub(super) fn unsigned(&self) -> Result<u64, ReadError> {
        self.value.as_u64().ok_or_else(|| self.wrong("a whole number from 0 to 2^64 - 1"))
    }

    pub(super) fn signed(&self) -> Result<i64, ReadError> {
        self.value.as_i64().ok_or_else(|| self.wrong("a whole number of 64 bits"))
    }

    /// An unsigned number up to a limit that the message names.
    pub(super) fn at_most(&self, limit: u64, said: &str) -> Result<u64, ReadError> {
        let number = self.value.as_u64().filter(|number| *number <= limit);
        number.ok_or_else(|| self.wrong(&format!("a whole number from 0 to {said}")))
    }

    pub(super) fn fraction(&self) -> Result<f64, ReadError> {
        let number = self.value.as_f64().filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| self.wrong("a number from 0 to 1"))
    }

    pub(super) fn flag(&self) -> Result<bool, ReadError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    if text.chars().count() <= MOST {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start:?}…")
}
