//! From the values of a file to a [`Snapshot`].
//!
//! Keys that this library does not know are passed over and keys that older files lack take a default; a known key with a
//! value of another type is an error that says where. Stacks stay shared. All else that a file shares is written out and
//! counted, since a snapshot's segments, blocks and events are values of their own.

mod settings;

use std::collections::HashMap;
use std::sync::Arc;

use super::action::EntryAction;
use super::encode::{HISTORY_KEY, pool_name};
use super::error::{ReadError, ReadLimits};
use super::snapshot::{
    Annotation, Block, BlockStatus, DeviceHistory, Frame, Frames, HistoryStart, Segment, Snapshot, Stage, TraceEntry,
};
use super::value::{Value, Values};
use crate::device::Stream;
use crate::stats::PoolKind;

pub(super) fn snapshot(values: &Values, whole: Value, limits: &ReadLimits) -> Result<Snapshot, ReadError> {
    let mut decoder = Decoder {
        values,
        left: limits.operations,
        frames: HashMap::new(),
        stacks: HashMap::new(),
        not_applicable: Arc::from("N/A"),
        no_text: Arc::from(""),
    };
    decoder.snapshot(whole).map_err(|problem| match problem {
        Problem::Expands => ReadError::Expands { limit: limits.operations },
        Problem::Shape { path, expected, found } => {
            let path = path.strip_prefix('.').unwrap_or(&path);
            let path = if path.is_empty() { "the whole".to_owned() } else { path.to_owned() };
            ReadError::Shape { path, expected, found }
        }
    })
}

/// An error on its way out, which gathers the path.
enum Problem {
    Expands,
    Shape { path: String, expected: &'static str, found: String },
}

impl Problem {
    fn below(self, step: &str) -> Self {
        match self {
            Self::Expands => Self::Expands,
            Self::Shape { path, expected, found } => Self::Shape { path: format!("{step}{path}"), expected, found },
        }
    }
}

fn wrong<T>(expected: &'static str, found: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Shape { path: String::new(), expected, found: found.into() })
}

struct Decoder<'a> {
    values: &'a Values,
    /// How many more values may be looked at.
    left: u64,
    /// By the index of their dict or list.
    frames: HashMap<u32, Frame>,
    stacks: HashMap<u32, Frames>,
    not_applicable: Arc<str>,
    no_text: Arc<str>,
}

impl<'a> Decoder<'a> {
    fn spend(&mut self, count: usize) -> Result<(), Problem> {
        self.left = self.left.checked_sub(count as u64 + 1).ok_or(Problem::Expands)?;
        Ok(())
    }

