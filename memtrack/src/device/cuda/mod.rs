//! An NVIDIA GPU through the CUDA driver, loaded at run time.
//!
//! Here live, one idea a file: finding the driver library ([`library`]) and why there is no device ([`unavailable`]);
//! the driver calls, which is where most of the unsafe code is ([`driver`]); and the tables that keep those calls within
//! what the driver allows: segments ([`memory`]), page-locked memory and stream-ordered memory with their own calls
//! ([`pinned`], [`stream_ordered`]), the pools of others ([`others_pools`]), events, streams and their captures, and virtual memory. No caching: `allocate` is
//! `cuMemAlloc` each time.

mod captures;
mod driver;
mod events;
mod library;
mod memory;
mod others_pools;
mod pinned;
mod stream_ordered;
mod streams;
mod unavailable;
mod virtual_memory;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

use self::captures::Capture;
use self::driver::{Driver, driver_error};
use self::events::Events;
use self::library::Found;
use self::memory::Segments;
use self::pinned::Pinned;
use self::stream_ordered::StreamOrdered;
pub(crate) use self::streams::StreamIdentity;
use self::streams::Streams;
pub use self::unavailable::CudaUnavailable;
use self::virtual_memory::Ranges;
use super::{
    CaptureGraphs, Device, DeviceError, DeviceKind, DeviceMemory, DeviceUuid, Event, PciAddress, PinnedMemory, Stream,
    StreamOrderedMemory, VirtualMemory,
};

/// An NVIDIA GPU.
///
/// It holds the device's primary context, which cudarc, the CUDA runtime and every library on top of them share, so
/// memory from here can be used by all of them. All methods may be called from any thread: each call makes the context
/// current on the calling thread first.
///
/// An error that a drop of one of cudarc's own objects left on the context is neither taken nor reported here; it goes to
/// the next call of cudarc's that asks, as ever.
///
/// # Dropping
///
/// Dropping the device waits for its work, then gives back every segment, mapping, reservation, page-locked and
/// stream-ordered memory and event still alive. On a context that an earlier fault broke, the driver refuses each of these
/// calls; the memory then stays taken until the process ends, and a warning says how much. Addresses kept beyond the device
/// are the holder's mistake: hold the device in an [`Arc`] next to them.
///
/// # Graph captures
///
/// Memory is taken, given back and mapped in the thread's relaxed capture mode, so none of it breaks a capture of any
/// thread's. Calls that wait for a stream under capture, or for the device meanwhile, are refused by the driver and do.
pub struct Cuda {
    name: String,
    model: String,
    uuid: DeviceUuid,
    pci_address: PciAddress,
    total_bytes: u64,
    driver: Driver,
    segments: Segments,
    pinned: Pinned,
    ordered: StreamOrdered,
    events: Events,
    streams: Streams,
    /// `None` on a device without virtual memory.
    ranges: Option<Ranges>,
}

