//! Graph captures, and memory calls while one is underway.

use crate::unused::{FreeUnused as _, ReleaseUnused as _, UnmapUnused as _};
use std::sync::Arc;
use std::thread;

use memtrack::device::{Device, DeviceError, Stream};

use super::{Check, Checked, Controls, Failure, Outcome, ensure, ensure_matches};

const MIB: u64 = 1 << 20;
const CANNOT_CAPTURE: Outcome = Outcome::Skipped("a stream cannot be captured");

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a captured stream says which capture it is in", a_captured_stream_says_so),
    ("memory calls leave a capture whole", memory_calls_leave_a_capture_whole),
    ("memory calls of other threads leave a capture whole", other_threads_leave_a_capture_whole),
    ("stream-ordered memory is refused on a captured stream alone", stream_ordered_memory_is_refused),
];

fn a_captured_stream_says_so(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    if let Some(unknown) = controls.unknown_stream {
        ensure_matches!(device.capture_id(unknown), Err(DeviceError::InvalidStream { .. }));
    }
    for stream in [Some(Stream::DEFAULT), controls.second_stream].into_iter().flatten() {
        ensure!(device.capture_id(stream)?.is_none(), "{stream} is captured unasked");
    }
    let (Some(capture), Some(stream)) = (&controls.capture, controls.second_stream) else { return Ok(CANNOT_CAPTURE) };
    let mut ids = Vec::new();
    for _ in 0..3 {
        let capturing = capture(stream)?;
        let id = device.capture_id(stream)?.ok_or("a captured stream says that it is not")?;
        ensure!(device.capture_id(stream)? == Some(id), "the number changed during the capture");
        ensure!(device.capture_id(Stream::DEFAULT)?.is_none(), "another stream is said to be captured");
        let elsewhere = thread::scope(|scope| scope.spawn(|| device.capture_id(stream)).join());
        ensure!(elsewhere.map_err(|_| "the thread panicked")?? == Some(id), "another thread sees something else");
        capturing.end()?;
        ensure!(device.capture_id(stream)?.is_none(), "still captured after the end");
        ids.push(id);
    }
    ids.dedup();
    ensure!(ids.len() == 3, "two captures have one number: {ids:?}");
    Ok(Outcome::Held)
}

/// Everything that takes memory, gives it back or asks about it, with nothing left behind.
fn use_memory(device: &dyn Device) -> Result<(), Failure> {
    let address = device.allocate(4 * MIB)?;
    device.memory()?;
    device.release_unused(address, 4 * MIB)?;
    ensure_matches!(device.allocate(2 * device.total_bytes()), Err(DeviceError::OutOfMemory { .. }));
    if let Some(memory) = device.virtual_memory() {
        let granularity_bytes = memory.granularity_bytes();
        let range = memory.reserve(4 * granularity_bytes)?;
        let pieces = [memory.create(granularity_bytes)?, memory.create(2 * granularity_bytes)?];
        memory.map_pieces(range, &pieces)?;
        memory.unmap_unused(range, 3 * granularity_bytes)?;
        memory.map(range + granularity_bytes, pieces[1])?;
        memory.unmap_unused(range + granularity_bytes, 2 * granularity_bytes)?;
        for piece in pieces {
            memory.release_physical(piece)?;
        }
        memory.unreserve(range, 4 * granularity_bytes)?;
    }
    if let Some(memory) = device.stream_ordered_memory() {
        memory.ordered_usage()?;
        memory.trim_ordered(0)?;
    }
    Ok(())
}

fn memory_calls_leave_a_capture_whole(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let (Some(capture), Some(stream)) = (&controls.capture, controls.second_stream) else { return Ok(CANNOT_CAPTURE) };
    let before = device.allocate(2 * MIB)?;
    let capturing = capture(stream)?;
    use_memory(&**device)?;
    device.release_unused(before, 2 * MIB)?;
    let during = device.allocate(2 * MIB)?;
    ensure!(device.capture_id(stream)?.is_some(), "the capture is broken");
    capturing.end()?;
    device.release_unused(during, 2 * MIB)?;
    Ok(Outcome::Held)
}

fn other_threads_leave_a_capture_whole(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let (Some(capture), Some(stream)) = (&controls.capture, controls.second_stream) else { return Ok(CANNOT_CAPTURE) };
    let capturing = capture(stream)?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| use_memory(&**device))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    ensure!(device.capture_id(stream)?.is_some(), "the capture is broken");
    capturing.end()?;
    Ok(Outcome::Held)
}

fn stream_ordered_memory_is_refused(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let (Some(capture), Some(stream)) = (&controls.capture, controls.second_stream) else { return Ok(CANNOT_CAPTURE) };
    let Some(memory) = device.stream_ordered_memory() else {
        return Ok(Outcome::Skipped("there is no stream-ordered memory"));
    };
    let before = memory.allocate_ordered(1000, stream)?;
    let capturing = capture(stream)?;
    let is_refused = |answer: Result<(), DeviceError>| matches!(answer, Err(DeviceError::InvalidStream { stream: at, .. }) if at == stream);
    ensure!(is_refused(memory.allocate_ordered(1000, stream).map(drop)), "taken on a captured stream");
    ensure!(is_refused(memory.free_unused(before, stream)), "freed on a captured stream");
    let elsewhere = memory.allocate_ordered(1000, Stream::DEFAULT)?;
    memory.free_unused(elsewhere, Stream::DEFAULT)?;
    ensure!(device.capture_id(stream)?.is_some(), "the capture is broken");
    capturing.end()?;
    memory.free_unused(before, stream)?;
    device.synchronize_stream(stream)?;
    ensure!(memory.ordered_usage()?.used_bytes == 0, "{:?} with nothing left", memory.ordered_usage());
    Ok(Outcome::Held)
}
