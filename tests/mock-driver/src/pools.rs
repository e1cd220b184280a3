//! Memory pools and allocation in stream order, with the counters as an H200 keeps them.
//!
//! Used bytes are exact and fall at the `cuMemFreeAsync` call; reserved bytes grow by 32 MiB at a time, fall at the next
//! synchronisation down to the release threshold, and their high mark counts a refused attempt too.

use crate::errors::{Answer, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY};
use crate::memory::Origin;
use crate::state::{Access, HandleKind, State, call, free_handle, put};
use crate::streams::Work;
use crate::virtual_memory::Location;

const STEP_BYTES: u64 = 32 << 20;

#[derive(Default)]
pub(crate) struct Pool {
    device: usize,
    is_destroyed: bool,
    /// The three `CU_MEMPOOL_ATTR_REUSE_*`, which change nothing here.
    reuse: [i32; 3],
    release_threshold_bytes: u64,
    reserved_bytes: u64,
    reserved_high_bytes: u64,
    used_bytes: u64,
    used_high_bytes: u64,
}

impl Pool {
    /// Settings and high marks as new.
    pub(crate) fn reset(&mut self) {
        self.reuse = [1; 3];
        self.release_threshold_bytes = 0;
        self.reserved_high_bytes = self.reserved_bytes;
        self.used_high_bytes = self.used_bytes;
    }
}

/// `CUmemPoolProps`, up to where this driver reads.
#[repr(C)]
struct PoolProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
}

impl State {
    fn pool(&mut self, handle: u64) -> Answer<&mut Pool> {
        self.pools.get_mut(&handle).filter(|pool| !pool.is_destroyed).ok_or(INVALID_VALUE)
    }

    fn add_pool(&mut self, device: usize) -> u64 {
        let handle = free_handle(&self.pools, HandleKind::Pool);
        self.pools.insert(handle, Pool { device, reuse: [1; 3], ..Pool::default() });
        handle
    }

    /// The default pool comes into being when first asked for.
    fn default_pool(&mut self, device: usize) -> u64 {
        if let Some(pool) = self.devices[device].default_pool {
            return pool;
        }
        let pool = self.add_pool(device);
        self.devices[device].default_pool = Some(pool);
        pool
    }

    /// Pools from `cuMemPoolCreate` that were not destroyed.
    pub(crate) fn created_pools(&self) -> usize {
        let is_default = |handle: &u64| self.devices.iter().any(|device| device.default_pool == Some(*handle));
        self.pools.iter().filter(|(handle, pool)| !pool.is_destroyed && !is_default(handle)).count()
    }

    fn current_pool(&mut self, device: usize) -> u64 {
        match self.devices[device].current_pool {
            Some(pool) => pool,
            None => self.default_pool(device),
        }
    }

    fn allocate_from_pool(&mut self, handle: u64, bytes: u64) -> Answer<u64> {
        self.check_request(bytes)?;
        let pool = self.pool(handle)?;
        let device = pool.device;
        let wanted = pool.used_bytes.checked_add(bytes).and_then(|sum| sum.checked_next_multiple_of(STEP_BYTES));
        let wanted = wanted.ok_or(OUT_OF_MEMORY)?.max(pool.reserved_bytes);
        pool.reserved_high_bytes = pool.reserved_high_bytes.max(wanted);
        let missing = wanted - pool.reserved_bytes;
        self.take(device, missing)?;
        let pool = self.pool(handle)?;
        pool.reserved_bytes = wanted;
        pool.used_bytes += bytes;
        pool.used_high_bytes = pool.used_high_bytes.max(pool.used_bytes);
        let added = self.add_allocation(device, bytes, Origin::Pool(handle));
        if added.is_err() {
            self.give_back_to_pool(handle, bytes);
        }
        added
    }

    pub(crate) fn give_back_to_pool(&mut self, handle: u64, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used_bytes = pool.used_bytes.saturating_sub(bytes);
            if pool.is_destroyed && pool.used_bytes == 0 {
                self.shrink_pool(handle, 0);
                self.pools.remove(&handle);
            }
        }
    }

    /// Gives reserved memory back down to `keep_bytes`, as far as it is not used.
    fn shrink_pool(&mut self, handle: u64, keep_bytes: u64) {
        let Some(pool) = self.pools.get_mut(&handle) else { return };
        let kept = pool.used_bytes.max(keep_bytes).checked_next_multiple_of(STEP_BYTES);
        let floor = kept.unwrap_or(u64::MAX);
        let excess = pool.reserved_bytes.saturating_sub(floor);
        pool.reserved_bytes -= excess;
        let device = pool.device;
        self.give_back(device, excess);
    }

    /// What a synchronisation does.
    pub(crate) fn trim_pools(&mut self) {
        let thresholds: Vec<(u64, u64)> =
            self.pools.iter().map(|(handle, pool)| (*handle, pool.release_threshold_bytes)).collect();
        for (handle, threshold_bytes) in thresholds {
            self.shrink_pool(handle, threshold_bytes);
        }
    }
}

