//! A device without bytes: addresses, capacity, busy streams and failures as a test or a replay scripts them.
//!
//! Here live the device and what tests set it up with. Each part keeps its own books: where ranges lie ([`addresses`]),
//! which work is done ([`streams`]), what it uses ([`work`]) and which is captured ([`captures`]), what fails ([`faults`]), virtual memory ([`virtual_memory`]),
//! stream-ordered memory ([`stream_ordered`]), and page-locked memory, the one kind with bytes ([`pinned`]). Nothing in here happens by itself or by chance.

mod addresses;
mod captures;
mod faults;
mod pinned;
mod stream_ordered;
mod streams;
mod virtual_memory;
mod work;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use self::addresses::{Addresses, Misplaced, SEGMENT_ALIGNMENT_BYTES};
use self::captures::Captures;
use self::faults::FaultScript;
pub use self::faults::{Fault, Operation};
use self::stream_ordered::Pool;
use self::streams::Streams;
use self::virtual_memory::Ranges;
pub use self::work::PhysicalRange;
use self::work::Work;
use super::plain::PlainPinned;
use super::{
    CaptureGraphs, Device, DeviceError, DeviceKind, DeviceMemory, Event, PinnedMemory, Stream, StreamOrderedMemory,
    VirtualMemory,
};
use crate::sync::lock;
use crate::units::{GIB, MIB};

/// Sets up a [`Simulated`] device.
#[derive(Debug, Clone)]
pub struct SimulatedBuilder {
    total_bytes: u64,
    granularity_bytes: Option<u64>,
}

impl SimulatedBuilder {
    /// How much memory the device has; 80 GiB unless said.
    pub fn total_bytes(mut self, bytes: u64) -> Self {
        self.total_bytes = bytes;
        self
    }

    /// The granularity of virtual memory, or `None` for a device without it; 2 MiB unless said.
    pub fn granularity_bytes(mut self, bytes: Option<u64>) -> Self {
        self.granularity_bytes = bytes;
        self
    }

    /// The device.
    pub fn build(self) -> Simulated {
        let Self { total_bytes, granularity_bytes } = self;
        Simulated { total_bytes, granularity_bytes, state: Mutex::default(), pinned: PlainPinned::default() }
    }
}

/// A device without bytes, save for page-locked host memory, which is plain memory.
///
/// Any number names a stream. A stream is idle until [`set_busy`](Self::set_busy); events recorded on a busy stream
/// complete when it is told so, or when somebody waits for them. Whether memory is mapped and free for the work that uses it is looked at
/// where a test says what work there is ([`give_work`](Self::give_work)).
#[derive(Debug)]
pub struct Simulated {
    total_bytes: u64,
    granularity_bytes: Option<u64>,
    state: Mutex<State>,
    pinned: PlainPinned,
}

#[derive(Debug, Default)]
struct State {
    addresses: Addresses,
    other_use_bytes: u64,
    /// Segments, physical memory and what the pool has reserved, together.
    used_bytes: u64,
    /// Address to bytes.
    segments: BTreeMap<u64, u64>,
    ranges: Ranges,
    pool: Pool,
    streams: Streams,
    work: Work,
    captures: Captures,
    faults: FaultScript,
}

impl Simulated {
    /// 80 GiB with virtual memory.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets up a device.
    pub fn builder() -> SimulatedBuilder {
        SimulatedBuilder { total_bytes: 80 * GIB, granularity_bytes: Some(2 * MIB) }
    }

    /// A device of this many bytes.
    pub fn with_capacity(total_bytes: u64) -> Self {
        Self::builder().total_bytes(total_bytes).build()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here calls foreign code, so a poisoned lock still guards whole books.
        lock(&self.state)
    }

    /// The addresses of the coming segments, reservations and stream-ordered memory, in order; generated ones follow when they run out.
    ///
    /// One that does not do is used up by the call that comes to it, which answers [`DeviceError::InvalidAddress`]: 0, no
    /// multiple of 512 (for a reservation, of the granularity), or where the range would overlap a live one.
    pub fn script_addresses(&self, addresses: impl IntoIterator<Item = u64>) {
        self.state().addresses.script(addresses);
    }

    /// Forgets the scripted addresses that are left.
    pub fn clear_scripted(&self) {
        self.state().addresses.clear_scripted();
    }

    /// How much memory other processes have.
    pub fn set_other_use(&self, bytes: u64) {
        self.state().other_use_bytes = bytes;
    }

    /// Makes a stream busy: events recorded on it from now on do not complete by themselves.
    pub fn set_busy(&self, stream: Stream) {
        self.state().streams.set_busy(stream);
    }

    /// Lets a stream finish: its events are complete and later ones complete at once.
    pub fn set_idle(&self, stream: Stream) {
        self.state().streams.set_idle(stream);
    }

    /// Completes the `count` oldest pending events, whatever their streams.
    pub fn complete_oldest_events(&self, count: usize) {
        self.state().streams.complete_oldest(count);
    }

