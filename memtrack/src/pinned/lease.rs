//! A block in the program's hands, with the streams that use it.

use std::sync::{Arc, Mutex};

use super::block::Block;
use super::capture::Pool;
use super::error::PinnedError;
use super::inner::Inner;
use super::uses::Uses;
use crate::device::{DeviceError, PinnedMemory, Stream};
use crate::sync::lock;

/// A block until it is dropped. It is given back with the uses that were not waited for.
#[derive(Debug)]
pub(super) struct Lease {
    inner: Arc<Inner>,
    /// `None` for the default pool.
    pool: Option<Arc<Pool>>,
    /// Taken out by the drop alone.
    block: Option<Block>,
    pub(super) address: u64,
    pub(super) size_bytes: u64,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    uses: Uses,
    /// The generation of the capture pool in which a stream used the block.
    used_in: Option<u64>,
    /// The generation in which a use was captured.
    captured_in: Option<u64>,
}

impl Lease {
    /// A block of at least `bytes` bytes, which is not zero.
    pub(super) fn new(inner: &Arc<Inner>, pool: Option<&Arc<Pool>>, bytes: u64) -> Result<Self, PinnedError> {
        let block = match pool {
            Some(pool) => pool.allocate(inner, bytes)?,
            None => inner.allocate(bytes)?,
        };
        let Block { address, size_bytes, .. } = block;
        let (inner, pool, block) = (Arc::clone(inner), pool.cloned(), Some(block));
        Ok(Self { inner, pool, block, address, size_bytes, record: Mutex::default() })
    }

    /// Waits for the uses that exclude the host: to write the block all of them, to read it those that write it. Other
    /// threads that ask meanwhile wait too.
    pub(super) fn wait(&self, writes: bool) -> Result<(), PinnedError> {
        let mut record = lock(&self.record);
        if self.is_captured(&record) {
            return Err(PinnedError::Captured);
        }
        Ok(record.uses.wait(&*self.inner.device, writes)?)
    }

    /// Whether [`wait`](Self::wait) for writing would not wait.
    pub(super) fn is_idle(&self) -> Result<bool, PinnedError> {
        let record = lock(&self.record);
        Ok(!self.is_captured(&record) && record.uses.are_over(&*self.inner.device)?)
    }

    fn is_captured(&self, record: &Record) -> bool {
        record.captured_in.is_some() && record.captured_in == self.pool.as_ref().map(|pool| pool.generation())
    }

    /// Notes that a stream is about to use the block. Whether the use is captured instead of done.
    fn note_use(&self, record: &mut Record, stream: Stream) -> Result<bool, PinnedError> {
        self.inner.device.check_stream(stream)?;
        let is_captured = self.inner.device.capture_id(stream)?.is_some();
        match &self.pool {
            None if is_captured => return Err(PinnedError::Capturing { stream }),
            None => {}
            Some(pool) => {
                record.used_in = Some(pool.generation());
                if is_captured {
                    record.captured_in = record.used_in;
                }
            }
        }
        Ok(is_captured)
    }

    /// Gives a stream `work` on the block, behind the uses on other streams that it must come after. Whatever comes of it,
    /// the stream counts as one that uses the block from then on.
    pub(super) fn with_stream(
        &self,
        stream: Stream,
        writes: bool,
        work: impl FnOnce(&dyn PinnedMemory) -> Result<(), DeviceError>,
    ) -> Result<(), PinnedError> {
        let device = &*self.inner.device;
        let pinned = self.inner.pinned()?;
        let mut record = lock(&self.record);
        let is_captured = self.note_use(&mut record, stream)?;
        if !is_captured {
            record.uses.order(device, stream, writes)?;
        } else if record.uses.before(stream, writes).next().is_some() {
            return Err(PinnedError::StillUsed { stream });
        }
        let done = work(pinned);
        if !is_captured {
            // Without an event, the stream's whole work is taken for the use.
            let event = device.record_event(stream).ok();
            record.uses.add(device, stream, event, writes);
        }
        Ok(done?)
    }

    /// Notes that a stream was or will be given work on the block by others: its whole work counts as a use that writes.
    pub(super) fn record_stream(&self, stream: Stream) -> Result<(), PinnedError> {
        let mut record = lock(&self.record);
        if !self.note_use(&mut record, stream)? {
            record.uses.add(&*self.inner.device, stream, None, true);
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let (uses, used_in) = {
            let mut record = lock(&self.record);
            (record.uses.take(), record.used_in)
        };
        match &self.pool {
            Some(pool) => pool.free(&self.inner, block, uses, used_in),
            None => self.inner.free(block, uses),
        }
    }
}
