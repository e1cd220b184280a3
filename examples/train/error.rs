//! What can end a run early.

use std::io;
use std::path::PathBuf;

use memtrack_examples::digits::DigitsError;

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
    /// No GPU where one was asked for.
    #[error(transparent)]
    CudaUnavailable(#[from] memtrack::device::CudaUnavailable),
    /// cuBLAS or nvrtc is not installed, or not where the loader looks.
    #[error(
        "{library} cannot be loaded; looked for {}; install the CUDA toolkit or add its folder to LD_LIBRARY_PATH, or \
         train with `--device cpu`",
        names.join(", ")
    )]
    MissingLibrary {
        /// The library.
        library: &'static str,
        /// The file names tried.
        names: Vec<String>,
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
    /// Losses or summaries cannot be written any more.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

impl TrainError {
    /// 2 for a bad value of an option or variable, 1 for everything else.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Configuration(_) | Self::CreateLosses { .. } => 2,
            _ => 1,
        }
    }
}
