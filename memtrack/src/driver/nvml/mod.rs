//! The queries themselves, through nvml-wrapper: the only folder that knows it.
//!
//! Loading and NVML's errors are here, one device's queries in [`connection`], the finding of all devices in
//! [`mod@inventory`].

mod connection;
mod inventory;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Mutex;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

pub(super) use self::connection::Connection;
pub(super) use self::inventory::inventory;
use super::{DriverUnavailable, QueryFailure, QueryStatus};
use crate::sync::lock;

#[cfg(windows)]
const LIBRARY: &str = "nvml.dll";
#[cfg(not(windows))]
const LIBRARY: &str = "libnvidia-ml.so.1";

/// What was loaded, one for each path, kept to the end of the process: NVML's handles are good only while it is
/// loaded, and stopping it at exit would race with its own destructors. Failures are not kept; a driver may come later.
static LOADED: Mutex<BTreeMap<OsString, &'static Nvml>> = Mutex::new(BTreeMap::new());

fn load(lib_path: Option<&OsStr>) -> Result<&'static Nvml, DriverUnavailable> {
    let path = lib_path.unwrap_or(OsStr::new(LIBRARY));
    let mut loaded = lock(&LOADED);
    if let Some(nvml) = loaded.get(path) {
        return Ok(nvml);
    }
    let library = || path.to_string_lossy().into_owned();
    let nvml = Nvml::builder().lib_path(path).init().map_err(|error| match error {
        NvmlError::LibloadingError(error) => {
            DriverUnavailable::LibraryNotLoaded { library: library(), message: error.to_string() }
        }
        NvmlError::FailedToLoadSymbol(message) => DriverUnavailable::NotNvml { library: library(), message },
        NvmlError::DriverNotLoaded => DriverUnavailable::DriverNotLoaded,
        error => failure("nvmlInit_v2", &error).into(),
    })?;
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    loaded.insert(path.to_owned(), nvml);
    Ok(nvml)
}

fn failure(call: &'static str, error: &NvmlError) -> QueryFailure {
    let status = match error {
        NvmlError::NotSupported => QueryStatus::NotSupported,
        NvmlError::NoPermission => QueryStatus::NoPermission,
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => QueryStatus::MissingFunction,
        NvmlError::GpuLost | NvmlError::ResetRequired => QueryStatus::DeviceLost,
        _ => QueryStatus::Other,
    };
    QueryFailure::new(call, status, error.to_string())
}
