//! The driver calls of this device, each bound to its context and reported under its name.
//!
//! Nothing is remembered here and no argument is checked; the tables beside this file do that.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::captures::{CaptureInfo, NodeDependencies};
use crate::device::DeviceError;

/// An event of the driver's.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventHandle(sys::CUevent);

// SAFETY: the driver lets any thread use an event; the pointer is only ever handed back to it.
unsafe impl Send for EventHandle {}

/// The calls on one context.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) context: Arc<CudaContext>,
    pub(super) device_name: String,
    pub(super) capture_info: CaptureInfo,
    pub(super) node_dependencies: NodeDependencies,
}

/// `CUmemLocation` as every driver reads it; the bindings shape it differently from version to version.
#[repr(C)]
pub(super) struct Location {
    kind: u32,
    id: i32,
}

/// `CUmemAllocationProp`, likewise.
#[repr(C)]
struct AllocationProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    win32_handle_meta_data: *mut c_void,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`, likewise.
#[repr(C)]
struct AccessDescription {
    location: Location,
    flags: u32,
}

const _: () = assert!(size_of::<AllocationProperties>() == size_of::<sys::CUmemAllocationProp>());
const _: () = assert!(size_of::<AccessDescription>() == size_of::<sys::CUmemAccessDesc>());

/// `CU_MEM_LOCATION_TYPE_DEVICE`
const LOCATION_IS_DEVICE: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`
pub(super) const PINNED: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_AND_WRITE: u32 = 3;

/// What the driver calls an error: its number, name and sentence.
pub(super) fn driver_error(device_name: &str, call: &'static str, error: DriverError) -> DeviceError {
    let text = |answer: Result<&CStr, DriverError>| match answer {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => "unknown to the driver".to_owned(),
    };
    DeviceError::Driver {
        device: device_name.to_owned(),
        call,
        code: error.0 as u32,
        name: text(error.error_name()),
        description: text(error.error_string()),
    }
}

impl Driver {
    pub(super) fn check(&self, call: &'static str, answer: sys::CUresult) -> Result<(), DeviceError> {
        answer.result().map_err(|error| driver_error(&self.device_name, call, error))
    }

