//! A device without bytes: addresses, capacity, busy streams and failures as a test or a replay scripts them.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Device, DeviceError, DeviceKind, DeviceMemory, Event, PhysicalMemory, Stream, VirtualMemory};
use crate::units::{GIB, MIB};

/// Generated addresses start here, far from zero and from host pointers a test could confuse them with.
const FIRST_ADDRESS: u64 = 0x7_0000_0000_0000;

/// Which call of a simulated device a script means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`Device::allocate`]
    Allocate,
    /// [`Device::release`]
    Release,
    /// [`Device::record_event`]
    RecordEvent,
    /// [`Device::query_event`]
    QueryEvent,
    /// [`Device::wait_event`]
    WaitEvent,
    /// [`VirtualMemory::reserve`]
    Reserve,
    /// [`VirtualMemory::create`]
    Create,
    /// [`VirtualMemory::map`]
    Map,
    /// [`VirtualMemory::unmap`]
    Unmap,
}

/// One line of a fault script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The `nth` call from now (0 = the next) answers out of memory.
    OutOfMemory {
        /// Which call.
        operation: Operation,
        /// How many calls go through first.
        nth: u64,
    },
    /// The `nth` call from now (0 = the next) fails as a broken driver does.
    Driver {
        /// Which call.
        operation: Operation,
        /// How many calls go through first.
        nth: u64,
    },
    /// Every call for more than this many bytes answers out of memory, until [`Simulated::clear_faults`].
    LargerThan {
        /// Which call.
        operation: Operation,
        /// The largest size that goes through.
        bytes: u64,
    },
    /// Every call takes this long before it answers, until [`Simulated::clear_faults`].
    Delay {
        /// Which call.
        operation: Operation,
        /// How long.
        duration: Duration,
    },
}

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
        let state = State { next_address: FIRST_ADDRESS, ..State::default() };
        Simulated { total_bytes, granularity_bytes, state: Mutex::new(state) }
    }
}

/// A device without bytes.
///
/// Any number names a stream. A stream is idle until [`set_busy`](Self::set_busy); events recorded on a busy stream
/// complete when it is told so, or when somebody waits for them.
#[derive(Debug)]
pub struct Simulated {
    total_bytes: u64,
    granularity_bytes: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_address: u64,
    scripted_addresses: VecDeque<u64>,
    other_use_bytes: u64,
    /// Segments and physical memory together.
    used_bytes: u64,
    segments: BTreeMap<u64, u64>,
    reservations: BTreeMap<u64, u64>,
    physical: HashMap<u64, u64>,
    /// Mapped pieces: address to (bytes, handle).
    mappings: BTreeMap<u64, (u64, u64)>,
    next_handle: u64,
    busy: HashSet<Stream>,
    /// Events that are not complete, oldest first.
    pending_events: VecDeque<(u64, Stream)>,
    next_event: u64,
    faults: Vec<Fault>,
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of the coming segments and reservations, in order; generated ones follow when they run out.
    pub fn script_addresses(&self, addresses: impl IntoIterator<Item = u64>) {
        self.state().scripted_addresses.extend(addresses);
    }

    /// How much memory other processes have.
    pub fn set_other_use(&self, bytes: u64) {
        self.state().other_use_bytes = bytes;
    }

    /// Makes a stream busy: events recorded on it from now on do not complete by themselves.
    pub fn set_busy(&self, stream: Stream) {
        self.state().busy.insert(stream);
    }

    /// Lets a stream finish: its events are complete and later ones complete at once.
    pub fn set_idle(&self, stream: Stream) {
        let mut state = self.state();
        state.busy.remove(&stream);
        state.pending_events.retain(|(_, of)| *of != stream);
    }

    /// Completes the `count` oldest pending events, whatever their streams.
    pub fn complete_oldest_events(&self, count: usize) {
        let mut state = self.state();
        let count = count.min(state.pending_events.len());
        state.pending_events.drain(..count);
    }

    /// Adds a line to the fault script.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Forgets the fault script.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Live segments as (address, bytes), in address order.
    pub fn segments(&self) -> Vec<(u64, u64)> {
        self.state().segments.iter().map(|(address, bytes)| (*address, *bytes)).collect()
    }

