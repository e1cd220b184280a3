//! Writes the part of protocol 4 that PyTorch's page understands.
//!
//! The page spreads the values of one APPENDS or SETITEMS into the arguments of a call, so they come in batches of at most
//! 1000, as Python's own writer makes them. Texts and stacks are written once and referred to afterwards; what a reader
//! may change, such as entries and blocks, is never shared.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use super::opcode;
use crate::history::encode::{self, Sink};
use crate::history::error::WriteError;
use crate::history::snapshot::{Frame, Frames};

/// The most values that one operation adds.
const BATCH: usize = 1000;

/// A pickle under way. What it has written stays remembered by content, or by identity where that is as good.
pub(in crate::history) struct PickleWriter<W> {
    target: W,
    /// How many values the reader has remembered.
    memo_len: u32,
    texts: HashMap<Box<str>, u32>,
    frames: HashMap<Frame, u32>,
    /// By the address of the shared list, which the clone keeps in place.
    stacks: HashMap<*const Frame, (u32, Frames)>,
    /// The keys written of each open dict's current batch.
    open_dicts: Vec<usize>,
}

impl<W: Write> PickleWriter<W> {
    pub(in crate::history) fn new(target: W) -> Self {
        Self {
            target,
            memo_len: 0,
            texts: HashMap::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
            open_dicts: Vec::new(),
        }
    }

    pub(in crate::history) fn start(&mut self) -> Result<(), WriteError> {
        self.put(&[opcode::PROTO, 4])
    }

    pub(in crate::history) fn finish(mut self) -> Result<(), WriteError> {
        self.put(&[opcode::STOP])?;
        Ok(self.target.flush()?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        Ok(self.target.write_all(bytes)?)
    }

    /// Has the reader remember the value just written.
    fn memoize(&mut self) -> Result<u32, WriteError> {
        let index = self.memo_len;
        self.memo_len += 1;
        self.put(&[opcode::MEMOIZE])?;
        Ok(index)
    }

    /// Refers to a remembered value.
    fn recall(&mut self, index: u32) -> Result<(), WriteError> {
        match u8::try_from(index) {
            Ok(index) => self.put(&[opcode::BINGET, index]),
            Err(_) => {
                self.put(&[opcode::LONG_BINGET])?;
                self.put(&index.to_le_bytes())
            }
        }
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), WriteError> {
        if let Some(index) = self.frames.get(frame) {
            return self.recall(*index);
        }
        encode::frame(self, frame)?;
        let index = self.memoize()?;
        self.frames.insert(frame.clone(), index);
        Ok(())
    }
}

impl<W: Write> Sink for PickleWriter<W> {
    fn null(&mut self) -> Result<(), WriteError> {
        self.put(&[opcode::NONE])
    }

    fn boolean(&mut self, value: bool) -> Result<(), WriteError> {
        self.put(&[if value { opcode::NEWTRUE } else { opcode::NEWFALSE }])
    }

    fn integer(&mut self, value: i128) -> Result<(), WriteError> {
        if let Ok(value) = u8::try_from(value) {
            return self.put(&[opcode::BININT1, value]);
        }
        if let Ok(value) = u16::try_from(value) {
            self.put(&[opcode::BININT2])?;
            return self.put(&value.to_le_bytes());
        }
        if let Ok(value) = i32::try_from(value) {
            self.put(&[opcode::BININT])?;
            return self.put(&value.to_le_bytes());
        }
        // The fewest bytes whose highest bit is the sign: 8 suffice for all but unsigned numbers from 2^63, which take 9.
        let bytes = value.to_le_bytes();
        let sign_bits = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        let length = (128 - sign_bits) as usize / 8 + 1;
        self.put(&[opcode::LONG1, length as u8])?;
        self.put(&bytes[..length])
    }

    fn float(&mut self, value: f64) -> Result<(), WriteError> {
        self.put(&[opcode::BINFLOAT])?;
        self.put(&value.to_be_bytes())
    }

    fn text(&mut self, value: &str) -> Result<(), WriteError> {
        if let Some(index) = self.texts.get(value) {
            return self.recall(*index);
        }
        let too_long = |_| WriteError::TextTooLong { length_bytes: value.len() };
        let length = u32::try_from(value.len()).map_err(too_long)?;
        match u8::try_from(length) {
            Ok(length) => self.put(&[opcode::SHORT_BINUNICODE, length])?,
            Err(_) => {
                self.put(&[opcode::BINUNICODE])?;
                self.put(&length.to_le_bytes())?;
            }
        }
        self.put(value.as_bytes())?;
        let index = self.memoize()?;
        self.texts.insert(value.into(), index);
        Ok(())
    }

    fn pair(&mut self, first: u64, second: u64) -> Result<(), WriteError> {
        self.integer(i128::from(first))?;
        self.integer(i128::from(second))?;
        self.put(&[opcode::TUPLE2])
    }

    fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        self.put(&[opcode::EMPTY_LIST])?;
        let mut count = 0;
        for item in items {
            if count == BATCH {
                self.put(&[opcode::APPENDS])?;
                count = 0;
            }
            if count == 0 {
                self.put(&[opcode::MARK])?;
            }
            each(self, item)?;
            count += 1;
        }
        if count == 0 { Ok(()) } else { self.put(&[opcode::APPENDS]) }
    }

    fn dict(&mut self, entries: impl FnOnce(&mut Self) -> Result<(), WriteError>) -> Result<(), WriteError> {
        self.put(&[opcode::EMPTY_DICT, opcode::MARK])?;
        self.open_dicts.push(0);
        entries(self)?;
        self.open_dicts.pop();
        self.put(&[opcode::SETITEMS])
    }

    fn key(&mut self, name: &str) -> Result<(), WriteError> {
        // Two values an entry.
        if let Some(count) = self.open_dicts.last_mut() {
            *count += 1;
            if *count > BATCH / 2 {
                *count = 1;
                self.put(&[opcode::SETITEMS, opcode::MARK])?;
            }
        }
        self.text(name)
    }

    fn frames(&mut self, frames: &Frames) -> Result<(), WriteError> {
        if let Some((index, _)) = self.stacks.get(&frames.as_ptr()) {
            return self.recall(*index);
        }
        self.list(frames.iter(), Self::frame)?;
        let index = self.memoize()?;
        self.stacks.insert(frames.as_ptr(), (index, Arc::clone(frames)));
        Ok(())
    }
}
