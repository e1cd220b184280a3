//! Putting pages behind slots: new ones, and spare ones that move.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::super::error::Refusal;
use super::super::inner::{Growth, Inner};
use super::super::pools::StreamPools;
use super::super::shard::Shard;
use super::PAGE_BYTES;
use super::books::{slots_in, unbroken};
use crate::context;
use crate::device::{DeviceError, PhysicalMemory, Stream, VirtualMemory};
use crate::history::TraceAction;
use crate::stats::PoolKind;
use crate::sync::BiasedGuard;

/// The pools that a growth holds: those of the stream that asks, and if pages move those of all streams.
pub(super) struct Stock<'a> {
    pub(super) own_stream: Stream,
    /// The own ones first, the others in the order of their streams.
    held: Vec<(&'a Arc<Shard>, BiasedGuard<'a, StreamPools>)>,
}

impl<'a> Stock<'a> {
    pub(super) fn new(shard: &'a Arc<Shard>) -> Self {
        Self { own_stream: shard.stream, held: vec![(shard, shard.pools())] }
    }

    /// Takes those of the other streams too. With growth held nobody else ever holds more than one.
    pub(super) fn take_all(&mut self, shards: &'a [Arc<Shard>]) {
        if self.held.len() == 1 {
            let others = shards.iter().filter(|shard| shard.stream != self.own_stream);
            self.held.extend(others.map(|shard| (shard, shard.pools())));
        }
    }

    pub(super) fn own(&mut self) -> &mut StreamPools {
        &mut self.held[0].1
    }

    pub(super) fn of(&mut self, stream: Stream) -> Option<&mut StreamPools> {
        let at = match stream == self.own_stream {
            true => 0,
            false => 1 + self.held[1..].binary_search_by_key(&stream, |(shard, _)| shard.stream).ok()?,
        };
        self.held.get_mut(at).map(|(_, pools)| &mut **pools)
    }

    /// Brings the free blocks with whole pages up to date.
    pub(super) fn settle_spares(&mut self) {
        for (_, pools) in &mut self.held {
            pools.settle_spares();
            // Those without spare pages are counted no longer.
            pools.nobody_gives();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Stream, &StreamPools)> {
        self.held.iter().map(|(shard, pools)| (shard.stream, &**pools))
    }
}

/// A page on its way to a slot.
#[derive(Debug, Clone, Copy)]
struct Coming {
    slot: u64,
    memory: PhysicalMemory,
    is_new: bool,
}

impl Inner {
    pub(super) fn pages(&self) -> Result<&dyn VirtualMemory, DeviceError> {
        self.device.virtual_memory().ok_or_else(|| DeviceError::InvalidSize {
            device: self.device.name().to_owned(),
            bytes: PAGE_BYTES,
            reason: "the device has no virtual memory",
        })
    }

    /// Takes a mapping away. The caller knows that the work is over that used it.
    #[expect(unsafe_code, reason = "one of the places where the allocator lets memory go")]
    pub(super) fn unmap_slot(&self, slot: u64) -> Result<(), DeviceError> {
        // SAFETY: no block lies there, and none can be made while growth is locked: the slot is in a hole, or in a free block of pools that the
        // caller holds locked. The caller waited for the work of its stream, or knows from an event that it is over; other streams
        // were done with the blocks there before these became free.
        unsafe { self.pages()?.unmap(slot, PAGE_BYTES) }
    }

    /// Puts pages behind slots of the own pools, which are in holes and in rising order: those of `givers`, and new ones for the first slots,
    /// of which there are more. The inner error is a refusal of the device to create them; nothing is changed then but old mappings that
    /// went.
    ///
    /// A failure leaves those pages where they were that are not at their new slot yet.
    pub(super) fn fill(
        &self,
        growth: &mut Growth,
        stock: &mut Stock<'_>,
        pool: PoolKind,
        slots: &[u64],
        givers: &[u64],
    ) -> Result<Result<(), Refusal>, DeviceError> {
        self.clear(growth, stock, slots)?;
        let new_count = slots.len() - givers.len();
        let created = match self.create_pages(growth, new_count) {
            Ok(created) => created,
            Err(error) if error.is_out_of_memory() => return Ok(Err(Refusal::Device)),
            Err(error) => return Err(error),
        };
        let new = created.iter().map(|memory| (*memory, true));
        let given =
            givers.iter().filter_map(|slot| growth.compact.books.owned_by(*slot)).map(|page| (page.memory, false));
        let coming: Vec<Coming> = slots
            .iter()
            .zip(new.chain(given))
            .map(|(&slot, (memory, is_new))| Coming { slot, memory, is_new })
            .collect();
        let mut placed_count = 0;
        let mut outcome = Ok(());
        for run in unbroken(slots) {
            let count = ((run.end - run.start) / PAGE_BYTES) as usize;
            let coming = &coming[placed_count..(placed_count + count).min(coming.len())];
            outcome = self.map_run(growth, &run, coming);
            if outcome.is_err() {
                break;
            }
            self.enter_run(growth, stock, pool, coming);
            placed_count += count;
        }
        // What was created for slots that it did not come to.
        let unused = coming.iter().skip(placed_count).filter(|coming| coming.is_new);
        growth.unmapped.extend(unused.map(|coming| coming.memory));
        if outcome.is_err() {
            let _ = self.release_unmapped(growth);
        }
        match outcome {
            Err(error) if error.is_out_of_memory() => Ok(Err(Refusal::Device)),
            outcome => outcome.map(Ok),
        }
    }

