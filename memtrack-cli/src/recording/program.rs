//! Programs: JSON whose steps are lists, such as `["alloc", 0, 1024, 0]`.

use std::collections::HashMap;

use memtrack::history::TraceAction;

use super::blocks::Blocks;
use super::error::ReadError;
use super::history::{self, ExpectedHistory, HistoryEntry};
use super::json::At;
use super::script::{Script, ScriptWriter};
use super::{
    Answer, Expected, Kind, MOST_REQUEST, MOST_REQUEST_BYTES, MOST_STREAM, MOST_TOTAL, MOST_TOTAL_BYTES, OWN_STREAMS,
    Recording, Step, check_addresses, check_segment_address, forget_addresses, statistics,
};
use crate::operation::Operation;

const OPERATIONS: &str =
    "alloc, free, record_stream, sleep, sync, empty_cache, reset_peak, reset_accumulated and set_fraction";

pub(super) fn read(file: &At<'_>) -> Result<Recording, ReadError> {
    let mut recording = Recording::new(Kind::Program);
    if let Some(configuration) = file.optional("config")? {
        configuration.text()?.clone_into(&mut recording.configuration);
    }
    if let Some(kind) = file.optional("kind")? {
        recording.configuration = of_kind(&kind)?.to_owned();
    }
    if let Some(total) = file.optional("total_memory")? {
        recording.total_bytes = Some(total.at_most(MOST_TOTAL_BYTES, MOST_TOTAL)?);
    }
    if let Some(limit) = file.optional("limit_bytes")? {
        let Some(total_bytes) = recording.total_bytes.filter(|bytes| *bytes > 0) else {
            return Err(limit.problem(
                "a limit is a share of the device's memory, and `total_memory` does not say how much that is",
            ));
        };
        recording.memory_fraction = (limit.unsigned()? as f64 / total_bytes as f64).min(1.0);
    }
    let history = History::read(file)?;
    let mut expected = Expected { cumulative: true, ..Expected::default() };
    let mut says_something = false;
    for (field, target) in [("initial_stats", &mut expected.start), ("final_stats", &mut expected.end)] {
        if let Some(object) = file.optional(field)? {
            *target = statistics(&object)?;
            says_something = true;
        }
    }
    for (field, abbreviated) in [("memory_summary", false), ("memory_summary_abbreviated", true)] {
        if let Some(summary) = file.optional(field)? {
            expected.summaries.push((abbreviated, summary.text()?.to_owned()));
            says_something = true;
        }
    }

    let steps = file.field("ops")?;
    let streams = history.stream_handles(&steps)?;
    let mut reader = StepReader { blocks: Blocks::default(), streams };
    for (number, item) in steps.items()?.enumerate() {
        let mut step = Step::new(number, reader.operation(&item.field("op")?)?);
        if let Some(changed) = item.optional("changed")? {
            step.statistics = statistics(&changed)?;
            says_something = true;
        }
        if matches!(step.operation, Operation::Allocate { .. }) {
            step.answer = answer(&item)?;
            says_something |= step.answer.is_some();
        }
        recording.steps.push(step);
    }
    if history.script == Script::None {
        check_addresses(&recording.steps)
            .map_err(|(step, problem)| ReadError::Content { path: format!("ops[{step}].ptr"), problem })?;
        forget_addresses(&mut recording.steps);
    }
    recording.script = history.script;
    if let Some(entries) = history.entries {
        expected.history = Some(ExpectedHistory { device_calls_alone: false, entries });
        says_something = true;
    }
    if let Some(list) = file.optional("final_segments")? {
        expected.segments = Some(history::segments(&list)?);
        says_something = true;
    }
    recording.operation_count = recording.steps.len();
    recording.block_count = reader.blocks.count();
    recording.expected = says_something.then_some(expected);
    Ok(recording)
}

