//! Where a scenario takes memory: from PyTorch's allocator, or from an imitation of it on a machine without a GPU.

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memtrack::source::{Exactness, MemorySource, SourceError, SourceReading};
use tch::{Device, Kind, Tensor};

/// What scenarios need of an allocator.
pub(crate) trait Memory {
    /// Memory, given back when it is dropped.
    type Piece;

    fn take(&self, bytes: i64) -> Result<Self::Piece, String>;
    fn empty_cache(&self) -> Result<(), String>;
}

/// PyTorch's, by tensors of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Torch(pub(crate) Device);

impl Memory for Torch {
    type Piece = Tensor;

    fn take(&self, bytes: i64) -> Result<Tensor, String> {
        Tensor::f_empty([bytes], (Kind::Uint8, self.0)).map_err(|error| error.to_string())
    }

    fn empty_cache(&self) -> Result<(), String> {
        memtrack_tch::empty_cache().map_err(|error| error.to_string())
    }
}

/// Counts as PyTorch's allocator does, without bytes: pieces that are given back are cached, and fit requests of their own size only.
/// It tries Python's half of the proof where there is no GPU, and proves nothing of PyTorch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Imitation;

#[derive(Debug)]
pub(crate) struct Counters {
    allocated: i64,
    allocated_peak: i64,
    reserved: i64,
    reserved_peak: i64,
    retries: i64,
    ooms: i64,
    limit: i64,
    cached: Vec<i64>,
}

static IMITATION: Mutex<Counters> = Mutex::new(Counters {
    allocated: 0,
    allocated_peak: 0,
    reserved: 0,
    reserved_peak: 0,
    retries: 0,
    ooms: 0,
    limit: i64::MAX,
    cached: Vec::new(),
});

/// The process's.
pub(crate) fn imitation() -> MutexGuard<'static, Counters> {
    IMITATION.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counters {
    pub(crate) fn figures(&self) -> [i64; 6] {
        [self.allocated, self.allocated_peak, self.reserved, self.reserved_peak, self.retries, self.ooms]
    }

    pub(crate) fn reset_peak(&mut self) {
        self.allocated_peak = self.allocated;
        self.reserved_peak = self.reserved;
    }

    pub(crate) fn set_limit(&mut self, limit: i64) {
        self.limit = limit;
    }

    fn take(&mut self, bytes: i64) -> Result<(), String> {
        if let Some(position) = self.cached.iter().position(|&cached| cached == bytes) {
            self.cached.swap_remove(position);
        } else {
            if self.reserved + bytes > self.limit {
                self.retries += 1;
                self.empty_cache();
            }
            if self.reserved + bytes > self.limit {
                self.ooms += 1;
                return Err("the imitation is out of memory".to_owned());
            }
            self.reserved += bytes;
            self.reserved_peak = self.reserved_peak.max(self.reserved);
        }
        self.allocated += bytes;
        self.allocated_peak = self.allocated_peak.max(self.allocated);
        Ok(())
    }

    fn empty_cache(&mut self) {
        self.reserved -= self.cached.drain(..).sum::<i64>();
    }
}

/// Bytes of the imitation's.
#[derive(Debug)]
pub(crate) struct Imitated(i64);

impl Drop for Imitated {
    fn drop(&mut self) {
        let mut counters = imitation();
        counters.allocated -= self.0;
        counters.cached.push(self.0);
    }
}

impl Memory for Imitation {
    type Piece = Imitated;

    fn take(&self, bytes: i64) -> Result<Imitated, String> {
        imitation().take(bytes)?;
        Ok(Imitated(bytes))
    }

    fn empty_cache(&self) -> Result<(), String> {
        imitation().empty_cache();
        Ok(())
    }
}

impl MemorySource for Imitation {
    fn name(&self) -> &str {
        "imitation"
    }

    fn exactness(&self) -> Exactness {
        Exactness::ExactProcessWide
    }

    fn read(&self) -> Result<SourceReading, SourceError> {
        let [allocated, allocated_peak, reserved, reserved_peak, retries, ooms] =
            imitation().figures().map(|figure| u64::try_from(figure).unwrap_or(0));
        let reading = SourceReading::new(allocated).with_peak(allocated_peak);
        Ok(reading.with_reserved(reserved).with_reserved_peak(reserved_peak).with_retries(retries).with_ooms(ooms))
    }

    fn reset_peak(&self) -> Result<(), SourceError> {
        imitation().reset_peak();
        Ok(())
    }
}
