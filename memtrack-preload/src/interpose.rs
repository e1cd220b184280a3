//! The exported functions, under the driver's names.
//!
//! Each passes its arguments on as they came, and answers with what the driver said.

use crate::books::Api;
use crate::live_blocks::{Block, Owner};
use crate::process::{caught, counted};
use crate::real::{Answer, SUCCESS, real};

/// An allocation: `forward` is the driver's own, `result` what it gave, an address and how many bytes.
#[inline]
fn allocate(
    api: Api,
    requested_bytes: u64,
    forward: impl FnOnce() -> Answer,
    result: impl FnOnce() -> (u64, u64),
) -> Answer {
    let Some(process) = counted() else { return forward() };
    let answer = forward();
    let _ = caught(|| {
        let device = process.current_device();
        if answer == SUCCESS {
            let (address, bytes) = result();
            process.books.allocated(api, address, Block { bytes, device, owner: Owner::Driver });
        } else {
            process.books.failed(api, requested_bytes, device, answer);
        }
    });
    answer
}

/// A free: `forward` is the driver's own.
#[inline]
fn free(api: Api, address: u64, forward: impl FnOnce() -> Answer) -> Answer {
    let Some(process) = counted() else { return forward() };
    let taken = caught(|| process.books.take(address)).flatten();
    let answer = forward();
    let _ = caught(|| {
        let device = if taken.is_some() { 0 } else { process.current_device() };
        process.books.freed(api, address, taken, device, answer);
    });
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> Answer {
    allocate(
        Api::Alloc,
        bytes as u64,
        // SAFETY: the program's own arguments.
        || unsafe { real().mem_alloc(address, bytes) },
        // SAFETY: the driver has written there.
        || (unsafe { address.read() }, bytes as u64),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocPitch_v2(
    address: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Answer {
    allocate(
        Api::AllocPitch,
        (width as u64).saturating_mul(height as u64),
        // SAFETY: the program's own arguments.
        || unsafe { real().mem_alloc_pitch(address, pitch, width, height, element) },
        // SAFETY: the driver has written to both.
        || unsafe { (address.read(), (pitch.read() as u64).saturating_mul(height as u64)) },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) -> Answer {
    allocate(
        Api::AllocManaged,
        bytes as u64,
        // SAFETY: the program's own arguments.
        || unsafe { real().mem_alloc_managed(address, bytes, flags) },
        // SAFETY: the driver has written there.
        || (unsafe { address.read() }, bytes as u64),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> Answer {
    // SAFETY: the program's own argument.
    free(Api::Free, address, || unsafe { real().mem_free(address) })
}

/// The functions that take a stream, in both their forms.
macro_rules! on_streams {
    ($alloc:ident, $alloc_real:ident, $pool:ident, $pool_real:ident, $free:ident, $free_real:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $alloc(address: *mut u64, bytes: usize, stream: u64) -> Answer {
            allocate(
                Api::AllocAsync,
                bytes as u64,
                // SAFETY: the program's own arguments.
                || unsafe { real().$alloc_real(address, bytes, stream) },
                // SAFETY: the driver has written there.
                || (unsafe { address.read() }, bytes as u64),
            )
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $pool(address: *mut u64, bytes: usize, pool: u64, stream: u64) -> Answer {
            allocate(
                Api::AllocFromPoolAsync,
                bytes as u64,
                // SAFETY: the program's own arguments.
                || unsafe { real().$pool_real(address, bytes, pool, stream) },
                // SAFETY: the driver has written there.
                || (unsafe { address.read() }, bytes as u64),
            )
        }

        #[unsafe(no_mangle)]
        extern "C" fn $free(address: u64, stream: u64) -> Answer {
            // SAFETY: the program's own arguments.
            free(Api::FreeAsync, address, || unsafe { real().$free_real(address, stream) })
        }
    };
}

on_streams!(
    cuMemAllocAsync,
    mem_alloc_async,
    cuMemAllocFromPoolAsync,
    mem_alloc_from_pool_async,
    cuMemFreeAsync,
    mem_free_async
);
on_streams!(
    cuMemAllocAsync_ptsz,
    mem_alloc_async_ptsz,
    cuMemAllocFromPoolAsync_ptsz,
    mem_alloc_from_pool_async_ptsz,
    cuMemFreeAsync_ptsz,
    mem_free_async_ptsz
);

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(device: i32) -> Answer {
    // SAFETY: the program's own argument.
    let answer = unsafe { real().primary_context_reset(device) };
    if answer == SUCCESS {
        context_gone(device);
    }
    answer
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Answer {
    // SAFETY: the program's own argument.
    let answer = unsafe { real().primary_context_release(device) };
    if answer == SUCCESS && counted().is_some() {
        let (mut flags, mut is_active) = (0, 0);
        // SAFETY: places for two numbers.
        let told = unsafe { real().primary_context_state(device, &raw mut flags, &raw mut is_active) };
        if told == SUCCESS && is_active == 0 {
            context_gone(device);
        }
    }
    answer
}

fn context_gone(device: i32) {
    let Some(process) = counted() else { return };
    let _ = caught(|| usize::try_from(device).map(|device| process.books.context_gone(device)));
}
