//! Snapshots: the history that PyTorch's `_dump_snapshot` writes, or memtrack.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::history::{
    ReadLimits, Replay, ReplayKind, ReplayedAllocation, Segment, SettingValue, Snapshot, TraceAction, TraceEntry,
};
use memtrack::{CachingAllocator, Config};

use super::error::ReadError;
use super::{Kind, MOST_REQUEST, MOST_REQUEST_BYTES, MOST_STREAM, OWN_STREAMS, Recording, Step, check_step_count};
use crate::operation::{BlockId, Operation};

const NO_HISTORY: &str = "no device has a history to replay; record one with `torch.cuda.memory._record_memory_history()` \
                          before what is to be in it";

const CONFIGURATION: &str = "PYTORCH_CUDA_ALLOC_CONF";

const SKIPPED: &str =
    "a history that was recorded with skipped actions, or of which entries are missing, cannot be replayed";

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
        recording.left_out = left_out(&snapshot, device, &recording.configuration);
        let problem = |entry: Option<usize>, problem: String| {
            let entry = entry.map_or(String::new(), |entry| format!("[{entry}]"));
            ReadError::Content { path: format!("device_traces[{device}]{entry}"), problem }
        };
        check(trace).map_err(|(entry, text)| problem(entry, text))?;
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
        recording.initial_block_count = replay.initial.len();
        recording.block_count = reader.block_count;
        recording.operation_count = reader.operation_count;
        recordings.push(recording);
    }
    if recordings.is_empty() {
        return Err(ReadError::Content { path: "device_traces".to_owned(), problem: NO_HISTORY.to_owned() });
    }
    Ok(recordings)
}

/// What a history does not tell, and the segments and settings show.
fn left_out(snapshot: &Snapshot, device: usize, configuration: &str) -> Option<String> {
    let of_device = |segment: &&Segment| usize::try_from(segment.device) == Ok(device);
    let private = snapshot.segments.iter().filter(of_device).filter(|segment| segment.segment_pool_id != (0, 0));
    let count = private.count();
    let belong = if count == 1 { "belongs to a private pool" } else { "belong to private pools" };
    let pools = (count > 0).then(|| {
        format!(
            "{count} of the segments {belong}, which a history does not tell, so their blocks were allocated without pools"
        )
    });
    let changed = changed_settings(snapshot, configuration);
    let settings = (!changed.is_empty()).then(|| {
        format!(
            "{} differed from the configuration when the snapshot was taken, and a history does not tell since when, so the configuration was used",
            changed.join(", ")
        )
    });
    let said: Vec<String> = pools.into_iter().chain(settings).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Settings that are not what the configuration makes them.
fn changed_settings(snapshot: &Snapshot, configuration: &str) -> Vec<String> {
    let Ok(config) = Config::from_torch(configuration) else { return Vec::new() };
    let Ok(fresh) = CachingAllocator::with_config(Arc::new(Simulated::new()), config) else { return Vec::new() };
    let configured = fresh.snapshot().allocator_settings;
    let entries = snapshot.allocator_settings.entries.iter().filter(|(name, _)| &**name != CONFIGURATION);
    let differs = |name: &str, value: &SettingValue| configured.get(name).is_some_and(|configured| configured != value);
    entries.filter(|(name, value)| differs(name, value)).map(|(name, _)| name.to_string()).collect()
}

/// What became of the block at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Allocated,
    Leaving,
    Gone,
}

/// Whether a history can have been: the entry and what is wrong with it.
fn check(trace: &[TraceEntry]) -> Result<(), (Option<usize>, String)> {
    let has = |action| trace.iter().any(|entry| entry.action.known() == Some(action));
    let says_completions = has(TraceAction::FreeCompleted);
    if says_completions && !has(TraceAction::FreeRequested) && has(TraceAction::Alloc) {
        let completed_here = completes_what_it_allocates(trace);
        if completed_here {
            return Err((None, format!("no `free_requested` entries; {SKIPPED}")));
        }
    }
    let mut fates: HashMap<u64, Fate> = HashMap::new();
    for (number, entry) in trace.iter().enumerate() {
        let Some(action) = entry.action.known() else { continue };
        let address = entry.addr;
        let is_alloc = action == TraceAction::Alloc;
        if !is_alloc && !matches!(action, TraceAction::FreeRequested | TraceAction::FreeCompleted) {
            continue;
        }
        let wrong = |text: String| Err((Some(number), text));
        if address == 0 {
            return wrong(format!("`addr` of this `{}` is missing or 0", action.name()));
        }
        if is_alloc && entry.size == 0 {
            return wrong("`size` of this `alloc` is missing or 0".to_owned());
        }
        let before = fates.get(&address).copied();
        let (fate, problem) = match (action, before) {
            (TraceAction::Alloc, Some(Fate::Allocated)) => (Fate::Allocated, Some("is allocated and was not freed")),
            (TraceAction::Alloc, Some(Fate::Leaving)) if says_completions => {
                (Fate::Allocated, Some("is allocated and its free is not complete"))
            }
            (TraceAction::Alloc, _) => (Fate::Allocated, None),
            (TraceAction::FreeRequested, Some(Fate::Leaving | Fate::Gone)) => {
                (Fate::Leaving, Some("is freed and is freed already"))
            }
            (TraceAction::FreeRequested, _) => (Fate::Leaving, None),
            (_, Some(Fate::Allocated)) => (Fate::Gone, Some("has its free completed, which was not requested")),
            (_, Some(Fate::Gone)) => (Fate::Gone, Some("has its free completed, which is complete already")),
            _ => (Fate::Gone, None),
        };
        if let Some(problem) = problem {
            return wrong(format!("the block at {address} {problem}; {SKIPPED}"));
        }
        fates.insert(address, fate);
    }
    Ok(())
}

/// Whether a free is complete of a block that the history allocates.
fn completes_what_it_allocates(trace: &[TraceEntry]) -> bool {
    let mut allocated = HashSet::new();
    trace.iter().any(|entry| match entry.action.known() {
        Some(TraceAction::Alloc) => {
            allocated.insert(entry.addr);
            false
        }
        Some(TraceAction::FreeCompleted) => allocated.contains(&entry.addr),
        _ => false,
    })
}

/// The text of the settings.
fn configuration(snapshot: &Snapshot) -> String {
    let mut entries = snapshot.allocator_settings.entries.iter();
    entries
        .find_map(|(name, value)| match value {
            SettingValue::Text(text) if &**name == CONFIGURATION => Some(text.to_string()),
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
                let block = self.ask(entry, None, bytes, stream)?;
                // Elsewhere there may be room.
                self.step(entry, Operation::Free { block });
            }
            _ => {}
        }
        Ok(())
    }

    fn allocate(&mut self, entry: usize, allocation: &ReplayedAllocation) -> Result<(), String> {
        let ReplayedAllocation { id, requested_bytes, stream, .. } = *allocation;
        let block = self.ask(entry, Some(id), requested_bytes, stream)?;
        self.live.insert(id, Live { block, leaving: false });
        Ok(())
    }

    fn ask(&mut self, entry: usize, id: Option<u64>, bytes: u64, stream: Stream) -> Result<BlockId, String> {
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
