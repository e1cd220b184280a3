//! Why a source has no figures.

use crate::device::DeviceError;

/// Why a source could not be opened, registered, read or reset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// What the source itself says.
    #[error("{message}")]
    Failed {
        /// In its words, with what to do about it.
        message: String,
    },
    /// There is no GPU to read.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Unavailable(#[from] crate::device::CudaUnavailable),
    /// The driver refused a call.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device's driver has no memory pools.
    #[error("{device} has no memory pools; its frameworks allocate by cuMemAlloc, which no pool counts")]
    NoPools {
        /// The device's name.
        device: String,
    },
    /// The program made another pool the device's current one. This ends the figures of all scopes that are open, also of those
    /// around the one that notices it.
    #[error("the current memory pool of {device} was replaced meanwhile; from here on the new one is read")]
    PoolReplaced {
        /// The device's name.
        device: String,
    },
    /// A source of this name is registered already, and records tell sources apart by name.
    #[error("a source named `{name}` is registered already; unregister it first, or give this one another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The source panicked.
    #[error("the source panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The source was unregistered while a scope was open.
    #[error("the source was unregistered before the scope ended")]
    Unregistered,
}

impl SourceError {
    /// An error in a source's own words.
    pub fn new(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into() }
    }

    /// Whether readings before and after it have nothing to do with each other.
    pub(super) fn spoils_open_scopes(&self) -> bool {
        matches!(self, Self::PoolReplaced { .. })
    }
}
