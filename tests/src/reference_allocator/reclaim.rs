//! Growing, giving back and waiting, in the order PyTorch tries them.

use std::collections::VecDeque;

use super::counters::{Count, Counter, Pool};
use super::{Block, MIB, Place, ReferenceAllocator, Refused, Segment, State};

impl ReferenceAllocator {
    /// No free block serves the request: garbage collection, a new segment, a new segment after giving oversize blocks
    /// back, the same after waiting and giving everything back.
    pub(super) fn grow(&mut self, size: u64, stream: u64, pool: Pool) -> Result<Place, Refused> {
        let segment = if size <= MIB {
            2 * MIB
        } else if size < 10 * MIB {
            self.config.large_segment_size_bytes
        } else {
            size.div_ceil(2 * MIB) * 2 * MIB
        };
        self.collect_garbage();
        if let Ok(place) = self.take_segment(segment, stream, pool) {
            return Ok(place);
        }
        if self.release_oversize(size, stream, pool)
            && let Ok(place) = self.take_segment(segment, stream, pool)
        {
            return Ok(place);
        }
        self.empty_cache();
        self.counters.count(Count::Retries);
        self.take_segment(segment, stream, pool).or_else(|refused| {
            self.find(size, stream, pool).ok_or_else(|| {
                self.counters.count(Count::Ooms);
                refused
            })
        })
    }

    fn take_segment(&mut self, size: u64, stream: u64, pool: Pool) -> Result<Place, Refused> {
        let reserved = self.reserved_bytes();
        if self.limit.is_some_and(|limit| reserved + size > limit) {
            return Err(Refused::ByLimit);
        }
        if reserved + size > self.total_bytes.saturating_sub(self.other_use_bytes) {
            return Err(Refused::ByDevice);
        }
        let Some(address) = self.addresses.pop_front() else { panic!("the program needs more addresses") };
        let block = Block { address, size, requested: 0, state: State::Free, used_on: Vec::new(), age_base: 0 };
        self.segments.push(Segment { address, size, stream, pool, blocks: vec![block] });
        self.counters.change(Counter::Segment, pool, 1);
        self.counters.change(Counter::ReservedBytes, pool, size as i64);
        if size >= self.max_split() {
            self.counters.oversize_segments(1);
        }
        self.counters.count(Count::DeviceAllocs);
        Ok((self.segments.len() - 1, 0))
    }

    fn release(&mut self, address: u64) {
        let segment = self.segments.remove(self.place_of(address).0);
        assert!(segment.blocks.len() == 1 && segment.blocks[0].state == State::Free, "only whole free segments go");
        self.counters.change(Counter::Segment, segment.pool, -1);
        self.counters.change(Counter::ReservedBytes, segment.pool, -(segment.size as i64));
        if segment.size >= self.max_split() {
            self.counters.oversize_segments(-1);
        }
        self.counters.count(Count::DeviceFrees);
    }

    fn is_whole_and_free(segment: &Segment) -> bool {
        segment.blocks.len() == 1 && segment.blocks[0].state == State::Free
    }

    /// Large segments that have been free longer than the average, over all streams.
    fn collect_garbage(&mut self) {
        let (Some(limit), Some(threshold)) = (self.limit, self.config.garbage_collection_threshold) else { return };
        let keep = (threshold * limit as f64) as u64;
        let target = self.reserved_bytes().saturating_sub(keep);
        let mut reclaimed = 0;
        while reclaimed < target {
            let now = self.searches[Pool::Large as usize];
            let idle: Vec<(u64, u64, u64)> = self
                .segments
                .iter()
                .filter(|segment| segment.pool == Pool::Large && Self::is_whole_and_free(segment))
                .map(|segment| (segment.address, segment.size, now - segment.blocks[0].age_base))
                .collect();
            if idle.is_empty() {
                return;
            }
            let average = idle.iter().map(|(_, _, age)| age).sum::<u64>() as f64 / idle.len() as f64;
            // The oldest is at least as old as the average, so each round releases one.
            for (address, size, age) in idle {
                if age as f64 >= average {
                    self.release(address);
                    reclaimed += size;
                }
            }
        }
    }

    /// Oversize blocks of the request's pool and stream: one that is large enough, else the largest until it is enough.
    fn release_oversize(&mut self, size: u64, stream: u64, pool: Pool) -> bool {
        let max_split = self.max_split();
        if max_split == u64::MAX {
            return false;
        }
        let wanted = size.max(max_split);
        let mut blocks: Vec<(u64, u64)> =
            self.free_places(stream, pool).map(|(size, address, _)| (size, address)).collect();
        blocks.sort_unstable();
        if let Some((_, address)) = blocks.iter().find(|(bytes, _)| *bytes >= wanted) {
            self.release(*address);
            return true;
        }
        let mut released = 0;
        while let Some((bytes, address)) = blocks.pop() {
            if released >= wanted || bytes < max_split {
                break;
            }
            self.release(address);
            released += bytes;
        }
        released >= wanted
    }

    /// Waits for what is outstanding and gives back every segment that is wholly free.
    pub fn empty_cache(&mut self) {
        self.counters.count(Count::Syncs);
        for (_, queue) in std::mem::take(&mut self.events) {
            for event in queue {
                self.event_done(event.block);
            }
        }
        let free: Vec<u64> =
            self.segments.iter().filter(|segment| Self::is_whole_and_free(segment)).map(|s| s.address).collect();
        for address in free {
            self.release(address);
        }
    }

    /// Completes what finished events allow, stream by stream, each up to its first unfinished event.
    pub(super) fn process_events(&mut self) {
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

    fn event_done(&mut self, address: u64) {
        let (s, b) = self.place_of(address);
        let state = &mut self.segments[s].blocks[b].state;
        let State::Pending(count) = *state else { panic!("no event was outstanding for {address:#x}") };
        *state = State::Pending(count - 1);
        if count == 1 {
            self.complete(address);
        }
    }

    /// Events recorded on the stream from now on do not complete.
    pub fn set_busy(&mut self, stream: u64) {
        self.busy.insert(stream);
    }

    /// The stream's events are complete.
    pub fn set_idle(&mut self, stream: u64) {
        self.busy.remove(&stream);
        let queues: &mut Vec<(u64, VecDeque<_>)> = &mut self.events;
        for event in queues.iter_mut().flat_map(|(_, queue)| queue).filter(|event| event.stream == stream) {
            event.done = true;
        }
    }

    /// All streams are idle.
    pub fn synchronize(&mut self) {
        self.busy.clear();
        for event in self.events.iter_mut().flat_map(|(_, queue)| queue) {
            event.done = true;
        }
    }
}
