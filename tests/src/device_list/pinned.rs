//! Page-locked host memory.

use crate::unused::ReleaseUnused as _;
use std::sync::Arc;

use memtrack::device::{Device, DeviceError, PinnedMemory, Stream};

use super::{Check, Checked, Controls, Failure, Outcome, ensure, ensure_matches};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const WITHOUT: Outcome = Outcome::Skipped("there is no page-locked memory");
const NO_BYTES: Outcome = Outcome::Skipped("there are no bytes");

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("page-locked memory is aligned, apart and writable", aligned_apart_and_writable),
    ("page-locked memory of no bytes is refused", no_bytes_are_refused),
    ("only whole page-locked memory is released", only_whole_memory_is_released),
    ("a range is registered once and unregistered once", registered_once_and_unregistered_once),
    ("page-locked bytes go to the device and come back", bytes_go_and_come_back),
    ("a copy from page-locked memory does not wait for its stream", a_copy_does_not_wait),
    ("no stream is captured unasked", no_stream_is_captured_unasked),
];

/// The bytes of page-locked memory that the calling check took itself.
///
/// # Safety
///
/// The memory is live, no stream has work on it, and no other slice of it is in use.
unsafe fn bytes_of<'a>(address: u64, bytes: u64) -> &'a mut [u8] {
    let start = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: as promised by the caller.
    unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) }
}

fn release(pinned: &dyn PinnedMemory, address: u64, bytes: u64) -> Result<(), DeviceError> {
    // SAFETY: each check took its memory itself, and has waited for the streams it gave work on it.
    unsafe { pinned.release_pinned(address, bytes) }
}

