//! Events on other streams, and the device that completes them.

use std::collections::VecDeque;

use super::counters::Count;
use super::state::Event;
use super::{PoolId, ReferenceAllocator};

impl ReferenceAllocator {
    /// One event on each stream that uses the block, now.
    pub(super) fn record_events(&mut self, address: u64) {
        let Some((s, b)) = self.place_of(address) else { panic!("no block at {address:#x}") };
        let block = &mut self.segments[s].blocks[b];
        let streams = std::mem::take(&mut block.used_on);
        block.events = streams.len();
        for stream in streams {
            let event = Event { number: self.next_event, block: address, done: !self.busy.contains(&stream) };
            self.next_event += 1;
            match self.events.iter_mut().find(|(of, _)| *of == stream) {
                Some((_, queue)) => queue.push_back(event),
                None => self.events.push((stream, VecDeque::from([event]))),
            }
        }
    }

    /// Blocks that were freed while something was routed get their events now, save those for streams that were recorded
    /// meanwhile.
    fn record_deferred_events(&mut self) {
        for address in std::mem::take(&mut self.deferred) {
            let Some((s, b)) = self.place_of(address) else { panic!("no block at {address:#x}") };
            let block = &mut self.segments[s].blocks[b];
            let dropped = std::mem::take(&mut block.used_on_while_routed);
            block.used_on.retain(|stream| !dropped.contains(stream));
            let nothing_to_record = block.used_on.is_empty();
            // PyTorch reuses the block while these streams may be at work. memtrack gives its numbers, but waits for them.
            dropped.into_iter().for_each(|stream| self.set_stream_done(stream));
            if nothing_to_record {
                self.complete(address);
            } else {
                self.record_events(address);
            }
        }
    }

    /// Completes what finished events allow, stream by stream, each up to its first unfinished event.
    pub(super) fn process_events(&mut self) {
        self.record_deferred_events();
        let mut done = Vec::new();
        for (_, queue) in &mut self.events {
            while queue.front().is_some_and(|event| event.done) {
                done.extend(queue.pop_front());
            }
        }
        self.events.retain(|(_, queue)| !queue.is_empty());
        for event in done {
            self.event_done(event.block);
        }
    }

    /// Waits for every event, or for those of one pool's blocks.
    pub(super) fn wait_for_events(&mut self, only: Option<PoolId>) {
        self.counters.count(Count::Syncs);
        self.record_deferred_events();
        let mut waited_for = Vec::new();
        for (stream, mut queue) in std::mem::take(&mut self.events) {
            let concerns = |event: &Event| only.is_none_or(|pool| self.owner_of(event.block) == Some(pool));
            let last = queue.iter().filter(|event| concerns(event)).map(|event| event.number).max();
            let (mine, mut others): (Vec<Event>, VecDeque<Event>) = {
                let mine = queue.iter().map(concerns).collect::<Vec<bool>>();
                let mut mine = mine.into_iter();
                let (mine, others): (Vec<Event>, Vec<Event>) = queue.drain(..).partition(|_| mine.next() == Some(true));
                (mine, VecDeque::from(others))
            };
            // A stream does its work in order.
            for event in others.iter_mut().filter(|event| Some(event.number) < last) {
                event.done = true;
            }
            waited_for.extend(mine.into_iter().map(|event| event.block));
            if !others.is_empty() {
                self.events.push((stream, others));
            }
        }
        for block in waited_for {
            self.event_done(block);
        }
    }

    fn owner_of(&self, address: u64) -> Option<PoolId> {
        self.place_of(address).map(|(s, _)| self.segments[s].pool.owner)
    }

    fn event_done(&mut self, address: u64) {
        let Some((s, b)) = self.place_of(address) else { panic!("no block at {address:#x}") };
        let block = &mut self.segments[s].blocks[b];
        block.events -= 1;
        if block.events == 0 {
            self.complete(address);
        }
    }

    /// Events recorded on the stream from now on do not complete.
    pub fn set_busy(&mut self, stream: u64) {
        if !self.busy.contains(&stream) {
            self.busy.push(stream);
        }
    }

    /// The stream's events are complete, and coming ones are at once.
    pub fn set_idle(&mut self, stream: u64) {
        self.set_stream_done(stream);
    }

    pub(super) fn set_stream_done(&mut self, stream: u64) {
        self.busy.retain(|busy| *busy != stream);
        for (_, queue) in self.events.iter_mut().filter(|(of, _)| *of == stream) {
            queue.iter_mut().for_each(|event| event.done = true);
        }
    }

    /// All streams are idle.
    pub fn synchronize(&mut self) {
        self.busy.clear();
        for event in self.events.iter_mut().flat_map(|(_, queue)| queue) {
            event.done = true;
        }
    }

    /// The oldest events that are not complete are, whatever their streams.
    pub fn complete_oldest_events(&mut self, count: usize) {
        let pending = self.events.iter_mut().flat_map(|(_, queue)| queue).filter(|event| !event.done);
        let mut pending: Vec<&mut Event> = pending.collect();
        pending.sort_unstable_by_key(|event| event.number);
        for event in pending.into_iter().take(count) {
            event.done = true;
        }
    }

    /// One event is complete, by its number: the order in which events were recorded.
    pub fn complete_event(&mut self, number: u64) {
        for event in self.events.iter_mut().flat_map(|(_, queue)| queue).filter(|event| event.number == number) {
            event.done = true;
        }
    }
}
