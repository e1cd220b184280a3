//! What PyTorch says to a settings text that it does not accept.

use std::fmt;

use super::MAX_REGISTER_THREADS;

/// What PyTorch raises in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TorchException {
    /// `ValueError`.
    ValueError,
    /// `RuntimeError`.
    RuntimeError,
    /// `IndexError`.
    IndexError,
}

impl fmt::Display for TorchException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ValueError => "ValueError",
            Self::RuntimeError => "RuntimeError",
            Self::IndexError => "IndexError",
        })
    }
}

/// Which of PyTorch's two parsers found a key it does not know. At the start it is the one for CUDA, since that one reads the
/// environment first; at run time the one for all accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TorchParser {
    /// The settings of all accelerators.
    Accelerator,
    /// The settings of CUDA alone.
    Cuda,
}

impl fmt::Display for TorchParser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Accelerator => "Accelerator",
            Self::Cuda => "CUDA",
        })
    }
}

/// Why PyTorch 2.11 refuses a settings text.
///
/// The message begins with PyTorch's; what follows it in parentheses is memtrack's. For its internal assertions that is the
/// sentence of the assertion, without the place in PyTorch's source that PyTorch puts before it. Words are counted from 0, `,`
/// `:` `[` `]` each being one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TorchConfigError {
    /// A key that PyTorch 2.11 does not know, or a word where it expects one.
    #[error("Unrecognized key '{key}' in {parser} allocator config.")]
    UnrecognizedKey {
        /// The word.
        key: String,
        /// Which half of PyTorch found it.
        parser: TorchParser,
    },
    /// The text ends where a separator or a value must follow.
    #[error("INTERNAL ASSERT FAILED: Index out of bounds in ConfigTokenizer (the text ends before word {index})")]
    IndexOutOfBounds {
        /// The word that is missing.
        index: usize,
    },
    /// A list without its closing bracket.
    #[error("INTERNAL ASSERT FAILED: Expected closing bracket ']' in ConfigTokenizer but reached end of config")]
    UnclosedList,
    /// Neither `True` nor `False`.
    #[error("Expected 'True' or 'False' at index {index} in ConfigTokenizer but got '{token}'")]
    NotABoolean {
        /// Which word.
        index: usize,
        /// The word.
        token: String,
    },
    /// A word that does not begin with a number.
    #[error("{function} (word {index}, `{token}`, is not a number)")]
    NotANumber {
        /// The C function that PyTorch reads it with; its name is all that PyTorch says.
        function: &'static str,
        /// Which word.
        index: usize,
        /// The word.
        token: String,
    },
    /// A number that does not fit.
    #[error("{function} (word {index}, `{token}`, is out of range)")]
    OutOfRange {
        /// The C function that PyTorch reads it with; its name is all that PyTorch says.
        function: &'static str,
        /// Which word.
        index: usize,
        /// The word.
        token: String,
    },
    /// `large_segment_size_mb` is not above 10.
    #[error("CachingAllocator option large_segment_size_mb must be > 10 MB (it is {given_mb})")]
    LargeSegmentTooSmall {
        /// As given, in MiB.
        given_mb: u64,
    },
    /// A size below the large segment size.
    #[error(
        "CachingAllocator option {key} too small, must be >= {least_mb} (the large segment size; it is {given_mb})"
    )]
    TooSmall {
        /// The key.
        key: &'static str,
        /// As given, in MiB.
        given_mb: u64,
        /// The least that is accepted, in MiB.
        least_mb: u64,
    },
    /// `garbage_collection_threshold` is not between 0 and 1.
    #[error("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")]
    InvalidThreshold,
    /// `per_process_memory_fraction` is not from 0 to 1.
    #[error("per_process_memory_fraction is invalid, set it in [0.0, 1.0]")]
    InvalidFraction,
    /// Divisions for all sizes that are no power of two.
    #[error("For roundups, the divisions has to be power of 2 (they are {given}; leave the key out for no rounding)")]
    Divisions {
        /// As given.
        given: u64,
    },
    /// Divisions in a list that are neither 0 nor a power of two.
    #[error("For roundups, the divisions has to be power of 2 or 0 to disable roundup (they are {given})")]
    ListedDivisions {
        /// As given.
        given: u64,
    },
    /// A size in a list that is no power of two.
    #[error("For roundups, the intervals have to be power of 2 (one begins at {given})")]
    Interval {
        /// As given, in MiB.
        given: u64,
    },
    /// No backend of this name.
    #[error("Unknown allocator backend, options are native and cudaMallocAsync (it is `{given}`)")]
    UnknownBackend {
        /// As given.
        given: String,
    },
    /// Another backend than the one in use.
    #[error(
        "INTERNAL ASSERT FAILED: Allocator backend parsed at runtime != allocator backend parsed at load time, {given} != {in_use} (the backend cannot be changed)"
    )]
    BackendChanged {
        /// As given.
        given: super::Backend,
        /// The one in use.
        in_use: super::Backend,
    },
    /// `pinned_num_register_threads` is no power of two.
    #[error("Number of register threads has to be power of 2, got {given}")]
    RegisterThreads {
        /// As given.
        given: u64,
    },
    /// `pinned_num_register_threads` is above 128.
    #[error("Number of register threads should be less than or equal to {MAX_REGISTER_THREADS}, got {given}")]
    TooManyRegisterThreads {
        /// As given.
        given: u64,
    },
    /// `pinned_reserve_segment_size_mb` is 0.
    #[error("Pinned reserve segment size has to be greater than 0")]
    EmptyReserveSegment,
}

impl TorchConfigError {
    /// What PyTorch raises for it in Python.
    pub fn exception(&self) -> TorchException {
        match self {
            Self::IndexOutOfBounds { .. } | Self::UnclosedList | Self::BackendChanged { .. } => {
                TorchException::RuntimeError
            }
            Self::OutOfRange { .. } => TorchException::IndexError,
            _ => TorchException::ValueError,
        }
    }
}