    /// Adds a line to the fault script.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.0.push(fault);
    }

    /// Forgets the fault script.
    pub fn clear_faults(&self) {
        self.state().faults.0.clear();
    }

    /// Live segments as (address, bytes), in address order.
    pub fn segments(&self) -> Vec<(u64, u64)> {
        self.state().segments.iter().map(|(address, bytes)| (*address, *bytes)).collect()
    }

    /// Bytes taken from this device and not given back: segments, physical memory, and what the pool of stream-ordered memory
    /// has reserved.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes
    }

    fn owned_name(&self) -> String {
        self.name().to_owned()
    }

    fn invalid_address(&self, address: u64, reason: &'static str) -> DeviceError {
        DeviceError::InvalidAddress { device: self.owned_name(), address, reason }
    }

    /// Runs the fault script for one call. The lock is not held while a scripted delay passes.
    fn run_script(&self, operation: Operation, bytes: u64) -> Result<(), DeviceError> {
        let (delay, outcome) = self.state().faults.consult(operation, bytes, self.name());
        if let Some(duration) = delay {
            std::thread::sleep(duration);
        }
        outcome
    }

    fn invalid_size(&self, bytes: u64, reason: &'static str) -> DeviceError {
        DeviceError::InvalidSize { device: self.owned_name(), bytes, reason }
    }

    fn free_bytes(&self, state: &State) -> u64 {
        self.total_bytes.saturating_sub(state.other_use_bytes).saturating_sub(state.used_bytes)
    }

    fn check_room(&self, state: &State, bytes: u64) -> Result<(), DeviceError> {
        if bytes > self.free_bytes(state) {
            return Err(DeviceError::OutOfMemory { device: self.owned_name(), requested_bytes: bytes });
        }
        Ok(())
    }

    fn place(&self, state: &mut State, bytes: u64, alignment_bytes: u64) -> Result<u64, DeviceError> {
        state.addresses.place(bytes, alignment_bytes).map_err(|misplaced| match misplaced {
            Misplaced::Scripted { address, reason } => self.invalid_address(address, reason),
            Misplaced::TooLarge => self.invalid_size(bytes, "the address space has no room for it"),
        })
    }
}

impl Default for Simulated {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: there is no memory behind the addresses, and every access to it is refused; nor is there work. Live ranges are kept
// apart and aligned, scripted ones too.
unsafe impl Device for Simulated {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Simulated
    }

    fn name(&self) -> &str {
        "simulated"
    }

    fn model(&self) -> &str {
        "simulated device"
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn memory(&self) -> Result<DeviceMemory, DeviceError> {
        let free_bytes = self.free_bytes(&self.state());
        Ok(DeviceMemory { free_bytes, total_bytes: self.total_bytes })
    }

    fn allocate(&self, bytes: u64) -> Result<u64, DeviceError> {
        if bytes == 0 {
            return Err(self.invalid_size(bytes, "a segment has at least one byte"));
        }
        self.run_script(Operation::Allocate, bytes)?;
        let mut state = self.state();
        self.check_room(&state, bytes)?;
        let address = self.place(&mut state, bytes, SEGMENT_ALIGNMENT_BYTES)?;
        state.used_bytes += bytes;
        state.segments.insert(address, bytes);
        Ok(address)
    }

    unsafe fn release(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.run_script(Operation::Release, bytes)?;
        let mut state = self.state();
        match state.segments.get(&address) {
            Some(found) if *found == bytes => {}
            Some(_) => {
                let reason = "a segment is released whole, with the size it was allocated with";
                return Err(self.invalid_address(address, reason));
            }
            None => return Err(self.invalid_address(address, "not the start of a live segment")),
        }
        state.segments.remove(&address);
        state.addresses.remove(address);
        state.used_bytes -= bytes;
        Ok(())
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.granularity_bytes.is_some().then_some(self as &dyn VirtualMemory)
    }

    fn stream_ordered_memory(&self) -> Option<&dyn StreamOrderedMemory> {
        Some(self)
    }

    fn pinned_memory(&self) -> Option<&dyn PinnedMemory> {
        Some(self)
    }

    fn capture_id(&self, stream: Stream) -> Result<Option<u64>, DeviceError> {
        Ok(self.state().captures.id(stream))
    }

    fn capture_graphs(&self) -> Option<&dyn CaptureGraphs> {
        Some(self)
    }

    fn record_event(&self, stream: Stream) -> Result<Event, DeviceError> {
        self.run_script(Operation::RecordEvent, 0)?;
        let event = self.state().streams.record(stream);
        // SAFETY: the number is new, and given out once.
        Ok(unsafe { Event::from_raw(event) })
    }

    fn query_event(&self, event: &Event) -> Result<bool, DeviceError> {
        self.run_script(Operation::QueryEvent, 0)?;
        Ok(self.state().streams.is_complete(event.raw()))
    }

    fn wait_event(&self, event: &Event) -> Result<(), DeviceError> {
        self.run_script(Operation::WaitEvent, 0)?;
        self.state().streams.complete_up_to(event.raw());
        Ok(())
    }

    fn release_event(&self, _event: Event) {}

    fn stream_wait_event(&self, stream: Stream, event: &Event) -> Result<(), DeviceError> {
        self.state().streams.wait_for(stream, event.raw());
        Ok(())
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<(), DeviceError> {
        self.run_script(Operation::SynchronizeStream, 0)?;
        self.set_idle(stream);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.run_script(Operation::Synchronize, 0)?;
        self.state().streams.set_all_idle();
        Ok(())
    }

    unsafe fn write(&self, _address: u64, _source: &[u8], _stream: Stream) -> Result<(), DeviceError> {
        Err(DeviceError::NoBytes { device: self.owned_name() })
    }

    unsafe fn read(&self, _address: u64, _target: &mut [u8], _stream: Stream) -> Result<(), DeviceError> {
        Err(DeviceError::NoBytes { device: self.owned_name() })
    }

    unsafe fn copy(&self, _source: u64, _target: u64, _bytes: u64, _stream: Stream) -> Result<(), DeviceError> {
        Err(DeviceError::NoBytes { device: self.owned_name() })
    }

    unsafe fn fill(&self, _address: u64, _value: u8, _bytes: u64, _stream: Stream) -> Result<(), DeviceError> {
        Err(DeviceError::NoBytes { device: self.owned_name() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
