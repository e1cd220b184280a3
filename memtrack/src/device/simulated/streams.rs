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
}

impl Streams {
    pub(super) fn set_busy(&mut self, stream: Stream) {
        self.busy.insert(stream);
    }

    pub(super) fn set_idle(&mut self, stream: Stream) {
        self.busy.remove(&stream);
        for event in self.by_stream.remove(&stream).into_iter().flatten() {
            self.pending.remove(&event);
        }
    }

    pub(super) fn set_all_idle(&mut self) {
        self.busy.clear();
        self.pending.clear();
        self.by_stream.clear();
    }

    /// A new event's number, given out once.
    pub(super) fn record(&mut self, stream: Stream) -> u64 {
        let event = self.next_event;
        self.next_event += 1;
        if self.busy.contains(&stream) {
            self.pending.insert(event, stream);
            self.by_stream.entry(stream).or_default().push_back(event);
        }
        event
    }

    pub(super) fn is_complete(&self, event: u64) -> bool {
        !self.pending.contains_key(&event)
    }

    /// Completes an event, and with it all before it on its stream.
    pub(super) fn complete_up_to(&mut self, event: u64) {
        let Some(&stream) = self.pending.get(&event) else { return };
        let Some(events) = self.by_stream.get_mut(&stream) else { return };
        while let Some(done) = events.pop_front_if(|pending| *pending <= event) {
            self.pending.remove(&done);
        }
        self.forget_if_done(stream);
    }

    /// Completes the oldest events, whatever their streams.
    pub(super) fn complete_oldest(&mut self, count: usize) {
        for _ in 0..count {
            // The oldest of all is the oldest of its stream.
            let Some((_, stream)) = self.pending.pop_first() else { return };
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
