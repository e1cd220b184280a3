//! Host memory as a device: real bytes, a capacity that can be set, nothing asynchronous.
//!
//! It is the default everywhere, so that a training loop and its memory behaviour can be tried on any machine. A capacity
//! below the machine's memory makes an out of memory happen on purpose.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::plain::{PlainMemory, PlainPinned, pointer_to};
use super::{Device, DeviceError, DeviceKind, DeviceMemory, Event, PinnedMemory, Stream};
use crate::sync::lock;
use crate::units::GIB;

/// Segments start at multiples of this, so that every block, a multiple of 512 bytes into its segment, does too.
const ALIGNMENT_BYTES: usize = 512;

/// Host memory with a capacity.
///
/// Streams are accepted by any number and are always idle: work on the host is done when the call returns. Page-locked memory
/// is plain memory, and no part of the capacity.
#[derive(Debug)]
pub struct Host {
    capacity_bytes: u64,
    segments: Mutex<Segments>,
    pinned: PlainPinned,
}

#[derive(Debug, Default)]
struct Segments {
    used_bytes: u64,
    /// Live segments by the address handed out.
    live: BTreeMap<u64, Segment>,
}

#[derive(Debug)]
struct Segment {
    bytes: u64,
    _memory: PlainMemory,
}

impl Host {
    /// As much as the machine has.
    pub fn new() -> Self {
        Self::with_capacity(physical_memory_bytes())
    }

    /// A device that refuses to hand out more than `capacity_bytes` at a time.
    pub fn with_capacity(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, segments: Mutex::default(), pinned: PlainPinned::default() }
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        // The table is only touched by code that cannot panic half-way, so a poisoned lock still guards a whole table.
        lock(&self.segments)
    }

    fn out_of_memory(&self, requested_bytes: u64) -> DeviceError {
        DeviceError::OutOfMemory { device: self.name().to_owned(), requested_bytes }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

/// What the operating system says the machine has; 16 GiB where it does not say.
fn physical_memory_bytes() -> u64 {
    let from_proc = || {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    from_proc().unwrap_or(16 * GIB)
}

// SAFETY: segments come from the global allocator, aligned, and are given back only by `release` or `drop`. All work is done
// when its call returns, so there is none to wait for.
unsafe impl Device for Host {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Host
    }

    fn name(&self) -> &str {
        "host"
    }

    fn model(&self) -> &str {
        "host memory"
    }

    fn total_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn memory(&self) -> Result<DeviceMemory, DeviceError> {
        let used_bytes = self.segments().used_bytes;
        Ok(DeviceMemory { free_bytes: self.capacity_bytes - used_bytes, total_bytes: self.capacity_bytes })
    }

    fn allocate(&self, bytes: u64) -> Result<u64, DeviceError> {
        if bytes == 0 {
            let reason = "a segment has at least one byte";
            return Err(DeviceError::InvalidSize { device: self.name().to_owned(), bytes, reason });
        }
        let mut segments = self.segments();
        let fits = bytes <= self.capacity_bytes - segments.used_bytes;
        let Some(memory) = fits.then(|| PlainMemory::zeroed(bytes, ALIGNMENT_BYTES)).flatten() else {
            return Err(self.out_of_memory(bytes));
        };
        let address = memory.address();
        segments.used_bytes += bytes;
        segments.live.insert(address, Segment { bytes, _memory: memory });
        Ok(address)
    }

    unsafe fn release(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut segments = self.segments();
        let reason = match segments.live.get(&address) {
            Some(segment) if segment.bytes == bytes => None,
            Some(_) => Some("a segment is released whole, with the size it was allocated with"),
            None => Some("not the start of a live segment"),
        };
        if let Some(reason) = reason {
            return Err(DeviceError::InvalidAddress { device: self.name().to_owned(), address, reason });
        }
        let segment = segments.live.remove(&address);
        segments.used_bytes -= bytes;
        drop(segments);
        drop(segment);
        Ok(())
    }

    fn pinned_memory(&self) -> Option<&dyn PinnedMemory> {
        Some(self)
    }

    fn record_event(&self, _stream: Stream) -> Result<Event, DeviceError> {
        // SAFETY: nothing is kept behind events here, so they may all be one.
        Ok(unsafe { Event::from_raw(0) })
    }

    fn query_event(&self, _event: &Event) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait_event(&self, _event: &Event) -> Result<(), DeviceError> {
        Ok(())
    }

    fn release_event(&self, _event: Event) {}

    fn stream_wait_event(&self, _stream: Stream, _event: &Event) -> Result<(), DeviceError> {
        Ok(())
    }

    fn synchronize_stream(&self, _stream: Stream) -> Result<(), DeviceError> {
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    unsafe fn write(&self, address: u64, source: &[u8], _stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller promises a live range that nobody else touches; the source is a borrowed slice of its own.
        unsafe { pointer_to(address).copy_from_nonoverlapping(source.as_ptr(), source.len()) };
        Ok(())
    }

    unsafe fn read(&self, address: u64, target: &mut [u8], _stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller promises a live range that nobody writes; the target is a borrowed slice of its own.
        unsafe { pointer_to(address).copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    unsafe fn copy(&self, source: u64, target: u64, bytes: u64, _stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller promises two live ranges that do not overlap; both lie in memory, so `bytes` fits usize.
        unsafe { pointer_to(source).copy_to_nonoverlapping(pointer_to(target), bytes as usize) };
        Ok(())
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, _stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller promises a live range that nobody else touches.
        unsafe { pointer_to(address).write_bytes(value, bytes as usize) };
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

// SAFETY: plain memory from the global allocator, aligned and zeroed, given back only by `release_pinned` or `drop`. A copy is
// done when its call returns, and streams are never captured.
unsafe impl PinnedMemory for Host {
    fn allocate_pinned(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.pinned.allocate(self.name(), bytes)
    }

    unsafe fn release_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.pinned.release(self.name(), address, bytes)
    }

    unsafe fn register_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.pinned.register(self.name(), address, bytes)
    }

    unsafe fn unregister_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.pinned.unregister(self.name(), address, bytes)
    }

    unsafe fn write_pinned(&self, target: u64, source: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: two live ranges that do not overlap, one a segment's and one page-locked, as the caller promises.
        unsafe { self.copy(source, target, bytes, stream) }
    }

    unsafe fn read_pinned(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { self.copy(source, target, bytes, stream) }
    }
}
