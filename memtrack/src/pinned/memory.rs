//! Taking memory for blocks and giving it back: the device's calls, each timed and counted. No lock is held over one, save
//! the reserve's own while its segment is taken.

use std::mem::ManuallyDrop;
use std::time::Instant;

use super::block::{Block, Memory};
use super::counters::Source;
use super::events;
use super::inner::Inner;
use super::registered;
use crate::device::DeviceError;

/// A block whose memory the device did not take back, and why.
#[derive(Debug)]
pub(super) struct NotTaken {
    pub(super) block: Block,
    pub(super) error: DeviceError,
}

fn micros_since(started: Instant) -> i64 {
    started.elapsed().as_micros().try_into().unwrap_or(i64::MAX)
}

impl Inner {
    /// New memory for a block of `size_bytes`: from the reserve segment while it has room, else from the device.
    pub(super) fn take_memory(&self, size_bytes: u64) -> Result<Block, DeviceError> {
        let (cut, refused) = self.reserve.cut(size_bytes, |bytes| {
            self.timed(|| self.pinned()?.allocate_pinned(bytes), Source::ReserveSegment, bytes)
        })?;
        if let Some(error) = refused {
            events::log_no_reserve(self, &error);
        }
        if let Some(address) = cut {
            self.state().counters.taken(Source::Reserve, size_bytes, 0);
            return Ok(Block { address, size_bytes, memory: Memory::Reserve });
        }
        if !self.config.use_host_register {
            let address = self.timed(|| self.pinned()?.allocate_pinned(size_bytes), Source::Device, size_bytes)?;
            return Ok(Block { address, size_bytes, memory: Memory::Allocated });
        }
        let (device, threads) = (self.device.name(), self.config.register_threads);
        let take = || registered::take(device, self.pinned()?, size_bytes, threads);
        let memory = self.timed(take, Source::Device, size_bytes)?;
        Ok(Block { address: memory.address(), size_bytes, memory: Memory::Registered(ManuallyDrop::new(memory)) })
    }

    fn timed<R>(
        &self,
        take: impl FnOnce() -> Result<R, DeviceError>,
        source: Source,
        bytes: u64,
    ) -> Result<R, DeviceError> {
        let started = Instant::now();
        let taken = take()?;
        let took_us = micros_since(started);
        self.state().counters.taken(source, bytes, took_us);
        Ok(taken)
    }

    /// Gives a block's memory back, or the block when the device does not take it.
    ///
    /// # Safety
    ///
    /// Nobody uses the block's memory any more: no slice of it is left, and the work that streams were given on it is done.
    pub(super) unsafe fn give_memory_back(&self, mut block: Block) -> Result<(), Box<NotTaken>> {
        let Block { address, size_bytes, .. } = block;
        let started = Instant::now();
        let given_back = self.pinned().and_then(|pinned| match &mut block.memory {
            // SAFETY: the block's own memory, whole, of which nobody makes use any more, as promised by the caller.
            Memory::Allocated => unsafe { pinned.release_pinned(address, size_bytes) },
            // SAFETY: taken for this block with this size, and as promised by the caller.
            Memory::Registered(memory) => unsafe { registered::give_back(pinned, memory, size_bytes) }.map(|()| {
                // SAFETY: unlocked in the line above, and not used after this, since the block goes too.
                unsafe { ManuallyDrop::drop(memory) };
            }),
            Memory::Reserve => {
                self.reserve.put_back(address, size_bytes);
                Ok(())
            }
        });
        match given_back {
            Ok(()) => {
                self.state().counters.given_back(block.memory.source(), size_bytes, micros_since(started));
                Ok(())
            }
            Err(error) => Err(Box::new(NotTaken { block, error })),
        }
    }

    /// Gives back what is not cut off the reserve segment, if that is all of it.
    pub(super) fn end_reserve(&self) -> Result<(), DeviceError> {
        let Some((address, bytes)) = self.reserve.end() else { return Ok(()) };
        let started = Instant::now();
        // SAFETY: the segment is whole: its blocks were all given back, of which nobody makes use any more.
        self.pinned().and_then(|pinned| unsafe { pinned.release_pinned(address, bytes) })?;
        self.state().counters.given_back(Source::ReserveSegment, bytes, micros_since(started));
        Ok(())
    }
}
