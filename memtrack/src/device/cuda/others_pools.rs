//! The counters of pools that others allocate from: the device's default and its current one, and any by its handle.

use cudarc::driver::{DriverError, result, sys};

use super::stream_ordered::PoolHandle;
use super::{Cuda, CudaUnavailable, library};
use crate::device::{DeviceError, StreamOrderedUsage};

/// A handle as a number is the driver's address of the pool.
fn handle(pool: u64) -> PoolHandle {
    PoolHandle(std::ptr::with_exposed_provenance_mut(pool as usize))
}

/// The context that is current on this thread; none where the driver is not initialized.
fn current_context() -> Option<sys::CUcontext> {
    result::ctx::get_current().ok().flatten()
}

/// Makes a context current on this thread that was so before, or none.
fn restore_context(before: Option<sys::CUcontext>) {
    if current_context() != before {
        // SAFETY: it was current when the call began; the driver answers to one that was destroyed since, and to null it makes none current.
        let _ = unsafe { sys::cuCtxSetCurrent(before.unwrap_or(std::ptr::null_mut())) };
    }
}

impl Cuda {
    /// Opens a device, as [`new`](Self::new), but what is current on this thread stays so.
    pub(crate) fn new_beside(ordinal: usize) -> Result<Self, CudaUnavailable> {
        // Without the driver there is nothing to ask.
        library::find()?;
        let before = current_context();
        let cuda = Self::new(ordinal);
        restore_context(before);
        cuda
    }

    /// Calls the driver on behalf of a caller who has a device of their own current: it stays so.
    pub(crate) fn beside<R>(&self, call: impl FnOnce(&Self) -> R) -> R {
        let before = current_context();
        let answer = call(self);
        restore_context(before);
        answer
    }

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
