//! The driver's own functions, looked up in the driver's own library.
//!
//! They are looked for behind `libcuda.so.1` and under no other name: this library answers to `libcuda.so`. A copy of this code that
//! is compiled into a program which also has the library takes the library's functions for the driver's. Nothing is remembered here of
//! any call.

use std::ffi::c_void;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::place::Place;

/// `CUresult`.
pub(crate) type Answer = u32;

pub(crate) const SUCCESS: Answer = 0;
/// `CUDA_ERROR_INVALID_VALUE`
pub(crate) const INVALID_VALUE: Answer = 1;
pub(crate) const OUT_OF_MEMORY: Answer = 2;
/// `CUDA_ERROR_NOT_FOUND`: what `cuGetProcAddress` says of a function that the driver lacks.
pub(crate) const NOT_FOUND: Answer = 500;

/// `CUDA_ERROR_UNKNOWN`
pub(crate) const UNKNOWN: Answer = 999;

/// `CU_STREAM_NON_BLOCKING`
pub(crate) const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`
pub(crate) const DISABLE_TIMING: u32 = 2;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
pub(crate) const RELAXED: u32 = 2;

const DRIVER: &str = "libcuda.so.1";

macro_rules! driver_functions {
    ($($(#[$doc:meta])* $name:ident: $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        /// The functions that were found.
        #[derive(Debug, Default)]
        pub(crate) struct Real {
            $($name: Option<unsafe extern "C" fn($($type),*) -> Answer>,)*
        }

        impl Real {
            fn look_up(library: &Library) -> Self {
                Self {
                    // SAFETY: the driver's function of this name has this type; the library is never closed.
                    $($name: unsafe { library.get($symbol) }.ok().map(|symbol| *symbol),)*
                }
            }

            $(
                $(#[$doc])*
                ///
                /// # Safety
                ///
                /// As in `cuda.h`.
                pub(crate) unsafe fn $name(&self $(, $argument: $type)*) -> Answer {
                    match self.$name {
                        // SAFETY: as promised by the caller.
                        Some(function) => unsafe { function($($argument),*) },
                        None => NOT_FOUND,
                    }
                }
            )*
        }
    };
}

driver_functions! {
    /// Memory.
    mem_alloc: b"cuMemAlloc_v2\0" (address: *mut u64, bytes: usize);
    /// Rows that begin at multiples of the pitch.
    mem_alloc_pitch: b"cuMemAllocPitch_v2\0" (address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32);
    /// Managed memory.
    mem_alloc_managed: b"cuMemAllocManaged\0" (address: *mut u64, bytes: usize, flags: u32);
    /// Memory in stream order.
    mem_alloc_async: b"cuMemAllocAsync\0" (address: *mut u64, bytes: usize, stream: u64);
    /// Likewise, where handle 0 is the thread's own stream.
    mem_alloc_async_ptsz: b"cuMemAllocAsync_ptsz\0" (address: *mut u64, bytes: usize, stream: u64);
    /// From a pool of the program's.
    mem_alloc_from_pool_async: b"cuMemAllocFromPoolAsync\0" (address: *mut u64, bytes: usize, pool: u64, stream: u64);
    /// Likewise, where handle 0 is the thread's own stream.
    mem_alloc_from_pool_async_ptsz: b"cuMemAllocFromPoolAsync_ptsz\0" (address: *mut u64, bytes: usize, pool: u64, stream: u64);
    /// Waits and frees.
    mem_free: b"cuMemFree_v2\0" (address: u64);
    /// Frees in stream order.
    mem_free_async: b"cuMemFreeAsync\0" (address: u64, stream: u64);
    /// Likewise, where handle 0 is the thread's own stream.
    mem_free_async_ptsz: b"cuMemFreeAsync_ptsz\0" (address: u64, stream: u64);

    /// What is free and what there is, of the current device.
    mem_get_info: b"cuMemGetInfo_v2\0" (free: *mut usize, total: *mut usize);
    /// What is known of an address.
    pointer_get_attribute: b"cuPointerGetAttribute\0" (value: *mut c_void, attribute: u32, address: u64);

    /// How many devices there are.
    device_get_count: b"cuDeviceGetCount\0" (count: *mut i32);
    /// What identifies one.
    device_get_uuid: b"cuDeviceGetUuid_v2\0" (uuid: *mut [u8; 16], device: i32);
    /// Whether the primary context exists.
    primary_context_state: b"cuDevicePrimaryCtxGetState\0" (device: i32, flags: *mut u32, is_active: *mut i32);
    /// Holds the primary context.
    primary_context_retain: b"cuDevicePrimaryCtxRetain\0" (context: *mut u64, device: i32);
    /// Lets it go.
    primary_context_release: b"cuDevicePrimaryCtxRelease_v2\0" (device: i32);
    /// Destroys it, whoever holds it.
    primary_context_reset: b"cuDevicePrimaryCtxReset_v2\0" (device: i32);
    /// Destroys another context.
    context_destroy: b"cuCtxDestroy_v2\0" (context: u64);
    /// The thread's context.
    context_get_current: b"cuCtxGetCurrent\0" (context: *mut u64);
    /// Makes a context the thread's.
    context_set_current: b"cuCtxSetCurrent\0" (context: u64);
    /// The device of the thread's context.
    context_get_device: b"cuCtxGetDevice\0" (device: *mut i32);
    /// Waits for everything in the thread's context.
    context_synchronize: b"cuCtxSynchronize\0" ();

    /// Makes a stream.
    stream_create: b"cuStreamCreate\0" (stream: *mut u64, flags: u32);
    /// Destroys one.
    stream_destroy: b"cuStreamDestroy_v2\0" (stream: u64);
    /// The context a stream is of.
    stream_get_context: b"cuStreamGetCtx\0" (stream: u64, context: *mut u64);
    /// Whether its work goes into a graph: 0 when not.
    stream_is_capturing: b"cuStreamIsCapturing\0" (stream: u64, status: *mut u32);
    /// Has its work go into a graph.
    stream_begin_capture: b"cuStreamBeginCapture_v2\0" (stream: u64, mode: u32);
    /// Likewise, where handle 0 is the thread's own stream.
    stream_begin_capture_ptsz: b"cuStreamBeginCapture_v2_ptsz\0" (stream: u64, mode: u32);
    /// Likewise, into a graph that is there.
    stream_begin_capture_to_graph: b"cuStreamBeginCaptureToGraph\0"
        (stream: u64, graph: u64, dependencies: *const u64, data: *const c_void, count: usize, mode: u32);
    /// Likewise, where handle 0 is the thread's own stream.
    stream_begin_capture_to_graph_ptsz: b"cuStreamBeginCaptureToGraph_ptsz\0"
        (stream: u64, graph: u64, dependencies: *const u64, data: *const c_void, count: usize, mode: u32);
    /// How captures of others bear on the thread's calls.
    thread_exchange_capture_mode: b"cuThreadExchangeStreamCaptureMode\0" (mode: *mut u32);
    /// Ends that.
    stream_end_capture: b"cuStreamEndCapture\0" (stream: u64, graph: *mut u64);
    /// Likewise, where handle 0 is the thread's own stream.
    stream_end_capture_ptsz: b"cuStreamEndCapture_ptsz\0" (stream: u64, graph: *mut u64);
    /// Waits for its work.
    stream_synchronize: b"cuStreamSynchronize\0" (stream: u64);
    /// Lets its later work wait for an event.
    stream_wait_event: b"cuStreamWaitEvent\0" (stream: u64, event: u64, flags: u32);

    /// Makes an event.
    event_create: b"cuEventCreate\0" (event: *mut u64, flags: u32);
    /// Marks the end of a stream's work.
    event_record: b"cuEventRecord\0" (event: u64, stream: u64);
    /// Whether that work is done.
    event_query: b"cuEventQuery\0" (event: u64);
    /// Waits for it.
    event_synchronize: b"cuEventSynchronize\0" (event: u64);
}

/// The driver. Where its library is missing, which the loader does not let happen under `LD_PRELOAD`, no function is found.
pub(crate) fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(|| {
        if let Place::BesideLibrary(library) = Place::own() {
            // What is not in the library itself is found behind it.
            return Real::look_up(library);
        }
        // SAFETY: the driver's initialisers are those that any CUDA program runs; a program that
        // gets here has it open already, but for one that asks too early.
        match unsafe { Library::open(Some(DRIVER), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => {
                let real = Real::look_up(&library);
                // Never closed: its functions are kept.
                std::mem::forget(library);
                real
            }
            Err(_) => Real::default(),
        }
    })
}
