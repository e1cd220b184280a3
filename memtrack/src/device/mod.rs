//! Where bytes come from.
//!
//! Here live the [`Device`] trait and its three implementations: *host* ([`Host`]: real bytes in host memory, the
//! default), *simulated* ([`Simulated`]: no bytes, everything scripted, for tests and replay) and *cuda*
//! (`Cuda`: cudarc's driver API, loaded at run time). No caching, no statistics and no policy may live here: a device
//! hands out whole segments and events, and says what the hardware has.

mod auto;
mod capture_graphs;
#[cfg(feature = "cuda")]
mod cuda;
mod error;
mod host;
mod pinned;
mod plain;
mod simulated;
mod stream_ordered;
mod virtual_memory;

use std::any::Any;
use std::fmt;

pub use auto::{DeviceChoice, DeviceUnavailable, ParseDeviceChoiceError, auto};
pub use capture_graphs::{CaptureGraphs, CapturePast, CapturePoint, GraphNode};
#[cfg(feature = "cuda")]
pub(crate) use cuda::StreamIdentity;
#[cfg(feature = "cuda")]
pub use cuda::{Cuda, CudaUnavailable};
pub use error::DeviceError;
pub use host::Host;
pub(crate) use pinned::PINNED_ALIGNMENT_BYTES;
pub use pinned::PinnedMemory;
pub(crate) use plain::{PlainMemory, pointer_to};
pub use simulated::{Fault, Operation, PhysicalRange, Simulated, SimulatedBuilder};
pub use stream_ordered::{StreamOrderedMemory, StreamOrderedUsage};
pub use virtual_memory::{PhysicalMemory, VirtualMemory};

/// A device's stream, by its handle as an unsigned number.
///
/// Streams are ordered by that number, as PyTorch orders its pools. On *host* and *simulated* devices any number
/// names a stream; on *cuda* a stream is registered first, which keeps it alive and its handle unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stream(pub u64);

impl Stream {
    /// The default stream, handle 0.
    pub const DEFAULT: Self = Self(0);
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {:#x}", self.0)
    }
}

/// Total and free memory as the device itself reports it, other processes' use included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes nobody has taken.
    pub free_bytes: u64,
    /// Bytes the device has.
    pub total_bytes: u64,
}

/// The 16 bytes that identify a device across CUDA and NVML, whatever either numbers first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceUuid(pub [u8; 16]);

impl fmt::Display for DeviceUuid {
    /// As NVML writes it, without the `GPU-` or `MIG-` in front: `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Where a device sits on the PCI bus; the second way to find it in NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// PCI domain.
    pub domain: u32,
    /// PCI bus.
    pub bus: u32,
    /// PCI device.
    pub device: u32,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

/// Which implementation a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// Host memory.
    Host,
    /// No memory at all, scripted answers.
    Simulated,
    /// An NVIDIA GPU through the CUDA driver.
    Cuda,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Simulated => "simulated",
            Self::Cuda => "cuda",
        })
    }
}

/// A point in a stream's work, made by [`Device::record_event`] and given back by [`Device::release_event`].
///
/// It cannot be copied, and only unsafe code can make one by hand, so nobody can release an event of somebody else's, or
/// one twice:
///
/// ```compile_fail,E0133
/// let forged = memtrack::device::Event::from_raw(0);
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Event(u64);

impl Event {
    /// Names an event: for implementations of [`Device`].
    ///
    /// # Safety
    ///
    /// `raw` names an event that the device at hand made for whoever gets this value, and that was not released; no other
    /// `Event` names it. A device that keeps nothing behind its events may use any number.
    pub unsafe fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number given to [`from_raw`](Self::from_raw).
    pub fn raw(&self) -> u64 {
        self.0
    }
}

