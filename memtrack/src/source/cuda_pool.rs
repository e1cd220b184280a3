//! The driver's own memory pools, from which candle and all others take their memory that call `cuMemAllocAsync`.

#![allow(unsafe_code, reason = "a pool by its handle is a promise of who names it")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Exactness, MemorySource, SourceError, SourceReading};
use crate::device::{Cuda, Device as _};

/// A memory pool of the CUDA driver: bytes in use and reserved, with the peaks of both.
///
/// The driver counts to the byte what was asked of it, whoever asked; bytes fall when a free is asked for
/// (`cuMemFreeAsync`), not when its stream comes to it. What is taken by `cuMemAlloc`, by cuBLAS for its workspace, and for the context
/// and modules is in no pool. Reserved bytes grow in steps of the driver's, and their peak counts a refused attempt too.
///
/// The driver keeps one high-water mark for each, which this source sets back wherever a scope begins or ends: a program that resets
/// the marks itself, or two libraries that do, spoil each other's peaks, which the record then says where it can be told
/// ([`PeakKind::ResetElsewhere`](super::PeakKind::ResetElsewhere)). What another thread takes and gives back within the microsecond
/// between reading the mark and setting it back is in no peak. Several sources that read one pool share its mark and are each exact.
///
/// Whatever context is current on the calling thread stays so, but when the source is dropped, which leaves the device's current.
#[derive(Debug)]
pub struct CudaPoolSource {
    name: String,
    ordinal: usize,
    cuda: Cuda,
    which: Which,
}

#[derive(Debug)]
enum Which {
    /// One that stays.
    Fixed(u64),
    /// Whichever is current; the one that was last.
    Current(AtomicU64),
}

impl CudaPoolSource {
    /// The device's current pool, from which `cuMemAllocAsync` takes: that of candle, and of all who use cudarc. Named as
    /// `cuda:0 pool`.
    ///
    /// Where the program makes another pool current, scopes that are open say so
    /// ([`SourceError::PoolReplaced`]), and those that begin from then on measure the new one.
    ///
    /// # Errors
    ///
    /// [`SourceError::Unavailable`] without a driver or without this device; [`SourceError::NoPools`] where the driver has no pools;
    /// [`SourceError::Device`] when it refuses.
    pub fn current(ordinal: usize) -> Result<Self, SourceError> {
        Self::open(ordinal, "pool", |cuda| Ok(Which::Current(AtomicU64::new(cuda.current_pool()?))))
    }

    /// The device's default pool, which is current unless the program changed that. Named as `cuda:0 default pool`.
    ///
    /// # Errors
    ///
    /// As [`current`](Self::current).
    pub fn default_pool(ordinal: usize) -> Result<Self, SourceError> {
        Self::open(ordinal, "default pool", |cuda| Ok(Which::Fixed(cuda.default_pool()?)))
    }

    /// A pool by its handle, a `CUmemoryPool` as a number. Named by it.
    ///
    /// # Safety
    ///
    /// The pool is one of this device's, and is not destroyed while this source lives.
    ///
    /// # Errors
    ///
    /// As [`current`](Self::current).
    pub unsafe fn from_handle(ordinal: usize, handle: u64) -> Result<Self, SourceError> {
        Self::open(ordinal, &format!("pool {handle:#x}"), |_| Ok(Which::Fixed(handle)))
    }

    /// The same under another name.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    fn open(
        ordinal: usize,
        what: &str,
        find: impl FnOnce(&Cuda) -> Result<Which, SourceError>,
    ) -> Result<Self, SourceError> {
        let cuda = Cuda::new_beside(ordinal)?;
        if cuda.stream_ordered_memory().is_none() {
            return Err(SourceError::NoPools { device: cuda.name().to_owned() });
        }
        let which = cuda.beside(find)?;
        Ok(Self { name: format!("{} {what}", cuda.name()), ordinal, cuda, which })
    }

    /// The pool to read.
    fn pool(&self) -> Result<u64, SourceError> {
        match &self.which {
            Which::Fixed(pool) => Ok(*pool),
            Which::Current(last) => {
                // Asked for each time: the last one may be gone.
                let pool = self.cuda.current_pool()?;
                if last.swap(pool, Ordering::Relaxed) == pool {
                    return Ok(pool);
                }
                Err(SourceError::PoolReplaced { device: self.cuda.name().to_owned() })
            }
        }
    }
}

impl MemorySource for CudaPoolSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> Option<u32> {
        u32::try_from(self.ordinal).ok()
    }

    fn exactness(&self) -> Exactness {
        Exactness::ExactProcessWide
    }

    fn read(&self) -> Result<SourceReading, SourceError> {
        let usage = self.cuda.beside(|cuda| {
            let pool = self.pool()?;
            // SAFETY: the device's default pool lives as long as the device, the current one was asked for just now, and of another one
            // who named it promised that it lives.
            unsafe { cuda.pool_usage(pool) }.map_err(SourceError::from)
        })?;
        Ok(SourceReading::new(usage.used_bytes)
            .with_peak(usage.used_high_bytes)
            .with_reserved(usage.reserved_bytes)
            .with_reserved_peak(usage.reserved_high_bytes))
    }

    fn reset_peak(&self) -> Result<(), SourceError> {
        self.cuda.beside(|cuda| {
            let pool = self.pool()?;
            // SAFETY: as above.
            Ok(unsafe { cuda.reset_pool_marks(pool) }?)
        })
    }

    fn mark(&self) -> Option<u64> {
        Some(match &self.which {
            Which::Fixed(pool) => *pool,
            Which::Current(last) => last.load(Ordering::Relaxed),
        })
    }
}
