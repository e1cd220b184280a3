//! Getting memory, in the order PyTorch tries things.

use super::allocate::Request;
use super::counters::Count;
use super::state::{Block, Place, Pool, Segment};
use super::{Action, Counter, ReferenceAllocator, Refused};

impl ReferenceAllocator {
    /// No free block serves the request: garbage collection, a new segment, a pool that stands in, a new segment after giving
    /// oversize blocks back, the same after waiting and giving everything back. With the place the request comes back, which
    /// a pool that stands in has changed.
    pub(super) fn grow(&mut self, request: Request) -> Result<(Place, Request), Refused> {
        self.collect_garbage();
        let mut refused = match self.take(&request, false) {
            Ok(place) => return Ok((place, request)),
            Err(refused) => refused,
        };
        if !request.pool.is_private()
            && let Some(found) = self.find_in_pools_for_oom(&request)
        {
            return Ok(found);
        }
        if self.release_oversize(&request)? {
            match self.take(&request, false) {
                Ok(place) => return Ok((place, request)),
                Err(again) => refused = again,
            }
        }
        if !self.holds_events() {
            self.release_default_pools();
            self.release_freeable(None);
            match self.take(&request, true) {
                Ok(place) => return Ok((place, request)),
                Err(again) => refused = again,
            }
            if !self.torch_exact
                && let Some(place) = self.find(&request)
            {
                return Ok((place, request));
            }
        }
        self.record(Action::Oom, 0, request.size, request.stream);
        self.counters.count(Count::Ooms);
        Err(refused)
    }

    /// New memory for the request, all of it in one free block.
    fn take(&mut self, request: &Request, retry: bool) -> Result<Place, Refused> {
        if retry {
            self.counters.count(Count::Retries);
        }
        if self.limit.is_some_and(|limit| self.reserved_bytes() + request.segment_size > limit) {
            return Err(Refused::ByLimit);
        }
        if request.expandable { self.take_expandable(request) } else { self.take_segment(request) }
    }

    /// Whether the device has so much left.
    pub(super) fn check_room(&self, bytes: u64) -> Result<(), Refused> {
        let room = self.total_bytes.saturating_sub(self.other_use_bytes).saturating_sub(self.reserved_bytes());
        if bytes > room { Err(Refused::ByDevice) } else { Ok(()) }
    }

    pub(super) fn next_address(&mut self) -> u64 {
        let Some(address) = self.addresses.pop_front() else { panic!("the program needs more addresses") };
        address
    }

    fn take_segment(&mut self, request: &Request) -> Result<Place, Refused> {
        let (size, stream, pool) = (request.segment_size, request.stream, request.pool);
        self.check_room(size)?;
        let address = self.next_address();
        let block = Block::free(address, size, true, self.searches(pool));
        self.segments.push(Segment { address, stream, pool, page: None, blocks: vec![block] });
        self.counters.change(Counter::Segment, pool.kind, 1);
        self.counters.change(Counter::ReservedBytes, pool.kind, size as i64);
        if size >= self.settings.max_split {
            self.counters.oversize_segments(1);
        }
        self.counters.count(Count::DeviceAllocs);
        self.record(Action::SegmentAlloc, address, size, stream);
        Ok((self.segments.len() - 1, 0))
    }

    /// A free block of a pool that serves others when memory runs out. Never expandable memory.
    fn find_in_pools_for_oom(&mut self, request: &Request) -> Option<(Place, Request)> {
        let owners: Vec<_> = self.private_pools.iter().filter(|pool| pool.use_on_oom).map(|pool| pool.id).collect();
        for owner in owners {
            let pool = Pool { owner, kind: request.pool.kind };
            let request = Request { pool, expandable: false, ..*request };
            self.count_search(pool);
            if let Some(place) = self.find(&request) {
                return Some((place, request));
            }
        }
        None
    }
}
