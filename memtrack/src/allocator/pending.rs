//! Blocks that were freed while another stream still used them, and the events that tell when it is done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::block::BlockIndex;
use super::events;
use super::inner::Inner;
use super::shard::Shard;
use crate::device::{Device, DeviceError, Event, Stream};
use crate::sync::lock;

#[derive(Debug)]
struct PendingFree {
    event: Event,
    shard: Arc<Shard>,
    index: BlockIndex,
}

/// How long a wait goes on for frees that other threads are just queuing or completing. What they do takes a call of the
/// driver or two, which can stand still while a stream's queue of launches is full.
const TRANSIT_PATIENCE: Duration = Duration::from_secs(10);

/// Outstanding events, a queue for each stream they were recorded on.
#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    /// Events that blocks wait for, from the moment the block is given back: those not queued yet and those taken from a
    /// queue and not completed yet are *in transit*. Zero spares an allocation the lock.
    count: AtomicUsize,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    /// The allocator's handles are gone, nobody will poll any more: frees wait instead of being deferred.
    closed: bool,
    by_stream: Vec<(Stream, VecDeque<PendingFree>)>,
}

impl PendingFrees {
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Announces so many events, under the lock of the shard whose block waits for them: from then on nobody who waits for
    /// pending frees overlooks it.
    pub(super) fn announce(&self, event_count: usize) {
        self.count.fetch_add(event_count, Ordering::AcqRel);
    }

    /// Records an announced event on each stream that used a block, to complete its free when all are done.
    pub(super) fn defer(&self, inner: &Inner, shard: &Arc<Shard>, index: BlockIndex, streams: &[Stream]) {
        for stream in streams {
            let failure = match inner.device.record_event(*stream) {
                Ok(event) => match self.push(*stream, PendingFree { event, shard: Arc::clone(shard), index }) {
                    Ok(()) => continue,
                    Err(free) => {
                        let waited = inner.device.wait_event(&free.event);
                        inner.device.release_event(free.event);
                        waited.err()
                    }
                },
                Err(error) => Some(error),
            };
            match failure {
                None => shard.event_done(index),
                Some(error) => complete_without_event(inner, shard, index, *stream, &error),
            }
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Appends to the stream's queue; gives the free back when the queues are closed.
    fn push(&self, stream: Stream, free: PendingFree) -> Result<(), PendingFree> {
        let mut queues = lock(&self.queues);
        if queues.closed {
            return Err(free);
        }
        match queues.by_stream.iter_mut().find(|(of, _)| *of == stream) {
            Some((_, queue)) => queue.push_back(free),
            None => queues.by_stream.push((stream, VecDeque::from([free]))),
        }
        Ok(())
    }

    /// Completes the frees whose events are done. Never waits. An unfinished event holds back the later ones of its
    /// stream only.
    pub(super) fn poll(&self, device: &dyn Device) -> Result<(), DeviceError> {
        let mut done = Vec::new();
        let mut failure = Ok(());
        {
            let mut queues = lock(&self.queues);
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
        }
        self.complete(device, done);
        failure
    }

    /// Waits for every outstanding event and completes its free, those that other threads have in transit included. After a
    /// failure the rest stays outstanding.
    pub(super) fn wait(&self, device: &dyn Device) -> Result<(), DeviceError> {
        self.wait_for_queued(device)?;
        let started = Instant::now();
        while self.any_in_transit() && started.elapsed() < TRANSIT_PATIENCE {
            // Nearly always a matter of microseconds.
            if started.elapsed() < Duration::from_millis(1) {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        // What was in transit to the queues has arrived.
        self.wait_for_queued(device)
    }

    fn any_in_transit(&self) -> bool {
        let queues = lock(&self.queues);
        let queued: usize = queues.by_stream.iter().map(|(_, queue)| queue.len()).sum();
        self.count.load(Ordering::Acquire) > queued
    }

    fn wait_for_queued(&self, device: &dyn Device) -> Result<(), DeviceError> {
        // Taken out of the lock first: the wait can be long, and other threads go on freeing meanwhile.
        let mut taken = std::mem::take(&mut lock(&self.queues).by_stream);
        let outcome = taken.iter_mut().try_for_each(|(_, queue)| {
            while let Some(free) = queue.pop_front() {
                if let Err(error) = device.wait_event(&free.event) {
                    queue.push_front(free);
                    return Err(error);
                }
                self.complete(device, [free]);
            }
            Ok(())
        });
        taken.retain(|(_, queue)| !queue.is_empty());
        self.put_back(taken);
        outcome
    }

    /// Puts queues back in front of what has come meanwhile.
    fn put_back(&self, taken: Vec<(Stream, VecDeque<PendingFree>)>) {
        let mut queues = lock(&self.queues);
        for (stream, mut older) in taken {
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
    pub(super) fn close(&self, device: &dyn Device) {
        lock(&self.queues).closed = true;
        if self.wait(device).is_err() {
            let forgotten = std::mem::take(&mut lock(&self.queues).by_stream);
            let event_count = forgotten.iter().map(|(_, queue)| queue.len()).sum();
            self.count.fetch_sub(event_count, Ordering::AcqRel);
            drop(forgotten);
        }
    }

    fn complete(&self, device: &dyn Device, done: impl IntoIterator<Item = PendingFree>) {
        for PendingFree { event, shard, index } in done {
            device.release_event(event);
            shard.event_done(index);
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The event could not be recorded: wait for the stream now, and if that fails too, for the device. If nothing can be
/// waited for, the block stays out of use: reusing memory that a kernel may still touch is worse than losing it.
fn complete_without_event(inner: &Inner, shard: &Shard, index: BlockIndex, stream: Stream, error: &DeviceError) {
    let device = &inner.device;
    match device.synchronize_stream(stream).or_else(|_| device.synchronize()) {
        Ok(()) => shard.event_done(index),
        Err(_) => events::log_lost_block(inner, stream, error),
    }
}
