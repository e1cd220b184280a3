//! Golden files: JSON whose steps are objects with the operation's name, and statistics by their place in a list.

use std::collections::HashMap;

use memtrack::plain_text::counted;

use super::blocks::{Blocks, Pools};
use super::error::ReadError;
use super::history::{self, HistoryEntry, is_device_call};
use super::json::At;
use super::script::Script;
use super::{
    Answer, Expected, Kind, MOST_REQUEST, MOST_REQUEST_BYTES, MOST_STREAM, MOST_TOTAL, MOST_TOTAL_BYTES, OWN_STREAMS,
    Recording, Step, statistic,
};
use crate::operation::{Operation, PoolName};
use crate::statistics::StatisticKey;

/// The one other stream that blocks are recorded on. Its events complete when an allocation says so.
const SIDE_STREAM: u64 = OWN_STREAMS;

const OPERATIONS: &str = "init, alloc, free, record_stream, synchronize, empty_cache, reset_peak, reset_accumulated, \
                          settings, pool_new, pool_begin, pool_end and pool_delete";

pub(super) fn read(file: &At<'_>) -> Result<Recording, ReadError> {
    let mut recording = Recording::new(Kind::Golden);
    if let Some(configuration) = file.optional("initial_conf")? {
        configuration.text()?.clone_into(&mut recording.configuration);
    }
    if let Some(total) = file.optional("device_total_memory")? {
        recording.total_bytes = Some(total.at_most(MOST_TOTAL_BYTES, MOST_TOTAL)?);
    }
    if let Some(fraction) = file.optional("memory_fraction")? {
        recording.memory_fraction = fraction.fraction()?;
    }
    let keys = keys(file)?;
    let (blocks, pools) = (Blocks::default(), Pools::default());
    let mut reader = StepReader { blocks, pools, streams: streams(file)?, side_stream_is_busy: false };
    let mut says_something = !keys.is_empty();
    let steps = file.field("ops")?;
    let mut device_calls: Option<HashMap<usize, Vec<HistoryEntry>>> = None;
    for (number, item) in steps.items()?.enumerate() {
        if let Some(calls) = item.optional("device")? {
            let calls = calls.items()?.map(|call| device_call(number, &call)).collect::<Result<_, ReadError>>()?;
            device_calls.get_or_insert_default().insert(number, calls);
            says_something = true;
        }
        for operation in reader.operations(&item)? {
            recording.steps.push(Step::new(number, operation));
        }
        let Some(step) = recording.steps.last_mut() else { continue };
        if number == 0 {
            // All are zero but those that the first step names.
            step.statistics.extend(keys.iter().map(|key| (*key, 0)));
        }
        step.statistics.extend(changes(&item, &keys)?);
        if matches!(step.operation, Operation::Allocate { .. }) && item.has("ptr") {
            let address = item.optional("ptr")?.map(|address| address.unsigned()).transpose()?;
            step.answer = Some(address.map_or(Answer::OutOfMemory, Answer::Address));
            says_something = true;
        }
        recording.operation_count += 1;
    }
    recording.script = Script::AtAnswer;
    recording.block_count = reader.blocks.count();
    recording.expected = says_something.then(|| Expected { cumulative: true, device_calls, ..Expected::default() });
    Ok(recording)
}

/// `[action, address, bytes]`.
fn device_call(number: usize, call: &At<'_>) -> Result<HistoryEntry, ReadError> {
    let entry = history::entry(number, call, 3)?;
    if is_device_call(entry.action) {
        return Ok(entry);
    }
    Err(call.problem(format!("`{}` is no call to the device", entry.action.name())))
}

/// The statistics that steps name by number.
fn keys(file: &At<'_>) -> Result<Vec<StatisticKey>, ReadError> {
    let Some(keys) = file.optional("keys")? else { return Ok(Vec::new()) };
    let mut known = Vec::new();
    for item in keys.items()? {
        let key = statistic(item.text()?, &item)?;
        if known.contains(&key) {
            return Err(item.problem(format!("`{}` is in the list already", key.name())));
        }
        known.push(key);
    }
    Ok(known)
}

/// The handles of the streams that steps name by number.
fn streams(file: &At<'_>) -> Result<Vec<u64>, ReadError> {
    let Some(streams) = file.optional("streams")? else { return Ok(Vec::new()) };
    streams.items()?.map(|stream| stream.at_most(OWN_STREAMS - 1, MOST_STREAM)).collect()
}

