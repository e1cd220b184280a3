//! Ordinary memory that is locked afterwards: its pages are touched first, by several threads where that is faster, so that
//! the driver finds them in place.

use std::thread::Builder;

use crate::device::{DeviceError, PinnedMemory, PlainMemory, pointer_to};

/// Blocks take whole pages, so that no two registered ranges share one.
const PAGE_BYTES: u64 = 4096;

/// Takes memory of at least `bytes` bytes, touches its pages with up to `threads` threads, and has it locked.
pub(super) fn take(
    device: &str,
    pinned: &dyn PinnedMemory,
    bytes: u64,
    threads: usize,
) -> Result<PlainMemory, DeviceError> {
    let locked_bytes = locked_bytes(bytes);
    let memory = PlainMemory::zeroed(locked_bytes, PAGE_BYTES as usize)
        .ok_or_else(|| DeviceError::OutOfMemory { device: device.to_owned(), requested_bytes: bytes })?;
    touch(&memory, locked_bytes, threads);
    // SAFETY: the memory is this process's, and is given back only by `give_back`, after it was unlocked. Elsewhere it is
    // never dropped while it is registered.
    unsafe { pinned.register_pinned(memory.address(), locked_bytes) }?;
    Ok(memory)
}

/// Unlocks the memory of a block of `bytes` bytes. After an error it is as it was; else the caller drops it.
///
/// # Safety
///
/// The memory came from [`take`] with this size and was not given back, nobody uses it, and no work on it is left.
pub(super) unsafe fn give_back(pinned: &dyn PinnedMemory, memory: &PlainMemory, bytes: u64) -> Result<(), DeviceError> {
    // SAFETY: as promised by the caller.
    unsafe { pinned.unregister_pinned(memory.address(), locked_bytes(bytes)) }
}

fn locked_bytes(bytes: u64) -> u64 {
    // Block sizes are powers of two of at most 2^60, so this is a page or the size itself.
    bytes.next_multiple_of(PAGE_BYTES)
}

fn touch(memory: &PlainMemory, bytes: u64, threads: usize) {
    let touch_range = |from: u64, to: u64| {
        for offset in (from..to).step_by(PAGE_BYTES as usize) {
            // SAFETY: within the memory, which nobody else has yet; the bytes are zero before and after.
            unsafe { pointer_to(memory.address() + offset).write_volatile(0) };
        }
    };
    let pages = bytes / PAGE_BYTES;
    // As PyTorch: only where each thread has a page of its own.
    let parts = if pages >= threads as u64 { threads as u64 } else { 1 };
    let part_bytes = pages.div_ceil(parts) * PAGE_BYTES;
    std::thread::scope(|scope| {
        for part in 1..parts {
            let (from, to) = (part * part_bytes, ((part + 1) * part_bytes).min(bytes));
            let work = move || touch_range(from, to);
            // Where no thread is to be had, the driver brings the pages in itself.
            let _ = Builder::new().name("memtrack-pages".to_owned()).spawn_scoped(scope, work);
        }
        touch_range(0, part_bytes.min(bytes));
    });
}
