//! Giving memory back to the device: old segments, oversize segments, everything that is whole and free.

use super::allocate::Request;
use super::counters::Count;
use super::state::{Kind, Place, Pool};
use super::{Action, Counter, PoolId, ReferenceAllocator, Refused};

impl ReferenceAllocator {
    /// Gives a whole free segment back.
    fn release(&mut self, address: u64) {
        let Some((s, _)) = self.place_of(address) else { panic!("no segment at {address:#x}") };
        let segment = self.segments.remove(s);
        assert!(
            segment.page.is_none() && !segment.is_split() && segment.blocks[0].is_free(),
            "only whole free segments go"
        );
        let size = segment.blocks[0].size;
        let kind = segment.pool.kind;
        self.counters.count(Count::DeviceFrees);
        self.record(Action::SegmentFree, address, size, segment.stream);
        self.counters.change(Counter::Segment, kind, -1);
        self.counters.change(Counter::ReservedBytes, kind, -(size as i64));
        if size >= self.settings.max_split {
            self.counters.oversize_segments(-1);
        }
    }

    /// Free blocks as the pool orders them: by stream, size, address.
    fn ordered(&self, pool: Pool) -> Vec<(u64, u64, u64, Place)> {
        let mut blocks: Vec<_> = self.free_places(pool).collect();
        blocks.sort_unstable();
        blocks
    }

    fn is_split(&self, (s, _): Place) -> bool {
        self.segments[s].is_split()
    }

    fn is_expandable(&self, (s, _): Place) -> bool {
        self.segments[s].page.is_some()
    }

    /// Segments of the default large pool that have been free longer than the average, over all streams.
    pub(super) fn collect_garbage(&mut self) {
        let threshold = self.settings.garbage_collection_threshold;
        let Some(limit) = self.limit.filter(|_| threshold > 0.0) else { return };
        let target = self.reserved_bytes().saturating_sub((threshold * limit as f64) as u64);
        if target == 0 {
            return;
        }
        let pool = Pool { owner: (0, 0), kind: Kind::Large };
        let now = self.searches(pool);
        let age = |allocator: &Self, (s, b): Place| now - allocator.segments[s].blocks[b].age_base;
        let whole = self.ordered(pool).into_iter().filter(|(.., place)| !self.is_split(*place));
        let ages: Vec<u64> = whole.map(|(.., place)| age(self, place)).collect();
        let (mut sum, mut count) = (ages.iter().sum::<u64>(), ages.len());
        let (mut reclaimed, mut freed_some) = (0, true);
        while reclaimed < target && freed_some && count > 0 {
            freed_some = false;
            let average = sum as f64 / count as f64;
            for (_, size, address, _) in self.ordered(pool) {
                let Some(place) = self.place_of(address) else { continue };
                let age = age(self, place);
                if !self.is_split(place) && !self.is_expandable(place) && age as f64 >= average {
                    self.release(address);
                    reclaimed += size;
                    sum -= age;
                    count -= 1;
                    freed_some = true;
                }
            }
        }
    }

    /// Oversize blocks of the request's pool and stream: one that is large enough, else the largest ones below until it is
    /// enough. Expandable memory is passed over; so are split blocks, where PyTorch tries to give back a part of a segment.
    pub(super) fn release_oversize(&mut self, request: &Request) -> Result<bool, Refused> {
        let max_split = self.settings.max_split;
        if max_split == u64::MAX {
            return Ok(false);
        }
        let wanted = request.size.max(max_split);
        let blocks = self.ordered(request.pool);
        let passed_over = |allocator: &Self, place: Place| {
            allocator.is_expandable(place) || (allocator.is_split(place) && !allocator.torch_exact)
        };
        let found = blocks.iter().position(|(stream, size, ..)| (*stream, *size) >= (request.stream, wanted));
        if let Some(found) = found
            && blocks[found].0 == request.stream
            && !passed_over(self, blocks[found].3)
        {
            self.release_oversize_block(blocks[found].2)?;
            return Ok(true);
        }
        let mut released = 0;
        for (stream, size, address, _) in blocks[..found.unwrap_or(blocks.len())].iter().rev() {
            if released >= wanted || *size < max_split || *stream != request.stream {
                break;
            }
            let Some(place) = self.place_of(*address) else { panic!("no block at {address:#x}") };
            if !passed_over(self, place) {
                self.release_oversize_block(*address)?;
                released += size;
            }
        }
        Ok(released >= wanted)
    }

    /// PyTorch gives back whatever block it came to; the device takes back no part of a segment.
    fn release_oversize_block(&mut self, address: u64) -> Result<(), Refused> {
        let Some((s, b)) = self.place_of(address) else { panic!("no block at {address:#x}") };
        if self.is_split((s, b)) {
            // PyTorch's history has it as a segment given back, which no viewer can follow; memtrack's has not.
            self.counters.count(Count::DeviceFrees);
            return Err(Refused::PartOfSegment);
        }
        self.release(address);
        Ok(())
    }

    /// Gives back what is whole and free, in the default pools and in those that nobody uses any more. While something is
    /// routed the default pools stay, and nothing is waited for.
    pub fn empty_cache(&mut self) {
        if self.routes.is_empty() {
            self.release_default_pools();
        }
        self.release_freeable(None);
    }

    pub(super) fn release_default_pools(&mut self) {
        self.wait_for_events(None);
        self.release_pool(Pool { owner: (0, 0), kind: Kind::Large });
        self.release_pool(Pool { owner: (0, 0), kind: Kind::Small });
    }

    /// Of the private pools that nobody uses any more, or of one that is named.
    pub(super) fn release_freeable(&mut self, only: Option<PoolId>) {
        for owner in self.freeable.clone() {
            if only.is_some_and(|only| only != owner) {
                continue;
            }
            if only.is_some() {
                self.wait_for_events(Some(owner));
            }
            self.release_pool(Pool { owner, kind: Kind::Small });
            self.release_pool(Pool { owner, kind: Kind::Large });
            if !self.segments.iter().any(|segment| segment.pool.owner == owner && segment.mapped_bytes() > 0) {
                self.freeable.retain(|pool| *pool != owner);
                self.private_pools.retain(|pool| pool.id != owner);
            }
        }
    }

    fn release_pool(&mut self, pool: Pool) {
        for (_, _, address, _) in self.ordered(pool) {
            let Some(place) = self.place_of(address) else { continue };
            if !self.is_expandable(place) && !self.is_split(place) {
                self.release(address);
            }
        }
        self.unmap_pool(pool);
    }
}
