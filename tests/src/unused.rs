//! Giving back memory that a test knows nobody uses.

use memtrack::device::{Device, DeviceError, Stream, StreamOrderedMemory, VirtualMemory};

/// Releases segments of a test's own.
pub trait ReleaseUnused: Device {
    /// As [`Device::release`], for a segment that the calling test took itself and does not use any more.
    fn release_unused(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller is a test that took the segment itself; it keeps no slice of it and waits for its copies.
        unsafe { self.release(address, bytes) }
    }
}

impl<D: Device + ?Sized> ReleaseUnused for D {}

/// Unmaps ranges of a test's own.
pub trait UnmapUnused: VirtualMemory {
    /// As [`VirtualMemory::unmap`], for a range that the calling test mapped itself and does not use any more.
    fn unmap_unused(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller is a test that mapped the range itself; it keeps no slice of it and waits for its copies.
        unsafe { self.unmap(address, bytes) }
    }
}

impl<M: VirtualMemory + ?Sized> UnmapUnused for M {}

/// Frees stream-ordered memory of a test's own.
pub trait FreeUnused: StreamOrderedMemory {
    /// As [`StreamOrderedMemory::free_ordered`], for memory that the calling test took itself and does not use any more.
    fn free_unused(&self, address: u64, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller is a test that took the memory itself; what it gave other streams to do with it is done.
        unsafe { self.free_ordered(address, stream) }
    }
}

impl<M: StreamOrderedMemory + ?Sized> FreeUnused for M {}
