//! PyTorch's functions by their names, for the current allocator.
//!
//! Each does what the function of the same name in `torch.cuda` does, to the allocator that [`current`](fn@crate::current) gives:
//! the one made current on this thread, else the process's default. PyTorch has one allocator a device and takes a device's
//! number instead.
//!
//! Without a current allocator the figures are zero, as PyTorch's are before CUDA is initialised, and a warning says once how to
//! make one current; what must act or ask a device is an error then, never silently left undone.
//!
//! Everything here is a call of a method and lives elsewhere, but for the fraction and the texts.

use crate::allocator::{AllocationError, Backend, CachingAllocator};
use crate::current::{current, current_or_warn};
use crate::device::{DeviceError, DeviceMemory};
use crate::driver::{DriverSample, DriverUnavailable, DriverView, ProcessBytes};
use crate::stats::MemoryStats;

/// Why a call on the current allocator did nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CurrentAllocatorError {
    /// There is none.
    #[error("no allocator is current; call memtrack::set_default(&allocator) once, or make_current() on this thread")]
    NoneCurrent,
    /// It refused.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// Its device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn required() -> Result<CachingAllocator, CurrentAllocatorError> {
    current().ok_or(CurrentAllocatorError::NoneCurrent)
}

/// Bytes that the current allocator has handed to the program now, rounded; 0 without one.
pub fn memory_allocated() -> i64 {
    current_or_warn().map_or(0, |allocator| allocator.memory_allocated())
}

/// The most bytes that the current allocator had handed to the program since the start or the last
/// [`reset_peak_memory_stats`]; 0 without one.
pub fn max_memory_allocated() -> i64 {
    current_or_warn().map_or(0, |allocator| allocator.max_memory_allocated())
}

/// Bytes that the current allocator has taken from its device now; 0 without one.
pub fn memory_reserved() -> i64 {
    current_or_warn().map_or(0, |allocator| allocator.memory_reserved())
}

/// The most bytes that the current allocator had taken from its device since the start or the last
/// [`reset_peak_memory_stats`]; 0 without one.
pub fn max_memory_reserved() -> i64 {
    current_or_warn().map_or(0, |allocator| allocator.max_memory_reserved())
}

/// All counters of the current allocator; all zero without one. [`MemoryStats::to_map`] has PyTorch's keys.
pub fn memory_stats() -> MemoryStats {
    current_or_warn().map_or_else(MemoryStats::default, |allocator| allocator.memory_stats())
}

/// The current allocator's statistics as a table, see [`MemoryStats::memory_summary`]; one line that says so without one.
pub fn memory_summary(abbreviated: bool) -> String {
    match current() {
        Some(allocator) => allocator.memory_summary(abbreviated),
        None => format!("{}\n", CurrentAllocatorError::NoneCurrent),
    }
}

/// Gives the current allocator's cached memory back to its device; nothing is done without one, as nothing is cached then.
///
/// # Errors
///
/// As for [`CachingAllocator::empty_cache`].
pub fn empty_cache() -> Result<(), DeviceError> {
    current().map_or(Ok(()), |allocator| allocator.empty_cache())
}

/// Free and total bytes of the current allocator's device as the device says, other processes included.
///
/// # Errors
///
/// [`CurrentAllocatorError::NoneCurrent`], or the device does not answer.
pub fn mem_get_info() -> Result<DeviceMemory, CurrentAllocatorError> {
    Ok(required()?.device().memory()?)
}

/// Sets every peak of the current allocator to the value now; nothing is done without one.
pub fn reset_peak_memory_stats() {
    if let Some(allocator) = current_or_warn() {
        allocator.reset_peak_memory_stats();
    }
}

/// Sets the current allocator's accumulated counters, and its counts of retries, OOMs and device calls, to zero; nothing is done
/// without one.
pub fn reset_accumulated_memory_stats() {
    if let Some(allocator) = current_or_warn() {
        allocator.reset_accumulated_memory_stats();
    }
}

/// Limits what the current allocator takes from its device to a share of the device's memory; 1 removes the limit.
///
/// # Errors
///
/// [`CurrentAllocatorError::NoneCurrent`], or [`AllocationError::InvalidFraction`] unless `0 <= fraction <= 1`.
pub fn set_per_process_memory_fraction(fraction: f64) -> Result<(), CurrentAllocatorError> {
    Ok(required()?.set_per_process_memory_fraction(fraction)?)
}

/// The current allocator's limit as a share of its device's memory; 1 without a limit or without an allocator.
pub fn get_per_process_memory_fraction() -> f64 {
    current_or_warn().map_or(1.0, |allocator| allocator.get_per_process_memory_fraction())
}