fn pattern(target: &mut [u8], seed: u8) {
    for (index, byte) in target.iter_mut().enumerate() {
        *byte = (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed;
    }
}

fn aligned_apart_and_writable(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(pinned) = device.pinned_memory() else { return Ok(WITHOUT) };
    let free_before = device.memory()?.free_bytes;
    let sizes = [1, 511, 4 * KIB, 4 * KIB + 1, MIB, 16 * MIB];
    let mut taken = Vec::new();
    for bytes in sizes {
        let address = pinned.allocate_pinned(bytes)?;
        ensure!(address != 0 && address.is_multiple_of(512), "{bytes} bytes at {address:#x}");
        // SAFETY: taken in the line above.
        pattern(unsafe { bytes_of(address, bytes) }, bytes.ilog2() as u8);
        taken.push((address, bytes));
    }
    for (address, bytes) in &taken {
        let mut expected = vec![0; *bytes as usize];
        pattern(&mut expected, bytes.ilog2() as u8);
        // SAFETY: taken above.
        ensure!(unsafe { bytes_of(*address, *bytes) } == expected, "{bytes} bytes at {address:#x} have changed");
    }
    taken.sort_unstable();
    for pair in taken.windows(2) {
        ensure!(pair[0].0 + pair[0].1 <= pair[1].0, "two pieces overlap: {pair:?}");
    }
    for (address, bytes) in taken {
        release(pinned, address, bytes)?;
    }
    let free_after = device.memory()?.free_bytes;
    ensure!(free_after.abs_diff(free_before) < 256 * MIB, "{free_before} bytes free before, {free_after} after");
    Ok(Outcome::Held)
}

fn no_bytes_are_refused(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(pinned) = device.pinned_memory() else { return Ok(WITHOUT) };
    ensure_matches!(pinned.allocate_pinned(0), Err(DeviceError::InvalidSize { bytes: 0, .. }));
    let own = [0_u8; 64];
    let address = own.as_ptr().expose_provenance() as u64;
    // SAFETY: memory of this function's; nothing is registered.
    ensure_matches!(unsafe { pinned.register_pinned(address, 0) }, Err(DeviceError::InvalidSize { bytes: 0, .. }));
    Ok(Outcome::Held)
}

fn only_whole_memory_is_released(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(pinned) = device.pinned_memory() else { return Ok(WITHOUT) };
    let address = pinned.allocate_pinned(8 * KIB)?;
    for (at, bytes) in [(address + 4 * KIB, 4 * KIB), (address, 4 * KIB), (address, 16 * KIB), (0, 8 * KIB)] {
        ensure_matches!(release(pinned, at, bytes), Err(DeviceError::InvalidAddress { .. }));
    }
    // SAFETY: no work is on it; it is refused since it was not registered.
    let refused = unsafe { pinned.unregister_pinned(address, 8 * KIB) };
    ensure_matches!(refused, Err(DeviceError::InvalidAddress { .. }));
    release(pinned, address, 8 * KIB)?;
    ensure_matches!(release(pinned, address, 8 * KIB), Err(DeviceError::InvalidAddress { .. }));
    Ok(Outcome::Held)
}

fn registered_once_and_unregistered_once(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(pinned) = device.pinned_memory() else { return Ok(WITHOUT) };
    let mut own = vec![1_u8; 4 * MIB as usize];
    let start = own.as_mut_ptr().expose_provenance() as u64;
    let (address, bytes) = (start.next_multiple_of(4 * KIB), 2 * MIB);
    for _ in 0..2 {
        // SAFETY: the range lies in `own`, which outlives its registration.
        unsafe { pinned.register_pinned(address, bytes) }?;
        for (at, length) in [(address, bytes), (address + 4 * KIB, 4 * KIB), (address - 1, 2)] {
            // SAFETY: likewise.
            let refused = unsafe { pinned.register_pinned(at, length) };
            ensure_matches!(refused, Err(DeviceError::InvalidAddress { .. }));
        }
        ensure_matches!(release(pinned, address, bytes), Err(DeviceError::InvalidAddress { .. }));
        // SAFETY: no stream was given work on it.
        let refused = unsafe { pinned.unregister_pinned(address, MIB) };
        ensure_matches!(refused, Err(DeviceError::InvalidAddress { .. }));
        // SAFETY: likewise.
        unsafe { pinned.unregister_pinned(address, bytes) }?;
    }
    // SAFETY: likewise.
    let refused = unsafe { pinned.unregister_pinned(address, bytes) };
    ensure_matches!(refused, Err(DeviceError::InvalidAddress { .. }));
    Ok(Outcome::Held)
}

/// Copies `bytes` bytes of page-locked memory to the device and back into other page-locked memory.
fn round_trip(device: &Arc<dyn Device>, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<(), Failure> {
    let pinned = device.pinned_memory().ok_or("no page-locked memory")?;
    let segment = device.allocate(bytes)?;
    // SAFETY: the segment is this function's, the two ranges are the caller's page-locked memory, and all of it is there until
    // the stream is done.
    unsafe {
        pinned.write_pinned(segment, source, bytes, stream)?;
        pinned.read_pinned(segment, target, bytes, stream)?;
    }
    device.synchronize_stream(stream)?;
    device.release_unused(segment, bytes)?;
    Ok(())
}

fn bytes_go_and_come_back(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(pinned) = device.pinned_memory() else { return Ok(WITHOUT) };
    if !controls.has_bytes {
        // SAFETY: refused before anything is touched.
        let refused = unsafe { pinned.write_pinned(512, 512, 1, Stream::DEFAULT) };
        ensure_matches!(refused, Err(DeviceError::NoBytes { .. }));
        // SAFETY: likewise.
        let refused = unsafe { pinned.read_pinned(512, 512, 1, Stream::DEFAULT) };
        ensure_matches!(refused, Err(DeviceError::NoBytes { .. }));
        return Ok(Outcome::Held);
    }
    let bytes = 4 * MIB;
    let (source, target) = (pinned.allocate_pinned(bytes)?, pinned.allocate_pinned(bytes)?);
    let mut own = vec![0_u8; (bytes + 4 * KIB) as usize];
    let registered = (own.as_mut_ptr().expose_provenance() as u64).next_multiple_of(4 * KIB);
    // SAFETY: the range lies in `own`, which outlives its registration.
    unsafe { pinned.register_pinned(registered, bytes) }?;
    for (seed, stream) in (1..).zip([Some(Stream::DEFAULT), controls.second_stream].into_iter().flatten()) {
        for to in [target, registered] {
            // SAFETY: page-locked memory of this function's, and no stream has work on it.
            let (from, back) = unsafe { (bytes_of(source, bytes), bytes_of(to, bytes)) };
            pattern(from, seed);
            back.fill(0);
            round_trip(device, source, to, bytes, stream)?;
            // SAFETY: likewise; the streams are done.
            let (from, back) = unsafe { (bytes_of(source, bytes), bytes_of(to, bytes)) };
            ensure!(from == back, "{bytes} bytes came back changed on {stream}");
        }
    }
    // SAFETY: the streams are done.
    unsafe { pinned.unregister_pinned(registered, bytes) }?;
    release(pinned, source, bytes)?;
    release(pinned, target, bytes)?;
    Ok(Outcome::Held)
}

fn a_copy_does_not_wait(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(pinned) = device.pinned_memory() else { return Ok(WITHOUT) };
    if !controls.has_bytes {
        return Ok(NO_BYTES);
    }
    let (Some(hold), Some(stream)) = (&controls.hold, controls.second_stream) else {
        return Ok(Outcome::Skipped("a stream cannot be kept busy"));
    };
    let bytes = 64 * KIB;
    let (source, target) = (pinned.allocate_pinned(bytes)?, pinned.allocate_pinned(bytes)?);
    // SAFETY: page-locked memory of this function's, and no stream has work on it.
    unsafe { bytes_of(source, bytes) }.fill(1);
    let segment = device.allocate(bytes)?;
    let held = hold(stream)?;
    // SAFETY: the ranges are this function's, and are there until the stream is done.
    unsafe {
        pinned.write_pinned(segment, source, bytes, stream)?;
        pinned.read_pinned(segment, target, bytes, stream)?;
    }
    let event = device.record_event(stream)?;
    ensure!(!device.query_event(&event)?, "the copies are done on a busy stream");
    drop(held);
    device.wait_event(&event)?;
    device.release_event(event);
    // SAFETY: the copies are done.
    ensure!(unsafe { bytes_of(target, bytes) }.iter().all(|byte| *byte == 1), "the bytes did not arrive");
    device.release_unused(segment, bytes)?;
    release(pinned, source, bytes)?;
    release(pinned, target, bytes)?;
    Ok(Outcome::Held)
}

fn no_stream_is_captured_unasked(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    for stream in [Some(Stream::DEFAULT), controls.second_stream].into_iter().flatten() {
        ensure!(device.capture_id(stream)?.is_none(), "{stream} is being captured");
    }
    if let Some(stream) = controls.unknown_stream {
        ensure_matches!(device.capture_id(stream), Err(DeviceError::InvalidStream { .. }));
    }
    Ok(Outcome::Held)
}
