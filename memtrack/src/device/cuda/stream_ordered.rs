//! Stream-ordered memory: the driver's calls for pools, and the table of what is alive in the one that this device makes.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, OnceLock};

use cudarc::driver::sys;

use super::Cuda;
use super::captures::Capture;
use super::driver::{Driver, Location, PINNED};
use crate::device::{DeviceError, Stream, StreamOrderedMemory, StreamOrderedUsage};
use crate::sync::{get_mut, lock};

use sys::CUmemPool_attribute_enum as Attribute;

/// `CUmemPoolProps` as every driver reads it; the bindings shape it differently from version to version.
#[repr(C)]
struct PoolProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    win32_security_attributes: *mut c_void,
    /// The pool's largest size, how it is used, and what drivers to come read; 0 is the default of each.
    rest: [u8; 64],
}

const _: () = assert!(size_of::<PoolProperties>() == size_of::<sys::CUmemPoolProps>());

/// A pool of the driver's.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolHandle(pub(super) sys::CUmemoryPool);

// SAFETY: the driver lets any thread use a pool; the pointer is only ever handed back to it.
unsafe impl Send for PoolHandle {}
// SAFETY: likewise; nothing is ever read through it.
unsafe impl Sync for PoolHandle {}

impl Driver {
    /// A pool that keeps what it has until it is trimmed.
    fn create_pool(&self) -> Result<PoolHandle, DeviceError> {
        let properties = PoolProperties {
            kind: PINNED,
            handle_types: 0,
            location: self.location(),
            win32_security_attributes: std::ptr::null_mut(),
            rest: [0; 64],
        };
        self.outside_captures(|driver| {
            let mut pool = std::ptr::null_mut();
            // SAFETY: a place for one handle, and properties laid out as the driver reads them.
            let answer = unsafe { sys::cuMemPoolCreate(&raw mut pool, (&raw const properties).cast()) };
            driver.check("cuMemPoolCreate", answer)?;
            let pool = PoolHandle(pool);
            // SAFETY: made above.
            let set = unsafe { driver.set_pool_number(pool, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX) };
            if let Err(error) = set {
                // SAFETY: made above, with nothing taken from it, and nobody else knows it.
                let _ = unsafe { driver.destroy_pool(pool) };
                return Err(error);
            }
            Ok(pool)
        })
    }

