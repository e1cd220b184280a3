//! Expandable segments: a range of addresses larger than the device, which gets and loses memory page by page.

use super::allocate::Request;
use super::counters::Count;
use super::state::{Block, Kind, Place, Pool, Segment};
use super::{Action, Counter, MIB, ReferenceAllocator, Refused};

impl ReferenceAllocator {
    /// A free block of the request's size at least, mapped as far as it was not. What one mapping got stays when the next
    /// fails.
    pub(super) fn take_expandable(&mut self, request: &Request) -> Result<Place, Refused> {
        let (s, mut b) = self.find_room(request).unwrap_or_else(|| self.reserve(request));
        let first = &self.segments[s].blocks[b];
        if !first.mapped {
            b = self.map(s, b, first.size.min(request.size))?;
        }
        while self.segments[s].blocks[b].size < request.size {
            let missing = request.size - self.segments[s].blocks[b].size;
            let next = &self.segments[s].blocks[b + 1];
            b = self.map(s, b + 1, next.size.min(missing))?;
        }
        Ok((s, b))
    }

    /// The first unmapped block, in address order, that with its free neighbours has room for the request: the place of the
    /// free block before it if there is one.
    fn find_room(&self, request: &Request) -> Option<Place> {
        let mut unmapped = Vec::new();
        for (s, segment) in self.segments.iter().enumerate() {
            if segment.pool == request.pool && segment.stream == request.stream {
                let blocks = segment.blocks.iter().enumerate().filter(|(_, block)| !block.mapped);
                unmapped.extend(blocks.map(|(b, block)| (block.address, s, b)));
            }
        }
        unmapped.sort_unstable();
        unmapped.into_iter().find_map(|(_, s, mut b)| {
            let blocks = &self.segments[s].blocks;
            if b > 0 && blocks[b - 1].is_idle() {
                b -= 1;
            }
            let room: u64 = blocks[b..].iter().take_while(|block| block.is_idle()).map(|block| block.size).sum();
            (room >= request.size).then_some((s, b))
        })
    }

    /// Addresses for an eighth more than the device has, without memory. No statistic moves.
    fn reserve(&mut self, request: &Request) -> Place {
        let page = match request.pool.kind {
            Kind::Small => 2 * MIB,
            Kind::Large => self.settings.large_segment,
        };
        let size = (self.total_bytes + self.total_bytes / 8).div_ceil(page) * page;
        let address = self.next_address();
        let block = Block::free(address, size, false, 0);
        let (stream, pool) = (request.stream, request.pool);
        self.segments.push(Segment { address, stream, pool, page: Some(page), blocks: vec![block] });
        (self.segments.len() - 1, 0)
    }

    /// Memory for the pages that the front of an unmapped block touches; the block's index after merging.
    fn map(&mut self, s: usize, b: usize, size: u64) -> Result<usize, Refused> {
        let (stream, pool) = (self.segments[s].stream, self.segments[s].pool);
        let Some(page) = self.segments[s].page else { panic!("only expandable segments are mapped") };
        let bytes = size.div_ceil(page) * page;
        self.check_room(bytes)?;
        let age_base = self.searches(pool);
        let segment = &mut self.segments[s];
        let block = &mut segment.blocks[b];
        let address = block.address;
        let rest = block.size - bytes;
        block.size = bytes;
        block.mapped = true;
        block.age_base = age_base;
        if rest > 0 {
            segment.blocks.insert(b + 1, Block::free(address + bytes, rest, false, 0));
        }
        let merged = segment.merge(b).at;
        self.counters.change(Counter::ReservedBytes, pool.kind, bytes as i64);
        self.counters.count(Count::DeviceAllocs);
        self.record(Action::SegmentMap, address, bytes, stream);
        Ok(merged)
    }

    /// Takes the memory away from the pages that lie wholly in a free block, after its stream has finished. A segment without
    /// any memory goes.
    pub(super) fn unmap(&mut self, (s, b): Place) {
        let (stream, pool) = (self.segments[s].stream, self.segments[s].pool);
        let Some(page) = self.segments[s].page else { panic!("only expandable segments are unmapped") };
        let base = self.segments[s].address;
        let age_base = self.searches(pool);
        let block = &mut self.segments[s].blocks[b];
        let end = block.address + block.size;
        let first = base + (block.address - base).div_ceil(page) * page;
        let last = base + (end - base) / page * page;
        if first >= last {
            return;
        }
        let (before, after) = (first - block.address, end - last);
        let start = block.address;
        block.address = first;
        block.size = last - first;
        block.mapped = false;
        let blocks = &mut self.segments[s].blocks;
        if after > 0 {
            blocks.insert(b + 1, Block::free(last, after, true, age_base));
        }
        if before > 0 {
            blocks.insert(b, Block::free(start, before, true, age_base));
        }
        self.segments[s].merge(if before > 0 { b + 1 } else { b });
        if !self.segments[s].is_split() {
            self.segments.remove(s);
        }
        self.set_stream_done(stream);
        self.counters.change(Counter::ReservedBytes, pool.kind, -((last - first) as i64));
        self.counters.count(Count::DeviceFrees);
        self.record(Action::SegmentUnmap, first, last - first, stream);
    }

    /// All that can be unmapped of a pool, in the order of its free blocks.
    pub(super) fn unmap_pool(&mut self, pool: Pool) {
        let mut free: Vec<(u64, u64, u64)> = self
            .free_places(pool)
            .filter(|(.., (s, _))| self.segments[*s].page.is_some())
            .map(|(stream, size, address, _)| (stream, size, address))
            .collect();
        free.sort_unstable();
        for (.., address) in free {
            if let Some(place) = self.place_of(address) {
                self.unmap(place);
            }
        }
    }
}
