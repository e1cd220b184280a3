//! Stream-ordered memory. The figures are those that an H200's driver gives.

use crate::unused::FreeUnused as _;
use std::sync::Arc;
use std::thread;

use memtrack::device::{Device, DeviceError, Stream, StreamOrderedMemory, StreamOrderedUsage};

use super::{Check, Checked, Controls, Failure, Outcome, ensure, ensure_matches};

const MIB: u64 = 1 << 20;
const WITHOUT: Outcome = Outcome::Skipped("there is no stream-ordered memory");

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("stream-ordered memory is aligned and apart", aligned_and_apart),
    ("stream-ordered memory of no bytes is refused", no_bytes_are_refused),
    ("stream-ordered memory is counted unrounded, its pool in steps", counted_unrounded),
    ("high marks of stream-ordered memory follow and are reset", high_marks_follow_and_are_reset),
    ("a pool keeps what is freed until it is trimmed", kept_until_trimmed),
    ("stream-ordered memory runs out without sticking", runs_out_without_sticking),
    ("only live stream-ordered memory is freed", only_live_memory_is_freed),
    ("stream-ordered memory needs a known stream", needs_a_known_stream),
    ("stream-ordered bytes can be used in stream order", bytes_can_be_used),
    ("stream-ordered memory stays under work given before its free", stays_under_work_given_before),
    ("threads take stream-ordered memory at the same time", threads_take_memory_at_the_same_time),
];

/// An empty pool with nothing reserved, and its figures as new.
fn empty(device: &dyn Device, memory: &dyn StreamOrderedMemory) -> Result<(), Failure> {
    device.synchronize()?;
    memory.trim_ordered(0)?;
    memory.reset_ordered_high_marks()?;
    let usage = memory.ordered_usage()?;
    ensure!(usage == StreamOrderedUsage::default(), "not empty: {usage:?}");
    Ok(())
}

fn aligned_and_apart(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    let mut taken = Vec::new();
    for bytes in [1, 255, 256, 257, 700, MIB, 3 * MIB + 1, 40 * MIB, 1] {
        let address = memory.allocate_ordered(bytes, Stream::DEFAULT)?;
        ensure!(address != 0 && address.is_multiple_of(256), "{bytes} bytes at {address:#x}");
        taken.push((address, bytes));
    }
    taken.sort_unstable();
    for pair in taken.windows(2) {
        ensure!(pair[0].0 + pair[0].1 <= pair[1].0, "two overlap: {pair:?}");
    }
    for (address, _) in taken {
        memory.free_unused(address, Stream::DEFAULT)?;
    }
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}

fn no_bytes_are_refused(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    ensure_matches!(memory.allocate_ordered(0, Stream::DEFAULT), Err(DeviceError::InvalidSize { bytes: 0, .. }));
    Ok(Outcome::Held)
}

fn counted_unrounded(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    empty(&**device, memory)?;
    let free_before = device.memory()?.free_bytes;
    let mut taken = Vec::new();
    let mut used_bytes = 0;
    for (bytes, reserved_bytes) in [(1, 32 * MIB), (700, 32 * MIB), (MIB + 1, 32 * MIB), (40 * MIB, 64 * MIB)] {
        taken.push(memory.allocate_ordered(bytes, Stream::DEFAULT)?);
        used_bytes += bytes;
        let usage = memory.ordered_usage()?;
        ensure!(usage.used_bytes == used_bytes, "{used_bytes} bytes taken: {usage:?}");
        ensure!(
            usage.reserved_bytes == reserved_bytes,
            "{reserved_bytes} bytes awaited with {used_bytes} taken: {usage:?}"
        );
    }
    let free_during = device.memory()?.free_bytes;
    ensure!(free_during + 64 * MIB <= free_before, "{free_before} bytes free before, {free_during} during");
    if controls.set_other_use.is_some() {
        ensure!(free_during + 64 * MIB == free_before, "{free_before} bytes free before, {free_during} during");
    }
    for address in taken {
        memory.free_unused(address, Stream::DEFAULT)?;
    }
    ensure!(memory.ordered_usage()?.used_bytes == 0, "{:?} with all freed", memory.ordered_usage());
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}

fn high_marks_follow_and_are_reset(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    empty(&**device, memory)?;
    let (small, large) = (1000, 40 * MIB);
    let [first, second] =
        [memory.allocate_ordered(small, Stream::DEFAULT)?, memory.allocate_ordered(large, Stream::DEFAULT)?];
    memory.free_unused(second, Stream::DEFAULT)?;
    let high = memory.ordered_usage()?;
    ensure!((high.used_bytes, high.used_high_bytes) == (small, small + large), "{high:?}");
    ensure!(high.reserved_high_bytes == 64 * MIB, "{high:?}");
    memory.reset_ordered_high_marks()?;
    let reset = memory.ordered_usage()?;
    ensure!(reset.used_high_bytes == reset.used_bytes && reset.used_bytes == small, "{reset:?}");
    ensure!(reset.reserved_high_bytes == reset.reserved_bytes, "{reset:?}");
    memory.free_unused(first, Stream::DEFAULT)?;
    let freed = memory.ordered_usage()?;
    ensure!((freed.used_bytes, freed.used_high_bytes) == (0, small), "{freed:?}");
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}