    /// # Safety
    ///
    /// `pool` came from [`create_pool`](Self::create_pool), was not destroyed and is not used afterwards.
    unsafe fn destroy_pool(&self, pool: PoolHandle) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: as promised by the caller.
        self.check("cuMemPoolDestroy", unsafe { sys::cuMemPoolDestroy(pool.0) })
    }

    /// # Safety
    ///
    /// `pool` is one of the driver's and was not destroyed; `attribute` has 64 bits.
    unsafe fn pool_number(&self, pool: PoolHandle, attribute: Attribute) -> Result<u64, DeviceError> {
        let mut number = 0_u64;
        // SAFETY: as promised by the caller; a place for 64 bits.
        let answer = unsafe { sys::cuMemPoolGetAttribute(pool.0, attribute, (&raw mut number).cast()) };
        self.check("cuMemPoolGetAttribute", answer)?;
        Ok(number)
    }

    /// # Safety
    ///
    /// As for [`pool_number`](Self::pool_number).
    unsafe fn set_pool_number(
        &self,
        pool: PoolHandle,
        attribute: Attribute,
        mut number: u64,
    ) -> Result<(), DeviceError> {
        // SAFETY: as promised by the caller; 64 bits, which the driver reads.
        let answer = unsafe { sys::cuMemPoolSetAttribute(pool.0, attribute, (&raw mut number).cast()) };
        self.check("cuMemPoolSetAttribute", answer)
    }

    /// # Safety
    ///
    /// `pool` is one of the driver's and was not destroyed.
    pub(super) unsafe fn pool_usage(&self, pool: PoolHandle) -> Result<StreamOrderedUsage, DeviceError> {
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller, and attributes of 64 bits.
            let number = |attribute| unsafe { driver.pool_number(pool, attribute) };
            Ok(StreamOrderedUsage {
                used_bytes: number(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
                used_high_bytes: number(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
                reserved_bytes: number(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
                reserved_high_bytes: number(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
            })
        })
    }

    /// # Safety
    ///
    /// As for [`pool_usage`](Self::pool_usage).
    pub(super) unsafe fn reset_pool_marks(&self, pool: PoolHandle) -> Result<(), DeviceError> {
        self.outside_captures(|driver| {
            for attribute in [Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH] {
                // Zero is the one number they can be set to; it sets them to what is current.
                // SAFETY: as promised by the caller, and attributes of 64 bits.
                unsafe { driver.set_pool_number(pool, attribute, 0) }?;
            }
            Ok(())
        })
    }

    /// # Safety
    ///
    /// `pool` came from [`create_pool`](Self::create_pool) and was not destroyed.
    unsafe fn trim_pool(&self, pool: PoolHandle, keep_bytes: u64) -> Result<(), DeviceError> {
        self.outside_captures(|driver| {
            // The driver trims to nothing when it is to keep a size near 2^64, so it is asked to keep no more than there is.
            // SAFETY: as promised by the caller; an attribute of 64 bits.
            let reserved_bytes = unsafe { driver.pool_number(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) }?;
            let keep = usize::try_from(keep_bytes.min(reserved_bytes)).unwrap_or(usize::MAX);
            // SAFETY: as promised by the caller.
            driver.check("cuMemPoolTrimTo", unsafe { sys::cuMemPoolTrimTo(pool.0, keep) })
        })
    }

    /// # Safety
    ///
    /// `pool` came from [`create_pool`](Self::create_pool) and was not destroyed; `stream` is alive in this context.
    unsafe fn allocate_from_pool(
        &self,
        pool: PoolHandle,
        bytes: u64,
        stream: sys::CUstream,
    ) -> Result<u64, DeviceError> {
        let Ok(size) = usize::try_from(bytes) else {
            return Err(DeviceError::OutOfMemory { device: self.device_name.clone(), requested_bytes: bytes });
        };
        self.outside_captures(|driver| {
            let mut address = 0;
            // SAFETY: as promised by the caller; a place for one address.
            let answer = unsafe { sys::cuMemAllocFromPoolAsync(&raw mut address, size, pool.0, stream) };
            driver.check_room("cuMemAllocFromPoolAsync", answer, bytes)?;
            Ok(address)
        })
    }

    /// # Safety
    ///
    /// `address` is one that [`allocate_from_pool`](Self::allocate_from_pool) gave and that was not freed, and nobody uses it
    /// but work that `stream` waits for; `stream` is alive in this context.
    unsafe fn free_in_order(&self, address: u64, stream: sys::CUstream) -> Result<(), DeviceError> {
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller.
            driver.check("cuMemFreeAsync", unsafe { sys::cuMemFreeAsync(address, stream) })
        })
    }
}

/// The pool of one device, made when first asked for, and what is alive in it.
#[derive(Debug, Default)]
pub(super) struct StreamOrdered {
    pool: OnceLock<PoolHandle>,
    /// Address to bytes.
    live: Mutex<BTreeMap<u64, u64>>,
}

impl StreamOrdered {
    fn live(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        // Only whole insertions and removals happen under this lock, so a poisoned one still guards a whole table.
        lock(&self.live)
    }

    /// The pool, which lives as long as the device.
    fn pool(&self, driver: &Driver) -> Result<PoolHandle, DeviceError> {
        if let Some(pool) = self.pool.get() {
            return Ok(*pool);
        }
        // Under a lock, so that two threads do not make two.
        let _live = self.live();
        match self.pool.get() {
            Some(pool) => Ok(*pool),
            None => driver.create_pool().map(|pool| *self.pool.get_or_init(|| pool)),
        }
    }

    /// # Safety
    ///
    /// `stream` is alive in the driver's context.
    unsafe fn allocate(&self, driver: &Driver, bytes: u64, stream: sys::CUstream) -> Result<u64, DeviceError> {
        if bytes == 0 {
            let reason = "an allocation has at least one byte";
            return Err(DeviceError::InvalidSize { device: driver.device_name.clone(), bytes, reason });
        }
        // SAFETY: a pool of this driver's that only `release_all` destroys; the stream as promised by the caller.
        let address = unsafe { driver.allocate_from_pool(self.pool(driver)?, bytes, stream) }?;
        self.live().insert(address, bytes);
        Ok(address)
    }

