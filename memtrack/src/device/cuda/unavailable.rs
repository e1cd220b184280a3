//! Why there is no cuda device.

use crate::device::DeviceError;

/// Why [`Cuda::new`](super::Cuda::new) has no device to give. It never panics instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaUnavailable {
    /// No driver library opens under any name it goes by.
    #[error(
        "no CUDA driver library; the loader said: {}; install the NVIDIA driver, or name the library's folder in LD_LIBRARY_PATH (PATH on Windows)",
        tried.join("; ")
    )]
    NoLibrary {
        /// Each name tried, with the loader's message.
        tried: Vec<String>,
    },
    /// The driver library is there and sees no GPU.
    #[error(
        "the CUDA driver library {library} sees no GPU: {call} said {answer}; see what nvidia-smi lists, and CUDA_VISIBLE_DEVICES"
    )]
    NoDevice {
        /// The name the library was found under.
        library: String,
        /// The driver call that said so.
        call: &'static str,
        /// Its answer, in words.
        answer: String,
    },
    /// There are GPUs, not this one.
    #[error(
        "no device cuda:{ordinal}: the CUDA driver numbers {count} from 0, those that CUDA_VISIBLE_DEVICES lets through"
    )]
    NoSuchDevice {
        /// The device asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The driver library lacks a function this device calls.
    #[error("the CUDA driver library {library} has no function {symbol} ({message}); update the NVIDIA driver")]
    MissingSymbol {
        /// The name the library was found under.
        library: String,
        /// The function.
        symbol: &'static str,
        /// What the loader said.
        message: String,
    },
    /// The driver refused a call that opens the device.
    #[error(transparent)]
    Driver(#[from] DeviceError),
    /// cudarc panicked, which means that it found another driver library than the one checked here.
    #[error("the CUDA bindings panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}
