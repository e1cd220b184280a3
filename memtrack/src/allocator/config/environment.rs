//! The environment variables, memtrack's and PyTorch's.

use std::env::VarError;
use std::fmt;

use super::{Config, ConfigError, InvalidSetting, TorchConfigError};

/// The environment variable that [`Config::from_env`] reads.
pub const ENVIRONMENT_VARIABLE: &str = "MEMTRACK_ALLOC_CONF";

/// PyTorch's, in the order in which it looks for them.
const TORCH_VARIABLES: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// Why the environment gave no configuration.
///
/// Its `Debug` text is the message too, since that is what a `main` that returns it prints.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// The text is wrong.
    #[error("{ENVIRONMENT_VARIABLE}: {0}")]
    Config(#[from] ConfigError),
    /// The text is right, but not for this device.
    #[error("{ENVIRONMENT_VARIABLE}: {0}")]
    Setting(#[from] InvalidSetting),
    /// The value is not Unicode.
    #[error("{ENVIRONMENT_VARIABLE} is not Unicode text; write key:value pairs separated by commas")]
    NotUnicode,
}

impl fmt::Debug for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why one of PyTorch's environment variables gave no configuration.
///
/// Its `Debug` text is the message too.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {error}")]
#[non_exhaustive]
pub struct TorchEnvironmentError {
    /// The variable that was read.
    pub variable: &'static str,
    /// What PyTorch says to its text.
    pub error: TorchConfigError,
}

impl fmt::Debug for TorchEnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Config {
    /// Reads `MEMTRACK_ALLOC_CONF`; the default when it is not set or empty.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError`] when the text is malformed.
    pub fn from_env() -> Result<Self, EnvironmentError> {
        match std::env::var(ENVIRONMENT_VARIABLE) {
            Ok(text) => Ok(text.parse()?),
            Err(VarError::NotPresent) => Ok(Self::default()),
            Err(VarError::NotUnicode(_)) => Err(EnvironmentError::NotUnicode),
        }
    }

    /// Reads PyTorch's variables as PyTorch 2.11 does: of `PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF` and
    /// `PYTORCH_ALLOC_CONF` the first that is set, empty or not, by the rules of [`from_torch`](Self::from_torch). The default
    /// when none is. (`PYTORCH_NO_CUDA_MEMORY_CACHING` is not looked at.)
    ///
    /// What is not Unicode in the text is read as the replacement character, which is no part of any key or number.
    ///
    /// # Errors
    ///
    /// [`TorchEnvironmentError`] where PyTorch raises.
    pub fn from_torch_env() -> Result<Self, TorchEnvironmentError> {
        let set = TORCH_VARIABLES.into_iter().find_map(|variable| Some((variable, std::env::var_os(variable)?)));
        let Some((variable, text)) = set else { return Ok(Self::default()) };
        Self::from_torch(&text.to_string_lossy()).map_err(|error| TorchEnvironmentError { variable, error })
    }
}
