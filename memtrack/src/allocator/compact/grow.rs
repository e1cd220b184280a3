//! An allocation that finds no free block: a place for it is chosen, and pages are created or move there.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::error::Refusal;
use super::super::grow::Request;
use super::super::inner::{Growth, Inner};
use super::super::private_pools::PoolId;
use super::super::shard::{Grant, Shard};
use super::PAGE_BYTES;
use super::books::{AddressRange, slots_in};
use super::moving::Stock;
use super::places::Place;
use super::spares::Spares;
use crate::device::{DeviceError, Stream};
use crate::stats::PoolKind;

/// So many times the device's memory a range of addresses is long: blocks that move leave holes.
const RANGE_FACTOR: u64 = 4;

/// Up to so many streams are asked at each growth; captures forbid events.
const STREAMS_ASKED_EARLY: usize = 64;

/// Below this, moves leave more parts of pages behind than they save.
const LEAST_SLACK_PERCENT: f64 = 0.6;

/// What became of an attempt to create pages where nothing is mapped.
enum Bare {
    /// The place begins there.
    Made(u64),
    Refused(Refusal),
    /// Pages must move or old mappings go, or the device has no more: the places, and how many pages may be created.
    Others {
        places: Vec<Place>,
        allowed_count: usize,
    },
}

impl Inner {
    /// Serves a request of a default pool. The inner error is a refusal that waiting for frees may mend; what was mapped before it stays and
    /// is cached.
    pub(in super::super) fn grow_compact(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
    ) -> Result<Result<Grant, Refusal>, DeviceError> {
        let Request { shard, requested_bytes, pool, origin, .. } = *request;
        let asked;
        let mut stock = Stock::new(shard);
        let sized = shard.sized_request(&stock.own().rules, requested_bytes);
        // Somebody may have freed what fits since the last search.
        if let Some((index, split)) = stock.own().serve(&sized) {
            return Ok(Ok(shard.enter(stock.own(), index, split, origin)));
        }
        self.note_requested(growth, requested_bytes);
        growth.compact.stats.growth_count += 1;
        // Asked early, so that the work at old mappings is soon known to be over; of many streams only where it must be known.
        let is_early = growth.compact.books.has_old_mappings() && self.shard_count() <= STREAMS_ASKED_EARLY;
        let early = is_early.then(|| self.ask_streams(growth, &mut stock));
        let made = match self.make_bare_place(growth, request, &mut stock)? {
            Bare::Made(start) => Ok(start),
            Bare::Refused(refusal) => Err(refusal),
            Bare::Others { mut places, allowed_count } => {
                asked = match early {
                    Some(asked) => asked,
                    None => self.ask_streams(growth, &mut stock),
                };
                let (shards, may_move) = &asked;
                if *may_move {
                    let moved_before = growth.compact.stats.moved_page_count;
                    let made = self.make_place(growth, request, &mut stock, shards, &mut places, allowed_count);
                    let has_moved = growth.compact.stats.moved_page_count > moved_before;
                    growth.compact.stats.moving_allocation_count += u64::from(has_moved);
                    made?
                } else {
                    self.make_new_place(growth, request, &mut stock)?
                }
            }
        };
        let start = match made {
            Ok(start) => start,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let pools = stock.own();
        // The place is whole, and its pools were locked all the while.
        let Some((index, split)) = pools.serve_at(pool, start, &sized) else { return Ok(Err(Refusal::Device)) };
        pools.recount_giving();
        Ok(Ok(shard.enter(pools, index, split, origin)))
    }

    /// The default pools of all streams, and whether pages may move. Finds out what of the own stream's work is over, if that is of use.
    fn ask_streams(&self, growth: &mut Growth, stock: &mut Stock<'_>) -> (Vec<Arc<Shard>>, bool) {
        let shards = self.shards_of(PoolId::DEFAULT);
        let may_move = self.may_move(stock.own_stream, &shards);
        if may_move && growth.compact.books.has_old_mappings() {
            growth.compact.work.refresh(&*self.device, stock.own_stream, stock.own().clock());
        }
        (shards, may_move)
    }

    /// Brings the requested peak up to date, this request counted in.
    fn note_requested(&self, growth: &mut Growth, requested_bytes: u64) {
        let (current, highest) = self.ledger().requested_bytes();
        let unsigned = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let with_this = unsigned(current).saturating_add(requested_bytes);
        let before_reset = self.requested_peak_bytes.load(Ordering::Relaxed);
        let peak = &mut growth.compact.requested_peak_bytes;
        *peak = (*peak).max(with_this).max(unsigned(highest)).max(before_reset);
    }

    /// Whether pages may move: events are asked about and recorded for it, which a capture forbids.
    fn may_move(&self, own: Stream, shards: &[Arc<Shard>]) -> bool {
        // Of another stream that the driver does not know any more no event is recorded, and its pages stay.
        let is_captured = |shard: &Arc<Shard>| matches!(self.device.capture_id(shard.stream), Ok(Some(_)));
        let own_is_free = matches!(self.device.capture_id(own), Ok(None));
        !self.routes.hold_events() && own_is_free && !shards.iter().any(is_captured)
    }

    /// How many pages the limit leaves.
    fn left_count(growth: &Growth) -> usize {
        let left_bytes = growth.limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(growth.reserved_bytes));
        usize::try_from(left_bytes / PAGE_BYTES).unwrap_or(usize::MAX)
    }

