//! Taking and giving back segments, and what the device says is free.

use crate::unused::ReleaseUnused as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use memtrack::device::{Device, DeviceError, Stream};

use super::{Check, Checked, Controls, Failure, Outcome, ensure, ensure_matches};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a device says what it is", says_what_it_is),
    ("segments are aligned and apart", segments_are_aligned_and_apart),
    ("a segment of no bytes is refused", no_bytes_are_refused),
    ("out of memory names the request and does not stick", out_of_memory_does_not_stick),
    ("free bytes follow the segments", free_bytes_follow_the_segments),
    ("other processes' use is not free", other_use_is_not_free),
    ("only a whole live segment is released", only_a_whole_live_segment_is_released),
    ("a segment is not taken away under work given before", not_taken_away_under_work),
    ("threads allocate at the same time", threads_allocate_at_the_same_time),
];

fn says_what_it_is(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    ensure!(!device.name().is_empty() && !device.model().is_empty(), "no name or no model");
    let memory = device.memory()?;
    ensure!(memory.total_bytes > 0 && memory.free_bytes <= memory.total_bytes, "{memory:?}");
    ensure!(memory.total_bytes == device.total_bytes(), "{memory:?}, but total_bytes is {}", device.total_bytes());
    Ok(Outcome::Held)
}

fn segments_are_aligned_and_apart(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let sizes = [1, 511, 512, 513, MIB, 2 * MIB, 3 * MIB + 512, 20 * MIB, 1];
    let mut segments = Vec::new();
    for bytes in sizes {
        let address = device.allocate(bytes)?;
        ensure!(address != 0 && address.is_multiple_of(512), "{bytes} bytes at {address:#x}");
        segments.push((address, bytes));
    }
    segments.sort_unstable();
    for pair in segments.windows(2) {
        ensure!(pair[0].0 + pair[0].1 <= pair[1].0, "two segments overlap: {pair:?}");
    }
    for (address, bytes) in segments {
        device.release_unused(address, bytes)?;
    }
    Ok(Outcome::Held)
}

fn no_bytes_are_refused(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    ensure_matches!(device.allocate(0), Err(DeviceError::InvalidSize { bytes: 0, .. }));
    Ok(Outcome::Held)
}

fn out_of_memory_does_not_stick(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let asked_bytes = 2 * device.total_bytes();
    for _ in 0..3 {
        ensure_matches!(
            device.allocate(asked_bytes),
            Err(DeviceError::OutOfMemory { requested_bytes, device: name })
                if requested_bytes == asked_bytes && name == device.name()
        );
        let address = device.allocate(2 * MIB)?;
        device.release_unused(address, 2 * MIB)?;
        device.synchronize()?;
    }
    Ok(Outcome::Held)
}

fn free_bytes_follow_the_segments(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let before_bytes = device.memory()?.free_bytes;
    let address = device.allocate(64 * MIB)?;
    let during_bytes = device.memory()?.free_bytes;
    device.release_unused(address, 64 * MIB)?;
    let after_bytes = device.memory()?.free_bytes;
    let taken_bytes = before_bytes.saturating_sub(during_bytes);
    ensure!(taken_bytes >= 64 * MIB, "free bytes fell by {taken_bytes}");
    ensure!(after_bytes >= during_bytes + 64 * MIB, "free bytes: {during_bytes} with the segment, {after_bytes} after");
    if controls.set_other_use.is_some() {
        ensure!(taken_bytes == 64 * MIB && after_bytes == before_bytes, "{before_bytes} {during_bytes} {after_bytes}");
    }
    Ok(Outcome::Held)
}

fn other_use_is_not_free(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(set_other_use) = &controls.set_other_use else {
        return Ok(Outcome::Skipped("other processes cannot be made to take memory"));
    };
    let alone = device.memory()?;
    set_other_use(GIB);
    let crowded = device.memory()?;
    ensure!(crowded.free_bytes == alone.free_bytes - GIB, "{alone:?}, then {crowded:?}");
    ensure!(crowded.total_bytes == alone.total_bytes, "{alone:?}, then {crowded:?}");
    set_other_use(alone.free_bytes - 4 * MIB);
    ensure_matches!(device.allocate(6 * MIB), Err(DeviceError::OutOfMemory { .. }));
    let address = device.allocate(4 * MIB)?;
    ensure!(device.memory()?.free_bytes == 0, "{:?}", device.memory());
    device.release_unused(address, 4 * MIB)?;
    set_other_use(0);
    ensure!(device.memory()? == alone, "{alone:?}, then {:?}", device.memory());
    Ok(Outcome::Held)
}

fn only_a_whole_live_segment_is_released(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let address = device.allocate(4 * MIB)?;
    let wrong = [
        ("an unknown address", 0xdead_0000, 4 * MIB),
        ("no address", 0, 4 * MIB),
        ("an address inside a segment", address + 2 * MIB, 2 * MIB),
        ("half a segment", address, 2 * MIB),
        ("more than a segment", address, 8 * MIB),
        ("no bytes of a segment", address, 0),
    ];
    for (what, address, bytes) in wrong {
        let answer = device.release_unused(address, bytes);
        ensure!(
            matches!(&answer, Err(DeviceError::InvalidAddress { address: found, .. }) if *found == address),
            "{what}: {answer:?}"
        );
    }
    device.release_unused(address, 4 * MIB)?;
    ensure_matches!(device.release_unused(address, 4 * MIB), Err(DeviceError::InvalidAddress { .. }));
    // None of this has hurt the device.
    let address = device.allocate(4 * MIB)?;
    device.release_unused(address, 4 * MIB)?;
    Ok(Outcome::Held)
}

fn not_taken_away_under_work(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let (true, Some(hold), Some(stream)) = (controls.has_bytes, &controls.hold, controls.second_stream) else {
        return Ok(Outcome::Skipped("no stream can be kept busy with bytes"));
    };
    let address = device.allocate(4 * MIB)?;
    let held = hold(stream)?;
    // SAFETY: the range is the segment above, which nobody else knows.
    unsafe { device.fill(address, 1, 4 * MIB, stream) }?;
    thread::scope(|scope| {
        let release = scope.spawn(|| device.release_unused(address, 4 * MIB));
        thread::sleep(Duration::from_millis(20));
        drop(held);
        release.join()
    })
    .map_err(|_| "the releasing thread panicked")??;
    // A fill of memory that is gone breaks the device.
    device.synchronize_stream(stream)?;
    device.synchronize()?;
    let address = device.allocate(4 * MIB)?;
    device.release_unused(address, 4 * MIB)?;
    Ok(Outcome::Held)
}

fn threads_allocate_at_the_same_time(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let before_bytes = device.memory()?.free_bytes;
    let work = |thread: u64| -> Result<(), DeviceError> {
        for round in 0..100 {
            let bytes = 2 * MIB * (1 + (thread + round) % 3);
            let address = device.allocate(bytes)?;
            let event = device.record_event(Stream::DEFAULT)?;
            device.wait_event(&event)?;
            device.release_event(event);
            device.release_unused(address, bytes)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?.map_err(Into::into))
            as Result<(), Failure>
    })?;
    let after_bytes = device.memory()?.free_bytes;
    if controls.set_other_use.is_some() {
        ensure!(after_bytes == before_bytes, "{before_bytes} bytes free before, {after_bytes} after");
    }
    Ok(Outcome::Held)
}
