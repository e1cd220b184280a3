//! Page-locked memory, which has real bytes.

use super::Simulated;
use super::faults::Operation;
use crate::device::{Device as _, DeviceError, PinnedMemory, Stream};

impl Simulated {
    /// Page-locked memory alive as (address, bytes), in address order: allocated and registered.
    pub fn pinned(&self) -> Vec<(u64, u64)> {
        self.pinned.live()
    }
}

// SAFETY: plain memory from the global allocator, aligned and zeroed, given back only by `release_pinned` or `drop`. There are
// no device bytes to copy, and each copy is refused.
unsafe impl PinnedMemory for Simulated {
    fn allocate_pinned(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.run_script(Operation::AllocatePinned, bytes)?;
        self.pinned.allocate(self.name(), bytes)
    }

    unsafe fn release_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.run_script(Operation::ReleasePinned, bytes)?;
        self.pinned.release(self.name(), address, bytes)
    }

    unsafe fn register_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.run_script(Operation::RegisterPinned, bytes)?;
        self.pinned.register(self.name(), address, bytes)
    }

    unsafe fn unregister_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.run_script(Operation::UnregisterPinned, bytes)?;
        self.pinned.unregister(self.name(), address, bytes)
    }

    unsafe fn write_pinned(&self, _: u64, _: u64, _: u64, _: Stream) -> Result<(), DeviceError> {
        Err(DeviceError::NoBytes { device: self.owned_name() })
    }

    unsafe fn read_pinned(&self, _: u64, _: u64, _: u64, _: Stream) -> Result<(), DeviceError> {
        Err(DeviceError::NoBytes { device: self.owned_name() })
    }
}