impl Cuda {
    /// Opens the GPU that the driver numbers `ordinal`.
    ///
    /// Two of them for one ordinal share the context and know nothing of each other's memory. Costs the creation of the
    /// primary context where this process has none yet, some 0.1 to 0.3 s.
    ///
    /// # Errors
    ///
    /// [`CudaUnavailable`], which says what was looked for and what was found. Nothing panics, with one reservation: under
    /// `panic = "abort"` a panic inside the bindings cannot be caught. The ones known (no library, no such function in
    /// it) are looked for before the bindings are called.
    pub fn new(ordinal: usize) -> Result<Self, CudaUnavailable> {
        let library = library::find()?;
        // The second line behind the look-ups above; nothing of the half-built device survives a panic.
        catch_unwind(AssertUnwindSafe(|| Self::open(&library, ordinal))).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let message = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned();
            Err(CudaUnavailable::Panicked { message })
        })
    }

    fn open(library: &Found, ordinal: usize) -> Result<Self, CudaUnavailable> {
        let name = format!("cuda:{ordinal}");
        let failed = |call| {
            let name = &name;
            move |error: DriverError| driver_error(name, call, error)
        };

        if let Err(error) = result::init() {
            let error = driver_error(&name, "cuInit", error);
            return Err(match error {
                DeviceError::Driver { call, code, name, description, .. }
                    if code == sys::CUresult::CUDA_ERROR_NO_DEVICE as u32 =>
                {
                    let answer = format!("{name} ({code}): {description}");
                    CudaUnavailable::NoDevice { library: library.name.to_owned(), call, answer }
                }
                other => other.into(),
            });
        }
        let count = usize::try_from(result::device::get_count().map_err(failed("cuDeviceGetCount"))?).unwrap_or(0);
        if count == 0 {
            let answer = "0 devices".to_owned();
            return Err(CudaUnavailable::NoDevice {
                library: library.name.to_owned(),
                call: "cuDeviceGetCount",
                answer,
            });
        }
        let number = match i32::try_from(ordinal) {
            Ok(number) if ordinal < count => number,
            _ => return Err(CudaUnavailable::NoSuchDevice { ordinal, count }),
        };

        let device = result::device::get(number).map_err(failed("cuDeviceGet"))?;
        let attribute = |attribute| {
            // SAFETY: `device` is one that `cuDeviceGet` gave.
            unsafe { result::device::get_attribute(device, attribute) }.map_err(failed("cuDeviceGetAttribute"))
        };
        use sys::CUdevice_attribute_enum as Attribute;
        let pci_address = PciAddress {
            domain: attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?.cast_unsigned(),
            bus: attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?.cast_unsigned(),
            device: attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?.cast_unsigned(),
        };
        let has_virtual_memory = attribute(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0;
        let model = result::device::get_name(device).map_err(failed("cuDeviceGetName"))?;
        // SAFETY: as above.
        let total_bytes = unsafe { result::device::total_mem(device) }.map_err(failed("cuDeviceTotalMem"))? as u64;
        let uuid = read_uuid(device).map_err(failed("cuDeviceGetUuid"))?;

        let context =
            CudaContext::new(ordinal).map_err(failed("cudarc's CudaContext::new (cuDevicePrimaryCtxRetain)"))?;
        let streams = Streams::new(&context);
        let Found { capture_info, node_dependencies, .. } = *library;
        let driver = Driver { context, device_name: name.clone(), capture_info, node_dependencies };
        let ranges = if has_virtual_memory { Some(Ranges::new(driver.granularity()?)) } else { None };
        Ok(Self {
            name,
            model,
            uuid,
            pci_address,
            total_bytes,
            driver,
            segments: Segments::default(),
            pinned: Pinned::default(),
            ordered: StreamOrdered::default(),
            events: Events::new(),
            streams,
            ranges,
        })
    }

    /// What an error of cudarc's own calls is called here.
    pub(crate) fn failure(&self, call: &'static str, error: DriverError) -> DeviceError {
        driver_error(&self.name, call, error)
    }

    /// cudarc's handle to the primary context this device lives in.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.driver.context
    }

    /// The default stream, [`Stream::DEFAULT`]. It is always registered.
    pub fn default_stream(&self) -> &Arc<CudaStream> {
        self.streams.default_stream()
    }

    /// Makes a stream known under its handle, and keeps it alive as long as this device: the driver gives the handle of a
    /// destroyed stream to the next new one, and cached memory is kept by handle. So register the few streams a program
    /// trains on, not one for each step. Registering a stream again changes nothing.
    ///
    /// # Errors
    ///
    /// [`DeviceError::InvalidStream`] for a stream of another context, and for the per-thread default stream, whose one
    /// handle is another stream on each thread.
    pub fn register_stream(&self, stream: &Arc<CudaStream>) -> Result<Stream, DeviceError> {
        self.streams.register(&self.name, stream)
    }

    /// Whether memory can be lent to a stream; as for [`register_stream`](Self::register_stream), but nothing is kept.
    pub(crate) fn check_lendable(&self, stream: &CudaStream) -> Result<(), DeviceError> {
        self.streams.check(&self.name, stream).map(drop)
    }

    /// cudarc's stream behind a registered one.
    pub fn cuda_stream(&self, stream: Stream) -> Option<Arc<CudaStream>> {
        self.streams.find(stream)
    }

    fn stream_handle(&self, stream: Stream) -> Result<sys::CUstream, DeviceError> {
        self.streams.handle(&self.name, stream)
    }
}

/// The second version of the call, which on a slice of a GPU (MIG) gives the slice's own UUID, as NVML does.
fn read_uuid(device: sys::CUdevice) -> Result<DeviceUuid, DriverError> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: a place for 16 bytes, and a device that `cuDeviceGet` gave.
    unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, device) }.result()?;
    Ok(DeviceUuid(uuid.bytes.map(|byte| byte as u8)))
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, model, uuid, pci_address, total_bytes, .. } = self;
        f.debug_struct("Cuda")
            .field("name", name)
            .field("model", model)
            .field("uuid", &format_args!("{uuid}"))
            .field("pci_address", &format_args!("{pci_address}"))
            .field("total_bytes", total_bytes)
            .finish_non_exhaustive()
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        let Self { driver, segments, pinned, ordered, events, ranges, .. } = self;
        // Where this fails the context is broken, and each call below is refused without harm.
        let finished = driver.synchronize();
        let mut refused_bytes = segments.release_all(driver) + pinned.release_all(driver) + ordered.release_all(driver);
        if let Some(ranges) = ranges {
            refused_bytes += ranges.release_all(driver);
        }
        events.destroy_all(driver);
        if refused_bytes > 0 {
            let error = finished.err().map(|error| error.to_string()).unwrap_or_default();
            tracing::warn!(
                target: "memtrack::device",
                device = %self.name,
                refused_bytes = crate::units::signed(refused_bytes),
                %error,
                "the driver did not take memory back; it stays taken until this process ends",
            );
        }
    }
}

