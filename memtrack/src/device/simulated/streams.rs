//! Busy streams, and the events on them that are not complete.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::device::Stream;

/// Events have rising numbers; one that is not pending is complete.
#[derive(Debug, Default)]
pub(super) struct Streams {
    busy: HashSet<Stream>,
    next_event: u64,
    /// The stream of each pending event.
    pending: BTreeMap<u64, Stream>,
    /// Pending events by stream, oldest first.
    by_stream: HashMap<Stream, VecDeque<u64>>,
    /// The events that each stream's later work waits for.
    waits: HashMap<Stream, Vec<u64>>,
    /// The same for pending events: what their stream waited for.
    waits_of_events: HashMap<u64, Vec<u64>>,
}

impl Streams {
    pub(super) fn set_busy(&mut self, stream: Stream) {
        self.busy.insert(stream);
    }

    pub(super) fn set_idle(&mut self, stream: Stream) {
        self.busy.remove(&stream);
        // What it waited for was done before it.
        for event in self.waits.remove(&stream).into_iter().flatten() {
            self.complete_up_to(event);
        }
        if let Some(last) = self.by_stream.get(&stream).and_then(VecDeque::back).copied() {
            self.complete_up_to(last);
        }
    }

    pub(super) fn set_all_idle(&mut self) {
        self.busy.clear();
        self.pending.clear();
        self.by_stream.clear();
        self.waits.clear();
        self.waits_of_events.clear();
    }

    /// A new event's number, given out once.
    pub(super) fn record(&mut self, stream: Stream) -> u64 {
        let event = self.next_event;
        self.next_event += 1;
        let waits = self.pending_waits(stream);
        // Nor is it complete before those that came before it.
        if self.busy.contains(&stream) || !waits.is_empty() || self.by_stream.contains_key(&stream) {
            self.pending.insert(event, stream);
            self.by_stream.entry(stream).or_default().push_back(event);
            if !waits.is_empty() {
                self.waits_of_events.insert(event, waits);
            }
        }
        event
    }

    /// What a stream waits for still.
    fn pending_waits(&mut self, stream: Stream) -> Vec<u64> {
        let Some(waits) = self.waits.get_mut(&stream) else { return Vec::new() };
        waits.retain(|event| self.pending.contains_key(event));
        waits.clone()
    }

    /// The stream's later work waits for the event.
    pub(super) fn wait_for(&mut self, stream: Stream, event: u64) {
        if self.pending.get(&event).is_some_and(|of| *of != stream) {
            self.waits.entry(stream).or_default().push(event);
        }
    }

    /// Whether a stream's later work comes after what an event stands for.
    pub(super) fn comes_after(&self, stream: Stream, event: u64) -> bool {
        let Some(&of) = self.pending.get(&event) else { return true };
        if of == stream {
            return true;
        }
        let mut seen = HashSet::new();
        let mut left: Vec<u64> = self.waits.get(&stream).cloned().unwrap_or_default();
        while let Some(waited) = left.pop() {
            if !seen.insert(waited) {
                continue;
            }
            if self.pending.get(&waited) == Some(&of) && waited >= event {
                return true;
            }
            left.extend(self.waits_of_events.get(&waited).into_iter().flatten());
        }
        false
    }

    pub(super) fn is_complete(&self, event: u64) -> bool {
        !self.pending.contains_key(&event)
    }

    /// Completes an event, and with it all before it on its stream and all that these waited for.
    pub(super) fn complete_up_to(&mut self, event: u64) {
        let mut left = vec![event];
        while let Some(event) = left.pop() {
            let Some(&stream) = self.pending.get(&event) else { continue };
            let Some(events) = self.by_stream.get_mut(&stream) else { continue };
            while let Some(done) = events.pop_front_if(|pending| *pending <= event) {
                self.pending.remove(&done);
                left.extend(self.waits_of_events.remove(&done).into_iter().flatten());
            }
            self.forget_if_done(stream);
        }
    }

    /// Completes the oldest events, whatever their streams.
    pub(super) fn complete_oldest(&mut self, count: usize) {
        for _ in 0..count {
            // The oldest of all is the oldest of its stream, and waited for none that is pending.
            let Some((event, stream)) = self.pending.pop_first() else { return };
            self.waits_of_events.remove(&event);
            if let Some(events) = self.by_stream.get_mut(&stream) {
                events.pop_front();
            }
            self.forget_if_done(stream);
        }
    }

    fn forget_if_done(&mut self, stream: Stream) {
        if self.by_stream.get(&stream).is_some_and(VecDeque::is_empty) {
            self.by_stream.remove(&stream);
        }
    }
}
