//! Reads pickles that hold nothing but data.
//!
//! Only operations that make plain values are known; whatever would import or call something is refused. No length in the
//! file is believed before the bytes are there, and each operation counts against a limit.

use std::collections::HashMap;
use std::sync::Arc;

use super::opcode;
use crate::history::error::{PickleProblem, ReadError, ReadLimits};
use crate::history::value::{Value, Values};

/// The values of a pickle and which of them is the whole.
pub(in crate::history) fn read(bytes: &[u8], limits: &ReadLimits) -> Result<(Values, Value), ReadError> {
    let mut machine = Machine {
        bytes,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        values: Values::default(),
        limits,
        // Values are numbered with 32 bits.
        operations_left: limits.operations.min(u64::from(u32::MAX)),
    };
    loop {
        let offset = machine.at;
        let byte = bytes.get(offset).copied();
        match machine.step() {
            Ok(None) => {}
            Ok(Some(whole)) => return Ok((machine.values, whole)),
            Err(problem) => {
                let opcode = match byte {
                    Some(byte) => opcode::name(byte).unwrap_or("unknown operation"),
                    None => "end of file",
                };
                return Err(ReadError::Pickle { offset, opcode, problem });
            }
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    values: Values,
    limits: &'a ReadLimits,
    operations_left: u64,
}

impl<'a> Machine<'a> {
    /// Runs one operation; the whole value at the last one.
    fn step(&mut self) -> Result<Option<Value>, PickleProblem> {
        let too_many = PickleProblem::TooManyOperations { limit: self.limits.operations };
        self.operations_left = self.operations_left.checked_sub(1).ok_or(too_many)?;
        let [operation] = self.take()?;
        match operation {
            opcode::PROTO => {
                let [version] = self.take()?;
                if !(2..=5).contains(&version) {
                    return Err(PickleProblem::Protocol { version });
                }
            }
            // A hint for readers of streams; its length is of no use here and so not looked at.
            opcode::FRAME => {
                self.take::<8>()?;
            }
            opcode::STOP => return self.pop().map(Some),
            opcode::MARK => {
                if self.marks.len() >= self.limits.depth {
                    return Err(PickleProblem::TooDeep { limit: self.limits.depth });
                }
                self.marks.push(self.stack.len());
            }
            opcode::NONE => self.stack.push(Value::None),
            opcode::NEWTRUE => self.stack.push(Value::Bool(true)),
            opcode::NEWFALSE => self.stack.push(Value::Bool(false)),
            opcode::BININT1 => {
                let [value] = self.take()?;
                self.stack.push(Value::Integer(i64::from(value)));
            }
            opcode::BININT2 => {
                let value = u16::from_le_bytes(self.take()?);
                self.stack.push(Value::Integer(i64::from(value)));
            }
            opcode::BININT => {
                let value = i32::from_le_bytes(self.take()?);
                self.stack.push(Value::Integer(i64::from(value)));
            }
            opcode::LONG1 => {
                let [length] = self.take()?;
                let value = long(self.take_slice(u64::from(length))?)?;
                self.stack.push(value);
            }
            opcode::BINFLOAT => {
                let value = f64::from_be_bytes(self.take()?);
                self.stack.push(Value::Float(value));
            }
            opcode::SHORT_BINUNICODE => {
                let [length] = self.take()?;
                self.text(u64::from(length))?;
            }
            opcode::BINUNICODE => {
                let length = u32::from_le_bytes(self.take()?);
                self.text(u64::from(length))?;
            }
            opcode::MEMOIZE => self.remember(self.memo.len() as u32)?,
            opcode::BINPUT => {
                let [index] = self.take()?;
                self.remember(u32::from(index))?;
            }
            opcode::LONG_BINPUT => {
                let index = u32::from_le_bytes(self.take()?);
                self.remember(index)?;
            }
            opcode::BINGET => {
                let [index] = self.take()?;
                self.recall(u32::from(index))?;
            }
            opcode::LONG_BINGET => {
                let index = u32::from_le_bytes(self.take()?);
                self.recall(index)?;
            }
            _ => self.container(operation)?,
        }
        Ok(None)
    }

    fn container(&mut self, operation: u8) -> Result<(), PickleProblem> {
        match operation {
            opcode::EMPTY_LIST => self.push_list(Vec::new()),
            opcode::EMPTY_TUPLE => self.push_tuple(Vec::new()),
            opcode::EMPTY_DICT => self.push_dict(Vec::new()),
            opcode::LIST => {
                let items = self.pop_to_mark()?;
                self.push_list(items);
            }
            opcode::TUPLE => {
                let items = self.pop_to_mark()?;
                self.push_tuple(items);
            }
            opcode::TUPLE1 | opcode::TUPLE2 | opcode::TUPLE3 => {
                let count = usize::from(operation - opcode::TUPLE1) + 1;
                let start = self.stack.len().checked_sub(count).filter(|start| *start >= self.floor());
                let items = self.stack.split_off(start.ok_or(PickleProblem::MissingValue)?);
                self.push_tuple(items);
            }
            opcode::DICT => {
                let items = self.pop_to_mark()?;
                let entries = pairs(&items)?.collect();
                self.push_dict(entries);
            }
            opcode::APPEND => {
                let item = self.pop()?;
                self.list_on_top()?.push(item);
            }
            opcode::APPENDS => {
                let items = self.pop_to_mark()?;
                self.list_on_top()?.extend(items);
            }
            opcode::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.dict_on_top()?.push((key, value));
            }
            opcode::SETITEMS => {
                let items = self.pop_to_mark()?;
                let entries = pairs(&items)?;
                self.dict_on_top()?.extend(entries);
            }
            _ if opcode::name(operation).is_some() => return Err(PickleProblem::NotAllowed),
            byte => return Err(PickleProblem::UnknownOperation { byte }),
        }
        Ok(())
    }

    /// The next bytes, if they are there.
    fn take_slice(&mut self, length: u64) -> Result<&'a [u8], PickleProblem> {
        let left = &self.bytes[self.at..];
        match usize::try_from(length).ok().and_then(|length| left.get(..length)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => Err(PickleProblem::Truncated { needed_bytes: length, left_bytes: left.len() as u64 }),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], PickleProblem> {
        let left_bytes = (self.bytes.len() - self.at) as u64;
        let taken = self.take_slice(N as u64)?;
        taken.try_into().map_err(|_| PickleProblem::Truncated { needed_bytes: N as u64, left_bytes })
    }

    /// Pushes a text. Python writes names of files that are not Unicode as lone surrogates, which become replacement
    /// characters here.
    fn text(&mut self, length: u64) -> Result<(), PickleProblem> {
        let bytes = self.take_slice(length)?;
        let text = self.values.add_text(Arc::from(String::from_utf8_lossy(bytes)));
        self.stack.push(text);
        Ok(())
    }

    fn remember(&mut self, index: u32) -> Result<(), PickleProblem> {
        let value = *self.stack.last().ok_or(PickleProblem::MissingValue)?;
        self.memo.insert(index, value);
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Result<(), PickleProblem> {
        let value = *self.memo.get(&index).ok_or(PickleProblem::UnknownMemo { index })?;
        self.stack.push(value);
        Ok(())
    }

    /// The height below which values belong to what lies outside the latest mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value, PickleProblem> {
        if self.stack.len() <= self.floor() {
            return Err(PickleProblem::MissingValue);
        }
        self.stack.pop().ok_or(PickleProblem::MissingValue)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, PickleProblem> {
        let mark = self.marks.pop().ok_or(PickleProblem::MissingMark)?;
        Ok(self.stack.split_off(mark))
    }

    fn push_list(&mut self, items: Vec<Value>) {
        let list = self.values.add_list(items);
        self.stack.push(list);
    }

    fn push_tuple(&mut self, items: Vec<Value>) {
        let tuple = self.values.add_tuple(items);
        self.stack.push(tuple);
    }

    fn push_dict(&mut self, entries: Vec<(Value, Value)>) {
        let dict = self.values.add_dict(entries);
        self.stack.push(dict);
    }

    fn list_on_top(&mut self) -> Result<&mut Vec<Value>, PickleProblem> {
        match self.stack.last() {
            Some(Value::List(index)) => Ok(self.values.items_mut(*index)),
            Some(other) => Err(PickleProblem::WrongTarget { found: other.kind() }),
            None => Err(PickleProblem::MissingValue),
        }
    }

    fn dict_on_top(&mut self) -> Result<&mut Vec<(Value, Value)>, PickleProblem> {
        match self.stack.last() {
            Some(Value::Dict(index)) => Ok(self.values.entries_mut(*index)),
            Some(other) => Err(PickleProblem::WrongTarget { found: other.kind() }),
            None => Err(PickleProblem::MissingValue),
        }
    }
}

/// Little-endian two's complement of any length; none is zero.
fn long(bytes: &[u8]) -> Result<Value, PickleProblem> {
    let too_large = PickleProblem::IntegerTooLarge { length: bytes.len() };
    let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
    let mut whole = [if negative { 0xff } else { 0 }; 16];
    match whole.get_mut(..bytes.len()) {
        Some(low) => low.copy_from_slice(bytes),
        None => return Err(too_large),
    }
    let value = i128::from_le_bytes(whole);
    match (i64::try_from(value), u64::try_from(value)) {
        (Ok(value), _) => Ok(Value::Integer(value)),
        (_, Ok(value)) => Ok(Value::Unsigned(value)),
        _ => Err(too_large),
    }
}

fn pairs(items: &[Value]) -> Result<impl Iterator<Item = (Value, Value)>, PickleProblem> {
    let (pairs, rest) = items.as_chunks::<2>();
    if rest.is_empty() { Ok(pairs.iter().map(|[key, value]| (*key, *value))) } else { Err(PickleProblem::MissingItem) }
}