fn kept_until_trimmed(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    empty(&**device, memory)?;
    let address = memory.allocate_ordered(100 * MIB, Stream::DEFAULT)?;
    memory.free_unused(address, Stream::DEFAULT)?;
    device.synchronize()?;
    let reserved = |awaited: &str| -> Result<u64, Failure> {
        let usage = memory.ordered_usage()?;
        ensure!(usage.used_bytes == 0, "{awaited}: {usage:?}");
        Ok(usage.reserved_bytes)
    };
    ensure!(reserved("kept")? == 128 * MIB, "{} bytes kept over a synchronization", reserved("kept")?);
    memory.trim_ordered(u64::MAX)?;
    ensure!(reserved("not trimmed")? == 128 * MIB, "{} bytes after a trim to all", reserved("not trimmed")?);
    let free_before = device.memory()?.free_bytes;
    memory.trim_ordered(0)?;
    ensure!(reserved("trimmed")? == 0, "{} bytes after a trim to nothing", reserved("trimmed")?);
    let free_after = device.memory()?.free_bytes;
    ensure!(free_before + 128 * MIB <= free_after, "{free_before} bytes free before the trim, {free_after} after");
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}

fn runs_out_without_sticking(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    let asked_bytes = 2 * device.total_bytes();
    for _ in 0..3 {
        ensure_matches!(
            memory.allocate_ordered(asked_bytes, Stream::DEFAULT),
            Err(DeviceError::OutOfMemory { requested_bytes, device: name })
                if requested_bytes == asked_bytes && name == device.name()
        );
        let address = memory.allocate_ordered(MIB, Stream::DEFAULT)?;
        memory.free_unused(address, Stream::DEFAULT)?;
        device.synchronize()?;
    }
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}

fn only_live_memory_is_freed(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    let address = memory.allocate_ordered(MIB, Stream::DEFAULT)?;
    for wrong in [0, 0xdead_0000, address + 256, address - 256] {
        let answer = memory.free_unused(wrong, Stream::DEFAULT);
        ensure!(matches!(answer, Err(DeviceError::InvalidAddress { address, .. }) if address == wrong), "{answer:?}");
    }
    memory.free_unused(address, Stream::DEFAULT)?;
    ensure_matches!(memory.free_unused(address, Stream::DEFAULT), Err(DeviceError::InvalidAddress { .. }));
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}

fn needs_a_known_stream(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    let Some(unknown) = controls.unknown_stream else { return Ok(Outcome::Skipped("every number names a stream")) };
    ensure_matches!(memory.allocate_ordered(MIB, unknown), Err(DeviceError::InvalidStream { .. }));
    let address = memory.allocate_ordered(MIB, Stream::DEFAULT)?;
    ensure_matches!(memory.free_unused(address, unknown), Err(DeviceError::InvalidStream { .. }));
    memory.free_unused(address, Stream::DEFAULT)?;
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}

fn bytes_can_be_used(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    let (true, Some(second)) = (controls.has_bytes, controls.second_stream) else {
        return Ok(Outcome::Skipped("there are no bytes"));
    };
    for (taken_on, freed_on) in [(Stream::DEFAULT, Stream::DEFAULT), (second, second), (second, Stream::DEFAULT)] {
        let address = memory.allocate_ordered(3 * MIB, taken_on)?;
        let mut found = vec![0; 4096];
        // SAFETY: the range is the memory above, which nobody else knows.
        unsafe {
            device.fill(address, 5, 3 * MIB, taken_on)?;
            device.read(address + 3 * MIB - 4096, &mut found, taken_on)?;
        }
        ensure!(found.iter().all(|&byte| byte == 5), "bytes came back changed on {taken_on}");
        // The read has waited for the stream, so that any other may free.
        memory.free_unused(address, freed_on)?;
    }
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}

fn stays_under_work_given_before(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    let (true, Some(hold), Some(stream)) = (controls.has_bytes, &controls.hold, controls.second_stream) else {
        return Ok(Outcome::Skipped("no stream can be kept busy with bytes"));
    };
    let address = memory.allocate_ordered(4 * MIB, stream)?;
    let held = hold(stream)?;
    // SAFETY: the range is the memory above, which nobody else knows.
    unsafe { device.fill(address, 1, 4 * MIB, stream) }?;
    // Nobody waits: the stream is busy until the next but one line.
    memory.free_unused(address, stream)?;
    ensure!(memory.ordered_usage()?.used_bytes == 0, "counted after its free: {:?}", memory.ordered_usage());
    drop(held);
    // A fill of memory that is gone breaks the device.
    device.synchronize_stream(stream)?;
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}

fn threads_take_memory_at_the_same_time(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.stream_ordered_memory() else { return Ok(WITHOUT) };
    let streams = [Stream::DEFAULT, controls.second_stream.unwrap_or_default()];
    let work = |thread: usize| -> Result<(), Failure> {
        let memory = device.stream_ordered_memory().ok_or("no stream-ordered memory")?;
        for round in 1..=100 {
            let stream = streams[thread % 2];
            let address = memory.allocate_ordered(round * 1001, stream)?;
            memory.free_unused(address, stream)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    empty(&**device, memory)?;
    Ok(Outcome::Held)
}
