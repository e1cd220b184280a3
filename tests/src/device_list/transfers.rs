//! Bytes in, across and out.

use crate::unused::ReleaseUnused as _;
use std::sync::Arc;

use memtrack::device::{Device, DeviceError, Stream};

use super::{Check, Checked, Controls, Outcome, ensure, ensure_matches};

const NO_BYTES: Outcome = Outcome::Skipped("there are no bytes");

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("what is written is read back", what_is_written_is_read_back),
    ("a copy is the same at the target and leaves the rest", a_copy_is_the_same),
    ("a fill sets the range and leaves the rest", a_fill_sets_the_range),
    ("nothing is moved without error", nothing_is_moved),
    ("work in a stream is done in order", work_in_a_stream_is_done_in_order),
    ("a device without bytes says so", a_device_without_bytes_says_so),
];

/// Bytes that differ from their neighbours and from those of another seed.
fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed).collect()
}

fn streams(controls: &Controls) -> impl Iterator<Item = Stream> {
    [Some(Stream::DEFAULT), controls.second_stream].into_iter().flatten()
}

fn what_is_written_is_read_back(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    if !controls.has_bytes {
        return Ok(NO_BYTES);
    }
    const BYTES: u64 = 4 << 20;
    let address = device.allocate(BYTES)?;
    for stream in streams(controls) {
        for (offset, length) in [(0, 1), (1, 511), (512, 512), (7, (3 << 20) + 7), (0, BYTES as usize)] {
            let source = pattern(length, length as u8);
            let mut target = vec![0; length];
            // SAFETY: the range lies in the segment above, which nobody else knows.
            unsafe { device.write(address + offset, &source, stream) }?;
            // SAFETY: likewise.
            unsafe { device.read(address + offset, &mut target, stream) }?;
            ensure!(source == target, "{length} bytes at offset {offset} on {stream} came back changed");
        }
    }
    device.release_unused(address, BYTES)?;
    Ok(Outcome::Held)
}

fn a_copy_is_the_same(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    if !controls.has_bytes {
        return Ok(NO_BYTES);
    }
    const BYTES: usize = 1 << 20;
    let (from, to) = (device.allocate(BYTES as u64)?, device.allocate(BYTES as u64)?);
    for stream in streams(controls) {
        let (source, mut expected) = (pattern(BYTES, 1), pattern(BYTES, 2));
        // SAFETY: the ranges lie in the two segments above, which nobody else knows.
        unsafe {
            device.write(from, &source, stream)?;
            device.write(to, &expected, stream)?;
            device.copy(from + 100, to + 1000, 5000, stream)?;
        }
        expected[1000..6000].copy_from_slice(&source[100..5100]);
        let mut target = vec![0; BYTES];
        // SAFETY: likewise.
        unsafe { device.read(to, &mut target, stream) }?;
        ensure!(target == expected, "the target differs on {stream}");
    }
    device.release_unused(from, BYTES as u64)?;
    device.release_unused(to, BYTES as u64)?;
    Ok(Outcome::Held)
}

fn a_fill_sets_the_range(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    if !controls.has_bytes {
        return Ok(NO_BYTES);
    }
    const BYTES: usize = 64 << 10;
    let address = device.allocate(BYTES as u64)?;
    for stream in streams(controls) {
        let mut expected = pattern(BYTES, 3);
        let mut target = vec![0; BYTES];
        // SAFETY: the ranges lie in the segment above, which nobody else knows.
        unsafe {
            device.write(address, &expected, stream)?;
            device.fill(address + 1234, 0xa5, 4321, stream)?;
            device.read(address, &mut target, stream)?;
        }
        expected[1234..1234 + 4321].fill(0xa5);
        ensure!(target == expected, "the segment differs on {stream}");
    }
    device.release_unused(address, BYTES as u64)?;
    Ok(Outcome::Held)
}

fn nothing_is_moved(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    if !controls.has_bytes {
        return Ok(NO_BYTES);
    }
    let address = device.allocate(1024)?;
    // SAFETY: the ranges are empty.
    unsafe {
        device.write(address, &[], Stream::DEFAULT)?;
        device.read(address, &mut [], Stream::DEFAULT)?;
        device.copy(address, address + 512, 0, Stream::DEFAULT)?;
        device.fill(address, 1, 0, Stream::DEFAULT)?;
    }
    device.release_unused(address, 1024)?;
    Ok(Outcome::Held)
}

fn work_in_a_stream_is_done_in_order(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    if !controls.has_bytes {
        return Ok(NO_BYTES);
    }
    let (Some(hold), Some(stream)) = (&controls.hold, controls.second_stream) else {
        return Ok(Outcome::Skipped("a stream cannot be kept busy"));
    };
    let address = device.allocate(2048)?;
    let held = hold(stream)?;
    // SAFETY: the ranges lie in the segment above, which nobody else knows.
    unsafe {
        device.fill(address, 1, 1024, stream)?;
        device.copy(address, address + 1024, 1024, stream)?;
        device.fill(address, 2, 1024, stream)?;
    }
    drop(held);
    let mut found = [0; 2048];
    // SAFETY: likewise.
    unsafe { device.read(address, &mut found, stream) }?;
    ensure!(found[..1024] == [2; 1024] && found[1024..] == [1; 1024], "{:?} and {:?}", &found[..4], &found[1024..1028]);
    device.release_unused(address, 2048)?;
    Ok(Outcome::Held)
}

fn a_device_without_bytes_says_so(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    if controls.has_bytes {
        return Ok(Outcome::Skipped("there are bytes"));
    }
    let address = device.allocate(1024)?;
    // SAFETY: the ranges lie in the segment above, which nobody else knows.
    unsafe {
        ensure_matches!(device.write(address, &[1], Stream::DEFAULT), Err(DeviceError::NoBytes { .. }));
        ensure_matches!(device.read(address, &mut [0], Stream::DEFAULT), Err(DeviceError::NoBytes { .. }));
        ensure_matches!(device.copy(address, address + 512, 1, Stream::DEFAULT), Err(DeviceError::NoBytes { .. }));
        ensure_matches!(device.fill(address, 1, 1, Stream::DEFAULT), Err(DeviceError::NoBytes { .. }));
    }
    device.release_unused(address, 1024)?;
    Ok(Outcome::Held)
}