    /// Takes old mappings away from slots, waiting for the stream if it may use them still.
    fn clear(&self, growth: &mut Growth, stock: &mut Stock<'_>, slots: &[u64]) -> Result<(), DeviceError> {
        let stream = stock.own_stream;
        let compact = &mut growth.compact;
        let old = |range: Range<u64>| compact.books.old_mappings(range).map(|(slot, freed_at, _)| (slot, freed_at));
        let old: Vec<(u64, u64)> = unbroken(slots).into_iter().flat_map(old).collect();
        if old.iter().any(|(_, freed_at)| !compact.work.is_over(stream, *freed_at)) {
            compact.stats.wait_count += 1;
            compact.work.synchronize(&*self.device, stream, stock.own().clock())?;
        }
        for (slot, _) in old {
            self.unmap_slot(slot)?;
            compact.books.forget_mapping(slot);
            compact.stats.unmapped_count += 1;
        }
        Ok(())
    }

    /// So many pages, or none.
    fn create_pages(&self, growth: &mut Growth, count: usize) -> Result<Vec<PhysicalMemory>, DeviceError> {
        let device = self.pages()?;
        let mut created = Vec::with_capacity(count);
        while created.len() < count {
            match device.create(PAGE_BYTES) {
                Ok(memory) => created.push(memory),
                Err(error) => {
                    // What the device does not take back now is offered again.
                    growth.unmapped.extend(created);
                    let _ = self.release_unmapped(growth);
                    return Err(error);
                }
            }
        }
        Ok(created)
    }

    /// Maps pages at slots that follow one another: all of them, or none.
    fn map_run(&self, growth: &mut Growth, run: &Range<u64>, coming: &[Coming]) -> Result<(), DeviceError> {
        let pieces: Vec<PhysicalMemory> = coming.iter().map(|coming| coming.memory).collect();
        let Err(error) = self.pages()?.map_pieces(run.start, &pieces) else { return Ok(()) };
        // Nothing should be mapped there now. If something is after all, nobody may ever map there again.
        for slot in slots_in(run.clone()) {
            let _ = self.unmap_slot(slot);
        }
        growth.compact.books.bar(slots_in(run.clone()));
        Err(error)
    }

    /// Enters pages that were just mapped.
    fn enter_run(&self, growth: &mut Growth, stock: &mut Stock<'_>, pool: PoolKind, coming: &[Coming]) {
        let moved: Vec<(u64, u64)> =
            coming.iter().filter(|coming| !coming.is_new).map(|coming| (coming.slot, coming.memory.handle)).collect();
        growth.compact.stats.moved_page_count += moved.len() as u64;
        self.change_owners(growth, stock, pool, &moved);
        let new = coming.iter().filter(|coming| coming.is_new);
        let mut slots = Vec::new();
        for coming in new {
            growth.compact.books.add_page(coming.memory, coming.slot, pool);
            slots.push(coming.slot);
        }
        for range in unbroken(&slots) {
            let bytes = range.end - range.start;
            growth.reserved_bytes += bytes;
            growth.compact.stats.created_page_count += bytes / PAGE_BYTES;
            self.enter_owned(growth, stock, pool, &range);
            self.ledger().pages_mapped(pool, bytes as i64, context::current(self.id));
        }
    }

    /// Slots of the own pools own their pages now.
    fn enter_owned(&self, growth: &Growth, stock: &mut Stock<'_>, pool: PoolKind, slots: &Range<u64>) {
        let stream = stock.own_stream;
        stock.own().enter_pages(pool, slots, growth.asked_at);
        self.record_segment(growth, TraceAction::SegmentMap, slots.start, slots.end - slots.start, stream);
    }

    /// Spare pages become owned by slots of the own pools, in rising order, where they are mapped: books only.
    pub(super) fn change_owners(
        &self,
        growth: &mut Growth,
        stock: &mut Stock<'_>,
        pool: PoolKind,
        pages: &[(u64, u64)],
    ) {
        let books = &growth.compact.books;
        let mut left: Vec<u64> =
            pages.iter().filter_map(|(_, handle)| books.page(*handle)).map(|page| page.owner).collect();
        left.sort_unstable();
        let mut freed_at = HashMap::new();
        for range in unbroken(&left) {
            // An unbroken range of owners may be of several free blocks: ranges of addresses may follow one another.
            for slot in slots_in(range) {
                let Some(from) = growth.compact.books.range_of(slot) else { continue };
                let slots = slot..slot + PAGE_BYTES;
                let at = stock.of(from.stream).and_then(|pools| pools.enter_hole(from.pool, &slots));
                freed_at.insert(slot, at.unwrap_or(u64::MAX));
                self.record_segment(growth, TraceAction::SegmentUnmap, slot, PAGE_BYTES, from.stream);
            }
        }
        for (slot, handle) in pages {
            let owner = growth.compact.books.page(*handle).map(|page| page.owner);
            let at = owner.and_then(|owner| freed_at.get(&owner)).map_or(u64::MAX, |at| *at);
            growth.compact.books.give_to(*handle, *slot, at);
        }
        let slots: Vec<u64> = pages.iter().map(|(slot, _)| *slot).collect();
        for range in unbroken(&slots) {
            self.enter_owned(growth, stock, pool, &range);
        }
    }
}
