//! Opens the device, with its allocator and its kernels.

use std::sync::Arc;

use memtrack::CachingAllocator;
use memtrack::device::{Cuda, Device, DeviceChoice, Host};

use crate::compute::{Compute, CpuKernels, CudaKernels, Kernels};
use crate::error::TrainError;

/// Opens what was chosen. `auto` falls back to the CPU when the GPU or one of its libraries is missing, and says so.
///
/// # Errors
///
/// When the device that was asked for is not there, or cannot be used.
pub(crate) fn open(choice: DeviceChoice, capacity_bytes: Option<u64>) -> Result<Compute, TrainError> {
    match choice {
        DeviceChoice::Cpu => open_cpu(capacity_bytes),
        DeviceChoice::Cuda(ordinal) => open_cuda(ordinal, capacity_bytes),
        // Not `DeviceChoice::open`: a GPU without cuBLAS or nvrtc is of no use here.
        _ => match open_cuda(0, capacity_bytes) {
            Err(error @ (TrainError::CudaUnavailable(_) | TrainError::MissingLibrary { .. })) => {
                tracing::info!("training on the CPU: {error}");
                open_cpu(capacity_bytes)
            }
            opened => opened,
        },
    }
}

fn open_cpu(capacity_bytes: Option<u64>) -> Result<Compute, TrainError> {
    let host = capacity_bytes.map_or_else(Host::new, Host::with_capacity);
    Ok(Compute::new(start_allocator(Arc::new(host))?, Box::new(CpuKernels)))
}

fn open_cuda(ordinal: usize, capacity_bytes: Option<u64>) -> Result<Compute, TrainError> {
    let cuda = Arc::new(Cuda::new(ordinal)?);
    let kernels: Box<dyn Kernels> = Box::new(CudaKernels::load(cuda.context())?);
    let total_bytes = cuda.total_bytes();
    let allocator = start_allocator(cuda)?;
    if let Some(capacity_bytes) = capacity_bytes {
        // Half a byte more, so that rounding does not make the limit one byte less.
        let fraction = (capacity_bytes as f64 + 0.5) / total_bytes as f64;
        allocator.set_memory_fraction(fraction.min(1.0))?;
    }
    Ok(Compute::new(allocator, kernels))
}

fn start_allocator(device: Arc<dyn Device>) -> Result<CachingAllocator, TrainError> {
    let allocator = CachingAllocator::from_env(device)?;
    // What `#[track_memory]`, phases and epochs measure.
    memtrack::set_default(&allocator);
    Ok(allocator)
}
