//! The path of an allocation that finds no cached block: grow, and when that fails give back and try again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::block::Origin;
use super::error::{AllocationError, OutOfMemory, Refusal};
use super::events;
use super::inner::{Growth, Inner};
use super::shard::{Lease, Shard};
use super::survey::Survey;
use crate::context;
use crate::device::{DeviceError, Stream};
use crate::history::TraceAction;
use crate::history::recording::Event;
use crate::stats::PoolKind;
use crate::sync::lock;

/// What giving cached memory back and asking again came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    pub(super) requested_bytes: u64,
    pub(super) segment_bytes: u64,
    /// Given back to the device.
    pub(super) returned_bytes: u64,
    pub(super) took: Duration,
    pub(super) served: bool,
}

/// What attempts leave to be said once no lock is held.
struct Notes {
    /// An out of memory is to be counted.
    counts: bool,
    retry: Option<Retry>,
    survey: Option<Survey>,
}

/// One request on its way through the slow path.
pub(super) struct Request<'a> {
    pub(super) shard: &'a Arc<Shard>,
    /// Rounded.
    pub(super) size_bytes: u64,
    pub(super) requested_bytes: u64,
    pub(super) pool: PoolKind,
    /// What the limit is asked about, also when pages are mapped instead.
    pub(super) segment_bytes: u64,
    pub(super) origin: Origin,
}

impl Inner {
    /// Serves a request that no cached block fits, in PyTorch's order of attempts.
    #[cold]
    pub(super) fn grow(
        &self,
        shard: &Arc<Shard>,
        requested_bytes: u64,
        origin: Origin,
    ) -> Result<Lease, AllocationError> {
        let stream = shard.stream;
        let mut live = Vec::new();
        let attempt = |counts| {
            let mut notes = Notes { counts, retry: None, survey: None };
            let started = Instant::now();
            let mut outcome = self.attempts(shard, requested_bytes, origin, &mut notes);
            self.ledger().slow_path_took(started.elapsed(), context::current(self.id));
            // Logged here, where no lock is held: a subscriber may ask for statistics.
            if let Some(retry) = &notes.retry {
                events::log_retry(self, stream, retry);
            }
            if let (Err(AllocationError::OutOfMemory(error)), Some(survey)) = (&mut outcome, notes.survey) {
                live = self.explain(error, survey);
            }
            outcome
        };
        let count = |error: &OutOfMemory| {
            self.ledger().out_of_memory(context::current(self.id));
            let mut growth = lock(&self.growth);
            growth.asked_at = origin.stack;
            self.record_out_of_memory(&growth, error.device_free_bytes, error.rounded_bytes, stream);
        };
        let mut outcome = self.with_oom_hooks(requested_bytes, attempt, count);
        if let Err(AllocationError::OutOfMemory(error)) = &mut outcome {
            self.report(&shard.inner, error, live);
        }
        self.pending.report_lost(self);
        outcome
    }

    fn attempts(
        &self,
        shard: &Arc<Shard>,
        requested_bytes: u64,
        origin: Origin,
        notes: &mut Notes,
    ) -> Result<Lease, AllocationError> {
        let mut growth = lock(&self.growth);
        growth.asked_at = origin.stack;
        let rules = growth.rules;
        // Whoever held the lock may have freed or brought in what fits; so may any other thread since the search.
        let serve_again = |shard: &Arc<Shard>, expandable| {
            shard.serve_again(requested_bytes, origin, expandable).map(|grant| Lease::new(shard, grant))
        };
        if let Some(lease) = serve_again(shard, rules.expandable) {
            return Ok(lease);
        }
        let size_bytes = rules.round(requested_bytes);
        let request = Request {
            shard,
            size_bytes,
            requested_bytes,
            pool: shard.pools().pool(size_bytes),
            segment_bytes: rules.segment_size(size_bytes),
            origin,
        };
        if rules.is_compact && shard.private.is_none() {
            return self.attempts_compact(&mut growth, &request, notes);
        }
        let started = Instant::now();
        let reserved_bytes = growth.reserved_bytes;
        self.collect_garbage(&mut growth)?;
        let mut outcome = self.take_memory(&mut growth, &request)?;
        if outcome.is_err() && shard.private.is_none() {
            let lent = self.private_pools().into_iter().filter(|pool| pool.helps_out());
            let mut shards = lent.filter_map(|pool| self.known_shard((pool.id, shard.stream)));
            if let Some(lease) = shards.find_map(|shard| serve_again(&shard, false)) {
                return Ok(lease);
            }
        }
        if outcome.is_err() && self.release_oversize(&mut growth, &request)? {
            outcome = self.take_memory(&mut growth, &request)?;
        }
        if outcome.is_err() && !self.routes.hold_events() {
            self.synchronize_pending(None)?;
            self.release_cached(&mut growth)?;
            // What was mapped for the request before a refusal is no return.
            let returned_bytes = reserved_bytes.saturating_sub(growth.reserved_bytes);
            self.ledger().retried(context::current(self.id));
            // Counted, so it is to be logged, however it ends.
            let mut log = |served| {
                let segment_bytes = request.segment_bytes;
                notes.retry =
                    Some(Retry { requested_bytes, segment_bytes, returned_bytes, took: started.elapsed(), served });
            };
            outcome = self.take_memory(&mut growth, &request).inspect_err(|_| log(false))?;
            if outcome.is_err() && !rules.torch_exact {
                // The wait may have freed a block inside a segment that could not be given back. PyTorch does not look and
                // reports an out of memory that the same call a moment later would not meet.
                outcome = serve_again(shard, rules.expandable).map_or(outcome, Ok);
            }
            log(outcome.is_ok());
        }
        outcome.map_err(|refused_by| {
            // What was mapped for the request before a refusal is no return.
            let returned_bytes = reserved_bytes.saturating_sub(growth.reserved_bytes);
            let error = self.out_of_memory(&growth, &request, refused_by, returned_bytes, notes);
            AllocationError::OutOfMemory(Box::new(error))
        })
    }

