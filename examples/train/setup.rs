//! Opens the device, with its allocator and its kernels.

use std::sync::Arc;

use memtrack::CachingAllocator;
use memtrack::device::{Cuda, CudaUnavailable, Device, DeviceChoice, Host};

use crate::compute::{Compute, CpuKernels, CudaKernels, grouped};
use crate::error::TrainError;

/// What training runs on.
pub(crate) struct Opened {
    /// Allocator and kernels.
    pub(crate) compute: Compute,
    /// Why it is the CPU, where a GPU would have been taken; on one line.
    pub(crate) without_gpu: Option<String>,
}

/// Opens what was chosen. `auto` falls back to the CPU when there is no GPU, when one of its libraries is missing, and
/// when anything else prevents computing on it.
///
/// # Errors
///
/// When the device that was asked for is not there, or cannot be used; when `capacity_bytes` is more than it has; when
/// `MEMTRACK_ALLOC_CONF` is malformed.
pub(crate) fn open(choice: DeviceChoice, capacity_bytes: Option<u64>) -> Result<Opened, TrainError> {
    let (compute, without_gpu) = match choice {
        DeviceChoice::Cpu => (on_cpu(capacity_bytes)?, None),
        DeviceChoice::Cuda(ordinal) => (on_cuda(usable_gpu(ordinal)?, capacity_bytes)?, None),
        // Not `DeviceChoice::open`: a GPU without cuBLAS or nvrtc is of no use here.
        _ => match usable_gpu(0) {
            Ok(gpu) => (on_cuda(gpu, capacity_bytes)?, None),
            Err(error) => (on_cpu(capacity_bytes)?, Some(on_one_line(&error))),
        },
    };
    match &without_gpu {
        Some(why) => tracing::info!("using the CPU: {why}"),
        None => tracing::info!("using {}", compute.allocator().device().name()),
    }
    Ok(Opened { compute, without_gpu })
}

/// A GPU, and the kernels for it: all that can be missing.
fn usable_gpu(ordinal: usize) -> Result<(Arc<Cuda>, CudaKernels), TrainError> {
    let cuda = Arc::new(Cuda::new(ordinal)?);
    let kernels = CudaKernels::load(cuda.context())?;
    Ok((cuda, kernels))
}

fn on_cuda((cuda, kernels): (Arc<Cuda>, CudaKernels), capacity_bytes: Option<u64>) -> Result<Compute, TrainError> {
    let total_bytes = cuda.total_bytes();
    check_capacity(cuda.name(), capacity_bytes, total_bytes)?;
    Ok(Compute::new(start_allocator(cuda, capacity_bytes, total_bytes)?, Box::new(kernels)))
}

fn on_cpu(capacity_bytes: Option<u64>) -> Result<Compute, TrainError> {
    let whole = Host::new();
    let total_bytes = whole.total_bytes();
    check_capacity("this machine", capacity_bytes, total_bytes)?;
    let host = capacity_bytes.map_or(whole, Host::with_capacity);
    Ok(Compute::new(start_allocator(Arc::new(host), capacity_bytes, total_bytes)?, Box::new(CpuKernels)))
}

fn check_capacity(device: &str, capacity_bytes: Option<u64>, total_bytes: u64) -> Result<(), TrainError> {
    match capacity_bytes {
        Some(capacity_bytes) if capacity_bytes > total_bytes => {
            Err(TrainError::Capacity { device: device.to_owned(), capacity_bytes, total_bytes })
        }
        _ => Ok(()),
    }
}

/// The allocator that `#[track_memory]`, phases and epochs measure. It may take `capacity_bytes`, or the fraction of the
/// environment's configuration of `total_bytes`, whichever is less.
fn start_allocator(
    device: Arc<dyn Device>,
    capacity_bytes: Option<u64>,
    total_bytes: u64,
) -> Result<CachingAllocator, TrainError> {
    let allocator = CachingAllocator::from_env(Arc::clone(&device))?;
    if let Some(capacity_bytes) = capacity_bytes {
        let configured = allocator.config().per_process_memory_fraction;
        let limit_bytes = smaller_limit(capacity_bytes, configured, total_bytes);
        allocator.set_memory_fraction(share(limit_bytes, device.total_bytes()))?;
    }
    memtrack::set_default(&allocator);
    Ok(allocator)
}

/// Of a capacity and a configured fraction of all memory, the one that allows less, in bytes.
fn smaller_limit(capacity_bytes: u64, fraction: f64, total_bytes: u64) -> u64 {
    capacity_bytes.min((fraction * total_bytes as f64) as u64)
}

/// The fraction by which a device of so many bytes has this limit.
fn share(limit_bytes: u64, device_bytes: u64) -> f64 {
    // Half a byte more, so that rounding does not make the limit one byte less.
    ((limit_bytes as f64 + 0.5) / device_bytes as f64).min(1.0)
}

/// An error's message, shortened for a note. The kinds with long ones say everything with `--device cuda`.
fn on_one_line(error: &TrainError) -> String {
    let message = match error {
        TrainError::CudaUnavailable(CudaUnavailable::NoLibrary { tried }) => {
            let named = |line: &String| match line.split_once(": ") {
                Some((name, said)) => (name.to_owned(), said.to_owned()),
                None => (line.clone(), String::new()),
            };
            format!("no CUDA driver library ({})", grouped(&tried.iter().map(named).collect::<Vec<_>>()))
        }
        other => other.to_string(),
    };
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack::device::Simulated;
    use memtrack::units::{GIB, MIB};

    #[test]
    fn the_smaller_of_capacity_and_fraction_holds_to_the_byte_whether_the_device_is_that_small_or_not() {
        let total_bytes = 24 * GIB + 4096;
        for (capacity_bytes, fraction, expected_bytes) in [
            (26 * MIB, 1.0, 26 * MIB),
            (26 * MIB, 0.5, 26 * MIB),
            (16 * GIB, 0.5, 12 * GIB + 2048),
            (26 * MIB + 1, 1.0, 26 * MIB + 1),
            (26 * MIB, 0.0, 0),
        ] {
            let limit_bytes = smaller_limit(capacity_bytes, fraction, total_bytes);
            assert_eq!(limit_bytes, expected_bytes);
            // A GPU keeps its size; the host is made as large as the capacity.
            for device_bytes in [total_bytes, capacity_bytes] {
                let device = Simulated::builder().total_bytes(device_bytes).build();
                let allocator = CachingAllocator::new(Arc::new(device));
                allocator.set_memory_fraction(share(limit_bytes, device_bytes)).unwrap();
                assert_eq!(allocator.limit_bytes().unwrap_or(device_bytes), expected_bytes);
            }
        }
    }
}
