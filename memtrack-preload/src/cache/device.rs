//! The device that memtrack is given: its own `Cuda` for memory, and streams and events by the cache's names.
//!
//! A name need not be a handle, and its stream may be gone or another thread's. What cannot be ordered on the device then is waited for
//! on the host.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use memtrack::device::{
    Cuda, Device, DeviceError, DeviceKind, DeviceMemory, DeviceUuid, Event, PciAddress, PinnedMemory, Stream,
    VirtualMemory,
};

use super::streams::{Named, Streams};
use super::{current_context, is_captured, lock};
use crate::real::{Answer, DISABLE_TIMING, NON_BLOCKING, SUCCESS, real};

/// `CUDA_ERROR_NOT_READY`
const NOT_READY: Answer = 600;

/// A device of the program's.
#[derive(Debug)]
pub(crate) struct ServedDevice {
    cuda: Cuda,
    context: u64,
    streams: Streams,
    /// Where segments begin that were taken by `cuMemAlloc`.
    segments: Mutex<HashSet<u64>>,
    /// Events to be used again.
    spare: Mutex<Vec<u64>>,
    /// A stream that is given no work; 0 before it is needed.
    idle: Mutex<u64>,
    /// The context was reset, and all memory went with it.
    is_gone: AtomicBool,
}

impl ServedDevice {
    pub(crate) fn new(cuda: Cuda, context: u64) -> Self {
        let (segments, spare, idle) = (Mutex::default(), Mutex::default(), Mutex::default());
        let is_gone = AtomicBool::new(false);
        Self { cuda, context, streams: Streams::new(context), segments, spare, idle, is_gone }
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The primary context.
    pub(crate) fn context(&self) -> u64 {
        self.context
    }

    /// Whether the driver would take this address for a segment that is the cache's.
    pub(crate) fn is_segment(&self, address: u64) -> bool {
        lock(&self.segments).contains(&address)
    }

    pub(crate) fn context_is_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Waits for a stream that is about to be destroyed, and knows it no more.
    pub(crate) fn forget_stream(&self, handle: u64) {
        if self.streams.knows(handle) {
            // A stream that cannot be waited for is captured or broken, and so has no work that would be done later.
            // SAFETY: a stream of the program's that is alive.
            let _ = unsafe { real().stream_synchronize(handle) };
            self.streams.forget(handle);
        }
    }

    fn check(&self, call: &'static str, answer: Answer) -> Result<(), DeviceError> {
        if answer == SUCCESS {
            return Ok(());
        }
        Err(DeviceError::Driver {
            device: self.cuda.name().to_owned(),
            call,
            code: answer,
            name: "an error of the driver".to_owned(),
            description: "see cuda.h".to_owned(),
        })
    }

    /// Makes the context the thread's.
    fn bind(&self) -> Result<(), DeviceError> {
        if current_context() == self.context {
            return Ok(());
        }
        // SAFETY: a context that `cuda` holds.
        self.check("cuCtxSetCurrent", unsafe { real().context_set_current(self.context) })
    }

    fn new_event(&self) -> Result<u64, DeviceError> {
        if let Some(event) = lock(&self.spare).pop() {
            return Ok(event);
        }
        let mut event = 0;
        // SAFETY: a place for one handle.
        let answer = unsafe { real().event_create(&raw mut event, DISABLE_TIMING) };
        self.check("cuEventCreate", answer).map(|()| event)
    }

    fn record_on(&self, handle: u64) -> Result<Event, DeviceError> {
        let event = self.new_event()?;
        // SAFETY: an event that nobody uses, and a stream that is alive.
        let recorded = self.check("cuEventRecord", unsafe { real().event_record(event, handle) });
        // SAFETY: this device made it, and for this caller alone.
        let event = unsafe { Event::from_raw(event) };
        match recorded {
            Ok(()) => Ok(event),
            Err(error) => {
                self.release_event(event);
                Err(error)
            }
        }
    }

    /// An event before which there is no work.
    fn record_nothing(&self) -> Result<Event, DeviceError> {
        let mut idle = lock(&self.idle);
        if *idle == 0 {
            // SAFETY: a place for one handle.
            let answer = unsafe { real().stream_create(&raw mut *idle, NON_BLOCKING) };
            self.check("cuStreamCreate", answer)?;
        }
        self.record_on(*idle)
    }
}

// SAFETY: memory and its guarantees are `Cuda`'s. Events are recorded on the very stream that is named; where there is none to be named
// to the driver, there is no work (`Idle`, `Destroyed`) or it is waited for on the spot (`OtherThread`), and a wait that a stream cannot
// be given is waited for on the host. A stream whose capture this thread cannot ask about counts as captured.
unsafe impl Device for ServedDevice {
    fn kind(&self) -> DeviceKind {
        self.cuda.kind()
    }

