//! The functions and structs of `nvml.h` that memtrack needs, as the header has them.
//!
//! Written after the header and not after a Rust binding, so that a mistake in a binding shows.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::configuration::{Device, Memory, Process};
use crate::state::{self, Handle, State};

pub(crate) type Return = c_uint;
pub(crate) const SUCCESS: Return = 0;
const UNINITIALIZED: Return = 1;
pub(crate) const INVALID_ARGUMENT: Return = 2;
pub(crate) const NOT_SUPPORTED: Return = 3;
pub(crate) const NOT_FOUND: Return = 6;
pub(crate) const INSUFFICIENT_SIZE: Return = 7;
const DRIVER_NOT_LOADED: Return = 9;
const FUNCTION_NOT_FOUND: Return = 13;
const NO_INSTANCE: c_uint = c_uint::MAX;
const VALUE_NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;
/// `NVML_STRUCT_VERSION(Memory, 2)`.
const MEMORY_VERSION_2: c_uint = size_of::<MemoryV2>() as c_uint | 2 << 24;

/// `nvmlMemory_t`.
#[repr(C)]
pub struct MemoryV1 {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_v2_t`.
#[repr(C)]
pub struct ProcessInfo {
    pid: c_uint,
    used_gpu_memory: c_ulonglong,
    gpu_instance_id: c_uint,
    compute_instance_id: c_uint,
}

/// Counts the call, applies the document's errors, and answers from the document.
pub(crate) fn answer(function: &str, with: impl FnOnce(&State) -> Return) -> Return {
    let mut state = state::lock();
    match (state.called(function), &state.configuration) {
        (Some(code), _) => code,
        (None, None) => UNINITIALIZED,
        (None, Some(_)) => with(&state),
    }
}

/// As [`answer`], for the device behind a handle.
pub(crate) fn answer_for(function: &str, handle: *mut c_void, with: impl FnOnce(&Device) -> Return) -> Return {
    answer(function, |state| match state.device(handle as Handle) {
        None => INVALID_ARGUMENT,
        Some(device) => device.errors.get(function).copied().unwrap_or_else(|| with(&device)),
    })
}

/// As [`answer_for`], for a query of memory: time passes by them.
fn answer_memory(function: &str, handle: *mut c_void, with: impl FnOnce(&Device) -> Return) -> Return {
    state::lock().memory_queried(handle as Handle);
    answer_for(function, handle, with)
}

/// Finds a device or MIG instance and writes its handle.
///
/// # Safety
///
/// `handle` is good for a write.
unsafe fn handle_of(state: &State, handle: *mut *mut c_void, is_it: impl Fn(&Device) -> bool) -> Return {
    match state.handles().find(|(_, device)| is_it(device)) {
        None => NOT_FOUND,
        Some((found, _)) => {
            // SAFETY: as this function's own condition.
            unsafe { *handle = found as *mut c_void };
            SUCCESS
        }
    }
}

/// Sets the document; answers 0, or 1 when it cannot be read, which standard error then explains.
///
/// # Safety
///
/// `json` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_mock_nvml_configure(json: *const c_char) -> c_int {
    // SAFETY: the caller gives a C string.
    let text = unsafe { CStr::from_ptr(json) }.to_string_lossy();
    match state::parsed(&text) {
        None => 1,
        Some(configuration) => {
            state::lock().configure(configuration);
            0
        }
    }
}

/// How often a function was called.
///
/// # Safety
///
/// `function` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_mock_nvml_calls(function: *const c_char) -> u64 {
    // SAFETY: the caller gives a C string.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy();
    state::lock().calls.get(function.as_ref()).copied().unwrap_or(0)
}

/// `nvmlInit_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Return {
    {
        let mut state = state::lock();
        if state.configuration.is_none() {
            match state::from_file() {
                Some(configuration) => state.configure(configuration),
                None => return DRIVER_NOT_LOADED,
            }
        }
    }
    answer("nvmlInit_v2", |_| SUCCESS)
}

/// `nvmlShutdown`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Return {
    answer("nvmlShutdown", |_| SUCCESS)
}

/// `nvmlSystemGetDriverVersion`.
///
/// # Safety
///
/// As NVML has it: `version` is good for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> Return {
    answer("nvmlSystemGetDriverVersion", |state| {
        let text = state.configuration.as_ref().map_or("", |configuration| &configuration.driver_version);
        // SAFETY: the caller gives the bytes and their number.
        unsafe { write_text(text, version, length) }
    })
}

/// Writes a text and its end.
///
/// # Safety
///
/// `target` is good for `length` bytes.
pub(crate) unsafe fn write_text(text: &str, target: *mut c_char, length: c_uint) -> Return {
    if text.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the text and its end fit, as just checked, into the bytes the caller gives.
    unsafe {
        target.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        *target.add(text.len()) = 0;
    }
    SUCCESS
}