/// What a caching allocator needs of a device.
///
/// All methods may be called from any thread, several at once. The allocator makes most of its calls with locks of its own
/// held. So no method may call back into memtrack, and while one takes its time, other threads that allocate, free or ask
/// for figures may have to wait for it.
///
/// # Safety
///
/// Buffers rely on the device for memory safety. An implementation promises that
///
/// - a segment from [`allocate`] overlaps no other live one, is a multiple of 512 in address, and stays usable until
///   [`release`] is called for it or the device is dropped;
/// - [`release`] takes no memory away under work that a stream was given before: it waits for that work, or lets the memory
///   go later;
/// - [`query_event`] answers `true`, and [`wait_event`] and the two calls that synchronize answer `Ok`, only when the work
///   they are about is done; [`stream_wait_event`] answers `Ok` only when the stream's later work will wait;
/// - [`capture_id`] answers `None` only when work given to the stream is done now or refused, and not recorded for later;
/// - [`as_any`] returns `self`.
///
/// [`allocate`]: Self::allocate
/// [`release`]: Self::release
/// [`query_event`]: Self::query_event
/// [`wait_event`]: Self::wait_event
/// [`stream_wait_event`]: Self::stream_wait_event
/// [`capture_id`]: Self::capture_id
/// [`as_any`]: Self::as_any
pub unsafe trait Device: fmt::Debug + Send + Sync + 'static {
    /// Which implementation this is.
    fn kind(&self) -> DeviceKind;

    /// A short stable name: `host`, `simulated`, `cuda:0`.
    fn name(&self) -> &str;

    /// What a person calls it: `NVIDIA H200`, `host memory`.
    fn model(&self) -> &str;

    /// The UUID, if it has one.
    fn uuid(&self) -> Option<DeviceUuid> {
        None
    }

    /// The PCI address, if it has one.
    fn pci_address(&self) -> Option<PciAddress> {
        None
    }

    /// Total bytes; constant over the device's life.
    fn total_bytes(&self) -> u64;

    /// Total and free bytes now (on cuda `cuMemGetInfo`, about 5 µs).
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    fn memory(&self) -> Result<DeviceMemory, DeviceError>;

    /// Takes a segment of exactly `bytes` bytes and returns its address, a multiple of 512.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`] when the device has no room (not sticky: the next call may succeed);
    /// [`DeviceError::InvalidSize`] for zero; anything else is a failure of the driver.
    fn allocate(&self, bytes: u64) -> Result<u64, DeviceError>;

    /// Gives a segment back, whole. Work that a stream was given before may still use it and is not disturbed: on cuda
    /// `cuMemFree` waits for the device's work; on the host nothing is left to wait for.
    ///
    /// # Errors
    ///
    /// [`DeviceError::InvalidAddress`] when `address` is not a segment of this device with this size. After any error the
    /// segment is as it was.
    ///
    /// # Safety
    ///
    /// Nobody uses the segment from now on: no slice of it is left on the host, and no stream is given work on it any more.
    unsafe fn release(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// The virtual memory calls, if the device has them.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }

    /// The calls for memory taken and given back in stream order, if the device has them.
    fn stream_ordered_memory(&self) -> Option<&dyn StreamOrderedMemory> {
        None
    }

    /// The calls for page-locked host memory, if the device has them.
    fn pinned_memory(&self) -> Option<&dyn PinnedMemory> {
        None
    }

    /// Whether the stream can be used with this device; asked before a stream's first allocation.
    ///
    /// # Errors
    ///
    /// [`DeviceError::InvalidStream`] for an unknown stream.
    fn check_stream(&self, stream: Stream) -> Result<(), DeviceError> {
        let _ = stream;
        Ok(())
    }

    /// The graph capture that the stream takes part in, by a number unique to the capture; `None` when it captures nothing.
    ///
    /// `None` too for a stream whose capture was broken by a forbidden call and not ended yet, as in PyTorch 2.11, and on
    /// cuda for the default stream while a stream that synchronizes with it is captured, though work given to either is
    /// refused.
    ///
    /// # Errors
    ///
    /// An unknown stream, or a failure of the driver.
    fn capture_id(&self, stream: Stream) -> Result<Option<u64>, DeviceError> {
        let _ = stream;
        Ok(None)
    }

    /// The calls that look into the graphs of captures, if the device has them.
    fn capture_graphs(&self) -> Option<&dyn CaptureGraphs> {
        None
    }

    /// Marks the present end of the stream's work.
    ///
    /// # Errors
    ///
    /// An unknown stream, or a failure of the driver.
    fn record_event(&self, stream: Stream) -> Result<Event, DeviceError>;

    /// Whether the work before the event is done. Never waits.
    ///
    /// # Errors
    ///
    /// A failure of the driver, also of earlier work.
    fn query_event(&self, event: &Event) -> Result<bool, DeviceError>;

    /// Waits on this thread until the work before the event is done.
    ///
    /// # Errors
    ///
    /// A failure of the driver, also of earlier work.
    fn wait_event(&self, event: &Event) -> Result<(), DeviceError>;

    /// Gives the event back for reuse.
    fn release_event(&self, event: Event);

    /// Lets later work of `stream` wait for the event, without waiting on this thread.
    ///
    /// # Errors
    ///
    /// An unknown stream, or a failure of the driver.
    fn stream_wait_event(&self, stream: Stream, event: &Event) -> Result<(), DeviceError>;

    /// Waits on this thread until the stream has no work left.
    ///
    /// # Errors
    ///
    /// A failure of the driver, also of earlier work.
    fn synchronize_stream(&self, stream: Stream) -> Result<(), DeviceError>;

    /// Waits on this thread until the device has no work left.
    ///
    /// # Errors
    ///
    /// A failure of the driver, also of earlier work.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Copies host bytes to the device in stream order; `source` may be reused when this returns.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoBytes`] on a simulated device; an unknown stream; a failure of the driver.
    ///
    /// # Safety
    ///
    /// The range at `address` lies in a live segment of this device, and nobody else reads or writes it meanwhile,
    /// save work ordered by the stream.
    unsafe fn write(&self, address: u64, source: &[u8], stream: Stream) -> Result<(), DeviceError>;

    /// Copies device bytes to the host in stream order and waits for them.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    ///
    /// # Safety
    ///
    /// The range at `address` lies in a live segment of this device, and nobody else writes it meanwhile, save work
    /// ordered by the stream.
    unsafe fn read(&self, address: u64, target: &mut [u8], stream: Stream) -> Result<(), DeviceError>;

    /// Copies between two ranges of this device in stream order.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    ///
    /// # Safety
    ///
    /// Both ranges lie in live segments of this device and do not overlap; nobody else writes either or reads the
    /// target meanwhile, save work ordered by the stream.
    unsafe fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError>;

    /// Sets every byte of the range to `value` in stream order.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: Stream) -> Result<(), DeviceError>;

    /// For those who need the implementation behind the trait.
    fn as_any(&self) -> &dyn Any;
}
