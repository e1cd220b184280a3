//! Blocks that were freed while another stream still used them, and the events that tell when it is done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

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

/// Outstanding events, a queue for each stream they were recorded on.
#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    /// A hint that spares an allocation the lock while nothing is outstanding.
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

    /// Records an event on each stream that used a block, to complete its free when all are done.
    pub(super) fn defer(&self, inner: &Inner, shard: &Arc<Shard>, index: BlockIndex, streams: &[Stream]) {
        for stream in streams {
            match inner.device.record_event(*stream) {
                Ok(event) => {
                    let free = PendingFree { event, shard: Arc::clone(shard), index };
                    if let Err(free) = self.push(*stream, free) {
                        let waited = inner.device.wait_event(&free.event);
                        inner.device.release_event(free.event);
                        match waited {
                            Ok(()) => shard.event_done(index),
                            Err(error) => complete_without_event(inner, shard, index, *stream, &error),
                        }
                    }
                }
                Err(error) => complete_without_event(inner, shard, index, *stream, &error),
            }
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
        self.count.fetch_add(1, Ordering::Release);
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

    /// Waits for every outstanding event and completes its free. After a failure the rest stays outstanding.
    pub(super) fn wait(&self, device: &dyn Device) -> Result<(), DeviceError> {
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
            self.count.store(0, Ordering::Release);
            drop(forgotten);
        }
    }

    fn complete(&self, device: &dyn Device, done: impl IntoIterator<Item = PendingFree>) {
        for PendingFree { event, shard, index } in done {
            device.release_event(event);
            shard.event_done(index);
            self.count.fetch_sub(1, Ordering::Release);
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