    /// The attempts of `policy:compact`: nothing is given back to be taken again, since spare pages serve any size.
    fn attempts_compact(
        &self,
        growth: &mut Growth,
        request: &Request<'_>,
        notes: &mut Notes,
    ) -> Result<Lease, AllocationError> {
        let reserved_bytes = growth.reserved_bytes;
        let mut outcome = self.grow_compact(growth, request)?;
        if outcome.is_err() && !self.routes.hold_events() {
            self.synchronize_pending(None)?;
            outcome = self.grow_compact(growth, request)?;
            if outcome.is_err() {
                self.release_freeable(growth)?;
                if growth.reserved_bytes < reserved_bytes {
                    outcome = self.grow_compact(growth, request)?;
                }
            }
        }
        let lease = outcome.map(|grant| Lease::new(request.shard, grant));
        lease.map_err(|refused_by| {
            let returned_bytes = reserved_bytes.saturating_sub(growth.reserved_bytes);
            let error = self.out_of_memory(growth, request, refused_by, returned_bytes, notes);
            AllocationError::OutOfMemory(Box::new(error))
        })
    }

    /// Takes memory for the request from the device. The inner error is a refusal that giving memory back may mend.
    fn take_memory(&self, growth: &mut Growth, request: &Request<'_>) -> Result<Result<Lease, Refusal>, DeviceError> {
        let Request { shard, segment_bytes, requested_bytes, origin, .. } = *request;
        // Of what is reserved already no more than the limit's worth was asked for, so nothing overflows but a mistake.
        if growth.limit_bytes.is_some_and(|limit| growth.reserved_bytes.saturating_add(segment_bytes) > limit) {
            return Ok(Err(Refusal::Limit));
        }
        let lease = |grant| Lease::new(shard, grant);
        if growth.rules.expandable {
            return Ok(self.map_memory(growth, request)?.map(lease));
        }
        let address = match self.device.allocate(segment_bytes) {
            Ok(address) => address,
            Err(error) if error.is_out_of_memory() => return Ok(Err(Refusal::Device)),
            Err(error) => return Err(error),
        };
        growth.reserved_bytes += segment_bytes;
        self.record_segment(growth, TraceAction::SegmentAlloc, address, segment_bytes, shard.stream);
        let oversize = growth.rules.is_oversize(segment_bytes);
        self.ledger().segment_allocated(request.pool, segment_bytes as i64, oversize, context::current(self.id));
        Ok(Ok(lease(shard.serve_with_segment(address, segment_bytes, requested_bytes, origin))))
    }

    /// Records an event about a segment or a request, asked for where what is going on was.
    pub(super) fn record_segment(
        &self,
        growth: &Growth,
        action: TraceAction,
        address: u64,
        size_bytes: u64,
        stream: Stream,
    ) {
        self.history.record([Event { action, address, size_bytes, stream, stack: growth.asked_at }]);
    }

    /// The largest free block of any stream, 0 without any.
    pub(crate) fn largest_free_block_bytes(&self) -> u64 {
        self.shards().iter().map(|shard| shard.pools().largest_free_bytes()).max().unwrap_or(0)
    }

    fn out_of_memory(
        &self,
        growth: &Growth,
        request: &Request<'_>,
        refused_by: Refusal,
        returned_bytes: u64,
        notes: &mut Notes,
    ) -> OutOfMemory {
        let context = context::current(self.id);
        let largest_usable_block_bytes = {
            let pools = request.shard.pools();
            pools.largest_free(request.pool).map_or(0, |free| free.size_bytes)
        };
        let (allocated_bytes, phase) = {
            let mut ledger = self.ledger();
            if notes.counts {
                ledger.out_of_memory(context);
            }
            (ledger.live_bytes() as u64, ledger.phase_name(context))
        };
        let device_free_bytes = self.device.memory().ok().map(|memory| memory.free_bytes);
        let stream = request.shard.stream;
        if notes.counts {
            self.record_out_of_memory(growth, device_free_bytes, request.size_bytes, stream);
        }
        notes.survey = Some(self.survey(growth, device_free_bytes, Some(self.failure(request.requested_bytes))));
        OutOfMemory {
            device: self.device.name().to_owned(),
            stream,
            requested_bytes: request.requested_bytes,
            rounded_bytes: request.size_bytes,
            segment_bytes: request.segment_bytes,
            refused_by,
            allocated_bytes,
            reserved_bytes: growth.reserved_bytes,
            largest_usable_block_bytes,
            largest_free_block_bytes: self.largest_free_block_bytes(),
            device_free_bytes,
            device_total_bytes: self.device.total_bytes(),
            limit_bytes: growth.limit_bytes,
            returned_bytes,
            phase,
            findings: Vec::new(),
            post_mortem: None,
        }
    }

    /// PyTorch's entry: the device's free bytes in the place of an address, and the rounded size.
    fn record_out_of_memory(&self, growth: &Growth, free_bytes: Option<u64>, size_bytes: u64, stream: Stream) {
        self.record_segment(growth, TraceAction::Oom, free_bytes.unwrap_or(0), size_bytes, stream);
    }
}
