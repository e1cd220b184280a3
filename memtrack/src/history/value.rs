//! What a file holds before it is known to be a snapshot: values that share, in tables, so that a file which refers to the
//! same data many times takes no more memory than it has bytes, and dropping it needs no recursion.

use std::sync::Arc;

/// One value; containers and texts by their index in the [`Values`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Integer(i64),
    /// From 2^63.
    Unsigned(u64),
    Float(f64),
    Text(u32),
    List(u32),
    Tuple(u32),
    Dict(u32),
}

impl Value {
    /// What it is, for messages.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Unsigned(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dict",
        }
    }
}

/// The tables. Containers may hold each other and themselves.
#[derive(Debug, Default)]
pub(super) struct Values {
    texts: Vec<Arc<str>>,
    /// Of lists and tuples.
    items: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
}

impl Values {
    pub(super) fn add_text(&mut self, text: Arc<str>) -> Value {
        self.texts.push(text);
        Value::Text(self.texts.len() as u32 - 1)
    }

    pub(super) fn add_list(&mut self, items: Vec<Value>) -> Value {
        self.items.push(items);
        Value::List(self.items.len() as u32 - 1)
    }

    pub(super) fn add_tuple(&mut self, items: Vec<Value>) -> Value {
        self.items.push(items);
        Value::Tuple(self.items.len() as u32 - 1)
    }

    pub(super) fn add_dict(&mut self, entries: Vec<(Value, Value)>) -> Value {
        self.dicts.push(entries);
        Value::Dict(self.dicts.len() as u32 - 1)
    }

    pub(super) fn text(&self, index: u32) -> &Arc<str> {
        &self.texts[index as usize]
    }

    /// Of a list or tuple.
    pub(super) fn items(&self, index: u32) -> &[Value] {
        &self.items[index as usize]
    }

    /// In the order they were set; a later entry of the same key replaces an earlier one.
    pub(super) fn entries(&self, index: u32) -> &[(Value, Value)] {
        &self.dicts[index as usize]
    }

    pub(super) fn items_mut(&mut self, index: u32) -> &mut Vec<Value> {
        &mut self.items[index as usize]
    }

    pub(super) fn entries_mut(&mut self, index: u32) -> &mut Vec<(Value, Value)> {
        &mut self.dicts[index as usize]
    }
}
