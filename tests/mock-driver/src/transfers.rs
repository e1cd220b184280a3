//! Copies and fills, in stream order.

use std::ffi::c_void;

use crate::errors::{Answer, INVALID_VALUE};
use crate::mapping::bytes_at;
use crate::state::{State, call};
use crate::streams::Work;

#[derive(Clone)]
pub(crate) enum Transfer {
    /// From pageable memory: the bytes are taken at the call.
    Write {
        target: u64,
        source: Vec<u8>,
    },
    /// From pinned memory: the bytes are taken when the stream comes to it.
    WritePinned {
        target: u64,
        source: usize,
        bytes: u64,
    },
    Read {
        source: u64,
        target: usize,
        bytes: u64,
    },
    Copy {
        source: u64,
        target: u64,
        bytes: u64,
    },
    Fill {
        target: u64,
        value: u8,
        bytes: u64,
    },
}

impl Transfer {
    fn ranges(&self) -> [Option<(u64, u64)>; 2] {
        match self {
            Self::Write { target, source } => [Some((*target, source.len() as u64)), None],
            Self::WritePinned { target, bytes, .. } => [Some((*target, *bytes)), None],
            Self::Read { source, bytes, .. } => [Some((*source, *bytes)), None],
            Self::Copy { source, target, bytes } => [Some((*source, *bytes)), Some((*target, *bytes))],
            Self::Fill { target, bytes, .. } => [Some((*target, *bytes)), None],
        }
    }

    fn check(&self, state: &State) -> Answer {
        self.ranges().into_iter().flatten().try_for_each(|(address, bytes)| state.check_range(address, bytes))
    }

    /// Moves the bytes. An error if the memory is not there any more.
    pub(crate) fn carry_out(self, state: &State) -> Answer {
        self.ranges().into_iter().flatten().try_for_each(|(address, bytes)| state.check_backing(address, bytes))?;
        match self {
            Self::Write { target, source } => {
                // SAFETY: the target is readable and writable memory of this driver, checked above.
                unsafe { bytes_at(target).copy_from_nonoverlapping(source.as_ptr(), source.len()) };
            }
            Self::WritePinned { target, source, bytes } => {
                let source = std::ptr::with_exposed_provenance::<u8>(source);
                // SAFETY: the target is checked above; the source is the caller's until the stream has come here.
                unsafe { bytes_at(target).copy_from_nonoverlapping(source, bytes as usize) };
            }
            Self::Read { source, target, bytes } => {
                let target = std::ptr::with_exposed_provenance_mut::<u8>(target);
                // SAFETY: the source is checked above; the target is the caller's until the stream has come here.
                unsafe { bytes_at(source).copy_to_nonoverlapping(target, bytes as usize) };
            }
            Self::Copy { source, target, bytes } => {
                // SAFETY: both ranges are memory of this driver, checked above.
                unsafe { bytes_at(source).copy_to(bytes_at(target), bytes as usize) };
            }
            Self::Fill { target, value, bytes } => {
                // SAFETY: the target is memory of this driver, checked above.
                unsafe { bytes_at(target).write_bytes(value, bytes as usize) };
            }
        }
        Ok(())
    }
}

impl State {
    /// As [`check_range`](Self::check_range), and memory freed in stream order is still there for work queued before.
    fn check_backing(&self, address: u64, bytes: u64) -> Answer {
        let end = address.checked_add(bytes).ok_or(INVALID_VALUE)?;
        let before = self.allocations.range(..=address).next_back();
        let is_allocated = before.is_some_and(|(start, found)| end <= start + found.bytes);
        if is_allocated { Ok(()) } else { self.check_range(address, bytes) }
    }
}

/// Queues a transfer, and waits for it where the call does: always, or for pageable targets.
fn transfer(function: &'static str, stream: u64, waits: bool, make: impl FnOnce(&State) -> Answer<Transfer>) -> u32 {
    call(function, |state| {
        let key = state.stream_key(stream)?;
        let transfer = make(state)?;
        transfer.check(state)?;
        let is_pageable_read = matches!(&transfer, Transfer::Read { target, .. } if !state.is_pinned(*target));
        state.enqueue(key, Work::Transfer(transfer))?;
        if waits || is_pageable_read {
            state.wait_until(function, |state| state.is_stream_idle(key))?;
            state.current_device()?;
        }
        Ok(())
    })
}

/// # Safety
///
/// `source` is null or readable over `bytes`.
unsafe fn write(state: &State, target: u64, source: *const c_void, bytes: usize) -> Answer<Transfer> {
    if source.is_null() {
        return Err(INVALID_VALUE);
    }
    if state.is_pinned(source.addr()) {
        return Ok(Transfer::WritePinned { target, source: source.expose_provenance(), bytes: bytes as u64 });
    }
    // SAFETY: as promised by the caller.
    let source = unsafe { std::slice::from_raw_parts(source.cast::<u8>(), bytes) }.to_vec();
    Ok(Transfer::Write { target, source })
}

fn read(target: *mut c_void, source: u64, bytes: usize) -> Answer<Transfer> {
    if target.is_null() {
        return Err(INVALID_VALUE);
    }
    Ok(Transfer::Read { source, target: target.expose_provenance(), bytes: bytes as u64 })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(target: u64, source: *const c_void, bytes: usize, stream: u64) -> u32 {
    // SAFETY: the caller's memory, as cuda.h asks.
    transfer("cuMemcpyHtoDAsync_v2", stream, false, |state| unsafe { write(state, target, source, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(target: u64, source: *const c_void, bytes: usize) -> u32 {
    // SAFETY: the caller's memory, as cuda.h asks.
    transfer("cuMemcpyHtoD_v2", 0, true, |state| unsafe { write(state, target, source, bytes) })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(target: *mut c_void, source: u64, bytes: usize, stream: u64) -> u32 {
    transfer("cuMemcpyDtoHAsync_v2", stream, false, |_| read(target, source, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(target: *mut c_void, source: u64, bytes: usize) -> u32 {
    transfer("cuMemcpyDtoH_v2", 0, true, |_| read(target, source, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(target: u64, source: u64, bytes: usize, stream: u64) -> u32 {
    let copy = Transfer::Copy { source, target, bytes: bytes as u64 };
    transfer("cuMemcpyDtoDAsync_v2", stream, false, |_| Ok(copy))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(target: u64, source: u64, bytes: usize) -> u32 {
    let copy = Transfer::Copy { source, target, bytes: bytes as u64 };
    transfer("cuMemcpyDtoD_v2", 0, true, |_| Ok(copy))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(target: u64, value: u8, bytes: usize, stream: u64) -> u32 {
    let fill = Transfer::Fill { target, value, bytes: bytes as u64 };
    transfer("cuMemsetD8Async", stream, false, |_| Ok(fill))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(target: u64, value: u8, bytes: usize) -> u32 {
    let fill = Transfer::Fill { target, value, bytes: bytes as u64 };
    transfer("cuMemsetD8_v2", 0, true, |_| Ok(fill))
}
