//! Files that say what was asked of an allocator, and perhaps what PyTorch answered.
//!
//! Here live the [`Recording`], which is the same whatever file it came from, and a reader for each format: *programs*
//! (`program`), *golden files* (`golden`), *traces* (`trace`) and *snapshots* (`snapshot`). A reader refuses a file that does not make
//! sense, with the place; what it returns can be run. Nothing here runs anything.

mod blocks;
mod error;
mod golden;
mod history;
mod json;
mod program;
mod script;
mod snapshot;
mod source;
mod trace;
mod value;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

pub use error::ReadError;
pub use history::{ExpectedHistory, ExpectedSegment, Facts, HistoryEntry, is_device_call};
pub use script::Script;

use self::json::At;
use self::value::Json;
use crate::operation::{BlockId, Operation};
use crate::statistics::StatisticKey;

/// The most bytes a request may have: PyTorch and memtrack refuse more as a mistake.
const MOST_REQUEST_BYTES: u64 = (1 << 60) - 1;
const MOST_REQUEST: &str = "2^60 - 1, more than any device has";
/// The most memory a simulated device may have: the books of expandable segments grow with it.
const MOST_TOTAL_BYTES: u64 = 1 << 44;
const MOST_TOTAL: &str = "2^44 (16 TiB)";
/// Stream handles from here on are the runner's own.
pub(crate) const OWN_STREAMS: u64 = 1 << 62;
const MOST_STREAM: &str = "2^62 - 1";
const PROGRAM_STEP: &str = r#"the file is read as a golden one, since the first `op` is a text; a program's step is {"op": ["alloc", 0, 1024, 0]}"#;
/// More than any recording has; each takes about a hundred bytes, and its block some more.
const MOST_STEPS: usize = 10_000_000;
/// A pickle says its protocol first.
const PICKLE_START: u8 = 0x80;

/// Which format a recording came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Steps with the statistics that each changed.
    Program,
    /// The same, written by numbers of statistics, with settings and pools.
    Golden,
    /// An allocator event a line.
    Trace,
    /// The history in a snapshot of PyTorch's, or of memtrack's.
    Snapshot,
}

/// What was asked of one allocator on one device.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Recording {
    /// The format.
    pub kind: Kind,
    /// What the allocator was configured with, in PyTorch's grammar.
    pub configuration: String,
    /// What the device had, when the file says so.
    pub total_bytes: Option<u64>,
    /// The share of it that might be taken, 1 without a limit.
    pub memory_fraction: f64,
    /// Where segments lay.
    pub script: Script,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// How many allocations there are, those that failed included.
    pub block_count: usize,
    /// How many operations the file has: its steps, or its lines that ask for something.
    pub operation_count: usize,
    /// Blocks that were allocated before the recording begins; it allocates them first.
    pub initial_block_count: usize,
    /// What the file shows that it does not say when to do, so that a replay does not do it.
    pub left_out: Option<String>,
    /// What should come of it, `None` when the file says nothing of that.
    pub expected: Option<Expected>,
}

/// One thing to do, and what should come of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The step's number in the file, from 0; of a text the line's, from 1; of a snapshot the entry's, from 0.
    pub number: usize,
    /// What to do.
    pub operation: Operation,
    /// What an allocation should return.
    pub answer: Option<Answer>,
    /// Statistics that should have these values afterwards.
    pub statistics: Vec<(StatisticKey, i64)>,
}

impl Step {
    fn new(number: usize, operation: Operation) -> Self {
        Self { number, operation, answer: None, statistics: Vec::new() }
    }
}

/// What an allocation returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A block at this address.
    Address(u64),
    /// A block, wherever.
    Served,
    /// Out of memory.
    OutOfMemory,
}

/// What should come of a recording, besides what its steps say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expected {
    /// Statistics before the first step.
    pub start: Vec<(StatisticKey, i64)>,
    /// Whether a statistic that a step does not name should be as it was. Otherwise steps are compared only in what they
    /// name.
    pub cumulative: bool,
    /// Statistics at the end.
    pub end: Vec<(StatisticKey, i64)>,
    /// PyTorch's summary tables at the end: whether abbreviated, and the text.
    pub summaries: Vec<(bool, String)>,
    /// The allocator's own history.
    pub history: Option<ExpectedHistory>,
    /// The calls to the device in each step by its number, where the file has them; a step without any has none.
    pub device_calls: Option<HashMap<usize, Vec<HistoryEntry>>>,
    /// The segments at the end.
    pub segments: Option<Vec<ExpectedSegment>>,
}

