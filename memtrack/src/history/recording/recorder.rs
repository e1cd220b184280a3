//! The recorder: one for each allocator.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::clock::{Clock, Scale, Ticks};
use super::ring::{Kept, Ring};
#[cfg(feature = "backtrace")]
use super::stacks::{CallSites, StackId};
#[cfg(not(feature = "backtrace"))]
use super::without_stacks::{CallSites, StackId};
use crate::device::Stream;
use crate::history::action::TraceAction;
use crate::history::metadata::{self, MetadataId};
use crate::history::options::{ContextLevel, Enabled, HistoryOptions, Stacks};
use crate::history::snapshot::{Annotation, DeviceHistory, Frames, HistoryStart, Stage, TraceEntry};
use crate::sync::lock;

/// Something that happened, as the allocator reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub action: TraceAction,
    /// The block, segment or range; for `oom` the free bytes of the device; 0 for `snapshot`.
    pub address: u64,
    /// As [`TraceEntry::size`]; less than 2^60.
    pub size_bytes: u64,
    /// The stream.
    pub stream: Stream,
    /// What [`Recorder::capture_allocation`] or [`Recorder::capture_free`] gave.
    pub stack: StackId,
}

/// An event as it is kept: 40 bytes.
#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    /// The bytes below, the action in the upper four bits.
    size_and_action: u64,
    stream: Stream,
    ticks: Ticks,
    metadata: MetadataId,
    stack: StackId,
}

const SIZE_BITS: u32 = 60;

impl Entry {
    fn size_bytes(&self) -> u64 {
        self.size_and_action & ((1 << SIZE_BITS) - 1)
    }

    fn action(&self) -> TraceAction {
        TraceAction::ALL[(self.size_and_action >> SIZE_BITS) as usize]
    }
}

#[derive(Debug, Clone)]
struct RawAnnotation {
    stage: Stage,
    name: Arc<str>,
    ticks: Ticks,
}

#[derive(Debug, Clone, Copy)]
struct Start {
    ticks: Ticks,
    entry: u64,
    allocated_bytes: u64,
}

struct State {
    enabled: Option<Enabled>,
    stacks: Stacks,
    skip: u16,
    /// Whether events keep their stacks.
    with_stacks: bool,
    events: Ring<Entry>,
    annotations: Ring<RawAnnotation>,
    start: Option<Start>,
    /// Events of recordings that were cleared.
    earlier_entries: u64,
}

/// What copies of a history need as well.
struct Shared {
    clock: Clock,
    sites: CallSites,
}

/// Keeps the history of one allocator. See the module's documentation on locks.
///
/// Switched off it costs one relaxed load where the caller asks [`is_on`](Self::is_on); an event costs one read of the
/// processor's counter and one lock.
pub struct Recorder {
    /// 0 when off, else 1 and the [`ContextLevel`] above that bit.
    flags: AtomicU32,
    state: Mutex<State>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Switched off.
    pub fn new() -> Self {
        let state = State {
            enabled: None,
            stacks: Stacks::All,
            skip: 0,
            with_stacks: false,
            events: Ring::new(),
            annotations: Ring::new(),
            start: None,
            earlier_entries: 0,
        };
        let shared = Shared { clock: Clock::new(), sites: CallSites::new() };
        Self { flags: AtomicU32::new(0), state: Mutex::new(state), shared: Arc::new(shared) }
    }

    /// Switches recording on with these options, or off and forgets all, as `_record_memory_history` does. While it is on
    /// new options keep what was recorded, unless they say to clear it.
    ///
    /// `allocated_bytes`, the rounded bytes allocated now, is noted when a recording begins. The caller holds the locks
    /// under which that number and the events change.
    pub fn configure(&self, options: Option<&HistoryOptions>, allocated_bytes: u64) {
        let mut state = lock(&self.state);
        let was_on = state.enabled.is_some();
        let Some(options) = options else {
            state.clear();
            state.enabled = None;
            state.start = None;
            self.flags.store(0, Ordering::Relaxed);
            return;
        };
        if !was_on || options.clear_history {
            state.clear();
            let (ticks, entry) = (self.shared.clock.now(), state.earlier_entries);
            state.start = Some(Start { ticks, entry, allocated_bytes });
        }
        state.enabled = Some(options.enabled);
        state.stacks = options.stacks;
        state.skip = options.skip;
        state.with_stacks = options.context >= ContextLevel::Alloc;
        state.events.set_max_len(options.ring_entries());
        state.annotations.set_max_len(options.ring_entries());
        self.flags.store(1 | (options.context as u32) << 1, Ordering::Relaxed);
    }

    /// Whether events are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    /// Where the program is, if the options ask for the places of allocations (and of segments and failures): for the block,
    /// and for the events about it. To be called before any lock is taken.
    #[inline]
    pub fn capture_allocation(&self) -> StackId {
        self.capture(ContextLevel::State).unwrap_or(StackId::NONE)
    }

    /// The place for a free's events: where the program is if the options ask for that, else where the block was allocated.
    /// To be called before any lock is taken.
    #[inline]
    pub fn capture_free(&self, allocated_at: StackId) -> StackId {
        self.capture(ContextLevel::All).unwrap_or(allocated_at)
    }

    #[inline]
    fn capture(&self, from: ContextLevel) -> Option<StackId> {
        let flags = self.flags.load(Ordering::Relaxed);
        (flags != 0 && flags >> 1 >= from as u32).then(|| self.shared.sites.capture())
    }

    /// Records events that happened together, such as a free's request and its completion: they share one lock and one read
    /// of the clock. Does nothing when off.
    #[inline]
    pub fn record<const N: usize>(&self, events: [Event; N]) {
        if self.is_on() {
            self.record_all(&events);
        }
    }