/// `nvmlDeviceGetHandleByUUID`.
///
/// # Safety
///
/// As NVML has it: `uuid` is a C string, `device` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut *mut c_void) -> Return {
    // SAFETY: the caller gives a C string.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_string_lossy();
    answer("nvmlDeviceGetHandleByUUID", |state| {
        // SAFETY: the caller gives a place for the handle.
        unsafe { handle_of(state, device, |device| device.uuid == uuid) }
    })
}

/// `nvmlDeviceGetHandleByPciBusId_v2`.
///
/// # Safety
///
/// As NVML has it: `pci_bus_id` is a C string, `device` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    pci_bus_id: *const c_char,
    device: *mut *mut c_void,
) -> Return {
    // SAFETY: the caller gives a C string.
    let pci_bus_id = unsafe { CStr::from_ptr(pci_bus_id) }.to_string_lossy();
    answer("nvmlDeviceGetHandleByPciBusId_v2", |state| match pci_numbers(&pci_bus_id) {
        None => INVALID_ARGUMENT,
        // SAFETY: the caller gives a place for the handle.
        numbers => unsafe { handle_of(state, device, |device| pci_numbers(&device.pci_bus_id) == numbers) },
    })
}

/// Domain, bus, device and function, however many digits each is written with.
pub(crate) fn pci_numbers(text: &str) -> Option<[u32; 4]> {
    let (address, function) = text.split_once('.')?;
    let mut parts = address.split(':').map(|part| u32::from_str_radix(part, 16));
    let numbers = [parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?, function.parse().ok()?];
    parts.next().is_none().then_some(numbers)
}

/// `nvmlDeviceGetMemoryInfo_v2`.
///
/// # Safety
///
/// As NVML has it: `memory` is good for a read of its version and a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, memory: *mut MemoryV2) -> Return {
    answer_memory("nvmlDeviceGetMemoryInfo_v2", device, |device| {
        // SAFETY: the caller gives the struct with its version set.
        let version = unsafe { (*memory).version };
        if version != MEMORY_VERSION_2 {
            return FUNCTION_NOT_FOUND;
        }
        let Memory { total, reserved, free, used } = device.memory;
        // SAFETY: the version says that the caller's struct is this one.
        unsafe { memory.write(MemoryV2 { version, total, reserved, free, used }) };
        SUCCESS
    })
}

/// `nvmlDeviceGetMemoryInfo`.
///
/// # Safety
///
/// As NVML has it: `memory` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: *mut c_void, memory: *mut MemoryV1) -> Return {
    answer_memory("nvmlDeviceGetMemoryInfo", device, |device| {
        let Memory { total, reserved, free, used } = device.memory;
        // SAFETY: the caller gives a place for the struct.
        unsafe { memory.write(MemoryV1 { total, free, used: used.saturating_add(reserved) }) };
        SUCCESS
    })
}

/// `nvmlDeviceGetComputeRunningProcesses_v3`.
///
/// # Safety
///
/// As NVML has it: `count` is good for a read and a write, `infos` for as many entries as it says or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: *mut c_void,
    count: *mut c_uint,
    infos: *mut ProcessInfo,
) -> Return {
    answer_for("nvmlDeviceGetComputeRunningProcesses_v3", device, |device| {
        // SAFETY: as this function's own condition.
        unsafe { list(&device.compute_processes, count, infos) }
    })
}

/// `nvmlDeviceGetGraphicsRunningProcesses_v3`.
///
/// # Safety
///
/// As for [`nvmlDeviceGetComputeRunningProcesses_v3`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: *mut c_void,
    count: *mut c_uint,
    infos: *mut ProcessInfo,
) -> Return {
    answer_for("nvmlDeviceGetGraphicsRunningProcesses_v3", device, |device| {
        // SAFETY: as this function's own condition.
        unsafe { list(&device.graphics_processes, count, infos) }
    })
}

/// NVML's way to give a list: too little room answers how much is needed.
///
/// # Safety
///
/// `count` is good for a read and a write, `infos` for as many entries as it says or null.
unsafe fn list(processes: &[Process], count: *mut c_uint, infos: *mut ProcessInfo) -> Return {
    // SAFETY: the caller gives the room it has.
    let room = unsafe { *count } as usize;
    // SAFETY: the same place is good for a write.
    unsafe { *count = processes.len() as c_uint };
    if processes.is_empty() {
        return SUCCESS;
    }
    if infos.is_null() || room < processes.len() {
        return INSUFFICIENT_SIZE;
    }
    for (index, Process { pid, used, gpu_instance, compute_instance }) in processes.iter().enumerate() {
        let info = ProcessInfo {
            pid: *pid,
            used_gpu_memory: used.unwrap_or(VALUE_NOT_AVAILABLE),
            gpu_instance_id: gpu_instance.unwrap_or(NO_INSTANCE),
            compute_instance_id: compute_instance.unwrap_or(NO_INSTANCE),
        };
        // SAFETY: there is room for all of them, as just checked.
        unsafe { infos.add(index).write(info) };
    }
    SUCCESS
}
