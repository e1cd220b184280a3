//! The exported functions, under the driver's names.
//!
//! Each passes its arguments on as they came, and answers with what the driver said. What the driver calls meanwhile by these names is
//! not counted again.

use std::ffi::c_void;

use crate::books::Api;
use crate::cache::{Free, Served};
use crate::live_blocks::{Block, Owner};
use crate::process::{Process, caught, counted, inside};
use crate::real::{Answer, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, UNKNOWN, real};
use crate::voice::heard;

/// The default stream of the calling thread, which `_ptsz` functions mean by 0.
const PER_THREAD: u64 = 2;

/// A request that is the driver's.
#[derive(Debug, Clone, Copy)]
struct Request {
    api: Api,
    bytes: u64,
    /// The stream that it names.
    stream: Option<u64>,
}

/// Books an allocation that the driver answered: `result` is what it gave, an address and how many bytes.
#[inline]
fn book(process: &Process, request: Request, answer: Answer, result: impl FnOnce() -> (u64, u64)) {
    let Request { api, bytes: requested_bytes, stream } = request;
    let _ = caught(|| {
        if answer == SUCCESS {
            let (address, bytes) = result();
            let device = process.device_of(api, address, stream);
            process.books.allocated(api, address, Block { bytes, device, owner: Owner::Driver, api });
        } else {
            let (device, free_bytes) = process.device_of_failure(stream, answer);
            process.books.failed(api, requested_bytes, device, answer);
            if answer == OUT_OF_MEMORY {
                process.books.refused(requested_bytes, device, free_bytes);
            }
        }
    });
}

/// An allocation that is always the driver's: `forward` is its own function.
#[inline]
fn allocate(request: Request, forward: impl FnOnce() -> Answer, result: impl FnOnce() -> (u64, u64)) -> Answer {
    let Some(process) = counted() else { return forward() };
    let answer = inside(forward);
    book(process, request, answer, result);
    answer
}

/// An allocation that the cache may serve, for a stream or for any.
///
/// # Safety
///
/// `place` is null or a place for an address.
#[inline]
unsafe fn allocate_or_serve(
    api: Api,
    bytes: usize,
    stream: Option<u64>,
    place: *mut u64,
    forward: impl FnOnce() -> Answer,
) -> Answer {
    let Some(process) = counted() else { return forward() };
    let bytes = bytes as u64;
    if let Some(cache) = &process.cache
        && bytes > 0
        && !place.is_null()
        && let Some(served) = caught(|| inside(|| heard(|| cache.serve(bytes, stream)))).flatten()
    {
        let (address, device, owner) = match served {
            Served::At { address, device, stream } => (address, device, Owner::Cache { stream }),
            Served::OutOfMemory { device, device_free_bytes } => {
                let _ = caught(|| {
                    process.books.failed(api, bytes, device, OUT_OF_MEMORY);
                    process.books.refused(bytes, device, device_free_bytes);
                });
                return OUT_OF_MEMORY;
            }
        };
        let _ = caught(|| process.books.allocated(api, address, Block { bytes, device, owner, api }));
        // SAFETY: not null, so the caller's place.
        unsafe { place.write(address) };
        return SUCCESS;
    }
    let answer = inside(forward);
    // SAFETY: the driver has written there.
    book(process, Request { api, bytes, stream }, answer, || (unsafe { place.read() }, bytes));
    answer
}

/// A free: `forward` is the driver's own.
#[inline]
fn free(api: Api, address: u64, how: Free, forward: impl FnOnce() -> Answer) -> Answer {
    let Some(process) = counted() else { return forward() };
    let taken = caught(|| process.books.take(address)).flatten();
    let answer = match (taken.map(|going| going.block), &process.cache) {
        (Some(Block { device, owner: Owner::Cache { stream }, .. }), Some(cache)) => {
            caught(|| inside(|| heard(|| cache.free(device, address, stream, how)))).unwrap_or(UNKNOWN)
        }
        // The driver would take it, and the cache's segment with it.
        (None, Some(cache)) if caught(|| cache.is_segment(address)).unwrap_or(false) => INVALID_VALUE,
        _ => inside(forward),
    };
    let _ = caught(|| {
        let device = if taken.is_some() { 0 } else { process.current_device() };
        process.books.freed(api, address, taken, device, answer);
    });
    answer
}

