//! What can end a run early.

use std::io;
use std::path::PathBuf;

use memtrack::units::Bytes;
use memtrack_examples::digits::DigitsError;

use crate::logging::LogFilterError;

/// Why training stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TrainError {
    /// The allocator refused: out of memory first of all, with its whole account of where memory went.
    #[error(transparent)]
    Allocation(#[from] memtrack::AllocationError),
    /// `MEMTRACK_ALLOC_CONF` is malformed.
    #[error(transparent)]
    Configuration(#[from] memtrack::EnvironmentError),
    /// `RUST_LOG` is malformed.
    #[error(transparent)]
    LogFilter(#[from] LogFilterError),
    /// No GPU where one was asked for.
    #[error(transparent)]
    CudaUnavailable(#[from] memtrack::device::CudaUnavailable),
    /// cuBLAS or nvrtc is not installed, not where the loader looks, or not a library.
    #[error(
        "{library} cannot be loaded: {tried}; install the CUDA toolkit or add its folder to LD_LIBRARY_PATH, or train \
         with `--device cpu`"
    )]
    MissingLibrary {
        /// The library.
        library: &'static str,
        /// The file names tried and what the loader said.
        tried: String,
    },
    /// What opened under a library's name lacks a function of it.
    #[error(
        "{library} has no function {function} ({message}); install the CUDA toolkit or add its folder to \
         LD_LIBRARY_PATH before others, or train with `--device cpu`"
    )]
    MissingFunction {
        /// The library.
        library: &'static str,
        /// The function.
        function: &'static str,
        /// What the loader said.
        message: String,
    },
    /// cudarc panicked while the kernels were made.
    #[error("the CUDA bindings panicked: {message}; train with `--device cpu`")]
    BindingsPanicked {
        /// The panic's message.
        message: String,
    },
    /// The CUDA driver refused to load or launch a kernel.
    #[error("the CUDA driver failed: {0}")]
    Driver(#[from] cudarc::driver::DriverError),
    /// cuBLAS refused.
    #[error("cuBLAS failed: {0}")]
    Blas(#[from] cudarc::cublas::result::CublasError),
    /// The kernels do not compile on this CUDA version.
    #[error("nvrtc cannot compile the kernels: {0}")]
    Compile(#[from] cudarc::nvrtc::CompileError),
    /// `--capacity` is more than there is.
    #[error(
        "`--capacity` {} ({capacity_bytes} bytes) is more than {device} has, {} ({total_bytes} bytes); give at most \
         that, or leave it out to have it all",
        Bytes::unsigned(*capacity_bytes),
        Bytes::unsigned(*total_bytes)
    )]
    Capacity {
        /// The device's name.
        device: String,
        /// As given.
        capacity_bytes: u64,
        /// What the device has; of the host, the machine's memory.
        total_bytes: u64,
    },
    /// The data are damaged.
    #[error(transparent)]
    Digits(#[from] DigitsError),
    /// Training ran away.
    #[error("the loss became {loss} in epoch {epoch}, step {step}; use a smaller `--learning-rate`")]
    Diverged {
        /// Not a number, or infinite.
        loss: f64,
        /// Counted from 1.
        epoch: u64,
        /// Counted from 1.
        step: u64,
    },
    /// The file for losses cannot be created.
    #[error("`--losses {}` cannot be created: {source}; name a file in a folder that exists", path.display())]
    CreateLosses {
        /// As given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file for losses takes no more.
    #[error("`--losses {}` cannot be written: {source}; name a file on a device with room", path.display())]
    WriteLosses {
        /// As given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The snapshot cannot be written.
    #[error("`--snapshot {}`: {source}; name a file in a folder that exists, on a device with room", path.display())]
    WriteSnapshot {
        /// As given.
        path: PathBuf,
        /// What the writer said.
        source: memtrack::history::WriteError,
    },
    /// Standard output takes no more.
    #[error("the output cannot be written: {0}")]
    WriteOutput(#[source] io::Error),
    /// `--sample` needs a thread.
    #[error("the device's memory cannot be sampled: {0}")]
    StartSampler(#[source] io::Error),
}

impl TrainError {
    /// 2 for a bad value of an option or variable, 1 for everything else.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Configuration(_) | Self::CreateLosses { .. } | Self::Capacity { .. } | Self::LogFilter(_) => 2,
            _ => 1,
        }
    }
}
