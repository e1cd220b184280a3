//! Finding the driver library before cudarc does, because cudarc panics where it, or a function in it, is missing.

use std::error::Error as _;
use std::sync::Mutex;

use libloading::Library;

use super::CudaUnavailable;
use super::captures::{CaptureInfo, NodeDependencies};
use crate::sync::lock;

/// The functions this device, and cudarc on its behalf, looks up by name. All are in every driver since CUDA 11.3.
const NEEDED_FUNCTIONS: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetMemPool",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAllocFromPoolAsync",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemMap",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
];

/// The library once found, kept open for the rest of the process: cudarc opens it again by the same name, and a driver
/// that is unloaded and loaded anew in between would start over.
static FOUND: Mutex<Option<(Found, Library)>> = Mutex::new(None);

/// What of the library is not left to cudarc.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// The name it was found under.
    pub(super) name: &'static str,
    pub(super) capture_info: CaptureInfo,
    pub(super) node_dependencies: NodeDependencies,
}

/// Names under which cudarc looks for the driver library and under which one exists somewhere, in cudarc's order. Any
/// name here that opens is one cudarc opens too.
const fn candidates() -> &'static [&'static str] {
    if cfg!(windows) {
        &["cuda.dll", "nvcuda.dll"]
    } else if cfg!(target_os = "macos") {
        &["libcuda.dylib"]
    } else {
        &["libcuda.so", "libcuda.so.12", "libcuda.so.11", "libcuda.so.10", "libcuda.so.1"]
    }
}

/// Opens the driver library, checks that it has what this device calls, and says what it found.
pub(super) fn find() -> Result<Found, CudaUnavailable> {
    let mut kept = lock(&FOUND);
    if let Some((found, _)) = &*kept {
        return Ok(*found);
    }
    let (name, library) = open_first(candidates())?;
    require(name, &library, NEEDED_FUNCTIONS)?;
    // SAFETY: the driver's function of this name has this type, and the library stays open.
    let capture_info = unsafe { function::<CaptureInfo>(name, &library, "cuStreamGetCaptureInfo_v2") }?;
    // SAFETY: likewise.
    let node_dependencies = unsafe { function::<NodeDependencies>(name, &library, "cuGraphNodeGetDependencies") }?;
    let found = Found { name, capture_info, node_dependencies };
    *kept = Some((found, library));
    Ok(found)
}

fn open_first(names: &[&'static str]) -> Result<(&'static str, Library), CudaUnavailable> {
    let mut tried = Vec::new();
    for &name in names {
        // SAFETY: loading a library runs its initialisers. These names belong to the NVIDIA driver, whose initialisers any
        // CUDA program runs; who puts another library under such a name means it to take the driver's place.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((name, library)),
            Err(error) => {
                let said = loader_message(&error);
                // The loader mostly begins with the name itself.
                tried.push(if said.starts_with(name) { said } else { format!("{name}: {said}") });
            }
        }
    }
    Err(CudaUnavailable::NoLibrary { tried })
}

/// What the loader said, which the error keeps as its source.
fn loader_message(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn require(name: &str, library: &Library, functions: &[&'static str]) -> Result<(), CudaUnavailable> {
    for symbol in functions.iter().copied() {
        // SAFETY: the symbol is only looked for; nothing is read or called through the type given here.
        unsafe { function::<unsafe extern "C" fn()>(name, library, symbol) }?;
    }
    Ok(())
}

/// # Safety
///
/// If the library has the function, then with this type, and it is only called while the library is open.
unsafe fn function<F: Copy>(name: &str, library: &Library, symbol: &'static str) -> Result<F, CudaUnavailable> {
    // SAFETY: as promised by the caller.
    match unsafe { library.get::<F>(symbol) } {
        Ok(function) => Ok(*function),
        Err(error) => {
            let library = name.to_owned();
            Err(CudaUnavailable::MissingSymbol { library, symbol, message: loader_message(&error) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_does_not_open_is_told_with_the_loaders_message() {
        let error = open_first(&["libmemtrack-absent.so", "libmemtrack-absent.so.1"]).unwrap_err();
        let CudaUnavailable::NoLibrary { tried } = &error else { panic!("{error:?}") };
        assert_eq!(tried.len(), 2);
        assert!(tried[0].starts_with("libmemtrack-absent.so:"), "{tried:?}");
        assert!(tried[1].starts_with("libmemtrack-absent.so.1:"), "{tried:?}");
        let text = error.to_string();
        assert!(text.contains(&tried[0]) && text.contains(&tried[1]), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_without_a_needed_function_is_refused_by_name() {
        let (name, library) = open_first(&["libmemtrack-absent.so", "libc.so.6"]).unwrap();
        assert_eq!(name, "libc.so.6");
        require(name, &library, &["malloc"]).unwrap();
        let error = require(name, &library, &["malloc", "cuInit", "cuMemAlloc_v2"]).unwrap_err();
        let CudaUnavailable::MissingSymbol { library, symbol, message } = &error else { panic!("{error:?}") };
        assert_eq!((library.as_str(), *symbol), ("libc.so.6", "cuInit"));
        assert!(message.contains("cuInit"), "{message}");
    }
}
