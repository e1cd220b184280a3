//! The counters of pools that others allocate from: the device's default and its current one, and any by its handle.

use cudarc::driver::{DriverError, sys};

use super::Cuda;
use super::stream_ordered::PoolHandle;
use crate::device::{DeviceError, StreamOrderedUsage};

/// A handle as a number is the driver's address of the pool.
fn handle(pool: u64) -> PoolHandle {
    PoolHandle(std::ptr::with_exposed_provenance_mut(pool as usize))
}

impl Cuda {
    /// The pool that the driver makes with the device, which is never destroyed.
    pub(crate) fn default_pool(&self) -> Result<u64, DeviceError> {
        self.find_pool("cuDeviceGetDefaultMemPool", |pool, device| {
            // SAFETY: a place for one handle, and a device that the driver gave.
            unsafe { sys::cuDeviceGetDefaultMemPool(pool, device) }.result()
        })
    }

    /// The pool that `cuMemAllocAsync` takes from now.
    pub(crate) fn current_pool(&self) -> Result<u64, DeviceError> {
        self.find_pool("cuDeviceGetMemPool", |pool, device| {
            // SAFETY: a place for one handle, and a device that the driver gave.
            unsafe { sys::cuDeviceGetMemPool(pool, device) }.result()
        })
    }

    fn find_pool(
        &self,
        call: &'static str,
        find: impl FnOnce(*mut sys::CUmemoryPool, sys::CUdevice) -> Result<(), DriverError>,
    ) -> Result<u64, DeviceError> {
        let mut pool = std::ptr::null_mut();
        find(&raw mut pool, self.driver.context.cu_device()).map_err(|error| self.failure(call, error))?;
        Ok(pool.expose_provenance() as u64)
    }

    /// What a pool holds.
    ///
    /// # Safety
    ///
    /// The pool is one of the driver's and was not destroyed.
    pub(crate) unsafe fn pool_usage(&self, pool: u64) -> Result<StreamOrderedUsage, DeviceError> {
        // SAFETY: as promised by the caller.
        unsafe { self.driver.pool_usage(handle(pool)) }
    }

    /// Sets a pool's high-water marks to what is current.
    ///
    /// # Safety
    ///
    /// As for [`pool_usage`](Self::pool_usage).
    pub(crate) unsafe fn reset_pool_marks(&self, pool: u64) -> Result<(), DeviceError> {
        // SAFETY: as promised by the caller.
        unsafe { self.driver.reset_pool_marks(handle(pool)) }
    }
}