    fn name(&self) -> &str {
        self.cuda.name()
    }

    fn model(&self) -> &str {
        self.cuda.model()
    }

    fn uuid(&self) -> Option<DeviceUuid> {
        self.cuda.uuid()
    }

    fn pci_address(&self) -> Option<PciAddress> {
        self.cuda.pci_address()
    }

    fn total_bytes(&self) -> u64 {
        self.cuda.total_bytes()
    }

    fn memory(&self) -> Result<DeviceMemory, DeviceError> {
        self.cuda.memory()
    }

    fn allocate(&self, bytes: u64) -> Result<u64, DeviceError> {
        let address = self.cuda.allocate(bytes)?;
        lock(&self.segments).insert(address);
        Ok(address)
    }

    unsafe fn release(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // Out of the table first: as soon as the driver has it, the program can be given the same address.
        lock(&self.segments).remove(&address);
        // SAFETY: as promised by the caller.
        let released = unsafe { self.cuda.release(address, bytes) };
        if released.is_err() {
            lock(&self.segments).insert(address);
        }
        released
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.cuda.virtual_memory()
    }

    fn pinned_memory(&self) -> Option<&dyn PinnedMemory> {
        self.cuda.pinned_memory()
    }

    fn check_stream(&self, stream: Stream) -> Result<(), DeviceError> {
        match self.streams.behind(stream.0) {
            Named::Idle | Named::Handle(_) | Named::OtherThread => Ok(()),
            Named::Destroyed => {
                let reason = "it is destroyed, or of another context";
                Err(DeviceError::InvalidStream { device: self.cuda.name().to_owned(), stream, reason })
            }
        }
    }

    fn capture_id(&self, stream: Stream) -> Result<Option<u64>, DeviceError> {
        Ok(match self.streams.behind(stream.0) {
            Named::Idle | Named::Destroyed => None,
            Named::Handle(handle) => is_captured(handle).then_some(stream.0),
            Named::OtherThread => Some(stream.0),
        })
    }

    fn record_event(&self, stream: Stream) -> Result<Event, DeviceError> {
        self.bind()?;
        match self.streams.behind(stream.0) {
            Named::Idle | Named::Destroyed => self.record_nothing(),
            Named::Handle(handle) => self.record_on(handle),
            Named::OtherThread => {
                self.synchronize()?;
                self.record_nothing()
            }
        }
    }

    fn query_event(&self, event: &Event) -> Result<bool, DeviceError> {
        self.bind()?;
        // SAFETY: an event of this device's, none of which is destroyed.
        match unsafe { real().event_query(event.raw()) } {
            NOT_READY => Ok(false),
            answer => self.check("cuEventQuery", answer).map(|()| true),
        }
    }

    fn wait_event(&self, event: &Event) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: an event of this device's, none of which is destroyed.
        self.check("cuEventSynchronize", unsafe { real().event_synchronize(event.raw()) })
    }

    fn release_event(&self, event: Event) {
        lock(&self.spare).push(event.raw());
    }

    fn stream_wait_event(&self, stream: Stream, event: &Event) -> Result<(), DeviceError> {
        self.bind()?;
        match self.streams.behind(stream.0) {
            Named::Handle(handle) => {
                // SAFETY: a stream that is alive and an event of this device's, none of which is destroyed.
                self.check("cuStreamWaitEvent", unsafe { real().stream_wait_event(handle, event.raw(), 0) })
            }
            Named::Idle | Named::OtherThread | Named::Destroyed => self.wait_event(event),
        }
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<(), DeviceError> {
        self.bind()?;
        match self.streams.behind(stream.0) {
            Named::Idle | Named::Destroyed => Ok(()),
            // SAFETY: a stream that is alive.
            Named::Handle(handle) => self.check("cuStreamSynchronize", unsafe { real().stream_synchronize(handle) }),
            Named::OtherThread => self.synchronize(),
        }
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.cuda.synchronize()
    }

    unsafe fn write(&self, address: u64, source: &[u8], stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: as promised by the caller.
        unsafe { self.cuda.write(address, source, stream) }
    }

    unsafe fn read(&self, address: u64, target: &mut [u8], stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: as promised by the caller.
        unsafe { self.cuda.read(address, target, stream) }
    }

    unsafe fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: as promised by the caller.
        unsafe { self.cuda.copy(source, target, bytes, stream) }
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: as promised by the caller.
        unsafe { self.cuda.fill(address, value, bytes, stream) }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