    /// Bytes taken from this device and not given back: segments and physical memory.
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
        let (delay, outcome) = self.state().consult_faults(operation, bytes, self.name());
        if let Some(duration) = delay {
            std::thread::sleep(duration);
        }
        outcome
    }

    fn check_granular(&self, bytes: u64) -> Result<(), DeviceError> {
        let granularity_bytes = self.granularity_bytes.unwrap_or(1);
        if bytes == 0 || !bytes.is_multiple_of(granularity_bytes) {
            let reason = "not a positive multiple of the granularity";
            return Err(DeviceError::InvalidSize { device: self.owned_name(), bytes, reason });
        }
        Ok(())
    }
}

impl Default for Simulated {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn consult_faults(
        &mut self,
        operation: Operation,
        bytes: u64,
        device: &str,
    ) -> (Option<Duration>, Result<(), DeviceError>) {
        let mut delay = None;
        let mut outcome = Ok(());
        let out_of_memory = || DeviceError::OutOfMemory { device: device.to_owned(), requested_bytes: bytes };
        self.faults.retain_mut(|fault| match fault {
            Fault::Delay { operation: of, duration } if *of == operation => {
                delay = Some(*duration);
                true
            }
            Fault::LargerThan { operation: of, bytes: limit_bytes } if *of == operation => {
                if bytes > *limit_bytes {
                    outcome = Err(out_of_memory());
                }
                true
            }
            Fault::OutOfMemory { operation: of, nth } | Fault::Driver { operation: of, nth } if *of == operation => {
                if *nth > 0 {
                    *nth -= 1;
                    return true;
                }
                outcome = Err(match fault {
                    Fault::OutOfMemory { .. } => out_of_memory(),
                    _ => DeviceError::Driver {
                        device: device.to_owned(),
                        call: "scripted",
                        code: 999,
                        name: "scripted failure".to_owned(),
                        description: format!("the fault script fails this {operation:?}"),
                    },
                });
                false
            }
            _ => true,
        });
        (delay, outcome)
    }

    fn take(&mut self, bytes: u64, total_bytes: u64, device: &str) -> Result<(), DeviceError> {
        let free_bytes = total_bytes.saturating_sub(self.other_use_bytes).saturating_sub(self.used_bytes);
        if bytes > free_bytes {
            return Err(DeviceError::OutOfMemory { device: device.to_owned(), requested_bytes: bytes });
        }
        self.used_bytes += bytes;
        Ok(())
    }

    fn place(&mut self, bytes: u64) -> u64 {
        self.scripted_addresses.pop_front().unwrap_or_else(|| {
            let address = self.next_address;
            // A gap behind each range, so that two ranges never look like one.
            self.next_address += bytes.next_multiple_of(2 * MIB) + 2 * MIB;
            address
        })
    }

    fn finish_up_to(&mut self, event: u64) {
        // An event is done when everything before it on its stream is.
        if let Some(&(_, stream)) = self.pending_events.iter().find(|(id, _)| *id == event) {
            self.pending_events.retain(|(id, of)| *of != stream || *id > event);
        }
    }
}

