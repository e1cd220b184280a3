//! Why the driver gives no figure.

use crate::device::{DeviceKind, DeviceUuid, PciAddress};

/// Why there is no driver's view of a device at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverUnavailable {
    /// memtrack was compiled without NVML.
    #[error("built without the nvml feature; enable memtrack's `nvml` feature")]
    FeatureOff,
    /// Host memory and simulated devices have no driver to ask.
    #[error("{device} is a {kind} device, which no GPU driver knows")]
    NoDriver {
        /// The device's name.
        device: String,
        /// Its kind.
        kind: DeviceKind,
    },
    /// The device says neither its UUID nor its PCI address, and an index would be a guess.
    #[error("{device} has neither a UUID nor a PCI address to find it by in NVML")]
    NoIdentity {
        /// The device's name.
        device: String,
    },
    /// The NVML library is not there, or the loader refuses it.
    #[error(
        "cannot load the NVML library `{library}`: {message}; it comes with the NVIDIA driver (in a container, with NVIDIA_DRIVER_CAPABILITIES=utility)"
    )]
    LibraryNotLoaded {
        /// The path or name given to the loader.
        library: String,
        /// The loader's own text.
        message: String,
    },
    /// A library was loaded, but it has not the functions of NVML.
    #[error("`{library}` is not a usable NVML library: {message}")]
    NotNvml {
        /// The path or name given to the loader.
        library: String,
        /// The loader's own text, with the function's name.
        message: String,
    },
    /// The library is there, the kernel driver is not.
    #[error("the NVIDIA kernel driver is not loaded; `nvidia-smi` says more, `modprobe nvidia` may load it")]
    DriverNotLoaded,
    /// NVML knows no such device.
    #[error(
        "NVML knows no device {device} with UUID {} or PCI address {}; is it visible to this process or container?",
        known(uuid),
        known(pci_address)
    )]
    DeviceNotFound {
        /// The device's name.
        device: String,
        /// The UUID looked for, if the device has one.
        uuid: Option<DeviceUuid>,
        /// The PCI address looked for, if the device has one.
        pci_address: Option<PciAddress>,
    },
    /// NVML refused, at start or later.
    #[error(transparent)]
    Query(#[from] QueryFailure),
}

fn known(part: &Option<impl std::fmt::Display>) -> String {
    part.as_ref().map_or_else(|| "(not known)".to_owned(), ToString::to_string)
}

/// One NVML call that gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{call}: {message}")]
#[non_exhaustive]
pub struct QueryFailure {
    /// The function's name in NVML.
    pub call: &'static str,
    /// What kind of failure it is.
    pub status: QueryStatus,
    /// NVML's or the loader's sentence about it.
    pub message: String,
}

impl QueryFailure {
    /// A failure of `call`, for code that makes samples itself.
    pub fn new(call: &'static str, status: QueryStatus, message: impl Into<String>) -> Self {
        Self { call, status, message: message.into() }
    }
}

/// The kinds of [`QueryFailure`] a program may treat differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueryStatus {
    /// The device does not offer this, as memory figures on integrated GPUs.
    NotSupported,
    /// This user or container may not ask, as for a whole GPU from inside a MIG instance.
    NoPermission,
    /// The driver's library is too old to have the function.
    MissingFunction,
    /// The device fell off the bus or needs a reset; it does not come back by itself.
    DeviceLost,
    /// The driver answered with its mark for "not available".
    NotAvailable,
    /// Anything else.
    Other,
}
