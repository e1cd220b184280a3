//! Writes JSON as it comes, so that a large history needs no second copy in memory.

use std::io::Write;

use crate::history::encode::{self, Sink};
use crate::history::error::WriteError;
use crate::history::snapshot::Frames;

/// JSON under way.
pub(in crate::history) struct JsonWriter<W> {
    target: W,
    /// Whether the next key is the first of its object.
    first_key: bool,
}

impl<W: Write> JsonWriter<W> {
    pub(in crate::history) fn new(target: W) -> Self {
        Self { target, first_key: true }
    }

    pub(in crate::history) fn finish(mut self) -> Result<(), WriteError> {
        self.put("\n")?;
        Ok(self.target.flush()?)
    }

    fn put(&mut self, text: &str) -> Result<(), WriteError> {
        Ok(self.target.write_all(text.as_bytes())?)
    }
}

impl<W: Write> Sink for JsonWriter<W> {
    fn null(&mut self) -> Result<(), WriteError> {
        self.put("null")
    }

    fn boolean(&mut self, value: bool) -> Result<(), WriteError> {
        self.put(if value { "true" } else { "false" })
    }

    fn integer(&mut self, value: i128) -> Result<(), WriteError> {
        Ok(write!(self.target, "{value}")?)
    }

    fn float(&mut self, value: f64) -> Result<(), WriteError> {
        if !value.is_finite() {
            return Err(WriteError::NotFinite { value });
        }
        // With a point or an exponent, so that it is read as a float again.
        Ok(write!(self.target, "{value:?}")?)
    }

    fn text(&mut self, value: &str) -> Result<(), WriteError> {
        self.put("\"")?;
        let mut plain = 0;
        for (at, byte) in value.bytes().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.put(&value[plain..at])?;
            plain = at + 1;
            match byte {
                b'"' => self.put("\\\"")?,
                b'\\' => self.put("\\\\")?,
                b'\n' => self.put("\\n")?,
                _ => write!(self.target, "\\u{byte:04x}")?,
            }
        }
        self.put(&value[plain..])?;
        self.put("\"")
    }

    fn pair(&mut self, first: u64, second: u64) -> Result<(), WriteError> {
        Ok(write!(self.target, "[{first},{second}]")?)
    }

    fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        self.put("[")?;
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.put(",")?;
            }
            each(self, item)?;
        }
        self.put("]")
    }

    fn dict(&mut self, entries: impl FnOnce(&mut Self) -> Result<(), WriteError>) -> Result<(), WriteError> {
        self.put("{")?;
        self.first_key = true;
        entries(self)?;
        self.first_key = false;
        self.put("}")
    }

    fn key(&mut self, name: &str) -> Result<(), WriteError> {
        if !self.first_key {
            self.put(",")?;
        }
        self.first_key = false;
        self.text(name)?;
        self.put(":")
    }

    fn frames(&mut self, frames: &Frames) -> Result<(), WriteError> {
        self.list(frames.iter(), encode::frame)
    }
}
