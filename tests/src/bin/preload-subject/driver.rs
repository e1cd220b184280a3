//! The driver's functions as a program calls them: through cudarc, which opens `libcuda.so` when it runs.

use std::ptr::without_provenance_mut;

use cudarc::driver::sys;
use memtrack_tests::mock::Mock;

pub(crate) const MIB: usize = 1 << 20;

/// An address, or the driver's number of the error.
pub(crate) type Allocated = Result<u64, u32>;

pub(crate) fn stream_of(handle: u64) -> sys::CUstream {
    without_provenance_mut(handle as usize)
}

pub(crate) fn alloc(bytes: usize) -> Allocated {
    let mut address = 0;
    // SAFETY: a place for one address.
    let answer = unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) } as u32;
    if answer == 0 { Ok(address) } else { Err(answer) }
}

pub(crate) fn alloc_async(bytes: usize, stream: u64) -> Allocated {
    let mut address = 0;
    // SAFETY: a place for one address, and a stream that is alive.
    let answer = unsafe { sys::cuMemAllocAsync(&raw mut address, bytes, stream_of(stream)) } as u32;
    if answer == 0 { Ok(address) } else { Err(answer) }
}

pub(crate) fn free(address: u64) -> u32 {
    // SAFETY: the driver refuses what it did not give; nothing here uses the memory any more.
    unsafe { sys::cuMemFree_v2(address) as u32 }
}

pub(crate) fn free_async(address: u64, stream: u64) -> u32 {
    // SAFETY: likewise.
    unsafe { sys::cuMemFreeAsync(address, stream_of(stream)) as u32 }
}

/// So often the driver itself was called.
pub(crate) fn print_calls(mock: &Mock) {
    for function in ["cuMemAlloc_v2", "cuMemAllocAsync", "cuMemFree_v2", "cuMemFreeAsync", "cuCtxGetDevice"] {
        println!("{function}={}", mock.calls(function));
    }
}
