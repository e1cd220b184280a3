//! The functions of `nvml.h` by which all devices and their MIG instances are found and named.

use std::ffi::{c_char, c_uint, c_void};

use crate::abi::{
    INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, Return, SUCCESS, answer, answer_for, pci_numbers, write_text,
};
use crate::state::{Handle, MIG_SHIFT, State};

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

fn device_count(state: &State) -> usize {
    state.configuration.as_ref().map_or(0, |configuration| configuration.devices.len())
}

/// Writes a value that an NVML function gives by pointer.
///
/// # Safety
///
/// `target` is good for a write.
unsafe fn give<T>(target: *mut T, value: T) -> Return {
    // SAFETY: as this function's own condition.
    unsafe { target.write(value) };
    SUCCESS
}

/// `nvmlDeviceGetCount_v2`: MIG instances are not counted.
///
/// # Safety
///
/// As NVML has it: `count` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> Return {
    // SAFETY: the caller gives a place for the count.
    answer("nvmlDeviceGetCount_v2", |state| unsafe { give(count, device_count(state) as c_uint) })
}

/// `nvmlDeviceGetHandleByIndex_v2`.
///
/// # Safety
///
/// As NVML has it: `device` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) -> Return {
    answer("nvmlDeviceGetHandleByIndex_v2", |state| {
        if index as usize >= device_count(state) {
            return INVALID_ARGUMENT;
        }
        // An error of the device's own, as of one that fell off the bus.
        let own_error = state.device(index as usize + 1);
        let own_error = own_error.and_then(|device| device.errors.get("nvmlDeviceGetHandleByIndex_v2").copied());
        // SAFETY: the caller gives a place for the handle.
        own_error.unwrap_or_else(|| unsafe { give(device, (index as usize + 1) as *mut c_void) })
    })
}

/// `nvmlDeviceGetIndex`.
///
/// # Safety
///
/// As NVML has it: `index` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetIndex(device: *mut c_void, index: *mut c_uint) -> Return {
    answer_for("nvmlDeviceGetIndex", device, |_| {
        let handle = device as Handle;
        let place = match handle >> MIG_SHIFT {
            0 => handle,
            instance => instance,
        };
        // SAFETY: the caller gives a place for the index.
        unsafe { give(index, place as c_uint - 1) }
    })
}

/// `nvmlDeviceGetName`.
///
/// # Safety
///
/// As NVML has it: `name` is good for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: *mut c_void, name: *mut c_char, length: c_uint) -> Return {
    answer_for("nvmlDeviceGetName", device, |device| match &device.name {
        None => NOT_SUPPORTED,
        // SAFETY: the caller gives the bytes and their number.
        Some(text) => unsafe { write_text(text, name, length) },
    })
}

/// `nvmlDeviceGetUUID`.
///
/// # Safety
///
/// As NVML has it: `uuid` is good for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(device: *mut c_void, uuid: *mut c_char, length: c_uint) -> Return {
    // SAFETY: the caller gives the bytes and their number.
    answer_for("nvmlDeviceGetUUID", device, |device| unsafe { write_text(&device.uuid, uuid, length) })
}

/// `nvmlDeviceGetPciInfo_v3`.
///
/// # Safety
///
/// As NVML has it: `pci` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, pci: *mut PciInfo) -> Return {
    answer_for("nvmlDeviceGetPciInfo_v3", device, |device| {
        let Some([domain, bus, number, _]) = pci_numbers(&device.pci_bus_id) else { return NOT_SUPPORTED };
        let mut info = PciInfo {
            bus_id_legacy: [0; 16],
            domain,
            bus,
            device: number,
            pci_device_id: 0,
            pci_subsystem_id: 0,
            bus_id: [0; 32],
        };
        let (text, room) = (&device.pci_bus_id, info.bus_id.len() as c_uint);
        // SAFETY: the room is the array's own.
        match unsafe { write_text(text, info.bus_id.as_mut_ptr(), room) } {
            // SAFETY: the caller gives a place for the struct.
            SUCCESS => unsafe { give(pci, info) },
            code => code,
        }
    })
}

/// `nvmlDeviceGetMigMode`: on with an instance, and not supported without.
///
/// # Safety
///
/// As NVML has it: both places are good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: *mut c_void,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> Return {
    answer_for("nvmlDeviceGetMigMode", device, |device| {
        if device.mig_devices.is_empty() {
            return NOT_SUPPORTED;
        }
        // SAFETY: the caller gives a place for each.
        unsafe {
            give(current, 1);
            give(pending, 1)
        }
    })
}

/// `nvmlDeviceGetMaxMigDeviceCount`: one more than there are, as a driver's maximum is.
///
/// # Safety
///
/// As NVML has it: `count` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: *mut c_void, count: *mut c_uint) -> Return {
    answer_for("nvmlDeviceGetMaxMigDeviceCount", device, |device| {
        let most = match device.mig_devices.len() {
            0 => 0,
            instances => instances + 1,
        };
        // SAFETY: the caller gives a place for the count.
        unsafe { give(count, most as c_uint) }
    })
}

/// `nvmlDeviceGetMigDeviceHandleByIndex`.
///
/// # Safety
///
/// As NVML has it: `instance` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: *mut c_void,
    index: c_uint,
    instance: *mut *mut c_void,
) -> Return {
    answer_for("nvmlDeviceGetMigDeviceHandleByIndex", device, |found| {
        let parent = device as Handle;
        if parent >> MIG_SHIFT != 0 || index as usize >= found.mig_devices.len() {
            return NOT_FOUND;
        }
        // SAFETY: the caller gives a place for the handle.
        unsafe { give(instance, ((index as usize + 1) << MIG_SHIFT | parent) as *mut c_void) }
    })
}

/// `nvmlDeviceIsMigDeviceHandle`.
///
/// # Safety
///
/// As NVML has it: `is_mig` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceIsMigDeviceHandle(device: *mut c_void, is_mig: *mut c_uint) -> Return {
    let mig = (device as Handle) >> MIG_SHIFT != 0;
    // SAFETY: the caller gives a place for the answer.
    answer_for("nvmlDeviceIsMigDeviceHandle", device, |_| unsafe { give(is_mig, c_uint::from(mig)) })
}

/// `nvmlDeviceGetDeviceHandleFromMigDeviceHandle`.
///
/// # Safety
///
/// As NVML has it: `parent` is good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    device: *mut c_void,
    parent: *mut *mut c_void,
) -> Return {
    answer_for("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device, |_| {
        let handle = device as Handle;
        if handle >> MIG_SHIFT == 0 {
            return INVALID_ARGUMENT;
        }
        // SAFETY: the caller gives a place for the handle.
        unsafe { give(parent, (handle & ((1 << MIG_SHIFT) - 1)) as *mut c_void) }
    })
}
