//! Blocks come back.

use super::state::Pool;
use super::{Action, Counter, ReferenceAllocator};

impl ReferenceAllocator {
    /// Gives a block back; false if nobody has one there.
    pub fn free(&mut self, address: u64) -> bool {
        let Some((s, b)) = self.place_of(address).filter(|(s, b)| self.segments[*s].blocks[*b].allocated) else {
            return false;
        };
        let (stream, kind) = (self.segments[s].stream, self.segments[s].pool.kind);
        let block = &mut self.segments[s].blocks[b];
        block.allocated = false;
        let (size, requested, is_used) = (block.size, block.requested, !block.used_on.is_empty());
        self.counters.change(Counter::Allocation, kind, -1);
        self.counters.change(Counter::AllocatedBytes, kind, -(size as i64));
        self.record(Action::FreeRequested, address, requested, stream);
        if size >= self.settings.max_split {
            self.counters.oversize_allocations(-1);
        }
        if !is_used {
            self.complete(address);
        } else if !self.holds_events() {
            self.record_events(address);
        } else {
            self.deferred.push(address);
        }
        true
    }

    /// The block is free and merges with free neighbours.
    pub(super) fn complete(&mut self, address: u64) {
        let Some((s, b)) = self.place_of(address) else { panic!("no block at {address:#x}") };
        let segment = &mut self.segments[s];
        let (stream, pool, counts_splits) = (segment.stream, segment.pool, segment.page.is_none());
        let block = &mut segment.blocks[b];
        block.used_on_while_routed.clear();
        let (size, requested) = (block.size as i64, block.requested);
        let merged = segment.merge(b);
        self.set_age_base((s, merged.at), pool);
        self.record(Action::FreeCompleted, address, requested, stream);
        if counts_splits {
            self.counters.change(Counter::InactiveSplit, pool.kind, merged.split_count);
            self.counters.change(Counter::InactiveSplitBytes, pool.kind, merged.split_bytes);
        }
        self.counters.change(Counter::Active, pool.kind, -1);
        self.counters.change(Counter::ActiveBytes, pool.kind, -size);
        self.counters.change(Counter::RequestedBytes, pool.kind, -(requested as i64));
    }

    fn set_age_base(&mut self, (s, b): (usize, usize), pool: Pool) {
        self.segments[s].blocks[b].age_base = self.searches(pool);
    }

    /// Another stream uses the block. One that the allocator does not have is ignored.
    pub fn record_stream(&mut self, address: u64, stream: u64) {
        let Some((s, b)) = self.place_of(address) else { return };
        if self.segments[s].stream == stream {
            return;
        }
        let is_routed = self.holds_events();
        let block = &mut self.segments[s].blocks[b];
        if !block.used_on.contains(&stream) {
            block.used_on.push(stream);
        }
        if is_routed && !block.used_on_while_routed.contains(&stream) {
            block.used_on_while_routed.push(stream);
        }
    }
}