    /// As [`check`](Self::check), with out of memory told apart.
    pub(super) fn check_room(
        &self,
        call: &'static str,
        answer: sys::CUresult,
        requested_bytes: u64,
    ) -> Result<(), DeviceError> {
        if answer == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(DeviceError::OutOfMemory { device: self.device_name.clone(), requested_bytes });
        }
        self.check(call, answer)
    }

    pub(super) fn size(&self, bytes: u64) -> Result<usize, DeviceError> {
        usize::try_from(bytes).map_err(|_| DeviceError::InvalidSize {
            device: self.device_name.clone(),
            bytes,
            reason: "more than this machine can address",
        })
    }

    /// Makes the context current on this thread; two comparisons where it is.
    ///
    /// cudarc's own `bind_to_thread` also takes the error that an earlier drop on the context left behind, and answers
    /// with it. Not so here: that error is no answer to the call at hand (an out of memory least of all), and it stays
    /// where it is for the caller whose drop it was.
    pub(super) fn bind(&self) -> Result<(), DeviceError> {
        let context = self.context.cu_ctx();
        let current = result::ctx::get_current().map_err(|e| driver_error(&self.device_name, "cuCtxGetCurrent", e))?;
        if current == Some(context) {
            return Ok(());
        }
        // SAFETY: `self.context` holds the primary context retained.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })
    }

    /// Free and total bytes.
    pub(super) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are places for one number each.
        self.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    pub(super) fn allocate(&self, bytes: u64) -> Result<u64, DeviceError> {
        let Ok(size) = usize::try_from(bytes) else {
            return Err(DeviceError::OutOfMemory { device: self.device_name.clone(), requested_bytes: bytes });
        };
        self.outside_captures(|driver| {
            let mut address = 0;
            // SAFETY: a place for one address.
            driver.check_room("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, size) }, bytes)?;
            Ok(address)
        })
    }

    /// # Safety
    ///
    /// `address` is one that [`allocate`](Self::allocate) gave and that was not freed, and nobody uses it from now on; the
    /// driver waits for the work it was given before.
    pub(super) unsafe fn free(&self, address: u64) -> Result<(), DeviceError> {
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller.
            driver.check("cuMemFree", unsafe { sys::cuMemFree_v2(address) })
        })
    }

    /// An event that measures no time.
    pub(super) fn create_event(&self) -> Result<EventHandle, DeviceError> {
        self.bind()?;
        let mut event = MaybeUninit::uninit();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: a place for one handle.
        self.check("cuEventCreate", unsafe { sys::cuEventCreate(event.as_mut_ptr(), flags) })?;
        // SAFETY: the driver wrote the handle, since it answered success.
        Ok(EventHandle(unsafe { event.assume_init() }))
    }

    /// # Safety
    ///
    /// `event` came from [`create_event`](Self::create_event) and was not destroyed; `stream` is alive in this context.
    pub(super) unsafe fn record_event(&self, event: EventHandle, stream: sys::CUstream) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: as promised by the caller.
        self.check("cuEventRecord", unsafe { sys::cuEventRecord(event.0, stream) })
    }

    /// # Safety
    ///
    /// `event` came from [`create_event`](Self::create_event) and was not destroyed.
    pub(super) unsafe fn query_event(&self, event: EventHandle) -> Result<bool, DeviceError> {
        self.bind()?;
        // SAFETY: as promised by the caller.
        match unsafe { sys::cuEventQuery(event.0) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            answer => self.check("cuEventQuery", answer).map(|()| true),
        }
    }

    /// # Safety
    ///
    /// `event` came from [`create_event`](Self::create_event) and was not destroyed.
    pub(super) unsafe fn wait_event(&self, event: EventHandle) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: as promised by the caller.
        self.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event.0) })
    }

    /// # Safety
    ///
    /// `event` came from [`create_event`](Self::create_event), was not destroyed and is not used afterwards.
    pub(super) unsafe fn destroy_event(&self, event: EventHandle) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: as promised by the caller.
        self.check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(event.0) })
    }

    /// # Safety
    ///
    /// As for [`record_event`](Self::record_event).
    pub(super) unsafe fn stream_wait_event(
        &self,
        stream: sys::CUstream,
        event: EventHandle,
    ) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: as promised by the caller; 0 is the one flag every driver knows.
        self.check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, event.0, 0) })
    }

    /// # Safety
    ///
    /// `stream` is alive in this context.
    pub(super) unsafe fn synchronize_stream(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: as promised by the caller.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })
    }

    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: the call has no arguments; the context was just bound.
        self.check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// # Safety
    ///
    /// The range at `target` is device memory nobody else uses but in stream order; `stream` is alive in this context;
    /// `source` is readable over `bytes` and stays as it is until the stream has done the copy.
    pub(super) unsafe fn write(
        &self,
        target: u64,
        source: *const u8,
        bytes: u64,
        stream: sys::CUstream,
    ) -> Result<(), DeviceError> {
        let size = self.size(bytes)?;
        self.bind()?;
        // SAFETY: as promised by the caller.
        let answer = unsafe { sys::cuMemcpyHtoDAsync_v2(target, source.cast(), size, stream) };
        self.check("cuMemcpyHtoDAsync", answer)
    }

    /// # Safety
    ///
    /// The range at `source` is device memory nobody writes but in stream order; `stream` is alive in this context;
    /// `target` is writable over `bytes`, and nobody touches it until the stream has done the copy.
    pub(super) unsafe fn read(
        &self,
        source: u64,
        target: *mut u8,
        bytes: u64,
        stream: sys::CUstream,
    ) -> Result<(), DeviceError> {
        let size = self.size(bytes)?;
        self.bind()?;
        // SAFETY: as promised by the caller.
        let answer = unsafe { sys::cuMemcpyDtoHAsync_v2(target.cast(), source, size, stream) };
        self.check("cuMemcpyDtoHAsync", answer)
    }

    /// # Safety
    ///
    /// Both ranges are device memory nobody else uses but in stream order; `stream` is alive in this context.
    pub(super) unsafe fn copy(
        &self,
        source: u64,
        target: u64,
        bytes: u64,
        stream: sys::CUstream,
    ) -> Result<(), DeviceError> {
        let size = self.size(bytes)?;
        self.bind()?;
        // SAFETY: as promised by the caller.
        self.check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(target, source, size, stream) })
    }

    /// # Safety
    ///
    /// The range is device memory nobody else uses but in stream order; `stream` is alive in this context.
    pub(super) unsafe fn fill(
        &self,
        address: u64,
        value: u8,
        bytes: u64,
        stream: sys::CUstream,
    ) -> Result<(), DeviceError> {
        let size = self.size(bytes)?;
        self.bind()?;
        // SAFETY: as promised by the caller.
        self.check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, value, size, stream) })
    }

    pub(super) fn location(&self) -> Location {
        Location { kind: LOCATION_IS_DEVICE, id: self.context.cu_device() }
    }

    fn allocation_properties(&self) -> AllocationProperties {
        AllocationProperties {
            kind: PINNED,
            handle_types: 0,
            location: self.location(),
            win32_handle_meta_data: std::ptr::null_mut(),
            flags: [0; 8],
        }
    }

    /// The smallest piece of virtual memory.
    pub(super) fn granularity(&self) -> Result<u64, DeviceError> {
        self.bind()?;
        let properties = self.allocation_properties();
        let option = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let mut granularity = 0;
        // SAFETY: a place for one number, and properties laid out as the driver reads them.
        let answer =
            unsafe { sys::cuMemGetAllocationGranularity(&raw mut granularity, (&raw const properties).cast(), option) };
        self.check("cuMemGetAllocationGranularity", answer)?;
        Ok(granularity as u64)
    }

    pub(super) fn reserve_addresses(&self, bytes: u64, alignment_bytes: u64) -> Result<u64, DeviceError> {
        let (size, alignment) = (self.size(bytes)?, self.size(alignment_bytes)?);
        self.outside_captures(|driver| {
            let mut address = 0;
            // SAFETY: a place for one address; no fixed address is asked for.
            let answer = unsafe { sys::cuMemAddressReserve(&raw mut address, size, alignment, 0, 0) };
            driver.check("cuMemAddressReserve", answer)?;
            Ok(address)
        })
    }

    /// # Safety
    ///
    /// The range is one that [`reserve_addresses`](Self::reserve_addresses) gave, whole, with nothing mapped in it.
    pub(super) unsafe fn free_addresses(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let size = self.size(bytes)?;
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller.
            driver.check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(address, size) })
        })
    }

    /// Physical memory, by its handle.
    pub(super) fn create_physical(&self, bytes: u64) -> Result<u64, DeviceError> {
        let size = self.size(bytes)?;
        let properties = self.allocation_properties();
        self.outside_captures(|driver| {
            let mut handle = 0;
            // SAFETY: a place for one handle, and properties laid out as the driver reads them.
            let answer = unsafe { sys::cuMemCreate(&raw mut handle, size, (&raw const properties).cast(), 0) };
            driver.check_room("cuMemCreate", answer, bytes)?;
            Ok(handle)
        })
    }

    /// # Safety
    ///
    /// `handle` came from [`create_physical`](Self::create_physical) and was not released.
    pub(super) unsafe fn release_physical(&self, handle: u64) -> Result<(), DeviceError> {
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller.
            driver.check("cuMemRelease", unsafe { sys::cuMemRelease(handle) })
        })
    }

    /// # Safety
    ///
    /// The range lies in a reservation, nothing is mapped in it, and `handle` is unreleased physical memory of its size.
    pub(super) unsafe fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), DeviceError> {
        let size = self.size(bytes)?;
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller.
            driver.check_room("cuMemMap", unsafe { sys::cuMemMap(address, size, 0, handle, 0) }, bytes)
        })
    }

    /// # Safety
    ///
    /// The range is mapped, in whole pieces.
    pub(super) unsafe fn make_accessible(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let size = self.size(bytes)?;
        let access = AccessDescription { location: self.location(), flags: READ_AND_WRITE };
        self.outside_captures(|driver| {
            // SAFETY: one description, laid out as the driver reads it; the range as promised by the caller.
            let answer = unsafe { sys::cuMemSetAccess(address, size, (&raw const access).cast(), 1) };
            driver.check_room("cuMemSetAccess", answer, bytes)
        })
    }

    /// # Safety
    ///
    /// The range is one that [`map`](Self::map) mapped, whole, and nobody uses it any more.
    pub(super) unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let size = self.size(bytes)?;
        self.outside_captures(|driver| {
            // SAFETY: as promised by the caller.
            driver.check("cuMemUnmap", unsafe { sys::cuMemUnmap(address, size) })
        })
    }
}
