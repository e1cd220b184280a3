//! Blocks that were freed while another stream still used them, and the events that tell when it is done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::block::BlockIndex;
use super::capture_reuse::{LastUses, Pasts};
use super::events;
use super::inner::Inner;
use super::private_pools::PoolId;
use super::shard::Shard;
use super::stream_uses::StreamUses;
use crate::device::{Device, DeviceError, Event, Stream};
use crate::sync::lock;

/// A stretch of time between two waits. What is in transit is counted by the generation in which it set out, so that a wait
/// is for what set out before it, whatever other threads go on to free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Generation(usize);

#[derive(Debug)]
struct PendingFree {
    event: Event,
    shard: Arc<Shard>,
    index: BlockIndex,
}

/// A block freed while events were held: none is recorded before that ends.
#[derive(Debug)]
struct HeldBack {
    shard: Arc<Shard>,
    index: BlockIndex,
    uses: StreamUses,
    /// Where in a capture, if it may be reused within that.
    last_uses: Option<LastUses>,
}

/// How long a wait goes on for frees that other threads are just queuing or completing. What they do takes a call of the
/// driver or two, which can stand still while a stream's queue of launches is full.
const TRANSIT_PATIENCE: Duration = Duration::from_secs(10);

/// Outstanding events, a queue for each stream they were recorded on.
///
/// A free is *announced* when its block is given back, *queued* once its events are recorded, and *complete* when they are
/// done. Between these, in the hands of some thread, it is in transit.
#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    /// Events that blocks wait for, announced and not complete, and blocks held back. Zero spares an allocation the lock.
    count: AtomicUsize,
    /// Whether blocks held back may be reused within a capture.
    reuses_in_captures: AtomicBool,
    queues: Mutex<Queues>,
    /// Blocks that stay out of use and were not logged yet.
    lost: Mutex<Vec<(Stream, DeviceError)>>,
    /// Zero spares the lock.
    lost_count: AtomicUsize,
    /// One wait at a time, since each begins a generation of which only two are told apart.
    waiting: Mutex<()>,
}

#[derive(Debug, Default)]
struct Queues {
    /// The allocator's handles are gone, nobody will poll any more: frees wait instead of being deferred.
    closed: bool,
    by_stream: Vec<(Stream, VecDeque<PendingFree>)>,
    held_back: Vec<HeldBack>,
    /// Of the captured streams, for the reuse of blocks held back.
    pasts: Pasts,
    generation: Generation,
    /// Events in transit, of the present generation and of the one before.
    in_transit: [usize; 2],
}

impl Queues {
    fn set_out(&mut self, event_count: usize) -> Generation {
        self.in_transit[self.generation.0 % 2] += event_count;
        self.generation
    }

    fn arrive(&mut self, generation: Generation, event_count: usize) {
        self.in_transit[generation.0 % 2] -= event_count;
    }
}

impl PendingFrees {
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Announces an event for each stream that uses a freed block, under the lock of its shard: from then on nobody who waits for
    /// pending frees overlooks it. While events are held, keeps the block instead until they are no more, and announces nothing.
    pub(super) fn announce(
        &self,
        shard: &Arc<Shard>,
        index: BlockIndex,
        uses: StreamUses,
    ) -> Option<(Vec<Stream>, Generation)> {
        let mut queues = lock(&self.queues);
        // Asked under the lock, which whoever begins a capture takes afterwards: either it sees this free set out, or this sees
        // the capture.
        if shard.inner.routes.hold_events() {
            self.count.fetch_add(1, Ordering::AcqRel);
            let reuses = self.reuses_in_captures.load(Ordering::Relaxed);
            let note = || LastUses::note(&*shard.inner.device, shard.stream, &uses);
            let last_uses = if reuses { note() } else { None };
            queues.held_back.push(HeldBack { shard: Arc::clone(shard), index, uses, last_uses });
            return None;
        }
        let streams = uses.streams();
        self.count.fetch_add(streams.len(), Ordering::AcqRel);
        let announced = queues.set_out(streams.len());
        Some((streams, announced))
    }