fn changes(step: &At<'_>, keys: &[StatisticKey]) -> Result<Vec<(StatisticKey, i64)>, ReadError> {
    let Some(changes) = step.optional("d")? else { return Ok(Vec::new()) };
    let mut found: Vec<(StatisticKey, i64)> = Vec::new();
    for change in changes.items()? {
        change.ends_at(2)?;
        let place = change.item(0, "the statistic's place in `keys`")?;
        let missing = || place.problem(format!("`keys` has {}, counted from 0", counted(keys.len() as u64, "name")));
        let key = usize::try_from(place.unsigned()?).ok().and_then(|index| keys.get(index)).ok_or_else(missing)?;
        if found.iter().any(|(known, _)| known == key) {
            return Err(place.problem(format!("`{}` has a value in this step already", key.name())));
        }
        found.push((*key, change.item(1, "the value")?.signed()?));
    }
    Ok(found)
}

struct StepReader {
    blocks: Blocks,
    pools: Pools,
    streams: Vec<u64>,
    side_stream_is_busy: bool,
}

impl StepReader {
    /// What a step does: the operation named, behind what happened just before it.
    fn operations(&mut self, step: &At<'_>) -> Result<Vec<Operation>, ReadError> {
        let name = step.field("op")?;
        let id = || step.field("id")?.unsigned();
        let problem = |problem: String| step.problem(problem);
        let operation = match name.text()? {
            "alloc" => {
                let bytes = step.field("size")?.at_most(MOST_REQUEST_BYTES, MOST_REQUEST)?;
                let stream = self.stream(step)?;
                let block = self.blocks.allocate(id()?).map_err(problem)?;
                let mut operations = Vec::new();
                if let Some(completed) = step.optional("events_completed")? {
                    let count = usize::try_from(completed.unsigned()?).unwrap_or(usize::MAX);
                    operations.push(Operation::CompleteEvents { count });
                }
                operations.push(Operation::Allocate { block, bytes, stream });
                return Ok(operations);
            }
            "free" => Operation::Free { block: self.blocks.free(id()?).map_err(problem)? },
            "record_stream" => {
                let record =
                    Operation::RecordStream { block: self.blocks.find(id()?).map_err(problem)?, stream: SIDE_STREAM };
                if self.side_stream_is_busy {
                    record
                } else {
                    self.side_stream_is_busy = true;
                    return Ok(vec![Operation::SetBusy { stream: SIDE_STREAM }, record]);
                }
            }
            // What it completes is found complete by a later allocation, which says so.
            "init" | "synchronize" => Operation::Mark { name: name.text()?.into() },
            "empty_cache" => Operation::EmptyCache,
            "reset_peak" => Operation::ResetPeak,
            "reset_accumulated" => Operation::ResetAccumulated,
            "settings" => Operation::Settings { text: step.field("conf")?.text()?.into() },
            "pool_new" => {
                let flag = |name| step.optional(name)?.map_or(Ok(false), |flag| flag.flag());
                let pool = pool(step)?;
                self.pools.create(pool).map_err(problem)?;
                Operation::CreatePool { pool, use_on_oom: flag("use_on_oom")?, no_split: flag("no_split")? }
            }
            "pool_begin" => {
                let pool = pool(step)?;
                self.pools.enter(pool).map_err(problem)?;
                Operation::EnterPool { pool }
            }
            "pool_end" => {
                let pool = pool(step)?;
                self.pools.leave(pool).map_err(problem)?;
                Operation::LeavePool { pool }
            }
            "pool_delete" => {
                let pool = pool(step)?;
                self.pools.delete(pool).map_err(problem)?;
                Operation::DeletePool { pool }
            }
            other => return Err(name.problem(format!("unknown operation `{other}`; known are {OPERATIONS}"))),
        };
        Ok(vec![operation])
    }

    /// The handle of the step's stream; a file without `streams` gives handles, and without that the default stream is meant.
    fn stream(&self, step: &At<'_>) -> Result<u64, ReadError> {
        let Some(stream) = step.optional("stream")? else { return Ok(0) };
        let number = stream.at_most(OWN_STREAMS - 1, MOST_STREAM)?;
        if self.streams.is_empty() {
            return Ok(number);
        }
        let handle = usize::try_from(number).ok().and_then(|index| self.streams.get(index));
        let missing = || {
            stream.problem(format!("`streams` has {}, counted from 0", counted(self.streams.len() as u64, "handle")))
        };
        handle.copied().ok_or_else(missing)
    }
}

fn pool(step: &At<'_>) -> Result<PoolName, ReadError> {
    let pool = step.field("pool")?;
    pool.ends_at(2)?;
    Ok(PoolName(
        pool.item(0, "the pool's first number")?.unsigned()?,
        pool.item(1, "the pool's second number")?.unsigned()?,
    ))
}