    /// Calls `each` for each entry whose key is a text, in order.
    fn dict(
        &mut self,
        value: Value,
        mut each: impl FnMut(&mut Self, &'a str, Value) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let Value::Dict(index) = value else { return wrong("a dict", value.kind()) };
        let values = self.values;
        let entries = values.entries(index);
        self.spend(entries.len())?;
        for (key, value) in entries {
            if let Value::Text(key) = key {
                let key = values.text(*key);
                each(self, key, *value).map_err(|problem| problem.below(&format!(".{key}")))?;
            }
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        value: Value,
        mut each: impl FnMut(&mut Self, Value) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        let (Value::List(index) | Value::Tuple(index)) = value else { return wrong("a list", value.kind()) };
        let items = self.values.items(index);
        self.spend(items.len())?;
        let item = |(at, item): (usize, &Value)| each(self, *item).map_err(|problem| problem.below(&format!("[{at}]")));
        items.iter().enumerate().map(item).collect()
    }

    fn text(&mut self, value: Value) -> Result<Arc<str>, Problem> {
        match value {
            Value::Text(index) => Ok(Arc::clone(self.values.text(index))),
            _ => wrong("a text", value.kind()),
        }
    }

    fn snapshot(&mut self, whole: Value) -> Result<Snapshot, Problem> {
        let mut snapshot = Snapshot::default();
        let mut has_segments = false;
        self.dict(whole, |decoder, key, value| {
            match key {
                "segments" => {
                    snapshot.segments = decoder.list(value, Self::segment)?;
                    has_segments = true;
                }
                "device_traces" => {
                    snapshot.device_traces = decoder.list(value, |decoder, trace| decoder.list(trace, Self::entry))?;
                }
                "allocator_settings" => snapshot.allocator_settings = decoder.settings(value)?,
                "external_annotations" => snapshot.external_annotations = decoder.list(value, Self::annotation)?,
                HISTORY_KEY => snapshot.history = decoder.list(value, Self::device_history)?,
                _ => {}
            }
            Ok(())
        })?;
        if has_segments { Ok(snapshot) } else { wrong("a dict with `segments`", "a dict without") }
    }

    fn segment(&mut self, value: Value) -> Result<Segment, Problem> {
        let mut segment = Segment::default();
        let mut missing = Missing::new(&["address", "total_size", "blocks"]);
        self.dict(value, |decoder, key, value| {
            missing.found(key);
            match key {
                "device" => segment.device = integer(value)?,
                "address" => segment.address = integer(value)?,
                "total_size" => segment.total_size = integer(value)?,
                "allocated_size" => segment.allocated_size = integer(value)?,
                "active_size" => segment.active_size = integer(value)?,
                "requested_size" => segment.requested_size = integer(value)?,
                "stream" => segment.stream = Stream(integer(value)?),
                "segment_type" => segment.segment_type = decoder.pool(value)?,
                "segment_pool_id" => segment.segment_pool_id = decoder.pair(value)?,
                "is_expandable" => segment.is_expandable = boolean(value)?,
                "frames" => segment.frames = decoder.stack(value)?,
                "blocks" => segment.blocks = decoder.list(value, Self::block)?,
                _ => {}
            }
            Ok(())
        })?;
        missing.check()?;
        // Older files give sizes alone.
        let mut address = segment.address;
        for block in &mut segment.blocks {
            if block.address == 0 {
                block.address = address;
            }
            address = address.wrapping_add(block.size);
        }
        Ok(segment)
    }

    fn pool(&mut self, value: Value) -> Result<PoolKind, Problem> {
        let name = self.text(value)?;
        let pools = [PoolKind::Small, PoolKind::Large];
        match pools.into_iter().find(|pool| pool_name(*pool) == &*name) {
            Some(pool) => Ok(pool),
            None => wrong("`small` or `large`", format!("`{name}`")),
        }
    }

    fn pair(&mut self, value: Value) -> Result<(u64, u64), Problem> {
        match self.list(value, |_, item| integer(item))?[..] {
            [first, second] => Ok((first, second)),
            ref items => wrong("two integers", format!("{} of them", items.len())),
        }
    }

    fn block(&mut self, value: Value) -> Result<Block, Problem> {
        let mut block = Block::default();
        let mut requested_size = None;
        let mut missing = Missing::new(&["size", "state"]);
        self.dict(value, |decoder, key, value| {
            missing.found(key);
            match key {
                "address" => block.address = integer(value)?,
                "size" => block.size = integer(value)?,
                "requested_size" => requested_size = Some(integer(value)?),
                "state" => block.state = decoder.block_status(value)?,
                "frames" => block.frames = decoder.stack(value)?,
                _ => {}
            }
            Ok(())
        })?;
        missing.check()?;
        block.requested_size = requested_size.unwrap_or(block.size);
        Ok(block)
    }

    fn block_status(&mut self, value: Value) -> Result<BlockStatus, Problem> {
        let name = self.text(value)?;
        match &*name {
            "active_allocated" => Ok(BlockStatus::ActiveAllocated),
            // The second is the name in PyTorch's documentation.
            "active_pending_free" | "active_awaiting_free" => Ok(BlockStatus::ActivePendingFree),
            "inactive" => Ok(BlockStatus::Inactive),
            _ => wrong("`active_allocated`, `active_pending_free` or `inactive`", format!("`{name}`")),
        }
    }

    fn entry(&mut self, value: Value) -> Result<TraceEntry, Problem> {
        let mut entry = TraceEntry {
            compile_context: Arc::clone(&self.not_applicable),
            user_metadata: Arc::clone(&self.no_text),
            ..TraceEntry::default()
        };
        let mut missing = Missing::new(&["action"]);
        self.dict(value, |decoder, key, value| {
            missing.found(key);
            match key {
                "action" => entry.action = EntryAction::from_name(&decoder.text(value)?),
                "addr" | "device_free" => entry.addr = integer(value)?,
                "size" => entry.size = integer(value)?,
                "stream" => entry.stream = Stream(integer(value)?),
                "time_us" => entry.time_us = integer(value)?,
                "compile_context" => entry.compile_context = decoder.text(value)?,
                "user_metadata" => entry.user_metadata = decoder.text(value)?,
                "frames" => entry.frames = Some(decoder.stack(value)?),
                _ => {}
            }
            Ok(())
        })?;
        missing.check()?;
        Ok(entry)
    }

    fn stack(&mut self, value: Value) -> Result<Frames, Problem> {
        let Value::List(index) = value else { return wrong("a list of frames", value.kind()) };
        if let Some(frames) = self.stacks.get(&index) {
            return Ok(Arc::clone(frames));
        }
        let frames: Frames = self.list(value, Self::frame)?.into();
        self.stacks.insert(index, Arc::clone(&frames));
        Ok(frames)
    }

    fn frame(&mut self, value: Value) -> Result<Frame, Problem> {
        if let Value::Dict(index) = value
            && let Some(frame) = self.frames.get(&index)
        {
            return Ok(frame.clone());
        }
        let mut frame = Frame::default();
        let mut missing = Missing::new(&["name", "filename"]);
        self.dict(value, |decoder, key, value| {
            missing.found(key);
            match key {
                "name" => frame.name = decoder.text(value)?,
                "filename" => frame.filename = decoder.text(value)?,
                "line" => frame.line = integer(value)?,
                _ => {}
            }
            Ok(())
        })?;
        missing.check()?;
        if let Value::Dict(index) = value {
            self.frames.insert(index, frame.clone());
        }
        Ok(frame)
    }

    fn annotation(&mut self, value: Value) -> Result<Annotation, Problem> {
        let mut annotation = Annotation::new(Stage::Start, Arc::clone(&self.no_text), 0, 0);
        let mut missing = Missing::new(&["stage", "name"]);
        self.dict(value, |decoder, key, value| {
            missing.found(key);
            match key {
                "stage" => annotation.stage = decoder.stage(value)?,
                "name" => annotation.name = decoder.text(value)?,
                "device" => annotation.device = integer(value)?,
                "time_us" => annotation.time_us = integer(value)?,
                _ => {}
            }
            Ok(())
        })?;
        missing.check()?;
        Ok(annotation)
    }

    fn stage(&mut self, value: Value) -> Result<Stage, Problem> {
        let name = self.text(value)?;
        match [Stage::Start, Stage::End].into_iter().find(|stage| stage.name() == &*name) {
            Some(stage) => Ok(stage),
            None => wrong("`START` or `END`", format!("`{name}`")),
        }
    }

    fn device_history(&mut self, value: Value) -> Result<DeviceHistory, Problem> {
        let mut history = DeviceHistory::default();
        let mut start = HistoryStart::default();
        let mut started = false;
        self.dict(value, |decoder, key, value| {
            match key {
                "device" => history.device = integer(value)?,
                "history" => {
                    let name = decoder.text(value)?;
                    let enabled = if &*name == "off" { Ok(None) } else { name.parse().map(Some) };
                    match enabled {
                        Ok(enabled) => history.enabled = enabled,
                        Err(_) => return wrong("`off`, `state` or `all`", format!("`{name}`")),
                    }
                }
                "start_time_us" => {
                    start.time_us = integer(value)?;
                    started = true;
                }
                "start_entry" => start.entry = integer(value)?,
                "start_allocated_bytes" => start.allocated_bytes = integer(value)?,
                "recorded_entries" => history.recorded_entries = integer(value)?,
                _ => {}
            }
            Ok(())
        })?;
        history.start = started.then_some(start);
        Ok(history)
    }
}

fn boolean(value: Value) -> Result<bool, Problem> {
    match value {
        Value::Bool(value) => Ok(value),
        _ => wrong("a boolean", value.kind()),
    }
}

/// An integer in the range of `T`.
fn integer<T: TryFrom<i128>>(value: Value) -> Result<T, Problem> {
    let whole = match value {
        Value::Integer(value) => i128::from(value),
        Value::Unsigned(value) => i128::from(value),
        _ => return wrong("an integer", value.kind()),
    };
    match T::try_from(whole) {
        Ok(value) => Ok(value),
        Err(_) => wrong("an integer in range", whole.to_string()),
    }
}

/// The keys that a dict must have and has not shown yet.
struct Missing {
    keys: &'static [&'static str],
    /// One bit a key.
    seen: u32,
}

impl Missing {
    fn new(keys: &'static [&'static str]) -> Self {
        Self { keys, seen: 0 }
    }

    fn found(&mut self, key: &str) {
        if let Some(index) = self.keys.iter().position(|wanted| *wanted == key) {
            self.seen |= 1 << index;
        }
    }

    fn check(&self) -> Result<(), Problem> {
        match self.keys.iter().enumerate().find(|(index, _)| self.seen & (1 << index) == 0) {
            Some((_, key)) => {
                Err(Problem::Shape { path: format!(".{key}"), expected: "there", found: "missing".to_owned() })
            }
            None => Ok(()),
        }
    }
}
