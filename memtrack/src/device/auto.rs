//! Choosing a device: by name, or whatever there is.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{Device, Host};

/// Which device a person asked for.
///
/// ```
/// use memtrack::device::DeviceChoice;
///
/// assert_eq!("cuda:1".parse(), Ok(DeviceChoice::Cuda(1)));
/// assert_eq!(DeviceChoice::Cuda(1).to_string(), "cuda:1");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// A GPU where there is one, else host memory: `auto`.
    #[default]
    Auto,
    /// Host memory: `cpu` or `host`.
    Cpu,
    /// The GPU of this number: `cuda:N`, or `cuda` for the first.
    Cuda(usize),
}

impl DeviceChoice {
    /// Opens the device chosen. [`Auto`](Self::Auto) always finds one; see [`auto`].
    ///
    /// # Errors
    ///
    /// When a GPU was asked for by name and is not to be had.
    pub fn open(self) -> Result<Arc<dyn Device>, DeviceUnavailable> {
        match self {
            Self::Auto => Ok(auto()),
            Self::Cpu => Ok(Arc::new(Host::new())),
            Self::Cuda(ordinal) => open_cuda(ordinal),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = ParseDeviceChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" | "host" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                // Digits only: `usize` would also take a plus sign.
                let digits = text.strip_prefix("cuda:").filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
                let ordinal = digits.and_then(|number| number.parse().ok());
                ordinal.map(Self::Cuda).ok_or_else(|| ParseDeviceChoiceError { text: text.to_owned() })
            }
        }
    }
}

/// A text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no device is called {text:?}; say auto, cpu, host, cuda or cuda:N (cuda:0 is the first GPU)")]
pub struct ParseDeviceChoiceError {
    /// The text.
    text: String,
}

/// Why the device chosen cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceUnavailable {
    /// There is no such GPU, or no driver for it.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] super::CudaUnavailable),
    /// This build has no code for it.
    #[error("cuda:{ordinal} is out of reach: memtrack was built without its feature `cuda`; build with it")]
    BuiltWithout {
        /// The GPU asked for.
        ordinal: usize,
    },
}

#[cfg(feature = "cuda")]
fn open_cuda(ordinal: usize) -> Result<Arc<dyn Device>, DeviceUnavailable> {
    Ok(Arc::new(super::Cuda::new(ordinal)?))
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(ordinal: usize) -> Result<Arc<dyn Device>, DeviceUnavailable> {
    Err(DeviceUnavailable::BuiltWithout { ordinal })
}

/// The first GPU where there is one, else host memory. Which it is, and why, is logged at INFO under `memtrack::device`.
///
/// `CUDA_VISIBLE_DEVICES` decides which GPU is the first, as in every CUDA program.
pub fn auto() -> Arc<dyn Device> {
    match open_cuda(0) {
        Ok(device) => {
            tracing::info!(
                target: "memtrack::device",
                device = device.name(),
                model = device.model(),
                total_bytes = crate::units::signed(device.total_bytes()),
                "using {}, the first GPU",
                device.name(),
            );
            device
        }
        Err(reason) => {
            let device = Host::new();
            tracing::info!(
                target: "memtrack::device",
                device = device.name(),
                total_bytes = crate::units::signed(device.total_bytes()),
                %reason,
                "using host memory: no GPU can be used",
            );
            Arc::new(device)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_what_they_are_printed_as() {
        for choice in [DeviceChoice::Auto, DeviceChoice::Cpu, DeviceChoice::Cuda(0), DeviceChoice::Cuda(12)] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!("host".parse(), Ok(DeviceChoice::Cpu));
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
    }

    #[test]
    fn what_names_no_device_is_refused_with_the_text_and_the_forms() {
        for text in ["", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:1 ", "cuda:99999999999999999999"]
        {
            let error = text.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
            for form in ["auto", "cpu", "host", "cuda:N"] {
                assert!(error.contains(form), "{error}");
            }
        }
    }

    #[test]
    fn host_memory_opens_by_name_and_something_always_opens() {
        assert_eq!(DeviceChoice::Cpu.open().unwrap().name(), "host");
        assert!(DeviceChoice::Auto.open().unwrap().total_bytes() > 0);
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_build_without_cuda_says_so() {
        let error = DeviceChoice::Cuda(3).open().unwrap_err().to_string();
        assert!(error.contains("cuda:3") && error.contains("feature `cuda`"), "{error}");
    }
}