    fn record_all(&self, events: &[Event]) {
        let metadata = metadata::current();
        let mut state = lock(&self.state);
        let ticks = self.shared.clock.now();
        state.add(events, metadata, ticks);
    }

    /// Records one end of a named stretch of the program. Does nothing when off.
    #[inline]
    pub fn annotate(&self, stage: Stage, name: &str) {
        if self.is_on() {
            self.record_annotation(stage, name);
        }
    }

    #[cold]
    fn record_annotation(&self, stage: Stage, name: &str) {
        let name = Arc::from(name);
        let mut state = lock(&self.state);
        if state.enabled.is_some() {
            let ticks = self.shared.clock.now();
            state.annotations.push(RawAnnotation { stage, name, ticks });
        }
    }

    /// A copy of what is recorded, for [`DeviceState`](super::DeviceState). With the trace it costs a count for each 1024
    /// events and a copy of at most as many; without, nothing that depends on the history.
    ///
    /// To be called under the locks under which the segments are copied, so that both fit together.
    pub fn read(&self, with_trace: bool) -> Recording {
        lock(&self.state).copy(&self.shared, with_trace)
    }

    /// As [`read`](Self::read) with the trace, and afterwards records that a snapshot was taken, as PyTorch does: the event
    /// shows in the next one.
    pub fn read_for_snapshot(&self, active_bytes: u64) -> Recording {
        let (action, size_bytes) = (TraceAction::Snapshot, active_bytes);
        let taken = Event { action, address: 0, size_bytes, stream: Stream::DEFAULT, stack: StackId::NONE };
        let metadata = metadata::current();
        let mut state = lock(&self.state);
        let recording = state.copy(&self.shared, true);
        let ticks = self.shared.clock.now();
        state.add(&[taken], metadata, ticks);
        recording
    }

    /// How many distinct addresses have been given names so far.
    pub fn resolved_address_count(&self) -> usize {
        self.shared.sites.resolved_address_count()
    }
}

impl State {
    fn clear(&mut self) {
        self.earlier_entries += self.events.added();
        self.events.clear();
        self.annotations.clear();
    }

    fn add(&mut self, events: &[Event], metadata: MetadataId, ticks: Ticks) {
        // Recording may have been switched off since the caller asked.
        if self.enabled.is_none() {
            return;
        }
        for event in events {
            if self.skip & event.action.bit() != 0 {
                continue;
            }
            let stack = if self.with_stacks { event.stack } else { StackId::NONE };
            let size_bytes = event.size_bytes.min((1 << SIZE_BITS) - 1);
            let size_and_action = size_bytes | (event.action as u64) << SIZE_BITS;
            let &Event { address, stream, .. } = event;
            self.events.push(Entry { address, size_and_action, stream, ticks, metadata, stack });
        }
    }

    fn copy(&self, shared: &Arc<Shared>, with_trace: bool) -> Recording {
        Recording {
            shared: Arc::clone(shared),
            enabled: self.enabled,
            stacks: self.stacks,
            start: self.start,
            recorded_entries: self.events.added(),
            events: if with_trace { self.events.copy() } else { Kept::empty() },
            annotations: if with_trace { self.annotations.copy() } else { Kept::empty() },
        }
    }
}

/// A copy of a recorder's state.
pub struct Recording {
    shared: Arc<Shared>,
    enabled: Option<Enabled>,
    stacks: Stacks,
    start: Option<Start>,
    recorded_entries: u64,
    events: Kept<Entry>,
    annotations: Kept<RawAnnotation>,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording")
            .field("enabled", &self.enabled)
            .field("len", &self.events.len())
            .finish_non_exhaustive()
    }
}

impl Recording {
    /// Whether recording was on.
    pub fn is_on(&self) -> bool {
        self.enabled.is_some()
    }

    pub(super) fn scale(&self) -> Scale {
        self.shared.clock.scale()
    }

    /// The frames of a call site.
    pub(super) fn frames(&self, stack: StackId) -> Option<Frames> {
        self.shared.sites.resolve(stack, self.stacks)
    }

    /// The events, oldest first, with their frames by `frames`.
    pub(super) fn trace(&self, scale: Scale, mut frames: impl FnMut(StackId) -> Option<Frames>) -> Vec<TraceEntry> {
        let mut texts = metadata::Resolver::new();
        let compile_context: Arc<str> = Arc::from("N/A");
        let entry = |entry: &Entry| TraceEntry {
            action: entry.action().into(),
            addr: entry.address,
            size: entry.size_bytes(),
            stream: entry.stream,
            time_us: scale.time_us(entry.ticks),
            compile_context: Arc::clone(&compile_context),
            user_metadata: texts.text(entry.metadata),
            frames: frames(entry.stack),
        };
        self.events.iter().map(entry).collect()
    }

    pub(super) fn annotations(&self, device: i32, scale: Scale) -> impl Iterator<Item = Annotation> {
        self.annotations.iter().map(move |annotation| {
            let time_us = scale.time_us(annotation.ticks);
            Annotation::new(annotation.stage, Arc::clone(&annotation.name), device, time_us)
        })
    }

    pub(super) fn history(&self, device: i32, scale: Scale) -> DeviceHistory {
        let start = self.start.map(|start| HistoryStart {
            time_us: scale.time_us(start.ticks),
            entry: start.entry,
            allocated_bytes: start.allocated_bytes,
        });
        DeviceHistory { device, enabled: self.enabled, start, recorded_entries: self.recorded_entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_compact() {
        assert_eq!(size_of::<Entry>(), 40);
    }
}
