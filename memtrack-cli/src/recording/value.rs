//! Reading JSON into memory: not more than a file may take, and no key of an object twice.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::error::ReadError;

/// More than any recording has.
const MOST_BYTES: usize = 64 << 20;
/// A value takes up to a hundred bytes however short its text is.
const MOST_VALUES: usize = 10_000_000;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Flag(bool),
    Number(Number),
    Text(Box<str>),
    List(Box<[Self]>),
    /// By name.
    Object(Box<[(Box<str>, Self)]>),
}

impl Json {
    /// Reads a whole text.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ReadError> {
        if bytes.len() > MOST_BYTES {
            return Err(ReadError::TooLargeJson { limit_bytes: MOST_BYTES });
        }
        let reader = Reader { left: Cell::new(MOST_VALUES), refused: RefCell::new(None) };
        let mut source = serde_json::Deserializer::from_slice(bytes);
        let value = reader.deserialize(&mut source).and_then(|value| source.end().map(|()| value));
        value.map_err(|error| match reader.refused.take() {
            Some(problem) => {
                ReadError::Content { path: format!("line {} column {}", error.line(), error.column()), problem }
            }
            None => ReadError::Json(error),
        })
    }

    /// The value of that name in an object.
    pub(super) fn entry<'a>(object: &'a [(Box<str>, Self)], name: &str) -> Option<&'a Self> {
        let place = object.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        object.get(place).map(|(_, value)| value)
    }

    pub(super) fn as_object(&self) -> Option<&[(Box<str>, Self)]> {
        if let Self::Object(entries) = self { Some(entries) } else { None }
    }

    pub(super) fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn as_number(&self) -> Option<&Number> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    pub(super) fn as_flag(&self) -> Option<bool> {
        if let Self::Flag(flag) = self { Some(*flag) } else { None }
    }
}

/// Reads values, and counts them.
struct Reader {
    left: Cell<usize>,
    /// Why a text that is JSON is not taken.
    refused: RefCell<Option<String>>,
}

impl Reader {
    fn refuse<E: Error>(&self, problem: String) -> E {
        *self.refused.borrow_mut() = Some(problem);
        E::custom("refused")
    }
}

impl<'de> DeserializeSeed<'de> for &Reader {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Json, D::Error> {
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(self.refuse(format!("more than {MOST_VALUES} values; no more are read")));
        };
        self.left.set(left);
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Json, E> {
        Ok(Json::Flag(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Json, E> {
        Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = source.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Json::List(items.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Json, A::Error> {
        let mut entries: Vec<(Box<str>, Json)> = Vec::new();
        while let Some(name) = source.next_key::<Box<str>>()? {
            entries.push((name, source.next_value_seed(self)?));
        }
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let twice = entries.windows(2).find(|pair| matches!(pair, [(one, _), (other, _)] if one == other));
        if let Some([(name, _), _]) = twice {
            return Err(self.refuse(format!("the object that ends here has the key {name:?} twice")));
        }
        Ok(Json::Object(entries.into()))
    }
}