/// Whether those who look for the driver's functions in the program find these, as they do in one that is linked with the driver.
pub fn is_in_the_drivers_place() -> bool {
    let own = cuMemAlloc_v2 as unsafe extern "C" fn(*mut u64, usize) -> Answer as *mut c_void;
    // SAFETY: a name that ends in zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuMemAlloc_v2".as_ptr()) };
    found == own
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> Answer {
    // SAFETY: the program's own arguments.
    unsafe { allocate_or_serve(Api::Alloc, bytes, None, address, || real().mem_alloc(address, bytes)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocPitch_v2(
    address: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Answer {
    let bytes = (width as u64).saturating_mul(height as u64);
    allocate(
        Request { api: Api::AllocPitch, bytes, stream: None },
        // SAFETY: the program's own arguments.
        || unsafe { real().mem_alloc_pitch(address, pitch, width, height, element) },
        // SAFETY: the driver has written to both.
        || unsafe { (address.read(), (pitch.read() as u64).saturating_mul(height as u64)) },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) -> Answer {
    allocate(
        Request { api: Api::AllocManaged, bytes: bytes as u64, stream: None },
        // SAFETY: the program's own arguments.
        || unsafe { real().mem_alloc_managed(address, bytes, flags) },
        // SAFETY: the driver has written there.
        || (unsafe { address.read() }, bytes as u64),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> Answer {
    // SAFETY: the program's own argument.
    free(Api::Free, address, Free::Waiting, || unsafe { real().mem_free(address) })
}

/// The stream that a function means by a handle.
fn stream_named(handle: u64, zero: u64) -> u64 {
    if handle == 0 { zero } else { handle }
}

/// The functions that take a stream, in both their forms; `zero` is the stream that they mean by 0.
macro_rules! on_streams {
    ($zero:expr, $alloc:ident, $alloc_real:ident, $pool:ident, $pool_real:ident, $free:ident, $free_real:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $alloc(address: *mut u64, bytes: usize, stream: u64) -> Answer {
            let named = Some(stream_named(stream, $zero));
            // SAFETY: the program's own arguments.
            unsafe {
                allocate_or_serve(Api::AllocAsync, bytes, named, address, || real().$alloc_real(address, bytes, stream))
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $pool(address: *mut u64, bytes: usize, pool: u64, stream: u64) -> Answer {
            allocate(
                Request { api: Api::AllocFromPoolAsync, bytes: bytes as u64, stream: Some(stream) },
                // SAFETY: the program's own arguments.
                || unsafe { real().$pool_real(address, bytes, pool, stream) },
                // SAFETY: the driver has written there.
                || (unsafe { address.read() }, bytes as u64),
            )
        }

        #[unsafe(no_mangle)]
        extern "C" fn $free(address: u64, stream: u64) -> Answer {
            // SAFETY: the program's own arguments.
            free(Api::FreeAsync, address, Free::OnStream(stream_named(stream, $zero)), || unsafe {
                real().$free_real(address, stream)
            })
        }
    };
}

on_streams!(
    0,
    cuMemAllocAsync,
    mem_alloc_async,
    cuMemAllocFromPoolAsync,
    mem_alloc_from_pool_async,
    cuMemFreeAsync,
    mem_free_async
);
on_streams!(
    PER_THREAD,
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
    let Ok(device) = usize::try_from(device) else { return };
    let _ = caught(|| {
        process.books.context_gone(device);
        if let Some(cache) = &process.cache {
            cache.primary_context_reset(device);
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: u64) -> Answer {
    let Some(process) = counted() else {
        // SAFETY: the program's own argument.
        return unsafe { real().context_destroy(context) };
    };
    // Before, as for a free: once the context is gone, another can be given these addresses.
    let taken = caught(|| {
        process.books.take_where(|address, block| block.owner == Owner::Driver && context_of(address) == Some(context))
    });
    // SAFETY: the program's own argument.
    let answer = inside(|| unsafe { real().context_destroy(context) });
    let _ = caught(|| {
        process.books.ended(taken.unwrap_or_default(), answer == SUCCESS);
        if let Some(cache) = &process.cache {
            cache.context_destroyed(context);
        }
    });
    answer
}

/// The context that memory is of; `None` for memory of pools, which is of no context, and where the driver does not say.
fn context_of(address: u64) -> Option<u64> {
    /// `CU_POINTER_ATTRIBUTE_CONTEXT`
    const CONTEXT: u32 = 1;
    let mut context = 0_u64;
    // SAFETY: a place for a handle, which is what the driver writes for this attribute.
    let answer = unsafe { real().pointer_get_attribute((&raw mut context).cast(), CONTEXT, address) };
    (answer == SUCCESS && context != 0).then_some(context)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: u64) -> Answer {
    let Some(cache) = counted().and_then(|process| process.cache.as_ref()) else {
        // SAFETY: the program's own argument.
        return unsafe { real().stream_destroy(stream) };
    };
    let captured = caught(|| {
        inside(|| {
            cache.before_stream_is_destroyed(stream);
            cache.captures().take(stream)
        })
    });
    // SAFETY: the program's own argument.
    let answer = unsafe { real().stream_destroy(stream) };
    if answer != SUCCESS
        && let Some(captured) = captured.flatten()
    {
        let _ = caught(|| cache.captures().put_back(captured));
    }
    answer
}

/// The functions that begin and end captures, in both their forms.
macro_rules! of_captures {
    ($zero:expr, $begin:ident, $begin_real:ident, $to_graph:ident, $to_graph_real:ident, $end:ident, $end_real:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $begin(stream: u64, mode: u32) -> Answer {
            // SAFETY: the program's own arguments.
            begun(stream_named(stream, $zero), unsafe { real().$begin_real(stream, mode) })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $to_graph(
            stream: u64,
            graph: u64,
            dependencies: *const u64,
            data: *const c_void,
            count: usize,
            mode: u32,
        ) -> Answer {
            // SAFETY: the program's own arguments.
            let answer = unsafe { real().$to_graph_real(stream, graph, dependencies, data, count, mode) };
            begun(stream_named(stream, $zero), answer)
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $end(stream: u64, graph: *mut u64) -> Answer {
            // SAFETY: the program's own arguments.
            ended(stream_named(stream, $zero), unsafe { real().$end_real(stream, graph) })
        }
    };
}

fn begun(stream: u64, answer: Answer) -> Answer {
    if answer == SUCCESS
        && let Some(cache) = counted().and_then(|process| process.cache.as_ref())
    {
        let _ = caught(|| inside(|| cache.captures().begun(stream)));
    }
    answer
}

/// Whether the capture has ended is for the driver to say: one that came out broken has, one of another thread's has not.
fn ended(stream: u64, answer: Answer) -> Answer {
    if let Some(cache) = counted().and_then(|process| process.cache.as_ref()) {
        let _ = caught(|| inside(|| cache.captures().ended(stream)));
    }
    answer
}

of_captures!(
    0,
    cuStreamBeginCapture_v2,
    stream_begin_capture,
    cuStreamBeginCaptureToGraph,
    stream_begin_capture_to_graph,
    cuStreamEndCapture,
    stream_end_capture
);
of_captures!(
    PER_THREAD,
    cuStreamBeginCapture_v2_ptsz,
    stream_begin_capture_ptsz,
    cuStreamBeginCaptureToGraph_ptsz,
    stream_begin_capture_to_graph_ptsz,
    cuStreamEndCapture_ptsz,
    stream_end_capture_ptsz
);