// SAFETY: the driver hands out disjoint allocations, aligned to 512 bytes; the table of live segments lets only `release` and
// `drop` give them back, and `cuMemFree` waits for the work that may still use them. Events and waits are the driver's own.
unsafe impl Device for Cuda {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn uuid(&self) -> Option<DeviceUuid> {
        Some(self.uuid)
    }

    fn pci_address(&self) -> Option<PciAddress> {
        Some(self.pci_address)
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn memory(&self) -> Result<DeviceMemory, DeviceError> {
        let (free_bytes, total_bytes) = self.driver.memory()?;
        Ok(DeviceMemory { free_bytes, total_bytes })
    }

    fn allocate(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.segments.allocate(&self.driver, bytes)
    }

    unsafe fn release(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.segments.release(&self.driver, address, bytes)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.ranges.is_some().then_some(self as &dyn VirtualMemory)
    }

    fn stream_ordered_memory(&self) -> Option<&dyn StreamOrderedMemory> {
        self.driver.context.has_async_alloc().then_some(self as &dyn StreamOrderedMemory)
    }

    fn pinned_memory(&self) -> Option<&dyn PinnedMemory> {
        Some(self)
    }

    fn check_stream(&self, stream: Stream) -> Result<(), DeviceError> {
        self.stream_handle(stream).map(|_| ())
    }

    fn capture_id(&self, stream: Stream) -> Result<Option<u64>, DeviceError> {
        let stream = self.stream_handle(stream)?;
        // SAFETY: a registered stream, which the table keeps alive.
        Ok(match unsafe { self.driver.capture(stream) }? {
            Capture::Of(id) => Some(id),
            Capture::No | Capture::Broken | Capture::Blocked => None,
        })
    }

    fn capture_graphs(&self) -> Option<&dyn CaptureGraphs> {
        Some(self)
    }

    fn record_event(&self, stream: Stream) -> Result<Event, DeviceError> {
        let stream = self.stream_handle(stream)?;
        // SAFETY: a registered stream, which the table keeps alive.
        unsafe { self.events.record(&self.driver, stream) }
    }

    fn query_event(&self, event: &Event) -> Result<bool, DeviceError> {
        let event = self.events.handle(&self.driver, "cuEventQuery", event)?;
        // SAFETY: an event of the pool, which destroys none before the device goes.
        unsafe { self.driver.query_event(event) }
    }

    fn wait_event(&self, event: &Event) -> Result<(), DeviceError> {
        let event = self.events.handle(&self.driver, "cuEventSynchronize", event)?;
        // SAFETY: an event of the pool, which destroys none before the device goes.
        unsafe { self.driver.wait_event(event) }
    }

    fn release_event(&self, event: Event) {
        self.events.release(&event);
    }

    fn stream_wait_event(&self, stream: Stream, event: &Event) -> Result<(), DeviceError> {
        let stream = self.stream_handle(stream)?;
        let event = self.events.handle(&self.driver, "cuStreamWaitEvent", event)?;
        // SAFETY: a registered stream, which the table keeps alive, and an event of the pool.
        unsafe { self.driver.stream_wait_event(stream, event) }
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<(), DeviceError> {
        let stream = self.stream_handle(stream)?;
        // SAFETY: a registered stream, which the table keeps alive.
        unsafe { self.driver.synchronize_stream(stream) }
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.driver.synchronize()
    }

    unsafe fn write(&self, address: u64, source: &[u8], stream: Stream) -> Result<(), DeviceError> {
        let stream = self.stream_handle(stream)?;
        if source.is_empty() {
            return Ok(());
        }
        // The driver may still read the source after the copy call returns: surely if it is pinned, and it need not say.
        // SAFETY: the range as the caller promises; a registered stream; the source stays borrowed over the wait below.
        let copied = unsafe { self.driver.write(address, source.as_ptr(), source.len() as u64, stream) };
        // SAFETY: a registered stream, which the table keeps alive.
        copied.and_then(|()| unsafe { self.driver.synchronize_stream(stream) })
    }

    unsafe fn read(&self, address: u64, target: &mut [u8], stream: Stream) -> Result<(), DeviceError> {
        let stream = self.stream_handle(stream)?;
        if target.is_empty() {
            return Ok(());
        }
        // SAFETY: the range as the caller promises; a registered stream; the target stays borrowed over the wait below.
        let copied = unsafe { self.driver.read(address, target.as_mut_ptr(), target.len() as u64, stream) };
        // SAFETY: a registered stream, which the table keeps alive.
        copied.and_then(|()| unsafe { self.driver.synchronize_stream(stream) })
    }

    unsafe fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        let stream = self.stream_handle(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the ranges as the caller promises; a registered stream.
        unsafe { self.driver.copy(source, target, bytes, stream) }
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        let stream = self.stream_handle(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range as the caller promises; a registered stream.
        unsafe { self.driver.fill(address, value, bytes, stream) }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