    /// # Safety
    ///
    /// `stream` is alive in the driver's context, and nobody uses the memory but work that `stream` waits for.
    unsafe fn free(&self, driver: &Driver, address: u64, stream: sys::CUstream) -> Result<(), DeviceError> {
        // Out of the table first: as soon as the driver has it, another thread can be given the same address.
        let Some(bytes) = self.live().remove(&address) else {
            let reason = "not the start of live stream-ordered memory";
            return Err(DeviceError::InvalidAddress { device: driver.device_name.clone(), address, reason });
        };
        // SAFETY: it was in the table and is so no more, so it is live and no other call can free it; the rest as promised by
        // the caller.
        let freed = unsafe { driver.free_in_order(address, stream) };
        if freed.is_err() {
            // Still ours as far as anybody knows.
            self.live().insert(address, bytes);
        }
        freed
    }

    fn usage(&self, driver: &Driver) -> Result<StreamOrderedUsage, DeviceError> {
        // SAFETY: a pool of this driver's that only `release_all` destroys.
        unsafe { driver.pool_usage(self.pool(driver)?) }
    }

    fn reset_high_marks(&self, driver: &Driver) -> Result<(), DeviceError> {
        // SAFETY: a pool of this driver's that only `release_all` destroys.
        unsafe { driver.reset_pool_marks(self.pool(driver)?) }
    }

    fn trim(&self, driver: &Driver, keep_bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: a pool of this driver's that only `release_all` destroys.
        unsafe { driver.trim_pool(self.pool(driver)?, keep_bytes) }
    }

    /// Frees what is left when the device goes, after its work is done; the bytes that the driver refused to take back.
    pub(super) fn release_all(&mut self, driver: &Driver) -> u64 {
        let live = std::mem::take(get_mut(&mut self.live));
        let mut refused_bytes = 0;
        for (address, bytes) in live {
            // SAFETY: live until here; the device is going, so nobody can reach it through it any more.
            if unsafe { driver.free(address) }.is_err() {
                refused_bytes += bytes;
            }
        }
        if let Some(pool) = self.pool.take() {
            // The pool goes with the last of its memory, also where some was refused above. Refused itself, it keeps what it has
            // cached, and whether more than nothing is known to nobody.
            // SAFETY: taken out, so nobody uses it afterwards.
            let _ = unsafe { driver.destroy_pool(pool) };
        }
        refused_bytes
    }
}

impl Cuda {
    /// The driver's handle of a stream that has nothing to do with a capture.
    fn uncaptured(&self, stream: Stream) -> Result<sys::CUstream, DeviceError> {
        let handle = self.stream_handle(stream)?;
        // SAFETY: a registered stream, which the table keeps alive.
        let reason = match unsafe { self.driver.capture(handle) }? {
            Capture::No => return Ok(handle),
            Capture::Of(_) => "it is being captured, and memory taken or freed on it would be the graph's",
            Capture::Broken => "its capture is broken by a forbidden call; end the capture first",
            Capture::Blocked => {
                "a stream that synchronizes with it is being captured; use a stream from CudaContext::new_stream"
            }
        };
        Err(DeviceError::InvalidStream { device: self.name.clone(), stream, reason })
    }
}

// SAFETY: the driver hands out disjoint allocations, aligned to 256 bytes and more; the table of live ones lets only
// `free_ordered` and `drop` give them back, and the driver keeps each until the stream has come to the free.
unsafe impl StreamOrderedMemory for Cuda {
    fn allocate_ordered(&self, bytes: u64, stream: Stream) -> Result<u64, DeviceError> {
        let stream = self.uncaptured(stream)?;
        // SAFETY: a registered stream, which the table keeps alive.
        unsafe { self.ordered.allocate(&self.driver, bytes, stream) }
    }

    unsafe fn free_ordered(&self, address: u64, stream: Stream) -> Result<(), DeviceError> {
        let stream = self.uncaptured(stream)?;
        // SAFETY: a registered stream, which the table keeps alive; the rest as promised by the caller.
        unsafe { self.ordered.free(&self.driver, address, stream) }
    }

    fn ordered_usage(&self) -> Result<StreamOrderedUsage, DeviceError> {
        self.ordered.usage(&self.driver)
    }

    fn reset_ordered_high_marks(&self) -> Result<(), DeviceError> {
        self.ordered.reset_high_marks(&self.driver)
    }

    fn trim_ordered(&self, keep_bytes: u64) -> Result<(), DeviceError> {
        self.ordered.trim(&self.driver, keep_bytes)
    }
}