/// The processes on the current allocator's device with their memory, from the driver (NVML), in PyTorch's words. See
/// [`CachingAllocator::list_gpu_processes`]; one line that says so without a current allocator.
pub fn list_gpu_processes() -> String {
    match current() {
        Some(allocator) => allocator.list_gpu_processes(),
        None => CurrentAllocatorError::NoneCurrent.to_string(),
    }
}

/// What the current allocator takes its memory from; its name is PyTorch's text. [`Backend::Native`] without an allocator.
pub fn get_allocator_backend() -> Backend {
    current().map_or_else(Backend::default, |allocator| allocator.config().backend)
}

impl CachingAllocator {
    /// The statistics as a table, see [`MemoryStats::memory_summary`]. PyTorch's own text is
    /// `memory_stats().torch_memory_summary(…)`.
    pub fn memory_summary(&self, abbreviated: bool) -> String {
        self.memory_stats().memory_summary(self.device().name(), abbreviated)
    }

    /// PyTorch's name for [`set_memory_fraction`](Self::set_memory_fraction).
    ///
    /// # Errors
    ///
    /// [`AllocationError::InvalidFraction`] unless `0 <= fraction <= 1`.
    pub fn set_per_process_memory_fraction(&self, fraction: f64) -> Result<(), AllocationError> {
        self.set_memory_fraction(fraction)
    }

    /// The limit as a share of the device's memory: its bytes by the total, which is a little below the fraction that was set
    /// when that named no whole number of bytes. 1 without a limit.
    pub fn get_per_process_memory_fraction(&self) -> f64 {
        let total_bytes = self.device().total_bytes() as f64;
        self.limit_bytes().map_or(1.0, |limit_bytes| limit_bytes as f64 / total_bytes)
    }

    /// The processes on the device with their memory, from the driver, as PyTorch lists them: `GPU:0`, then a line for each, or
    /// `no processes are running`. Where there is no list (host and simulated devices, no NVML, a driver that refuses) the line
    /// after `GPU:` says why.
    ///
    /// MB is 2^20 bytes, as in PyTorch. Processes with a surface on the device are in the list as well as those that compute. Takes
    /// as long as [`DriverView::attach`].
    pub fn list_gpu_processes(&self) -> String {
        let name = self.device().name();
        let gpu = name.strip_prefix("cuda:").unwrap_or(name);
        let reserved_bytes = u64::try_from(self.memory_reserved()).unwrap_or(0);
        let sample = DriverView::attach(&**self.device(), reserved_bytes).and_then(|view| view.sample());
        process_list(gpu, &sample)
    }
}

fn process_list(gpu: &str, sample: &Result<DriverSample, DriverUnavailable>) -> String {
    let processes = match sample {
        Ok(sample) => &sample.processes,
        Err(why) => return format!("GPU:{gpu}\nno list of processes: {why}"),
    };
    let mut lines = vec![format!("GPU:{gpu}")];
    match processes {
        Err(failure) => lines.push(format!("no list of processes: {failure}")),
        Ok(processes) if processes.is_empty() => lines.push("no processes are running".to_owned()),
        Ok(processes) => lines.extend(processes.iter().map(|process| {
            let pid = process.pid;
            match &process.memory {
                ProcessBytes::Known(bytes) => {
                    let megabytes = *bytes as f64 / f64::from(1 << 20);
                    format!("process {pid:>10} uses {megabytes:>12.3} MB GPU memory")
                }
                ProcessBytes::Unknown(why) => format!("process {pid:>10} uses an unknown amount of GPU memory: {why}"),
            }
        })),
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{DriverMemory, PidNamespace, ProcessMemory, QueryFailure, QueryStatus};

    #[test]
    fn processes_are_listed_in_pytorchs_words() {
        let list = |processes| {
            let memory = Ok(DriverMemory::v1(100, 50, 50));
            process_list("0", &Ok(DriverSample::new(memory, processes, true, 7, PidNamespace::Initial)))
        };
        let processes = vec![ProcessMemory::listed(7, Some(3 << 19)), ProcessMemory::listed(12_345, None)];
        assert_eq!(
            list(Ok(processes)),
            "GPU:0\nprocess          7 uses        1.500 MB GPU memory\nprocess      12345 uses an unknown amount of GPU memory: \
             the driver lists process 12345 without its memory"
        );
        assert_eq!(list(Ok(Vec::new())), "GPU:0\nno processes are running");
        let failure = QueryFailure::new("nvmlCall", QueryStatus::NoPermission, "not allowed");
        assert_eq!(list(Err(failure)), "GPU:0\nno list of processes: nvmlCall: not allowed");
        let none = process_list("0", &Err(DriverUnavailable::DriverNotLoaded));
        assert!(none.starts_with("GPU:0\nno list of processes: the NVIDIA kernel driver is not loaded"), "{none}");
    }
}