    /// How many pages may be created.
    fn allowed_count(growth: &Growth) -> usize {
        let slack = growth.config.compact_slack_percent.max(LEAST_SLACK_PERCENT) / 100.0;
        let peak_bytes = growth.compact.requested_peak_bytes;
        let most_bytes = peak_bytes.saturating_add((peak_bytes as f64 * slack) as u64);
        let allowed_bytes = most_bytes.saturating_sub(growth.reserved_bytes);
        usize::try_from(allowed_bytes / PAGE_BYTES).unwrap_or(usize::MAX).min(Self::left_count(growth))
    }

    /// Where the block could be made. At least one place, in addresses never used before if need be.
    fn usable_places(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
        stock: &mut Stock<'_>,
        is_usable: impl Fn(&Growth, &Place) -> bool,
    ) -> Result<Result<Vec<Place>, Refusal>, DeviceError> {
        let places = |growth: &Growth, stock: &mut Stock<'_>| {
            let mut places = stock.own().places(request.pool, request.size_bytes);
            let books = &growth.compact.books;
            let is_known = |place: &Place| !place.missing.iter().any(|slots| books.has_barred(slots.clone()));
            places.retain(|place| is_known(place) && is_usable(growth, place));
            places
        };
        let found = places(growth, stock);
        if !found.is_empty() {
            return Ok(Ok(found));
        }
        self.reserve_range(growth, stock, request.pool)?;
        let found = places(growth, stock);
        // Otherwise it is larger than several times the device.
        Ok(if found.is_empty() { Err(Refusal::Device) } else { Ok(found) })
    }

    fn reserve_range(&self, growth: &mut Growth, stock: &mut Stock<'_>, pool: PoolKind) -> Result<(), DeviceError> {
        let total_bytes = self.device.total_bytes();
        let whole = |bytes: u64| bytes.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES);
        let wide = whole(total_bytes.saturating_mul(RANGE_FACTOR));
        let narrow = whole(total_bytes.saturating_add(total_bytes / 8));
        let device = self.pages()?;
        let (address, bytes) = match device.reserve(wide) {
            Ok(address) => (address, wide),
            Err(_) => (device.reserve(narrow)?, narrow),
        };
        let stream = stock.own_stream;
        growth.compact.books.add_range(address, AddressRange { bytes, stream, pool });
        stock.own().add_range(pool, address, bytes);
        Ok(())
    }

    /// Creates the pages of the cheapest place if so many may be created and nothing was ever mapped there. Other pages, other streams and
    /// events are nothing to it.
    fn make_bare_place(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
        stock: &mut Stock<'_>,
    ) -> Result<Bare, DeviceError> {
        let allowed_count = Self::allowed_count(growth);
        let places = match self.usable_places(growth, request, stock, |_, _| true)? {
            Ok(places) => places,
            Err(refusal) => return Ok(Bare::Refused(refusal)),
        };
        let books = &growth.compact.books;
        let is_bare = |place: &&Place| place.missing.iter().all(|slots| books.is_bare(slots.clone()));
        // Old mappings make a place dearer than it seems here, never cheaper.
        let cheapest = places.iter().min_by_key(|place| place.cost_of_creating()).filter(is_bare);
        // Where nothing can move, pages are created whatever the slack. Of few streams each is asked, which records their events.
        let is_many = self.shard_count() > STREAMS_ASKED_EARLY;
        let is_allowed =
            |place: &&Place| place.missing_count <= allowed_count || (is_many && stock.own().nobody_gives());
        let Some(place) = cheapest.filter(is_allowed) else {
            return Ok(Bare::Others { places, allowed_count });
        };
        match self.create_at(growth, request, stock, place)? {
            Ok(start) => Ok(Bare::Made(start)),
            // The device has less than may be created.
            Err(_) => Ok(Bare::Others { places, allowed_count: 0 }),
        }
    }

    /// Makes a place while nothing may move or go: pages are created for it, whatever the slack.
    fn make_new_place(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
        stock: &mut Stock<'_>,
    ) -> Result<Result<u64, Refusal>, DeviceError> {
        let never_mapped = |growth: &Growth, place: &Place| {
            let books = &growth.compact.books;
            place.missing.iter().all(|slots| books.is_bare(slots.clone()))
        };
        let places = match self.usable_places(growth, request, stock, never_mapped)? {
            Ok(places) => places,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match places.into_iter().min_by_key(Place::cost_of_creating) {
            Some(place) => self.create_at(growth, request, stock, &place),
            None => Ok(Err(Refusal::Device)),
        }
    }

    /// Creates all pages that a place lacks.
    fn create_at(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
        stock: &mut Stock<'_>,
        place: &Place,
    ) -> Result<Result<u64, Refusal>, DeviceError> {
        if place.missing_count > Self::left_count(growth) {
            return Ok(Err(Refusal::Limit));
        }
        let slots: Vec<u64> = place.missing.iter().cloned().flat_map(slots_in).collect();
        let filled = self.fill(growth, stock, request.pool, &slots, &[])?;
        Ok(filled.map(|()| place.start))
    }

    /// Makes a place: of new pages as long as those are allowed, then of spare ones.
    fn make_place<'a>(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
        stock: &mut Stock<'a>,
        shards: &'a [Arc<Shard>],
        places: &mut Vec<Place>,
        allowed_count: usize,
    ) -> Result<Result<u64, Refusal>, DeviceError> {
        let mut made = self.make_place_within(growth, request, stock, shards, places, allowed_count)?;
        if made == Err(Refusal::Device) && allowed_count > 0 {
            // The device has less than may be created. Pages may be back at their slots by now, so that other places are there.
            *places = match self.usable_places(growth, request, stock, |_, _| true)? {
                Ok(places) => places,
                Err(refusal) => return Ok(Err(refusal)),
            };
            made = self.make_place_within(growth, request, stock, shards, places, 0)?;
        }
        Ok(made)
    }

    fn make_place_within<'a>(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
        stock: &mut Stock<'a>,
        shards: &'a [Arc<Shard>],
        places: &mut [Place],
        allowed_count: usize,
    ) -> Result<Result<u64, Refusal>, DeviceError> {
        let (own, size_bytes) = (stock.own_stream, request.size_bytes);
        stock.settle_spares();
        let compact = &growth.compact;
        let spares = Spares::of(stock.iter(), own, &compact.work, &HashSet::new());
        for place in &mut *places {
            spares.weigh(&compact.books, &compact.work, place, size_bytes);
        }
        let cheapest = places.iter().min_by_key(|place| place.cost_of_creating());
        if let Some(place) = cheapest.filter(|place| place.missing_count <= allowed_count) {
            return self.create_at(growth, request, stock, place);
        }
        let enough = places.iter().map(Place::page_count).max().unwrap_or(0);
        let joined = self.hold_all(growth, stock, shards, enough, |spare_count| {
            places.iter().all(|place| place.forced_count(spare_count, allowed_count) > 0)
        });
        let compact = &growth.compact;
        let spares = Spares::of(stock.iter(), own, &compact.work, &joined);
        let spare_count = spares.count(enough);
        for place in &mut *places {
            spares.weigh(&compact.books, &compact.work, place, size_bytes);
        }
        let cost = |place: &Place| (place.forced_count(spare_count, allowed_count), place.cost_of_moving());
        let Some(place) = places.iter().min_by_key(|place| cost(place)) else { return Ok(Err(Refusal::Device)) };
        let ready = spares.ready(&compact.books, place, &(place.start..place.start + size_bytes));
        self.move_to(growth, request, stock, place, ready, &joined)
    }

    /// Takes the pools of all streams. Where these have too few spare pages, this stream's later work waits for what other streams were given;
    /// returns which.
    fn hold_all<'a>(
        &self,
        growth: &mut Growth,
        stock: &mut Stock<'a>,
        shards: &'a [Arc<Shard>],
        enough: usize,
        is_short: impl Fn(usize) -> bool,
    ) -> HashSet<Stream> {
        stock.take_all(shards);
        let (own, compact) = (stock.own_stream, &mut growth.compact);
        let others: Vec<(Stream, u64)> =
            stock.iter().filter(|(stream, _)| *stream != own).map(|(stream, pools)| (stream, pools.clock())).collect();
        for (stream, now) in &others {
            compact.work.refresh(&*self.device, *stream, *now);
        }
        let mut joined = HashSet::new();
        stock.settle_spares();
        let spares = Spares::of(stock.iter(), own, &compact.work, &joined);
        if spares.has_busy() && is_short(spares.count(enough)) {
            compact.stats.wait_count += 1;
            // One that cannot be waited for keeps its pages.
            let is_joined =
                |(stream, now): &(Stream, u64)| compact.work.join(&*self.device, own, *stream, *now).is_ok();
            joined = others.into_iter().filter(is_joined).map(|(stream, _)| stream).collect();
        }
        joined
    }

    /// Moves spare pages to a place, and creates what is missing still.
    fn move_to(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
        stock: &mut Stock<'_>,
        place: &Place,
        mut ready: Vec<(u64, u64)>,
        joined: &HashSet<Stream>,
    ) -> Result<Result<u64, Refusal>, DeviceError> {
        let range = place.start..place.start + request.size_bytes;
        // A page may be mapped at two of the slots; the first gets it.
        let mut taken = HashSet::new();
        ready.retain(|(_, handle)| taken.insert(*handle));
        growth.compact.stats.returned_page_count += ready.len() as u64;
        self.change_owners(growth, stock, request.pool, &ready);
        let is_ready: HashSet<u64> = ready.into_iter().map(|(slot, _)| slot).collect();
        let missing = place.missing.iter().cloned().flat_map(slots_in);
        let open: Vec<u64> = missing.filter(|slot| !is_ready.contains(slot)).collect();
        stock.settle_spares();
        let spares = Spares::of(stock.iter(), stock.own_stream, &growth.compact.work, joined);
        let givers = spares.givers(&range, open.len());
        if open.len() - givers.len() > Self::left_count(growth) {
            return Ok(Err(Refusal::Limit));
        }
        let filled = self.fill(growth, stock, request.pool, &open, &givers)?;
        Ok(filled.map(|()| place.start))
    }
}