    /// Records an announced event on each stream that used a block, to complete its free when all are done.
    pub(super) fn defer(
        &self,
        inner: &Inner,
        shard: &Arc<Shard>,
        index: BlockIndex,
        streams: &[Stream],
        announced: Generation,
    ) {
        for stream in streams {
            let failure = match inner.device.record_event(*stream) {
                Ok(event) => {
                    let free = PendingFree { event, shard: Arc::clone(shard), index };
                    match self.push(*stream, free, announced) {
                        Ok(()) => continue,
                        Err(free) => {
                            let waited = inner.device.wait_event(&free.event);
                            inner.device.release_event(free.event);
                            waited.err()
                        }
                    }
                }
                Err(error) => Some(error),
            };
            // Without an event: wait for the stream now, and if that fails too, for the device. If nothing can be waited for,
            // the block stays out of use: reusing memory that a kernel may still touch is worse than losing it.
            let device = &inner.device;
            let lost =
                failure.filter(|_| device.synchronize_stream(*stream).or_else(|_| device.synchronize()).is_err());
            if lost.is_none() {
                shard.event_done(index);
            }
            self.count.fetch_sub(1, Ordering::AcqRel);
            lock(&self.queues).arrive(announced, 1);
            if let Some(error) = lost {
                self.note_lost(*stream, error);
            }
        }
    }

    /// A block stays out of use; callers may hold locks, so it is logged later.
    fn note_lost(&self, stream: Stream, error: DeviceError) {
        let mut lost = lock(&self.lost);
        lost.push((stream, error));
        self.lost_count.store(lost.len(), Ordering::Release);
    }

    /// Logs the blocks that were lost. The caller holds no lock.
    #[inline]
    pub(super) fn report_lost(&self, inner: &Inner) {
        if self.lost_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let lost = {
            let mut lost = lock(&self.lost);
            self.lost_count.store(0, Ordering::Release);
            std::mem::take(&mut *lost)
        };
        for (stream, error) in lost {
            events::log_lost_block(inner, stream, &error);
        }
    }

    /// Appends to the stream's queue; gives the free back when the queues are closed.
    fn push(&self, stream: Stream, free: PendingFree, announced: Generation) -> Result<(), PendingFree> {
        let mut queues = lock(&self.queues);
        if queues.closed {
            return Err(free);
        }
        queues.arrive(announced, 1);
        match queues.by_stream.iter_mut().find(|(of, _)| *of == stream) {
            Some((_, queue)) => queue.push_back(free),
            None => queues.by_stream.push((stream, VecDeque::from([free]))),
        }
        Ok(())
    }

    /// Records the events of the blocks that were held back, once events are held no more.
    fn defer_held_back(&self, inner: &Inner) {
        // An event recorded on a stream that is still captured, without this allocator's knowing, would stand in the graph and never
        // be done.
        let is_captured = |stream: &Stream| inner.device.capture_id(*stream).is_ok_and(|capture| capture.is_some());
        let (held_back, announced) = {
            let mut queues = lock(&self.queues);
            if queues.held_back.is_empty() || inner.routes.hold_events() {
                return;
            }
            let (still_held, held_back) = std::mem::take(&mut queues.held_back)
                .into_iter()
                .partition::<Vec<_>, _>(|held| held.uses.to_record().iter().any(is_captured));
            queues.held_back = still_held;
            queues.pasts = Pasts::default();
            // One each at least: a block without an event arrives too.
            let event_count: usize = held_back.iter().map(|held| held.uses.to_record().len().max(1)).sum();
            self.count.fetch_add(event_count - held_back.len(), Ordering::AcqRel);
            (held_back, queues.set_out(event_count))
        };
        for HeldBack { shard, index, uses, .. } in held_back {
            let mut lost = None;
            for stream in uses.to_wait_for() {
                let device = &inner.device;
                lost = lost.or(device.synchronize_stream(stream).or_else(|_| device.synchronize()).err());
            }
            let streams = uses.to_record();
            if lost.is_none() && !streams.is_empty() {
                shard.expect_events(index, streams.len() as u32);
                self.defer(inner, &shard, index, &streams, announced);
                continue;
            }
            match lost {
                None => shard.event_done(index),
                // As in `defer`: better lost than reused.
                Some(error) => self.note_lost(shard.stream, error),
            }
            let event_count = streams.len().max(1);
            self.count.fetch_sub(event_count, Ordering::AcqRel);
            lock(&self.queues).arrive(announced, event_count);
        }
    }