// SAFETY: there is no memory behind the addresses, and every access to it is refused.
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
        let state = self.state();
        let free_bytes = self.total_bytes.saturating_sub(state.other_use_bytes).saturating_sub(state.used_bytes);
        Ok(DeviceMemory { free_bytes, total_bytes: self.total_bytes })
    }

    fn allocate(&self, bytes: u64) -> Result<u64, DeviceError> {
        if bytes == 0 {
            let reason = "a segment has at least one byte";
            return Err(DeviceError::InvalidSize { device: self.owned_name(), bytes, reason });
        }
        self.run_script(Operation::Allocate, bytes)?;
        let mut state = self.state();
        state.take(bytes, self.total_bytes, self.name())?;
        let address = state.place(bytes);
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
        state.used_bytes -= bytes;
        Ok(())
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.granularity_bytes.is_some().then_some(self as &dyn VirtualMemory)
    }

    fn record_event(&self, stream: Stream) -> Result<Event, DeviceError> {
        self.run_script(Operation::RecordEvent, 0)?;
        let mut state = self.state();
        let id = state.next_event;
        state.next_event += 1;
        if state.busy.contains(&stream) {
            state.pending_events.push_back((id, stream));
        }
        Ok(Event::from_raw(id))
    }

    fn query_event(&self, event: &Event) -> Result<bool, DeviceError> {
        self.run_script(Operation::QueryEvent, 0)?;
        Ok(!self.state().pending_events.iter().any(|(id, _)| *id == event.raw()))
    }

    fn wait_event(&self, event: &Event) -> Result<(), DeviceError> {
        self.run_script(Operation::WaitEvent, 0)?;
        self.state().finish_up_to(event.raw());
        Ok(())
    }

    fn release_event(&self, _event: Event) {}

    fn stream_wait_event(&self, _stream: Stream, _event: &Event) -> Result<(), DeviceError> {
        Ok(())
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<(), DeviceError> {
        self.set_idle(stream);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.busy.clear();
        state.pending_events.clear();
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

impl VirtualMemory for Simulated {
    fn granularity_bytes(&self) -> u64 {
        self.granularity_bytes.unwrap_or(1)
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.check_granular(bytes)?;
        self.run_script(Operation::Reserve, bytes)?;
        let mut state = self.state();
        let address = state.place(bytes);
        state.reservations.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut state = self.state();
        if state.reservations.get(&address) != Some(&bytes) {
            return Err(self.invalid_address(address, "not a reservation of that size"));
        }
        if state.mappings.range(address..address + bytes).next().is_some() {
            return Err(self.invalid_address(address, "the reservation still has memory mapped in it"));
        }
        state.reservations.remove(&address);
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<PhysicalMemory, DeviceError> {
        self.check_granular(bytes)?;
        self.run_script(Operation::Create, bytes)?;
        let mut state = self.state();
        state.take(bytes, self.total_bytes, self.name())?;
        state.next_handle += 1;
        let handle = state.next_handle;
        state.physical.insert(handle, bytes);
        Ok(PhysicalMemory { handle, bytes })
    }

    fn release_physical(&self, memory: PhysicalMemory) -> Result<(), DeviceError> {
        let mut state = self.state();
        if state.physical.get(&memory.handle) != Some(&memory.bytes) {
            return Err(self.invalid_address(memory.handle, "not the handle of live physical memory of that size"));
        }
        state.physical.remove(&memory.handle);
        // Memory that is still mapped somewhere goes with its last mapping, as in the driver.
        if !state.mappings.values().any(|(_, handle)| *handle == memory.handle) {
            state.used_bytes -= memory.bytes;
        }
        Ok(())
    }

    fn map(&self, address: u64, memory: PhysicalMemory) -> Result<(), DeviceError> {
        self.run_script(Operation::Map, memory.bytes)?;
        let mut state = self.state();
        if state.physical.get(&memory.handle) != Some(&memory.bytes) {
            return Err(self.invalid_address(memory.handle, "not the handle of live physical memory of that size"));
        }
        let end = address + memory.bytes;
        let inside =
            state.reservations.range(..=address).next_back().is_some_and(|(start, bytes)| end <= start + bytes);
        if !inside || !address.is_multiple_of(VirtualMemory::granularity_bytes(self)) {
            return Err(self.invalid_address(address, "not a granular place inside a reservation"));
        }
        let clash = state.mappings.range(..end).next_back().is_some_and(|(start, (bytes, _))| start + bytes > address);
        if clash {
            return Err(self.invalid_address(address, "memory is mapped there already"));
        }
        state.mappings.insert(address, (memory.bytes, memory.handle));
        Ok(())
    }

    unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.run_script(Operation::Unmap, bytes)?;
        let mut state = self.state();
        let end = address + bytes;
        let pieces: Vec<(u64, u64, u64)> =
            state.mappings.range(address..end).map(|(start, (bytes, handle))| (*start, *bytes, *handle)).collect();
        let covered = pieces.iter().try_fold(address, |at, (start, bytes, _)| (*start == at).then_some(start + bytes));
        if bytes == 0 || covered != Some(end) {
            return Err(self.invalid_address(address, "not a range of whole mapped pieces"));
        }
        for (start, bytes, handle) in pieces {
            state.mappings.remove(&start);
            let still_mapped = state.mappings.values().any(|(_, of)| *of == handle);
            if !still_mapped && !state.physical.contains_key(&handle) {
                state.used_bytes -= bytes;
            }
        }
        Ok(())
    }
}
