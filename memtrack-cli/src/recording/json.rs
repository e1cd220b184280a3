//! JSON values that know where they stand in their file, so that a wrong one is named.

use std::fmt;

use serde_json::Number;

use super::error::ReadError;
use super::value::Json;

/// A value and its place.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    value: &'a Json,
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
    pub(super) fn whole(value: &'a Json) -> Self {
        Self { value, place: Place::Whole }
    }

    fn wrong(&self, expected: &str) -> ReadError {
        let found = match self.value {
            Json::Null => "null".to_owned(),
            Json::Flag(flag) => flag.to_string(),
            Json::Number(number) => number.to_string(),
            Json::Text(text) => format!("the text {}", shortened(text)),
            Json::List(items) => format!("a list of {}", items.len()),
            Json::Object(_) => "an object".to_owned(),
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
        let value = Json::entry(object, name).filter(|value| !matches!(value, Json::Null));
        Ok(value.map(|value| At { value, place: Place::Field { parent: &self.place, name } }))
    }

    /// A field that must be there.
    pub(super) fn field(&'a self, name: &'a str) -> Result<At<'a>, ReadError> {
        self.optional(name)?.ok_or_else(|| self.problem(format!("`{name}` is missing")))
    }

    /// Whether there is a field, if only null.
    pub(super) fn has(&self, name: &str) -> bool {
        self.value.as_object().is_some_and(|object| Json::entry(object, name).is_some())
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.value, Json::Text(_))
    }

    /// The entries of an object.
    pub(super) fn entries(&'a self) -> Result<impl Iterator<Item = (&'a str, At<'a>)>, ReadError> {
        let object = self.value.as_object().ok_or_else(|| self.wrong("an object"))?;
        Ok(object.iter().map(|(name, value)| {
            let name = &**name;
            (name, At { value, place: Place::Field { parent: &self.place, name } })
        }))
    }

    /// The items of a list.
    pub(super) fn items(&'a self) -> Result<impl ExactSizeIterator<Item = At<'a>>, ReadError> {
        let items = self.value.as_list().ok_or_else(|| self.wrong("a list"))?;
        let place = &self.place;
        Ok(items.iter().enumerate().map(|(index, value)| At { value, place: Place::Item { parent: place, index } }))
    }

    /// An item that must be there; `what` it is, for the message.
    pub(super) fn item(&'a self, index: usize, what: &str) -> Result<At<'a>, ReadError> {
        let missing = || self.problem(format!("item {index}, {what}, is missing"));
        let items = self.value.as_list().ok_or_else(|| self.wrong("a list"))?;
        let value = items.get(index).ok_or_else(missing)?;
        Ok(At { value, place: Place::Item { parent: &self.place, index } })
    }

    /// Refuses a list with more items than so many.
    pub(super) fn ends_at(&self, count: usize) -> Result<(), ReadError> {
        let items = self.value.as_list().ok_or_else(|| self.wrong("a list"))?;
        if items.len() <= count {
            return Ok(());
        }
        Err(self.problem(format!("item {count} is one too many; the list has at most {count}")))
    }

    /// A text as it may stand in a message.
    pub(super) fn shown(&self) -> String {
        self.value.as_text().map_or(String::new(), |text| text.escape_debug().to_string())
    }

    pub(super) fn text(&self) -> Result<&'a str, ReadError> {
        self.value.as_text().ok_or_else(|| self.wrong("a text"))
    }

    pub(super) fn unsigned(&self) -> Result<u64, ReadError> {
        self.value.as_number().and_then(Number::as_u64).ok_or_else(|| self.wrong("a whole number from 0 to 2^64 - 1"))
    }

    pub(super) fn signed(&self) -> Result<i64, ReadError> {
        self.value.as_number().and_then(Number::as_i64).ok_or_else(|| self.wrong("a whole number of 64 bits"))
    }

    /// An unsigned number up to a limit that the message names.
    pub(super) fn at_most(&self, limit: u64, said: &str) -> Result<u64, ReadError> {
        let number = self.value.as_number().and_then(Number::as_u64).filter(|number| *number <= limit);
        number.ok_or_else(|| self.wrong(&format!("a whole number from 0 to {said}")))
    }

    pub(super) fn fraction(&self) -> Result<f64, ReadError> {
        let number = self.value.as_number().and_then(Number::as_f64).filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| self.wrong("a number from 0 to 1"))
    }

    pub(super) fn flag(&self) -> Result<bool, ReadError> {
        self.value.as_flag().ok_or_else(|| self.wrong("true or false"))
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
