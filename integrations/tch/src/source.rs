//! PyTorch's allocator as a source of memtrack's.

use memtrack::source::{Exactness, MemorySource, SourceError, SourceReading};

use crate::error::TorchError;
use crate::shim::{self, Allocator, Libtorch};
use crate::statistics::{Backend, TorchStatistics};

/// What PyTorch's caching allocator holds of one device, for [`register_source`](memtrack::source::register_source).
///
/// The figures are those of `torch.cuda.memory_stats`, read from the same functions under the allocator's own lock, and exact: bytes in
/// tensors ([`TorchStatistics`]) and reserved, the peaks of both, retries and out of memory errors. They are of the whole process, all
/// threads and streams, also of Python in the same process.
///
/// - What libraries take beside the allocator is not in them: the CUDA context, modules, NCCL. cuBLAS's workspace is, for PyTorch gives
///   it one.
/// - memtrack sets PyTorch's peaks back wherever a scope begins or ends. `torch.cuda.max_memory_allocated` of a program that also reads
///   that counts from there on; a program that resets the peaks itself makes memtrack's lower bounds
///   ([`PeakKind::ResetElsewhere`](memtrack::source::PeakKind::ResetElsewhere)).
/// - A tensor is out of the bytes when it is dropped, though the GPU may still work with it.
/// - With `PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync` the figures are the driver's of its default pool ([`Backend`]).
#[derive(Debug)]
pub struct TorchSource {
    name: String,
    ordinal: usize,
    backend: Backend,
    allocator: Box<dyn Allocator>,
}

impl TorchSource {
    /// The allocator of the device of this number, in the order in which PyTorch counts devices. Named as `cuda:0 torch`.
    ///
    /// # Errors
    ///
    /// [`TorchError::NoCuda`] and [`TorchError::OutOfRange`] where there is no such device; [`TorchError::NotInitialized`] before
    /// [`initialize`] or the first tensor on a GPU; [`TorchError::NoStatistics`] and [`TorchError::Uncached`] where nothing is counted.
    pub fn new(ordinal: usize) -> Result<Self, TorchError> {
        Self::open(ordinal, Box::new(Libtorch))
    }

    fn open(ordinal: usize, allocator: Box<dyn Allocator>) -> Result<Self, TorchError> {
        let backend = allocator.backend()?;
        let name = format!("cuda:{ordinal} torch");
        let source = Self { name, ordinal, backend, allocator };
        source.statistics()?;
        Ok(source)
    }

    /// The same under another name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Who stands behind PyTorch's tensors.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// What the allocator holds now, with the number of its retries and out of memory errors. Takes the allocator's lock; PyTorch
    /// copies all of its counters, about a hundred.
    ///
    /// # Errors
    ///
    /// As [`TorchSource::new`], and [`TorchError::Threw`] where PyTorch's function throws.
    pub fn statistics(&self) -> Result<TorchStatistics, TorchError> {
        let figures = self.allocator.read(self.ordinal).map_err(|error| self.explained(error))?;
        Ok(TorchStatistics::new(&figures, &self.backend))
    }

    /// A plugged-in allocator throws where it is asked for statistics, as it must: it has none.
    fn explained(&self, error: TorchError) -> TorchError {
        match (&self.backend, error) {
            (Backend::Other(name), TorchError::Threw { .. }) => TorchError::NoStatistics { backend: name.clone() },
            (_, error) => error,
        }
    }
}

impl MemorySource for TorchSource {
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
        Ok(self.statistics()?.reading())
    }

    fn mark(&self) -> Option<u64> {
        // PyTorch keeps one for each device; the letters are there to be nobody else's.
        Some(u64::from_be_bytes(*b"torch\0\0\0") | u64::try_from(self.ordinal).ok()?)
    }

    fn reset_peak(&self) -> Result<(), SourceError> {
        Ok(self.allocator.reset_peak(self.ordinal).map_err(|error| self.explained(error))?)
    }
}

/// Has PyTorch look for GPUs and make its allocators, as it does itself with the first tensor on one. It takes no memory for tensors;
/// again, it does nothing.
///
/// # Errors
///
/// [`TorchError::NoCuda`] without a GPU, [`TorchError::Threw`] where PyTorch cannot.
pub fn initialize() -> Result<(), TorchError> {
    shim::initialize()
}

