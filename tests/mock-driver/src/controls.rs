//! What tests steer this driver with: exported functions beside the driver's own, found by name.
//!
//! They may be called at any time, before the first driver call too. Names and codes are those of `cuda.h`; a device is
//! its number. Before the first call of either kind, the environment sets `MEMTRACK_MOCK_DEVICES`,
//! `MEMTRACK_MOCK_CAPACITY_BYTES` (each) and `MEMTRACK_MOCK_VIRTUAL_MEMORY` (0 for a device without).

use std::ffi::{CStr, c_char};

use crate::captures::set_capturing;
use crate::errors::{Answer, INVALID_HANDLE, SUCCESS};
use crate::memory::Origin;
use crate::state::{Access, Fault};

/// Back to one device with 80 GiB, no script, no held stream, all counts at zero. Live objects stay.
#[unsafe(no_mangle)]
extern "C" fn mock_reset() {
    Access::new().reset();
}

#[unsafe(no_mangle)]
extern "C" fn mock_set_device_count(count: usize) {
    Access::new().set_device_count(count);
}

/// Whether devices have virtual memory.
#[unsafe(no_mangle)]
extern "C" fn mock_set_virtual_memory(has_virtual_memory: bool) {
    Access::new().has_virtual_memory = has_virtual_memory;
}

#[unsafe(no_mangle)]
extern "C" fn mock_set_capacity(device: usize, bytes: u64) {
    if let Some(device) = Access::new().devices.get_mut(device) {
        device.capacity_bytes = bytes;
    }
}

/// What other processes have of the device.
#[unsafe(no_mangle)]
extern "C" fn mock_set_other_use(device: usize, bytes: u64) {
    if let Some(device) = Access::new().devices.get_mut(device) {
        device.other_use_bytes = bytes;
    }
}

/// Breaks the device's context: every call on it fails with this code until its last holder lets go. 0 mends it.
#[unsafe(no_mangle)]
extern "C" fn mock_break_context(device: usize, code: u32) {
    if let Some(device) = Access::new().devices.get_mut(device) {
        device.fault = (code != SUCCESS).then_some(code);
    }
}

fn hold(device: usize, stream: u64, is_held: bool) -> Answer {
    let mut access = Access::new();
    let key = access.stream_key_on(device, stream)?;
    access.streams.get_mut(&key).ok_or(INVALID_HANDLE)?.is_held = is_held;
    access.pump();
    Ok(())
}

/// Makes a stream busy: what is queued on it from now on waits. The stream's handle, and for a built-in one its device.
#[unsafe(no_mangle)]
extern "C" fn mock_hold_stream(device: usize, stream: u64) -> u32 {
    hold(device, stream, true).err().unwrap_or(SUCCESS)
}

/// Lets a held stream go on.
#[unsafe(no_mangle)]
extern "C" fn mock_let_stream_go(device: usize, stream: u64) -> u32 {
    hold(device, stream, false).err().unwrap_or(SUCCESS)
}

/// Makes a stream one whose work goes into a graph, or ends that; what the graph would hold is forgotten.
#[unsafe(no_mangle)]
extern "C" fn mock_set_capturing(device: usize, stream: u64, is_capturing: bool) -> u32 {
    set_capturing(&mut Access::new(), device, stream, is_capturing)
}

/// Lets one call of a function fail with a code, after `skip` more calls of it have gone through. The call does nothing.
///
/// # Safety
///
/// `function` is a text that ends in zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn mock_fail(function: *const c_char, skip: u64, code: u32) {
    // SAFETY: as promised by the caller.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy().into_owned();
    Access::new().faults.push(Fault { function, skip, code });
}

/// Refuses every request for device memory of more than this many bytes.
#[unsafe(no_mangle)]
extern "C" fn mock_fail_above(bytes: u64) {
    Access::new().largest_request_bytes = bytes;
}

/// Lines of the failure script that have not come true yet.
#[unsafe(no_mangle)]
extern "C" fn mock_pending_failures() -> usize {
    Access::new().faults.len()
}

/// How often a function was called since the last reset.
///
/// # Safety
///
/// `function` is a text that ends in zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn mock_calls(function: *const c_char) -> u64 {
    // SAFETY: as promised by the caller.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy();
    Access::new().calls.get(&*function).copied().unwrap_or(0)
}

/// Writes the name of the `index`th function called since the last reset, in the order of their names, without a zero at
/// the end; its length, or 0 past the last.
///
/// # Safety
///
/// `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn mock_called_function(index: usize, buffer: *mut u8, length: usize) -> usize {
    let access = Access::new();
    let Some(name) = access.calls.keys().nth(index).filter(|name| name.len() <= length) else { return 0 };
    // SAFETY: the buffer is long enough, checked in the line above.
    unsafe { buffer.copy_from_nonoverlapping(name.as_ptr(), name.len()) };
    name.len()
}

/// How many objects of a kind are alive: 0 segments, 1 allocations from pools, 2 physical memory by handle, 3 mappings,
/// 4 reservations, 5 events, 6 created streams, 7 pinned host memory, 8 retained contexts, 9 registered host memory,
/// 10 created pools, 11 graphs, executable ones too.
#[unsafe(no_mangle)]
extern "C" fn mock_live(kind: u32) -> u64 {
    let access = Access::new();
    let allocations = |is_from_pool: bool| {
        access.allocations.values().filter(|found| matches!(found.origin, Origin::Pool(_)) == is_from_pool).count()
    };
    let count = match kind {
        0 => allocations(false),
        1 => allocations(true),
        2 => access.ranges.physical.len(),
        3 => access.ranges.mapped.len(),
        4 => access.ranges.reservations.len(),
        5 => access.events.len(),
        6 => access.streams.keys().filter(|&&key| key >= crate::state::HandleKind::Stream as u64).count(),
        7 => access.host_allocations.len(),
        8 => return access.devices.iter().map(|device| device.retained).sum(),
        9 => access.host_registrations.len(),
        10 => access.created_pools(),
        11 => access.graphs.live(),
        _ => 0,
    };
    count as u64
}

/// Bytes this process has of a device.
#[unsafe(no_mangle)]
extern "C" fn mock_used_bytes(device: usize) -> u64 {
    Access::new().devices.get(device).map_or(0, |device| device.used_bytes)
}