/// # Safety
///
/// `address` is null or a place for an address.
unsafe fn allocate(state: &mut Access, address: *mut u64, bytes: usize, pool: u64) -> Answer {
    if address.is_null() {
        return Err(INVALID_VALUE);
    }
    // As the real driver: no bytes, no address, no error.
    let start = if bytes == 0 { 0 } else { state.allocate_from_pool(pool, bytes as u64)? };
    // SAFETY: as promised by the caller.
    unsafe { put(address, start) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) -> u32 {
    call("cuMemAllocAsync", |state| {
        let key = state.stream_key(stream)?;
        state.check_uncaptured(key)?;
        state.current_device()?;
        // The stream's device, whichever is current.
        let device = state.streams.get(&key).ok_or(INVALID_HANDLE)?.device;
        let pool = state.current_pool(device);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { allocate(state, address, bytes, pool) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: u64, stream: u64) -> u32 {
    call("cuMemAllocFromPoolAsync", |state| {
        let key = state.stream_key(stream)?;
        state.check_uncaptured(key)?;
        state.pool(pool)?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { allocate(state, address, bytes, pool) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: u64) -> u32 {
    call("cuMemFreeAsync", |state| {
        let key = state.stream_key(stream)?;
        state.check_uncaptured(key)?;
        if address == 0 {
            return Ok(());
        }
        let allocation = state.allocations.get_mut(&address).filter(|found| !found.is_freed).ok_or(INVALID_VALUE)?;
        let Origin::Pool(pool) = allocation.origin else { return Err(INVALID_VALUE) };
        allocation.is_freed = true;
        let bytes = allocation.bytes;
        state.give_back_to_pool(pool, bytes);
        state.enqueue(key, Work::Free { address })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut u64, device: i32) -> u32 {
    call("cuDeviceGetDefaultMemPool", |state| {
        state.device(device)?;
        let found = state.default_pool(device as usize);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(pool, found) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetMemPool(pool: *mut u64, device: i32) -> u32 {
    call("cuDeviceGetMemPool", |state| {
        state.device(device)?;
        let found = state.current_pool(device as usize);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(pool, found) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceSetMemPool(device: i32, pool: u64) -> u32 {
    call("cuDeviceSetMemPool", |state| {
        if state.pool(pool)?.device as i32 != device {
            return Err(INVALID_DEVICE);
        }
        state.device(device)?.current_pool = Some(pool);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolCreate(pool: *mut u64, properties: *const PoolProperties) -> u32 {
    call("cuMemPoolCreate", |state| {
        state.check_unsafe_call()?;
        // SAFETY: null or the caller's properties, as cuda.h asks.
        let properties = unsafe { properties.as_ref() }.ok_or(INVALID_VALUE)?;
        let PoolProperties { kind, handle_types, location } = properties;
        if *kind != 1 || *handle_types != 0 || pool.is_null() {
            return Err(INVALID_VALUE);
        }
        let device = state.check_location(location)?;
        let handle = state.add_pool(device);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(pool, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(pool: u64) -> u32 {
    call("cuMemPoolDestroy", |state| {
        let device = state.pool(pool)?.device;
        if state.devices[device].default_pool == Some(pool) {
            return Err(INVALID_VALUE);
        }
        if state.devices[device].current_pool == Some(pool) {
            state.devices[device].current_pool = None;
        }
        state.pool(pool)?.is_destroyed = true;
        // Goes now if nothing is allocated from it, else with the last allocation.
        state.give_back_to_pool(pool, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: u64, keep: usize) -> u32 {
    call("cuMemPoolTrimTo", |state| {
        state.check_unsafe_call()?;
        state.pool(pool)?;
        state.shrink_pool(pool, keep as u64);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolGetAttribute(pool: u64, attribute: u32, value: *mut u64) -> u32 {
    call("cuMemPoolGetAttribute", |state| {
        let pool = state.pool(pool)?;
        let answer = match attribute {
            1..=3 => {
                let reuse = pool.reuse[attribute as usize - 1];
                // SAFETY: the caller's place, as cuda.h asks; these attributes are 32 bits wide.
                return unsafe { put(value.cast::<i32>(), reuse) };
            }
            4 => pool.release_threshold_bytes,
            5 => pool.reserved_bytes,
            6 => pool.reserved_high_bytes,
            7 => pool.used_bytes,
            8 => pool.used_high_bytes,
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(value, answer) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: *const u64) -> u32 {
    call("cuMemPoolSetAttribute", |state| {
        let pool = state.pool(pool)?;
        if value.is_null() {
            return Err(INVALID_VALUE);
        }
        if let 1..=3 = attribute {
            // SAFETY: not null, so the caller's number; these attributes are 32 bits wide.
            pool.reuse[attribute as usize - 1] = unsafe { value.cast::<i32>().read() };
            return Ok(());
        }
        // SAFETY: not null, so the caller's number.
        let number = unsafe { value.read() };
        match (attribute, number) {
            (4, _) => pool.release_threshold_bytes = number,
            // The high marks can only be set back to what is current.
            (6, 0) => pool.reserved_high_bytes = pool.reserved_bytes,
            (8, 0) => pool.used_high_bytes = pool.used_bytes,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}
