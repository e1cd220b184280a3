//! Initialisation, devices and their primary contexts.

use std::cell::Cell;
use std::ffi::c_char;

use crate::errors::{Answer, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE};
use crate::state::{HandleKind, State, call, call_uninitialized, put};

/// The version this driver says it is: 13.0.
const VERSION: i32 = 13_000;

thread_local! {
    /// The current context's handle; 0 is none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

pub(crate) struct Device {
    pub(crate) capacity_bytes: u64,
    /// What other processes have.
    pub(crate) other_use_bytes: u64,
    /// What this process has: segments, physical memory, and what pools hold.
    pub(crate) used_bytes: u64,
    /// How often the primary context is retained.
    pub(crate) retained: u64,
    /// The error of broken work, which every later call on the context gets.
    pub(crate) fault: Option<u32>,
    /// The pool set by `cuDeviceSetMemPool`.
    pub(crate) current_pool: Option<u64>,
    pub(crate) default_pool: Option<u64>,
    /// `cuCtxCreate` made one, which shares everything with the primary one but its handle and what `cuMemAlloc` gives in it.
    has_second_context: bool,
}

impl Device {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            other_use_bytes: 0,
            used_bytes: 0,
            retained: 0,
            fault: None,
            current_pool: None,
            default_pool: None,
            has_second_context: false,
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.other_use_bytes).saturating_sub(self.used_bytes)
    }
}

fn context_handle(device: usize) -> u64 {
    HandleKind::Context as u64 + 0x100 * device as u64
}

/// The handle of the one context that `cuCtxCreate` makes for a device.
fn second_context_handle(device: usize) -> u64 {
    context_handle(device) + 0x80
}

/// The thread's context; 0 is none.
pub(crate) fn current_context() -> u64 {
    CURRENT.get()
}

impl State {
    /// The device of a number a caller gave.
    pub(crate) fn device(&mut self, number: i32) -> Answer<&mut Device> {
        usize::try_from(number).ok().and_then(|index| self.devices.get_mut(index)).ok_or(INVALID_DEVICE)
    }

    fn device_of_context(&self, context: u64) -> Answer<usize> {
        if let Some(index) = (0..self.devices.len()).find(|&index| second_context_handle(index) == context) {
            return if self.devices[index].has_second_context { Ok(index) } else { Err(INVALID_CONTEXT) };
        }
        let index = (0..self.devices.len()).find(|&index| context_handle(index) == context).ok_or(INVALID_CONTEXT)?;
        if self.devices[index].retained == 0 { Err(INVALID_CONTEXT) } else { Ok(index) }
    }

