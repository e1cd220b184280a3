//! Reads JSON into the values that pickles are read into, under the same limits.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use serde_core::Deserializer;
use serde_core::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use crate::history::error::{ReadError, ReadLimits};
use crate::history::value::{Value, Values};

/// The values of a JSON text and which of them is the whole. The parser refuses more than 128 levels by itself.
pub(in crate::history) fn read(bytes: &[u8], limits: &ReadLimits) -> Result<(Values, Value), ReadError> {
    // Values are numbered with 32 bits.
    let left = limits.operations.min(u64::from(u32::MAX));
    let building = RefCell::new(Building { values: Values::default(), left });
    let refuse = |error: serde_json::Error| ReadError::Json { problem: error.to_string() };
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let whole = Seed { building: &building, depth_left: limits.depth }.deserialize(&mut parser).map_err(refuse)?;
    parser.end().map_err(refuse)?;
    Ok((building.into_inner().values, whole))
}

struct Building {
    values: Values,
    left: u64,
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    building: &'a RefCell<Building>,
    depth_left: usize,
}

impl Seed<'_> {
    fn text(self, text: &str) -> Value {
        self.building.borrow_mut().values.add_text(Arc::from(text))
    }

    fn inner<E: Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(E::custom("more values inside each other than `ReadLimits::depth` allows")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Value, D::Error> {
        let left = self.building.borrow().left.checked_sub(1);
        match left {
            Some(left) => self.building.borrow_mut().left = left,
            None => return Err(D::Error::custom("more values than `ReadLimits::operations` allows")),
        }
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Unsigned(value), Value::Integer))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(self.text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(self.building.borrow_mut().values.add_list(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry_seed(inner, inner)? {
            entries.push(entry);
        }
        Ok(self.building.borrow_mut().values.add_dict(entries))
    }
}
