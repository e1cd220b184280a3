//! Snapshots: the history that PyTorch's `_dump_snapshot` writes, or memtrack.

use std::collections::HashMap;

use memtrack::device::Stream;
use memtrack::history::{ReadLimits, Replay, ReplayKind, ReplayedAllocation, SettingValue, Snapshot};

use super::error::ReadError;
use super::{Kind, MOST_REQUEST, MOST_REQUEST_BYTES, MOST_STREAM, OWN_STREAMS, Recording, Step, check_step_count};
use crate::operation::{BlockId, Operation};

const NO_HISTORY: &str = "no device has a history to replay; record one with `torch.cuda.memory._record_memory_history()` \
                          before what is to be in it";

/// One recording for each device with a history.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Recording>, ReadError> {
    let snapshot = Snapshot::from_bytes(bytes, &ReadLimits::default())?;
    check_step_count(snapshot.device_traces.iter().map(Vec::len).sum())?;
    let mut recordings = Vec::new();
    for (device, trace) in snapshot.device_traces.iter().enumerate() {
        if trace.is_empty() {
            continue;
        }
        let mut recording = Recording::new(Kind::Snapshot);
        recording.configuration = configuration(&snapshot);
        let problem = |entry: Option<usize>, problem: String| {
            let entry = entry.map_or(String::new(), |entry| format!("[{entry}]"));
            ReadError::Content { path: format!("device_traces[{device}]{entry}"), problem }
        };
        let replay = snapshot.replay(device);
        let mut reader = EntryReader::new(&replay);
        for allocation in &replay.initial {
            reader.allocate(0, allocation).map_err(|text| problem(None, text))?;
        }
        let mut events = replay.events.iter().peekable();
        while let Some(event) = events.next() {
            let next = events.peek().map(|next| next.kind);
            reader.event(event.entry, event.kind, next).map_err(|text| problem(Some(event.entry), text))?;
        }
        recording.steps = reader.steps;
        recording.block_count = reader.block_count;
        recording.operation_count = reader.operation_count;
        recordings.push(recording);
    }
    if recordings.is_empty() {
        return Err(ReadError::Content { path: "device_traces".to_owned(), problem: NO_HISTORY.to_owned() });
    }
    Ok(recordings)
}

/// The text of the settings.
fn configuration(snapshot: &Snapshot) -> String {
    let mut entries = snapshot.allocator_settings.entries.iter();
    entries
        .find_map(|(name, value)| match value {
            SettingValue::Text(text) if &**name == "PYTORCH_CUDA_ALLOC_CONF" => Some(text.to_string()),
            _ => None,
        })
        .unwrap_or_default()
}

/// A block that is allocated, or on its way back.
#[derive(Debug, Clone, Copy)]
struct Live {
    block: BlockId,
    /// Its free was requested and is not complete.
    leaving: bool,
}

struct EntryReader {
    steps: Vec<Step>,
    block_count: usize,
    operation_count: usize,
    /// Whether the history tells when frees are complete; it need not.
    says_completions: bool,
    /// By the numbers of the replay.
    live: HashMap<u64, Live>,
}

impl EntryReader {
    fn new(replay: &Replay) -> Self {
        let completes = |kind: &ReplayKind| matches!(kind, ReplayKind::FreeCompleted { .. });
        Self {
            steps: Vec::new(),
            block_count: 0,
            operation_count: 0,
            says_completions: replay.events.iter().any(|event| completes(&event.kind)),
            live: HashMap::new(),
        }
    }

    /// What an entry asks for; `next` is the one behind it.
    fn event(&mut self, entry: usize, kind: ReplayKind, next: Option<ReplayKind>) -> Result<(), String> {
        match kind {
            ReplayKind::Alloc(allocation) => self.allocate(entry, &allocation)?,
            ReplayKind::FreeRequested { id, .. } => {
                let completes = matches!(next, Some(ReplayKind::FreeCompleted { id: of, .. }) if of == id);
                let Some(live) = self.live.get_mut(&id).filter(|live| !live.leaving) else { return Ok(()) };
                let block = live.block;
                if completes || !self.says_completions {
                    self.live.remove(&id);
                    self.step(entry, Operation::Free { block });
                } else {
                    live.leaving = true;
                    self.step(entry, Operation::FreeInUse { block });
                }
                self.operation_count += 1;
            }
            ReplayKind::FreeCompleted { id, .. } => match self.live.remove(&id) {
                Some(Live { block, leaving: true }) => self.step(entry, Operation::CompleteFree { block }),
                // Requested before the history begins.
                Some(Live { block, leaving: false }) => {
                    self.step(entry, Operation::Free { block });
                    self.operation_count += 1;
                }
                None => {}
            },
            ReplayKind::OutOfMemory { bytes, stream, .. } => {
                let block = self.ask(entry, u64::MAX, bytes, stream)?;
                // Elsewhere there may be room.
                self.step(entry, Operation::Free { block });
            }
            _ => {}
        }
        Ok(())
    }

    fn allocate(&mut self, entry: usize, allocation: &ReplayedAllocation) -> Result<(), String> {
        let ReplayedAllocation { id, requested_bytes, stream, .. } = *allocation;
        let block = self.ask(entry, id, requested_bytes, stream)?;
        self.live.insert(id, Live { block, leaving: false });
        Ok(())
    }

    fn ask(&mut self, entry: usize, id: u64, bytes: u64, stream: Stream) -> Result<BlockId, String> {
        let Stream(stream) = stream;
        if bytes > MOST_REQUEST_BYTES {
            return Err(format!("the size, {bytes}: at most {MOST_REQUEST}"));
        }
        if stream >= OWN_STREAMS {
            return Err(format!("the stream, {stream}: at most {MOST_STREAM}"));
        }
        let block = BlockId { id, index: self.block_count };
        self.block_count += 1;
        self.operation_count += 1;
        self.step(entry, Operation::Allocate { block, bytes, stream });
        Ok(block)
    }

    fn step(&mut self, entry: usize, operation: Operation) {
        self.steps.push(Step::new(entry, operation));
    }
}