/// Gives cached memory of all devices back to the driver: `torch.cuda.empty_cache`. Waits for the GPUs.
///
/// # Errors
///
/// [`TorchError::NoCuda`] without a GPU, [`TorchError::NotInitialized`] before there is a cache, [`TorchError::Threw`] where PyTorch's
/// function throws.
pub fn empty_cache() -> Result<(), TorchError> {
    shim::empty_cache()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::statistics::Figures;

    /// An allocator of one device, with a mark that can be reset.
    #[derive(Debug)]
    struct Fake {
        name: &'static str,
        current: AtomicI64,
        peak: AtomicI64,
        answer: Mutex<Option<TorchError>>,
    }

    fn fake(name: &'static str, answer: Option<TorchError>) -> Arc<Fake> {
        let (current, peak) = (AtomicI64::new(1024), AtomicI64::new(4096));
        Arc::new(Fake { name, current, peak, answer: Mutex::new(answer) })
    }

    impl Allocator for Arc<Fake> {
        fn backend(&self) -> Result<Backend, TorchError> {
            Ok(Backend::named(self.name))
        }

        fn read(&self, ordinal: usize) -> Result<Figures, TorchError> {
            if ordinal > 0 {
                return Err(TorchError::OutOfRange { ordinal, device_count: 1 });
            }
            if let Some(error) = self.answer.lock().unwrap().clone() {
                return Err(error);
            }
            let (allocated, allocated_peak) = (self.current.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed));
            Ok(Figures { allocated, allocated_peak, reserved: 1 << 21, reserved_peak: 1 << 22, retries: 3, ooms: 1 })
        }

        fn reset_peak(&self, ordinal: usize) -> Result<(), TorchError> {
            self.peak.store(self.read(ordinal)?.allocated, Ordering::Relaxed);
            Ok(())
        }
    }

    fn open(ordinal: usize, allocator: Arc<Fake>) -> Result<TorchSource, TorchError> {
        TorchSource::open(ordinal, Box::new(allocator))
    }

    fn threw() -> TorchError {
        TorchError::Threw { call: "getDeviceStats", message: "does not yet support getDeviceStats".to_owned() }
    }

    #[test]
    fn a_reading_has_the_allocators_figures_and_a_reset_sets_the_peak_back() {
        let source = open(0, fake("native", None)).unwrap();
        assert_eq!((source.name(), source.device()), ("cuda:0 torch", Some(0)));
        let expected = SourceReading::new(1024).with_reserved(1 << 21).with_reserved_peak(1 << 22);
        let expected = expected.with_retries(3).with_ooms(1);
        assert_eq!(source.read(), Ok(expected.with_peak(4096)));
        source.reset_peak().unwrap();
        assert_eq!(source.read(), Ok(expected.with_peak(1024)));
        assert_eq!(source.exactness(), Exactness::ExactProcessWide);
    }

    #[test]
    fn a_source_is_not_made_where_it_could_not_be_read() {
        let out_of_range = TorchError::OutOfRange { ordinal: 1, device_count: 1 };
        assert_eq!(open(1, fake("native", None)).err(), Some(out_of_range));
        for error in [TorchError::NoCuda, TorchError::NotInitialized { ordinal: 0 }, TorchError::Uncached, threw()] {
            assert_eq!(open(0, fake("native", Some(error.clone()))).err(), Some(error));
        }
    }

    #[test]
    fn a_plugged_in_allocator_has_no_statistics_and_the_error_names_it() {
        let error = open(0, fake("pluggable", Some(threw()))).err();
        assert_eq!(error, Some(TorchError::NoStatistics { backend: "pluggable".to_owned() }));
    }

    #[test]
    fn figures_of_the_drivers_pool_come_without_counts() {
        let source = open(0, fake("cudaMallocAsync", None)).unwrap();
        assert_eq!(source.backend(), &Backend::CudaMallocAsync);
        let reading = source.read().unwrap();
        assert_eq!((reading.peak_bytes, reading.retry_count, reading.oom_count), (Some(4096), None, None));
    }

    #[test]
    fn an_error_in_the_middle_of_a_program_keeps_its_words() {
        let allocator = fake("native", None);
        let source = open(0, Arc::clone(&allocator)).unwrap();
        *allocator.answer.lock().unwrap() = Some(threw());
        let error = source.read().unwrap_err().to_string();
        assert_eq!(error, "getDeviceStats of PyTorch's allocator failed: does not yet support getDeviceStats");
    }

    #[cfg(feature = "doc-only")]
    #[test]
    fn without_libtorch_everything_says_so() {
        assert_eq!(TorchSource::new(0).err(), Some(TorchError::NotLinked));
        assert_eq!((initialize(), empty_cache()), (Err(TorchError::NotLinked), Err(TorchError::NotLinked)));
    }
}
