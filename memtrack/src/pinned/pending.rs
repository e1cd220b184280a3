//! Blocks that came back while streams still used them.
//!
//! They wait in one queue, in the order in which they came back. It is looked at from its front, and one block whose stream
//! is not done holds up those behind it, as in PyTorch: nearly always one stream copies, so there is nobody to hold up.

use std::collections::VecDeque;

use super::block::Block;
use crate::device::{Device, DeviceError, Event, Stream};

/// A block, and the streams' ends of use that it waits for.
#[derive(Debug)]
pub(super) struct PendingBlock {
    pub(super) block: Block,
    pub(super) ends: VecDeque<(Stream, Event)>,
}

impl PendingBlock {
    /// Takes off the ends that have come. Whether all have.
    fn poll(&mut self, device: &dyn Device) -> Result<bool, DeviceError> {
        while let Some((_, event)) = self.ends.front() {
            if !device.query_event(event)? {
                return Ok(false);
            }
            self.ends.pop_front().into_iter().for_each(|(_, event)| device.release_event(event));
        }
        Ok(true)
    }
}

#[derive(Debug, Default)]
pub(super) struct PendingBlocks {
    queue: VecDeque<PendingBlock>,
}

impl PendingBlocks {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, pending: PendingBlock) {
        self.queue.push_back(pending);
    }

    /// The first block, if its streams are done with it. Never waits.
    pub(super) fn poll(&mut self, device: &dyn Device) -> Result<Option<Block>, DeviceError> {
        let Some(front) = self.queue.front_mut() else { return Ok(None) };
        let is_done = front.poll(device)?;
        Ok(is_done.then(|| self.queue.pop_front()).flatten().map(|pending| pending.block))
    }

    /// The streams that blocks wait for.
    pub(super) fn streams(&self) -> Vec<Stream> {
        let mut streams: Vec<Stream> =
            self.queue.iter().flat_map(|pending| &pending.ends).map(|(stream, _)| *stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// Everything that waits, for who waits with it.
    pub(super) fn take_all(&mut self) -> Vec<PendingBlock> {
        std::mem::take(&mut self.queue).into()
    }
}

/// Waits until a stream has come to an end of use; where that fails, for the stream, and for the device.
///
/// The event is given back in any case.
pub(super) fn wait_for_end(device: &dyn Device, stream: Stream, event: Option<Event>) -> Result<(), DeviceError> {
    let waited = event.map(|event| {
        let waited = device.wait_event(&event);
        device.release_event(event);
        waited
    });
    match waited {
        Some(Ok(())) => Ok(()),
        _ => device.synchronize_stream(stream).or_else(|_| device.synchronize()),
    }
}
