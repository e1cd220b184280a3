//! The shape of a snapshot, written once for every file form.

use super::action::{EntryAction, TraceAction};
use super::error::WriteError;
use super::settings::{AllocatorSettings, SettingValue};
use super::snapshot::{Annotation, Block, DeviceHistory, Frame, Frames, Segment, Snapshot, TraceEntry};
use crate::stats::PoolKind;

/// The key of what PyTorch's files do not have.
pub(super) const HISTORY_KEY: &str = "memtrack_history";

/// A file form: takes values in the order they are written.
pub(super) trait Sink: Sized {
    fn null(&mut self) -> Result<(), WriteError>;
    fn boolean(&mut self, value: bool) -> Result<(), WriteError>;
    fn integer(&mut self, value: i128) -> Result<(), WriteError>;
    fn float(&mut self, value: f64) -> Result<(), WriteError>;
    fn text(&mut self, value: &str) -> Result<(), WriteError>;
    fn pair(&mut self, first: u64, second: u64) -> Result<(), WriteError>;
    fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        each: impl FnMut(&mut Self, T) -> Result<(), WriteError>,
    ) -> Result<(), WriteError>;
    /// `entries` calls [`key`](Self::key) before each value.
    fn dict(&mut self, entries: impl FnOnce(&mut Self) -> Result<(), WriteError>) -> Result<(), WriteError>;
    fn key(&mut self, name: &str) -> Result<(), WriteError>;
    /// A list of frames that may be the same as an earlier one.
    fn frames(&mut self, frames: &Frames) -> Result<(), WriteError>;

    fn text_entry(&mut self, name: &str, value: &str) -> Result<(), WriteError> {
        self.key(name)?;
        self.text(value)
    }

    fn integer_entry(&mut self, name: &str, value: impl Into<i128>) -> Result<(), WriteError> {
        self.key(name)?;
        self.integer(value.into())
    }

    fn boolean_entry(&mut self, name: &str, value: bool) -> Result<(), WriteError> {
        self.key(name)?;
        self.boolean(value)
    }

    fn frames_entry(&mut self, frames: &Frames) -> Result<(), WriteError> {
        self.key("frames")?;
        self.frames(frames)
    }
}

pub(super) fn snapshot(sink: &mut impl Sink, snapshot: &Snapshot) -> Result<(), WriteError> {
    let Snapshot { segments, device_traces, allocator_settings, external_annotations, history } = snapshot;
    sink.dict(|sink| {
        sink.key("segments")?;
        sink.list(segments, segment)?;
        sink.key("device_traces")?;
        sink.list(device_traces, |sink, trace| sink.list(trace, entry))?;
        sink.key("allocator_settings")?;
        settings(sink, allocator_settings)?;
        sink.key("external_annotations")?;
        sink.list(external_annotations, annotation)?;
        if history.is_empty() {
            return Ok(());
        }
        sink.key(HISTORY_KEY)?;
        sink.list(history, device_history)
    })
}

fn segment(sink: &mut impl Sink, segment: &Segment) -> Result<(), WriteError> {
    sink.dict(|sink| {
        sink.integer_entry("device", segment.device)?;
        sink.integer_entry("address", segment.address)?;
        sink.integer_entry("total_size", segment.total_size)?;
        sink.integer_entry("allocated_size", segment.allocated_size)?;
        sink.integer_entry("active_size", segment.active_size)?;
        sink.integer_entry("requested_size", segment.requested_size)?;
        sink.integer_entry("stream", segment.stream.0)?;
        sink.text_entry("segment_type", pool_name(segment.segment_type))?;
        sink.key("segment_pool_id")?;
        sink.pair(segment.segment_pool_id.0, segment.segment_pool_id.1)?;
        sink.boolean_entry("is_expandable", segment.is_expandable)?;
        sink.frames_entry(&segment.frames)?;
        sink.key("blocks")?;
        sink.list(&segment.blocks, block)
    })
}

pub(super) fn pool_name(pool: PoolKind) -> &'static str {
    match pool {
        PoolKind::Small => "small",
        PoolKind::Large => "large",
    }
}

fn block(sink: &mut impl Sink, block: &Block) -> Result<(), WriteError> {
    sink.dict(|sink| {
        sink.integer_entry("address", block.address)?;
        sink.integer_entry("size", block.size)?;
        sink.integer_entry("requested_size", block.requested_size)?;
        sink.text_entry("state", block.state.name())?;
        sink.frames_entry(&block.frames)
    })
}

fn entry(sink: &mut impl Sink, entry: &TraceEntry) -> Result<(), WriteError> {
    let address = match entry.action {
        EntryAction::Known(TraceAction::Oom) => "device_free",
        _ => "addr",
    };
    sink.dict(|sink| {
        sink.text_entry("action", entry.action.name())?;
        sink.integer_entry(address, entry.addr)?;
        sink.integer_entry("size", entry.size)?;
        sink.integer_entry("stream", entry.stream.0)?;
        sink.integer_entry("time_us", entry.time_us)?;
        sink.text_entry("compile_context", &entry.compile_context)?;
        sink.text_entry("user_metadata", &entry.user_metadata)?;
        entry.frames.as_ref().map_or(Ok(()), |frames| sink.frames_entry(frames))
    })
}

pub(super) fn frame(sink: &mut impl Sink, frame: &Frame) -> Result<(), WriteError> {
    sink.dict(|sink| {
        sink.text_entry("name", &frame.name)?;
        sink.text_entry("filename", &frame.filename)?;
        sink.integer_entry("line", frame.line)
    })
}

fn settings(sink: &mut impl Sink, settings: &AllocatorSettings) -> Result<(), WriteError> {
    sink.dict(|sink| {
        for (name, value) in &settings.entries {
            sink.key(name)?;
            setting(sink, value)?;
        }
        Ok(())
    })
}

fn setting(sink: &mut impl Sink, value: &SettingValue) -> Result<(), WriteError> {
    match value {
        SettingValue::None => sink.null(),
        SettingValue::Bool(value) => sink.boolean(*value),
        SettingValue::Integer(value) => sink.integer(i128::from(*value)),
        SettingValue::Float(value) => sink.float(*value),
        SettingValue::Text(value) => sink.text(value),
        SettingValue::List(values) => sink.list(values, setting),
        SettingValue::Table(values) => sink.dict(|sink| {
            for (name, value) in values {
                sink.key(name)?;
                setting(sink, value)?;
            }
            Ok(())
        }),
    }
}

fn annotation(sink: &mut impl Sink, annotation: &Annotation) -> Result<(), WriteError> {
    sink.dict(|sink| {
        sink.text_entry("stage", annotation.stage.name())?;
        sink.text_entry("name", &annotation.name)?;
        sink.integer_entry("device", annotation.device)?;
        sink.integer_entry("time_us", annotation.time_us)
    })
}

fn device_history(sink: &mut impl Sink, history: &DeviceHistory) -> Result<(), WriteError> {
    sink.dict(|sink| {
        sink.integer_entry("device", history.device)?;
        sink.text_entry("history", history.enabled.map_or("off", |enabled| enabled.name()))?;
        if let Some(start) = history.start {
            sink.integer_entry("start_time_us", start.time_us)?;
            sink.integer_entry("start_entry", start.entry)?;
            sink.integer_entry("start_allocated_bytes", start.allocated_bytes)?;
        }
        sink.integer_entry("recorded_entries", history.recorded_entries)
    })
}
