//! Segments, pinned host memory, and the count of what is free.

use std::ffi::c_void;

use crate::devices::current_context;
use crate::errors::{Answer, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY};
use crate::mapping::Mapping;
use crate::state::{Access, PAGE_BYTES, State, call, put};

/// What an allocation's bytes are counted to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The device itself: `cuMemAlloc`.
    Device,
    /// A memory pool, by its handle.
    Pool(u64),
}

pub(crate) struct Allocation {
    pub(crate) device: usize,
    /// As asked for.
    pub(crate) bytes: u64,
    pub(crate) origin: Origin,
    /// The context that it is of and ends with; 0 for memory of pools.
    pub(crate) context: u64,
    /// Freed in stream order: work queued before still reaches it, new calls do not.
    pub(crate) is_freed: bool,
    _memory: Mapping,
}

/// Pinned host memory: copies from and to it go on after their call has returned.
pub(crate) struct HostAllocation {
    bytes: u64,
    _memory: Mapping,
}

impl State {
    /// Counts bytes as used, if that many are free.
    pub(crate) fn take(&mut self, device: usize, bytes: u64) -> Answer {
        let device = self.devices.get_mut(device).ok_or(INVALID_VALUE)?;
        if bytes > device.free_bytes() {
            return Err(OUT_OF_MEMORY);
        }
        device.used_bytes += bytes;
        Ok(())
    }

    pub(crate) fn give_back(&mut self, device: usize, bytes: u64) {
        if let Some(device) = self.devices.get_mut(device) {
            device.used_bytes = device.used_bytes.saturating_sub(bytes);
        }
    }

    /// Whether the failure script lets a request of this size through.
    pub(crate) fn check_request(&self, bytes: u64) -> Answer {
        if bytes > self.largest_request_bytes { Err(OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Memory for an allocation whose bytes the caller has counted; its address.
    pub(crate) fn add_allocation(&mut self, device: usize, bytes: u64, origin: Origin) -> Answer<u64> {
        let memory = Mapping::memory(bytes).ok_or(OUT_OF_MEMORY)?;
        let address = memory.address();
        let context = if origin == Origin::Device { current_context() } else { 0 };
        self.allocations
            .insert(address, Allocation { device, bytes, origin, context, is_freed: false, _memory: memory });
        Ok(address)
    }

    pub(crate) fn is_pinned(&self, pointer: usize) -> bool {
        let address = pointer as u64;
        let allocated = self.host_allocations.range(..=address).next_back();
        let registered = self.host_registrations.range(..=address).next_back();
        allocated.is_some_and(|(start, found)| address < start + found.bytes)
            || registered.is_some_and(|(start, bytes)| address < start + bytes)
    }

    /// Whether a caller may touch the whole range: inside one allocation, or over mapped and accessible pieces.
    pub(crate) fn check_range(&self, address: u64, bytes: u64) -> Answer {
        let end = address.checked_add(bytes).ok_or(INVALID_VALUE)?;
        let before = self.allocations.range(..=address).next_back();
        let is_allocated = before.is_some_and(|(start, found)| end <= start + found.bytes && !found.is_freed);
        if is_allocated || self.ranges.is_accessible(address, end) { Ok(()) } else { Err(INVALID_VALUE) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    call("cuMemGetInfo_v2", |state| {
        let device = state.current_device()?;
        let device = &state.devices[device];
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(free, device.free_bytes() as usize) }?;
        // SAFETY: likewise.
        unsafe { put(total, device.capacity_bytes as usize) }
    })
}

/// The two attributes that are asked for: the context, and the device.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_void, attribute: u32, address: u64) -> u32 {
    call("cuPointerGetAttribute", |state| {
        let before = state.allocations.range(..=address).next_back();
        let found = before.filter(|(start, found)| address < *start + found.bytes && !found.is_freed);
        let (_, found) = found.ok_or(INVALID_VALUE)?;
        match attribute {
            // SAFETY: the caller's place for a handle, as cuda.h asks.
            1 => unsafe { put(value.cast(), found.context) },
            // SAFETY: the caller's place for a number, as cuda.h asks.
            9 => unsafe { put(value.cast(), found.device as i32) },
            _ => Err(INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32 {
    call("cuMemAlloc_v2", |state| {
        let device = state.current_device()?;
        let bytes = bytes as u64;
        if bytes == 0 || address.is_null() {
            return Err(INVALID_VALUE);
        }
        state.check_unsafe_call()?;
        state.check_request(bytes)?;
        let counted_bytes = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(OUT_OF_MEMORY)?;
        state.take(device, counted_bytes)?;
        match state.add_allocation(device, bytes, Origin::Device) {
            // SAFETY: the caller's place, as cuda.h asks.
            Ok(start) => unsafe { put(address, start) },
            Err(code) => {
                state.give_back(device, counted_bytes);
                Err(code)
            }
        }
    })
}

/// Waits for the device, as the real call does, and frees.
pub(crate) fn free(state: &mut Access, address: u64) -> Answer {
    if address == 0 {
        return Ok(());
    }
    let (device, bytes, origin) = match state.allocations.get(&address) {
        Some(found) if !found.is_freed => (found.device, found.bytes, found.origin),
        _ => return Err(INVALID_VALUE),
    };
    state.wait_until("cuMemFree_v2", |state| state.is_device_idle(device))?;
    state.allocations.remove(&address).ok_or(INVALID_VALUE)?;
    match origin {
        Origin::Device => state.give_back(device, bytes.next_multiple_of(PAGE_BYTES)),
        Origin::Pool(pool) => state.give_back_to_pool(pool, bytes),
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    call("cuMemFree_v2", |state| {
        state.current_device()?;
        state.check_unsafe_call()?;
        free(state, address)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(place: *mut *mut c_void, bytes: usize, _flags: u32) -> u32 {
    call("cuMemHostAlloc", |state| {
        state.current_device()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        state.check_unsafe_call()?;
        let memory = Mapping::memory(bytes as u64).ok_or(OUT_OF_MEMORY)?;
        let address = memory.address();
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(place, crate::mapping::bytes_at(address).cast()) }?;
        state.host_allocations.insert(address, HostAllocation { bytes: bytes as u64, _memory: memory });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> u32 {
    call("cuMemFreeHost", |state| {
        state.current_device()?;
        state.check_unsafe_call()?;
        let address = pointer.expose_provenance() as u64;
        state.host_allocations.remove(&address).map(drop).ok_or(INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, _flags: u32) -> u32 {
    call("cuMemHostRegister_v2", |state| {
        state.current_device()?;
        if bytes == 0 || pointer.is_null() {
            return Err(INVALID_VALUE);
        }
        state.check_unsafe_call()?;
        let (address, bytes) = (pointer.expose_provenance() as u64, bytes as u64);
        let before = state.host_registrations.range(..address + bytes).next_back();
        if before.is_some_and(|(start, length)| start + length > address) {
            return Err(HOST_MEMORY_ALREADY_REGISTERED);
        }
        state.host_registrations.insert(address, bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(pointer: *mut c_void) -> u32 {
    call("cuMemHostUnregister", |state| {
        state.current_device()?;
        state.check_unsafe_call()?;
        let address = pointer.expose_provenance() as u64;
        state.host_registrations.remove(&address).map(drop).ok_or(HOST_MEMORY_NOT_REGISTERED)
    })
}
