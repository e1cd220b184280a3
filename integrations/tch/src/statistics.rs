//! PyTorch's figures, and what they are in which backend.

use std::fmt;

use memtrack::source::SourceReading;

/// Who stands behind PyTorch's CUDA tensors, decided by `PYTORCH_CUDA_ALLOC_CONF=backend:…` or by a program that plugs one in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// PyTorch's caching allocator, `native`: every figure is its own, and exact.
    Native,
    /// `cudaMallocAsync`: bytes in use and reserved are those of the driver's default pool, with its high-water marks, and count whatever
    /// else the process takes from that pool. Retries and out of memory errors are not counted.
    CudaMallocAsync,
    /// Another one, by the name that it gives itself: a plugged-in allocator is `pluggable`, and keeps no statistics.
    Other(String),
}

impl Backend {
    /// By the name that the allocator gives itself.
    #[cfg_attr(all(feature = "doc-only", not(test)), allow(dead_code, reason = "nobody tells it without libtorch"))]
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "native" => Self::Native,
            "cudaMallocAsync" => Self::CudaMallocAsync,
            other => Self::Other(other.to_owned()),
        }
    }

    /// As PyTorch calls it: `torch.cuda.get_allocator_backend()`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Native => "native",
            Self::CudaMallocAsync => "cudaMallocAsync",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What PyTorch's allocator holds of one device, in bytes as it counts them: requests rounded up, to 512 at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TorchStatistics {
    /// In tensors now: `allocated_bytes.all.current`.
    pub allocated_bytes: u64,
    /// The most of them at once since the peaks were last reset: `allocated_bytes.all.peak`.
    pub allocated_peak_bytes: u64,
    /// Taken from the driver, in tensors or cached: `reserved_bytes.all.current`.
    pub reserved_bytes: u64,
    /// The most of them since the last reset: `reserved_bytes.all.peak`.
    pub reserved_peak_bytes: u64,
    /// Allocations that the driver refused, upon which cached memory was given back and the driver asked again, since the program began:
    /// `num_alloc_retries`. `None` where the backend does not count them.
    pub retry_count: Option<u64>,
    /// Allocations that ran out of memory, since the program began: `num_ooms`. `None` where the backend does not count them.
    pub oom_count: Option<u64>,
}

/// The same as PyTorch has them, in its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct Figures {
    pub(crate) allocated: i64,
    pub(crate) allocated_peak: i64,
    pub(crate) reserved: i64,
    pub(crate) reserved_peak: i64,
    pub(crate) retries: i64,
    pub(crate) ooms: i64,
}

impl TorchStatistics {
    pub(crate) fn new(figures: &Figures, backend: &Backend) -> Self {
        let is_counted = *backend == Backend::Native;
        let count = |count| is_counted.then(|| unsigned(count));
        Self {
            allocated_bytes: unsigned(figures.allocated),
            allocated_peak_bytes: unsigned(figures.allocated_peak),
            reserved_bytes: unsigned(figures.reserved),
            reserved_peak_bytes: unsigned(figures.reserved_peak),
            retry_count: count(figures.retries),
            oom_count: count(figures.ooms),
        }
    }

    pub(crate) fn reading(&self) -> SourceReading {
        let mut reading = SourceReading::new(self.allocated_bytes)
            .with_peak(self.allocated_peak_bytes)
            .with_reserved(self.reserved_bytes)
            .with_reserved_peak(self.reserved_peak_bytes);
        reading.retry_count = self.retry_count;
        reading.oom_count = self.oom_count;
        reading
    }
}

/// PyTorch's counters are signed, and never below zero.
fn unsigned(figure: i64) -> u64 {
    u64::try_from(figure).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: Figures =
        Figures { allocated: 1, allocated_peak: 2, reserved: 3, reserved_peak: 4, retries: 5, ooms: 6 };

    #[test]
    fn each_figure_comes_to_its_own_place() {
        let reading = TorchStatistics::new(&FIGURES, &Backend::Native).reading();
        let expected = SourceReading::new(1).with_peak(2).with_reserved(3).with_reserved_peak(4);
        assert_eq!(reading, expected.with_retries(5).with_ooms(6));
    }

    #[test]
    fn counts_that_a_backend_does_not_keep_are_absent_and_not_zero() {
        for backend in [Backend::CudaMallocAsync, Backend::Other("pluggable".to_owned())] {
            let statistics = TorchStatistics::new(&FIGURES, &backend);
            assert_eq!((statistics.retry_count, statistics.oom_count), (None, None), "{backend}");
            assert_eq!(statistics.allocated_peak_bytes, 2);
        }
    }

    #[test]
    fn a_backend_keeps_its_name() {
        for name in ["native", "cudaMallocAsync", "pluggable"] {
            assert_eq!(Backend::named(name).to_string(), name);
        }
        assert_eq!(Backend::named("native"), Backend::Native);
        assert_eq!(Backend::named("cudaMallocAsync"), Backend::CudaMallocAsync);
    }
}
