//! Why PyTorch's figures cannot be had.

use memtrack::source::SourceError;

/// Why PyTorch's allocator could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TorchError {
    /// PyTorch has no GPU: a libtorch for the CPU, no driver, or none visible.
    #[error(
        "PyTorch sees no CUDA device: a GPU with its driver is needed, a libtorch with CUDA, and one in CUDA_VISIBLE_DEVICES if that is set"
    )]
    NoCuda,
    /// There is no such device.
    #[error("PyTorch has no device cuda:{ordinal}; it sees {device_count}, and counts from 0")]
    OutOfRange {
        /// The device asked for.
        ordinal: usize,
        /// How many there are.
        device_count: usize,
    },
    /// PyTorch has not made its allocator yet, which it does with the first tensor on a GPU.
    #[error(
        "PyTorch's allocator is not made yet for cuda:{ordinal}: call memtrack_tch::initialize(), or make a tensor on a GPU first"
    )]
    NotInitialized {
        /// The device asked for.
        ordinal: usize,
    },
    /// Another allocator stands in the place of PyTorch's own, and keeps no statistics.
    #[error("PyTorch's allocator is the backend `{backend}`, which keeps no statistics")]
    NoStatistics {
        /// The name that the allocator gives itself.
        backend: String,
    },
    /// PyTorch asks the driver for each tensor, and counts nothing.
    #[error(
        "PyTorch's caching is switched off, and with it its statistics: unset PYTORCH_NO_CUDA_MEMORY_CACHING, or switch the allocator on"
    )]
    Uncached,
    /// A call threw an exception.
    #[error("{call} of PyTorch's allocator failed: {message}")]
    Threw {
        /// The function.
        call: &'static str,
        /// The exception's text, without its backtrace.
        message: String,
    },
    /// This program was built without libtorch.
    #[error("this program was built with the feature `doc-only`, without libtorch; build it without that feature")]
    NotLinked,
}

impl From<TorchError> for SourceError {
    fn from(error: TorchError) -> Self {
        Self::new(error.to_string())
    }
}
