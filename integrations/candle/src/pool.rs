//! The counters of the driver's memory pool, from which candle takes all its tensors, read without memtrack: what memtrack says can be held
//! against them.

/// Bytes, the most since the process began, or since somebody set the driver's marks back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PoolPeaks {
    /// In tensors.
    pub(crate) used_bytes: u64,
    /// Taken from the GPU.
    pub(crate) reserved_bytes: u64,
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::ffi::c_void;

    use candle_core::cuda_backend::cudarc::driver::result::{device, mem_pool};
    use candle_core::cuda_backend::cudarc::driver::sys::{CUmemPool_attribute, CUmemoryPool};
    use candle_core::{CudaDevice, Device, Error, Result};

    use super::PoolPeaks;

    /// The peaks of the device's current pool; `None` for the CPU.
    pub(crate) fn peaks(device: &Device) -> Result<Option<PoolPeaks>> {
        let Device::Cuda(cuda) = device else { return Ok(None) };
        let pool = current(cuda)?;
        Ok(Some(PoolPeaks {
            used_bytes: read(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            reserved_bytes: read(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
        }))
    }

    fn read(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Result<u64> {
        let mut value = 0_u64;
        // SAFETY: the device's current pool is alive, and both attributes asked for are of 64 bits.
        unsafe { mem_pool::get_attribute(pool, attribute, (&raw mut value).cast::<c_void>()) }.map_err(Error::wrap)?;
        Ok(value)
    }

    /// From here on the pool keeps what it has reserved. Left alone it gives free memory back to the GPU whenever the program waits.
    pub(crate) fn keep(device: &Device) -> Result<()> {
        let Device::Cuda(cuda) = device else { return Ok(()) };
        let mut threshold = u64::MAX;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: as below.
        unsafe { mem_pool::set_attribute(current(cuda)?, attribute, (&raw mut threshold).cast::<c_void>()) }
            .map_err(Error::wrap)
    }

    /// Bytes of the GPU that are in use by all its processes, and all that it has; `None` for the CPU.
    pub(crate) fn device_bytes(device: &Device) -> Result<Option<(u64, u64)>> {
        let Device::Cuda(cuda) = device else { return Ok(None) };
        let (free, total) = cuda.cuda_stream().context().mem_get_info().map_err(Error::wrap)?;
        Ok(Some((total.saturating_sub(free) as u64, total as u64)))
    }

    fn current(cuda: &CudaDevice) -> Result<CUmemoryPool> {
        // SAFETY: the context's device is one that the driver named.
        unsafe { device::get_mem_pool(cuda.cuda_stream().context().cu_device()) }.map_err(Error::wrap)
    }
}

#[cfg(feature = "cuda")]
pub(crate) use cuda::{device_bytes, keep, peaks};

#[cfg(not(feature = "cuda"))]
mod absent {
    use candle_core::{Device, Result};

    use super::PoolPeaks;

    /// There is no pool: always `None`.
    #[expect(clippy::unnecessary_wraps, reason = "as the one with a GPU")]
    pub(crate) fn peaks(_device: &Device) -> Result<Option<PoolPeaks>> {
        Ok(None)
    }

    /// There is no GPU: always `None`.
    #[expect(clippy::unnecessary_wraps, reason = "as the one with a GPU")]
    pub(crate) fn device_bytes(_device: &Device) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }

    /// There is no pool to set.
    #[expect(clippy::unnecessary_wraps, reason = "as the one with a GPU")]
    pub(crate) fn keep(_device: &Device) -> Result<()> {
        Ok(())
    }
}

#[cfg(not(feature = "cuda"))]
pub(crate) use absent::{device_bytes, keep, peaks};