    /// The device of the calling thread's current context, if that context works.
    pub(crate) fn current_device(&self) -> Answer<usize> {
        let index = self.device_of_context(CURRENT.get())?;
        self.devices[index].fault.map_or(Ok(index), Err)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> u32 {
    call_uninitialized("cuInit", |state| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if state.devices.is_empty() {
            return Err(NO_DEVICE);
        }
        state.is_initialized = true;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> u32 {
    // SAFETY: the caller's place, as cuda.h asks.
    call_uninitialized("cuDriverGetVersion", |_| unsafe { put(version, VERSION) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> u32 {
    // SAFETY: the caller's place, as cuda.h asks.
    call("cuDeviceGetCount", |state| unsafe { put(count, state.devices.len() as i32) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut i32, ordinal: i32) -> u32 {
    call("cuDeviceGet", |state| {
        state.device(ordinal)?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) -> u32 {
    call("cuDeviceGetName", |state| {
        state.device(device)?;
        let text = c"Mock H200".to_bytes_with_nul();
        if name.is_null() || usize::try_from(length).is_ok_and(|length| length < text.len()) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller's buffer has room for the text, checked above.
        unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        Ok(())
    })
}

/// # Safety
///
/// `uuid` is null or a place for 16 bytes.
unsafe fn device_uuid(state: &mut State, uuid: *mut [u8; 16], device: i32) -> Answer {
    state.device(device)?;
    let mut bytes = *b"memtrack mock \0\0";
    bytes[15] = device as u8;
    // SAFETY: as promised by the caller.
    unsafe { put(uuid, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) -> u32 {
    // SAFETY: the caller's place, as cuda.h asks.
    call("cuDeviceGetUuid", |state| unsafe { device_uuid(state, uuid, device) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) -> u32 {
    // SAFETY: the caller's place, as cuda.h asks.
    call("cuDeviceGetUuid_v2", |state| unsafe { device_uuid(state, uuid, device) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> u32 {
    call("cuDeviceTotalMem_v2", |state| {
        let capacity = state.device(device)?.capacity_bytes as usize;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(bytes, capacity) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) -> u32 {
    call("cuDeviceGetAttribute", |state| {
        state.device(device)?;
        let answer = match attribute {
            // MAX_THREADS_PER_BLOCK, WARP_SIZE, MULTIPROCESSOR_COUNT
            1 => 1024,
            10 => 32,
            16 => 132,
            // PCI_BUS_ID, PCI_DEVICE_ID, PCI_DOMAIN_ID
            33 => 0x18 + device,
            34 | 50 => 0,
            // COMPUTE_CAPABILITY_MAJOR and _MINOR
            75 => 9,
            76 => 0,
            // UNIFIED_ADDRESSING, MEMORY_POOLS_SUPPORTED
            41 | 115 => 1,
            // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            102 => i32::from(state.has_virtual_memory),
            _ => 0,
        };
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(value, answer) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) -> u32 {
    call("cuDevicePrimaryCtxRetain", |state| {
        state.device(device)?.retained += 1;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(context, context_handle(device as usize)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> u32 {
    call("cuDevicePrimaryCtxRelease_v2", |state| {
        let device = state.device(device)?;
        device.retained = device.retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if device.retained == 0 {
            device.fault = None;
        }
        Ok(())
    })
}

/// Frees all that was allocated on the device, and leaves the context to those who hold it.
#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(device: i32) -> u32 {
    call("cuDevicePrimaryCtxReset_v2", |state| {
        state.device(device)?.fault = None;
        let index = device as usize;
        state.drop_captures_on(index);
        let found = state.allocations.iter().filter(|(_, found)| found.device == index && !found.is_freed);
        let addresses: Vec<u64> = found.map(|(address, _)| *address).collect();
        addresses.into_iter().try_for_each(|address| crate::memory::free(state, address))
    })
}

/// One context beside the primary one, made current.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v2(context: *mut u64, _flags: u32, device: i32) -> u32 {
    call("cuCtxCreate_v2", |state| {
        state.device(device)?.has_second_context = true;
        let handle = second_context_handle(device as usize);
        CURRENT.set(handle);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(context, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: u64) -> u32 {
    call("cuCtxDestroy_v2", |state| {
        let index = state.device_of_context(context)?;
        if second_context_handle(index) != context {
            return Err(INVALID_CONTEXT);
        }
        state.devices[index].has_second_context = false;
        let found = state.allocations.iter().filter(|(_, found)| found.context == context && !found.is_freed);
        let addresses: Vec<u64> = found.map(|(address, _)| *address).collect();
        addresses.into_iter().try_for_each(|address| crate::memory::free(state, address))?;
        if CURRENT.get() == context {
            CURRENT.set(0);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCtx(stream: u64, context: *mut u64) -> u32 {
    call("cuStreamGetCtx", |state| {
        let key = state.stream_key(stream)?;
        let device = state.streams.get(&key).ok_or(INVALID_CONTEXT)?.device;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(context, context_handle(device)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) -> u32 {
    call("cuDevicePrimaryCtxGetState", |state| {
        let is_active = state.device(device)?.retained > 0;
        // SAFETY: the caller's places, as cuda.h asks.
        unsafe { put(flags, 0) }?;
        // SAFETY: likewise.
        unsafe { put(active, i32::from(is_active)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut u64) -> u32 {
    // SAFETY: the caller's place, as cuda.h asks.
    call("cuCtxGetCurrent", |_| unsafe { put(context, CURRENT.get()) })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: u64) -> u32 {
    call("cuCtxSetCurrent", |state| {
        if context != 0 {
            state.device_of_context(context)?;
        }
        CURRENT.set(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut i32) -> u32 {
    call("cuCtxGetDevice", |state| {
        let index = state.current_device()?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(device, index as i32) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetFlags(_flags: u32) -> u32 {
    call("cuCtxSetFlags", |state| state.current_device().map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetLimit(value: *mut usize, _limit: i32) -> u32 {
    call("cuCtxGetLimit", |state| {
        state.current_device()?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(value, 0) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetLimit(_limit: i32, _value: usize) -> u32 {
    call("cuCtxSetLimit", |state| state.current_device().map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCacheConfig(config: *mut i32) -> u32 {
    call("cuCtxGetCacheConfig", |state| {
        state.current_device()?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(config, 0) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCacheConfig(_config: i32) -> u32 {
    call("cuCtxSetCacheConfig", |state| state.current_device().map(drop))
}