/// The configuration of a recording in a special area.
fn of_kind(kind: &At<'_>) -> Result<&'static str, ReadError> {
    match kind.text()? {
        "async" => Ok("backend:cudaMallocAsync"),
        other => Err(kind.problem(format!(
            "recordings of the kind `{other}` are not replayed: what they depend on (how full the card is, captures, pinned memory) \
             is not in the steps; `async` is"
        ))),
    }
}

/// What the step says its allocation returned.
fn answer(step: &At<'_>) -> Result<Option<Answer>, ReadError> {
    let address = step.optional("ptr")?.map(|address| address.unsigned()).transpose()?;
    match (address, step.optional("oom")?) {
        (Some(_), Some(oom)) => Err(oom.problem("an allocation has `ptr` or `oom`, not both")),
        (Some(address), None) => Ok(Some(Answer::Address(address))),
        (None, Some(_)) => Ok(Some(Answer::OutOfMemory)),
        (None, None) => Ok(None),
    }
}

/// What the field `trace`, the allocator's own history, is used for.
struct History {
    script: Script,
    /// All but snapshots, where the file has the field.
    entries: Option<Vec<HistoryEntry>>,
}

impl History {
    fn read(file: &At<'_>) -> Result<Self, ReadError> {
        let mut script = ScriptWriter::default();
        let Some(trace) = file.optional("trace")? else { return Ok(Self { script: Script::None, entries: None }) };
        let mut entries = Vec::new();
        for (number, item) in trace.items()?.enumerate() {
            let entry = history::entry(number, &item, 4)?;
            let address = || {
                let at = item.item(1, "the address")?;
                check_segment_address(at.unsigned()?).map_err(|problem| at.problem(problem))
            };
            match entry.action {
                TraceAction::SegmentAlloc => script.segment_allocated(address()?),
                TraceAction::SegmentMap => script.mapped(address()?, entry.bytes),
                TraceAction::SegmentUnmap => script.unmapped(address()?, entry.bytes),
                TraceAction::Snapshot => continue,
                _ => {}
            }
            entries.push(entry);
        }
        Ok(Self { script: script.finish(), entries: Some(entries) })
    }

    /// The handles of the streams that steps number: the n-th allocation that succeeded is the n-th of the history, which
    /// has the handle. A stream that the history does not tell is its number.
    fn stream_handles(&self, steps: &At<'_>) -> Result<HashMap<u64, u64>, ReadError> {
        let mut handles = HashMap::new();
        let entries = self.entries.iter().flatten().filter(|entry| entry.action == TraceAction::Alloc);
        let mut history = entries.filter_map(|entry| entry.stream);
        for step in steps.items()? {
            if step.optional("ptr")?.is_none() {
                continue;
            }
            let Some(handle) = history.next() else { break };
            let operation = step.field("op")?;
            if let Ok(number) = operation.item(3, "the stream").and_then(|number| number.unsigned()) {
                handles.entry(number).or_insert(handle);
            }
        }
        Ok(handles)
    }
}

fn stream(at: &At<'_>) -> Result<u64, ReadError> {
    at.at_most(OWN_STREAMS - 1, MOST_STREAM)
}

struct StepReader {
    blocks: Blocks,
    streams: HashMap<u64, u64>,
}

impl StepReader {
    fn stream(&self, operation: &At<'_>, index: usize) -> Result<u64, ReadError> {
        let number = stream(&operation.item(index, "the stream")?)?;
        Ok(self.streams.get(&number).copied().unwrap_or(number))
    }

    fn operation(&mut self, operation: &At<'_>) -> Result<Operation, ReadError> {
        let name = operation.item(0, "the name of the operation")?;
        let id = || operation.item(1, "the block")?.unsigned();
        let problem = |problem: String| operation.problem(problem);
        let name_text = name.text()?;
        operation.ends_at(match name_text {
            "alloc" => 4,
            "record_stream" => 3,
            "free" | "sleep" | "set_fraction" => 2,
            "sync" | "empty_cache" | "reset_peak" | "reset_accumulated" => 1,
            other => return Err(name.problem(format!("unknown operation `{other}`; known are {OPERATIONS}"))),
        })?;
        Ok(match name_text {
            "alloc" => {
                let bytes = operation.item(2, "the bytes")?.at_most(MOST_REQUEST_BYTES, MOST_REQUEST)?;
                let stream = self.stream(operation, 3)?;
                Operation::Allocate { block: self.blocks.allocate(id()?).map_err(problem)?, bytes, stream }
            }
            "free" => Operation::Free { block: self.blocks.free(id()?).map_err(problem)? },
            "record_stream" => Operation::RecordStream {
                block: self.blocks.find(id()?).map_err(problem)?,
                stream: self.stream(operation, 2)?,
            },
            "sleep" => Operation::SetBusy { stream: self.stream(operation, 1)? },
            "sync" => Operation::Synchronize,
            "empty_cache" => Operation::EmptyCache,
            "reset_peak" => Operation::ResetPeak,
            "reset_accumulated" => Operation::ResetAccumulated,
            _ => Operation::SetFraction { fraction: operation.item(1, "the fraction")?.fraction()? },
        })
    }
}