    /// Whether blocks may be reused within the capture in which they were freed.
    pub(super) fn set_reuses_in_captures(&self, reuses: bool) {
        self.reuses_in_captures.store(reuses, Ordering::Relaxed);
    }

    /// Completes the frees of blocks of a captured stream whose every use comes before what the stream is given next.
    #[cold]
    pub(super) fn reuse_in_capture(&self, inner: &Inner, stream: Stream) {
        if !self.reuses_in_captures.load(Ordering::Relaxed) {
            return;
        }
        let Some(graphs) = inner.device.capture_graphs() else { return };
        let (done, set_out) = {
            let mut queues = lock(&self.queues);
            let Queues { held_back, pasts, .. } = &mut *queues;
            let may_be_done = |held: &HeldBack| held.shard.stream == stream && held.last_uses.is_some();
            if !held_back.iter().any(may_be_done) {
                return;
            }
            let Some(past) = pasts.advance(graphs, stream) else { return };
            let is_done = |held: &mut HeldBack| {
                held.shard.stream == stream && held.last_uses.as_ref().is_some_and(|last_uses| past.has(last_uses))
            };
            let done: Vec<HeldBack> = held_back.extract_if(.., is_done).collect();
            let set_out = queues.set_out(done.len());
            (done, set_out)
        };
        for HeldBack { shard, index, .. } in done {
            shard.event_done(index);
            self.count.fetch_sub(1, Ordering::AcqRel);
            lock(&self.queues).arrive(set_out, 1);
        }
    }