impl Recording {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            configuration: String::new(),
            total_bytes: None,
            memory_fraction: 1.0,
            script: Script::None,
            steps: Vec::new(),
            block_count: 0,
            operation_count: 0,
            initial_block_count: 0,
            left_out: None,
            expected: None,
        }
    }

    /// Reads a file in any of the formats, gzipped or not; `-` is standard input. A snapshot has a recording for each device
    /// with a history, other files have one.
    ///
    /// # Errors
    ///
    /// [`ReadError`], with the place in the file.
    pub fn read(path: &Path) -> Result<Vec<Self>, ReadError> {
        Self::parse(&path.file_name().unwrap_or_default().to_string_lossy(), &source::read(path)?)
    }

    /// Reads a file's content, unpacked.
    ///
    /// The format is told by the name's ending (`.json`, `.txt`, `.pickle`, each with `.gz` or not), else by the first character.
    ///
    /// # Errors
    ///
    /// [`ReadError`], with the place in the content.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Vec<Self>, ReadError> {
        let name = name.strip_suffix(".gz").unwrap_or(name);
        let looks_like_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        if name.ends_with(".json") || (looks_like_json && !name.ends_with(".txt")) {
            return Self::from_json(bytes);
        }
        if name.ends_with(".pickle") || (bytes.first() == Some(&PICKLE_START) && !name.ends_with(".txt")) {
            return snapshot::read(bytes);
        }
        let text = str::from_utf8(bytes).map_err(|error| ReadError::NotText { offset: error.valid_up_to() })?;
        Ok(vec![trace::read(text)?])
    }

    /// Whether streams have to be busy and events to complete when the file says so, which only a simulated device does.
    pub fn scripts_streams(&self) -> bool {
        let scripts = |operation: &Operation| {
            matches!(
                operation,
                Operation::SetBusy { .. } | Operation::CompleteEvents { .. } | Operation::FreeInUse { .. }
            )
        };
        self.steps.iter().any(|step| scripts(&step.operation))
    }

    fn from_json(bytes: &[u8]) -> Result<Vec<Self>, ReadError> {
        let value = Json::parse(bytes)?;
        let whole = At::whole(&value);
        if whole.has("device_traces") {
            return snapshot::read(bytes);
        }
        let steps = whole.field("ops")?;
        let first = steps.items()?.next();
        let names_steps = match &first {
            Some(first) => first.optional("op")?.is_some_and(|operation| operation.is_text()),
            None => false,
        };
        let is_golden = names_steps || whole.has("keys");
        if !is_golden {
            return Ok(vec![program::read(&whole)?]);
        }
        match golden::read(&whole) {
            Ok(recording) => Ok(vec![recording]),
            // Perhaps it is meant to be a program.
            Err(ReadError::Content { path, problem }) if !whole.has("keys") => {
                Err(ReadError::Content { path, problem: format!("{problem} ({PROGRAM_STEP})") })
            }
            Err(error) => Err(error),
        }
    }
}

/// The statistics of an object, by name.
fn statistics(object: &At<'_>) -> Result<Vec<(StatisticKey, i64)>, ReadError> {
    let entries = object.entries()?;
    let pairs = entries.map(|(name, value)| Ok((statistic(name, &value)?, value.signed()?)));
    pairs.collect()
}

fn statistic(name: &str, at: &At<'_>) -> Result<StatisticKey, ReadError> {
    StatisticKey::find(name).ok_or_else(|| at.problem(format!("`{name}` is no statistic of PyTorch 2.11")))
}

/// Whether there are more steps than are kept.
fn check_step_count(count: usize) -> Result<(), ReadError> {
    if count > MOST_STEPS { Err(ReadError::TooManySteps { limit: MOST_STEPS }) } else { Ok(()) }
}

/// Whether the addresses of blocks that live at the same time can be; the step's number and the problem. For recordings
/// that do not say where segments lay, whose addresses cannot be compared.
fn check_addresses(steps: &[Step]) -> Result<(), (usize, String)> {
    let mut live: BTreeMap<u64, (u64, BlockId)> = BTreeMap::new();
    let mut addresses: HashMap<usize, u64> = HashMap::new();
    for step in steps {
        match (&step.operation, step.answer) {
            (Operation::Allocate { block, bytes, .. }, Some(Answer::Address(address))) => {
                let problem = |problem: String| Err((step.number, format!("address {address}: {problem}")));
                match (bytes, address) {
                    (0, 0) => continue,
                    (0, _) => return problem("no bytes have the address 0".to_owned()),
                    (_, 0) => return problem("no memory has it".to_owned()),
                    _ => {}
                }
                let end = address.saturating_add(*bytes);
                if let Some((_, (other_end, other))) = live.range(..end).next_back()
                    && *other_end > address
                {
                    return problem(format!("block {other}, which is not freed yet, has bytes there too"));
                }
                live.insert(address, (end, *block));
                addresses.insert(block.index, address);
            }
            (Operation::Free { block } | Operation::CompleteFree { block }, _) => {
                if let Some(address) = addresses.remove(&block.index) {
                    live.remove(&address);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes the addresses, which there is nothing to compare with, and leaves that there was memory.
fn forget_addresses(steps: &mut [Step]) {
    for step in steps {
        if let Some(Answer::Address(_)) = step.answer {
            step.answer = Some(Answer::Served);
        }
    }
}

/// A segment's address; devices put them at multiples of 512.
fn check_segment_address(address: u64) -> Result<u64, String> {
    if address == 0 || !address.is_multiple_of(512) {
        return Err(format!("address {address} cannot be a segment's: it has to be a multiple of 512 and not 0"));
    }
    Ok(address)
}
