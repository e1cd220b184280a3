//! Page-locked host memory: the driver's calls for it, and the books of what is locked.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys;

use super::Cuda;
use super::driver::Driver;
use crate::device::pinned::PinnedTable;
use crate::device::plain::pointer_to;
use crate::device::{DeviceError, PinnedMemory, Stream};
use crate::sync::{get_mut, lock};

/// `CU_MEMHOSTALLOC_PORTABLE`, and `CU_MEMHOSTREGISTER_PORTABLE`: locked for every context of the process.
const PORTABLE: u32 = 1;

impl Driver {
    fn allocate_host(&self, bytes: u64) -> Result<u64, DeviceError> {
        let Ok(size) = usize::try_from(bytes) else {
            return Err(DeviceError::OutOfMemory { device: self.device_name.clone(), requested_bytes: bytes });
        };
        self.outside_captures(|driver| {
            let mut pointer: *mut c_void = std::ptr::null_mut();
            // SAFETY: a place for one pointer.
            let answer = unsafe { sys::cuMemHostAlloc(&raw mut pointer, size, PORTABLE) };
            driver.check_room("cuMemHostAlloc", answer, bytes)?;
            Ok(pointer.expose_provenance() as u64)
        })
    }

    /// # Safety
    ///
    /// `address` is one that [`allocate_host`](Self::allocate_host) gave and that was not freed; nobody uses the memory, and
    /// no work on it is left.
    unsafe fn free_host(&self, address: u64) -> Result<(), DeviceError> {
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller.
            driver.check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(pointer_to(address).cast()) })
        })
    }

    /// # Safety
    ///
    /// The range is memory of this process until it is unregistered.
    unsafe fn register_host(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let size = self.size(bytes)?;
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller.
            let answer = unsafe { sys::cuMemHostRegister_v2(pointer_to(address).cast(), size, PORTABLE) };
            driver.check_room("cuMemHostRegister", answer, bytes)
        })
    }

    /// # Safety
    ///
    /// The range at `address` is registered, and no work on it is left.
    unsafe fn unregister_host(&self, address: u64) -> Result<(), DeviceError> {
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller.
            driver.check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(pointer_to(address).cast()) })
        })
    }
}

/// The page-locked memory of one device.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    table: Mutex<PinnedTable>,
}

impl Pinned {
    fn table(&self) -> MutexGuard<'_, PinnedTable> {
        // Only whole insertions and removals happen under this lock, so a poisoned one still guards a whole table.
        lock(&self.table)
    }

    pub(super) fn allocate(&self, driver: &Driver, bytes: u64) -> Result<u64, DeviceError> {
        PinnedTable::check_size(&driver.device_name, bytes)?;
        let address = driver.allocate_host(bytes)?;
        self.table().add_allocated(address, bytes);
        Ok(address)
    }

    /// Nobody uses the memory from now on, and no work on it is left, as the caller of `PinnedMemory::release_pinned`
    /// promised.
    pub(super) fn release(&self, driver: &Driver, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.table().take_allocated(&driver.device_name, address, bytes)?;
        // SAFETY: it was in the table and is so no more, so it is live and no other call can free it.
        let freed = unsafe { driver.free_host(address) };
        if freed.is_err() {
            // Still ours as far as anybody knows.
            self.table().add_allocated(address, bytes);
        }
        freed
    }

    /// The range is memory of this process until it is unregistered, as the caller of `PinnedMemory::register_pinned`
    /// promised.
    pub(super) fn register(&self, driver: &Driver, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // In the table first: two threads that register one range must not both reach the driver.
        self.table().add_registered(&driver.device_name, address, bytes)?;
        // SAFETY: as promised above.
        let registered = unsafe { driver.register_host(address, bytes) };
        if registered.is_err() {
            self.table().take_registered(&driver.device_name, address, bytes)?;
        }
        registered
    }

    /// No work on the range is left, as the caller of `PinnedMemory::unregister_pinned` promised.
    pub(super) fn unregister(&self, driver: &Driver, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // Under the lock, so that the range cannot be registered anew before the driver has let it go.
        let mut table = self.table();
        table.take_registered(&driver.device_name, address, bytes)?;
        // SAFETY: it was in the table, so it is registered.
        let unregistered = unsafe { driver.unregister_host(address) };
        if unregistered.is_err() {
            table.add_registered(&driver.device_name, address, bytes)?;
        }
        unregistered
    }

    /// Unlocks what is left when the device goes, after its work is done; the bytes that the driver refused to take back.
    pub(super) fn release_all(&mut self, driver: &Driver) -> u64 {
        let (allocated, registered) = std::mem::take(get_mut(&mut self.table)).into_live();
        let mut refused_bytes = 0;
        for (address, bytes) in registered {
            // SAFETY: registered until here; the device is going, so nobody gives it work on the range any more.
            if unsafe { driver.unregister_host(address) }.is_err() {
                refused_bytes += bytes;
            }
        }
        for (address, bytes) in allocated {
            // SAFETY: live until here; the device is going, so nobody can reach it through it any more.
            if unsafe { driver.free_host(address) }.is_err() {
                refused_bytes += bytes;
            }
        }
        refused_bytes
    }
}

// SAFETY: the driver hands out disjoint memory in whole pages, which the table lets only `release_pinned` and `drop` give back;
// its bytes come from the driver, so they have values. Copies and captures are the driver's own.
unsafe impl PinnedMemory for Cuda {
    fn allocate_pinned(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.pinned.allocate(&self.driver, bytes)
    }

    unsafe fn release_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.pinned.release(&self.driver, address, bytes)
    }

    unsafe fn register_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.pinned.register(&self.driver, address, bytes)
    }

    unsafe fn unregister_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.pinned.unregister(&self.driver, address, bytes)
    }

    unsafe fn write_pinned(&self, target: u64, source: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        let stream = self.stream_handle(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the ranges as the caller promises; a registered stream.
        unsafe { self.driver.write(target, pointer_to(source), bytes, stream) }
    }

    unsafe fn read_pinned(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        let stream = self.stream_handle(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the ranges as the caller promises; a registered stream.
        unsafe { self.driver.read(source, pointer_to(target), bytes, stream) }
    }
}