    /// Completes the frees whose events are done. Never waits. An unfinished event holds back the later ones of its
    /// stream only.
    pub(super) fn poll(&self, inner: &Inner) -> Result<(), DeviceError> {
        self.defer_held_back(inner);
        let device = &*inner.device;
        let mut done = Vec::new();
        let mut failure = Ok(());
        let set_out = {
            let mut queues = lock(&self.queues);
            // Asked under the lock, as in `announce`: no event is queried once a capture has begun.
            if inner.routes.hold_events() {
                return Ok(());
            }
            'streams: for (_, queue) in &mut queues.by_stream {
                while let Some(head) = queue.front() {
                    match device.query_event(&head.event) {
                        Ok(true) => done.extend(queue.pop_front()),
                        Ok(false) => break,
                        Err(error) => {
                            failure = Err(error);
                            break 'streams;
                        }
                    }
                }
            }
            queues.by_stream.retain(|(_, queue)| !queue.is_empty());
            queues.set_out(done.len())
        };
        self.complete(device, done, set_out);
        failure
    }

    /// Waits for every event outstanding now and completes its free, those that other threads have in transit included; with
    /// `pool`, for those of that pool's blocks only. After a failure the rest stays outstanding. While events are held, nothing
    /// is waited for.
    pub(super) fn wait(&self, inner: &Inner, pool: Option<PoolId>) -> Result<(), DeviceError> {
        self.defer_held_back(inner);
        let _one_at_a_time = lock(&self.waiting);
        // Whoever begins a capture waits for this wait.
        if inner.routes.hold_events() {
            return Ok(());
        }
        self.wait_for_transit();
        self.wait_for_queued(&*inner.device, pool)
    }

    /// Waits until no thread records, queries or waits for events any more. To be called once events are held, so that none
    /// begins to.
    pub(super) fn settle(&self) {
        let _one_at_a_time = lock(&self.waiting);
        self.wait_for_transit();
    }

    /// Waits for what has set out before now. The caller holds the lock of waits.
    fn wait_for_transit(&self) {
        let before = {
            let mut queues = lock(&self.queues);
            let before = queues.generation;
            queues.generation = Generation(before.0.wrapping_add(1));
            before
        };
        let started = Instant::now();
        while lock(&self.queues).in_transit[before.0 % 2] > 0 && started.elapsed() < TRANSIT_PATIENCE {
            // Nearly always a matter of microseconds.
            if started.elapsed() < Duration::from_millis(1) {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn wait_for_queued(&self, device: &dyn Device, pool: Option<PoolId>) -> Result<(), DeviceError> {
        // Taken out of the lock first: the wait can be long, and other threads go on freeing meanwhile.
        let (mut taken, set_out) = {
            let mut queues = lock(&self.queues);
            let mut taken = std::mem::take(&mut queues.by_stream);
            if let Some(pool) = pool {
                for (stream, queue) in &mut taken {
                    let all = std::mem::take(queue);
                    let (of_pool, others) = all.into_iter().partition(|free| free.shard.pool_id() == pool);
                    *queue = of_pool;
                    queues.by_stream.push((*stream, others));
                }
                queues.by_stream.retain(|(_, queue)| !queue.is_empty());
            }
            let set_out = queues.set_out(taken.iter().map(|(_, queue)| queue.len()).sum());
            (taken, set_out)
        };
        let outcome = taken.iter_mut().try_for_each(|(_, queue)| {
            while let Some(free) = queue.pop_front() {
                if let Err(error) = device.wait_event(&free.event) {
                    queue.push_front(free);
                    return Err(error);
                }
                self.complete(device, [free], set_out);
            }
            Ok(())
        });
        taken.retain(|(_, queue)| !queue.is_empty());
        self.put_back(taken, set_out);
        outcome
    }

    /// Puts queues back in front of what has come meanwhile.
    fn put_back(&self, taken: Vec<(Stream, VecDeque<PendingFree>)>, set_out: Generation) {
        let mut queues = lock(&self.queues);
        for (stream, mut older) in taken {
            queues.arrive(set_out, older.len());
            match queues.by_stream.iter_mut().find(|(of, _)| *of == stream) {
                Some((_, queue)) => {
                    older.append(queue);
                    *queue = older;
                }
                None => queues.by_stream.push((stream, older)),
            }
        }
    }

    /// Waits for what is outstanding and defers nothing any more. What cannot be waited for is forgotten: its blocks stay
    /// out of use.
    pub(super) fn close(&self, inner: &Inner) {
        lock(&self.queues).closed = true;
        let outcome = self.wait(inner, None);
        // Dropped without the lock: a shard that goes gives memory back.
        let held_back = std::mem::take(&mut lock(&self.queues).held_back);
        self.count.fetch_sub(held_back.len(), Ordering::AcqRel);
        if outcome.is_ok() {
            return;
        }
        // One event could not be waited for: each of the others may be, or else its stream, or the device.
        let device = &*inner.device;
        let left = std::mem::take(&mut lock(&self.queues).by_stream);
        for (stream, queue) in left {
            for PendingFree { event, shard, index } in queue {
                let waited = device.wait_event(&event).or_else(|_| device.synchronize_stream(stream));
                match waited.or_else(|_| device.synchronize()) {
                    Ok(()) => shard.event_done(index),
                    Err(error) => self.note_lost(stream, error),
                }
                device.release_event(event);
                self.count.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn complete(&self, device: &dyn Device, done: impl IntoIterator<Item = PendingFree>, set_out: Generation) {
        for PendingFree { event, shard, index } in done {
            device.release_event(event);
            shard.event_done(index);
            self.count.fetch_sub(1, Ordering::AcqRel);
            lock(&self.queues).arrive(set_out, 1);
        }
    }
}
