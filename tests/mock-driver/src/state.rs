//! The driver's state, and the one way into it: every exported call is counted, may be scripted to fail, and holds the
//! lock while it acts.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::captures::Captures;
use crate::devices::Device;
use crate::errors::{Answer, INVALID_VALUE, LAUNCH_TIMEOUT, NOT_INITIALIZED, SUCCESS};
use crate::events::Event;
use crate::graphs::Graphs;
use crate::memory::{Allocation, HostAllocation};
use crate::pools::Pool;
use crate::streams::Stream;
use crate::virtual_memory::Ranges;

/// Segments and physical memory are counted in pages of this size, as on today's GPUs.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;
const DEFAULT_CAPACITY_BYTES: u64 = 80 << 30;
const LONGEST_WAIT: Duration = Duration::from_secs(30);

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::from_environment()));
/// Told whenever a stream or an event moves on.
static PROGRESS: Condvar = Condvar::new();

/// One line of the failure script.
pub(crate) struct Fault {
    pub(crate) function: String,
    /// How many calls of it go through first.
    pub(crate) skip: u64,
    pub(crate) code: u32,
}

pub(crate) struct State {
    pub(crate) is_initialized: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) has_virtual_memory: bool,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) host_allocations: BTreeMap<u64, HostAllocation>,
    /// Host memory that callers have locked, address to bytes.
    pub(crate) host_registrations: BTreeMap<u64, u64>,
    pub(crate) ranges: Ranges,
    pub(crate) pools: BTreeMap<u64, Pool>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) next_stream_id: u64,
    pub(crate) captures: Captures,
    pub(crate) graphs: Graphs,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) faults: Vec<Fault>,
    /// Requests for more than this many bytes are refused.
    pub(crate) largest_request_bytes: u64,
}

impl State {
    fn from_environment() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let device_count = number("MEMTRACK_MOCK_DEVICES").unwrap_or(1);
        let mut state = Self {
            is_initialized: false,
            devices: Vec::new(),
            has_virtual_memory: number("MEMTRACK_MOCK_VIRTUAL_MEMORY") != Some(0),
            allocations: BTreeMap::new(),
            host_allocations: BTreeMap::new(),
            host_registrations: BTreeMap::new(),
            ranges: Ranges::default(),
            pools: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_stream_id: 1,
            captures: Captures::default(),
            graphs: Graphs::default(),
            events: BTreeMap::new(),
            calls: BTreeMap::new(),
            faults: Vec::new(),
            largest_request_bytes: u64::MAX,
        };
        let capacity_bytes = number("MEMTRACK_MOCK_CAPACITY_BYTES").unwrap_or(DEFAULT_CAPACITY_BYTES);
        state.devices.resize_with(device_count as usize, || Device::new(capacity_bytes));
        state
    }

    /// Back to one device of 80 GiB without script, counts at zero, and pools' settings and high marks as new. What is alive stays alive: its owners will still free it.
    pub(crate) fn reset(&mut self) {
        self.has_virtual_memory = true;
        self.set_device_count(1);
        for device in &mut self.devices {
            device.capacity_bytes = DEFAULT_CAPACITY_BYTES;
            device.other_use_bytes = 0;
            device.fault = None;
        }
        for stream in self.streams.values_mut() {
            stream.is_held = false;
        }
        for pool in self.pools.values_mut() {
            pool.reset();
        }
        self.reset_captures();
        self.calls.clear();
        self.faults.clear();
        self.largest_request_bytes = u64::MAX;
        self.pump();
    }

    pub(crate) fn set_device_count(&mut self, count: usize) {
        self.devices.resize_with(count, || Device::new(DEFAULT_CAPACITY_BYTES));
    }

    fn enter(&mut self, function: &'static str, needs_initialization: bool) -> Answer {
        *self.calls.entry(function).or_default() += 1;
        let mut hit = None;
        self.faults.retain_mut(|fault| {
            if fault.function != function || hit.is_some() {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            hit = Some(fault.code);
            false
        });
        match hit {
            Some(code) => Err(code),
            None if needs_initialization && !self.is_initialized => Err(NOT_INITIALIZED),
            None => Ok(()),
        }
    }
}

/// The lowest handle of this kind that is not in use, so that handles are given out again.
pub(crate) fn free_handle<T>(used: &BTreeMap<u64, T>, kind: HandleKind) -> u64 {
    let mut handle = kind as u64;
    while used.contains_key(&handle) {
        handle += 0x100;
    }
    handle
}

/// Where the handles of a kind begin: apart, so that one taken for the other is noticed.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum HandleKind {
    Context = 0x1000_0000_0000,
    Stream = 0x2000_0000_0000,
    Event = 0x3000_0000_0000,
    Pool = 0x4000_0000_0000,
    Physical = 0x5000_0000_0000,
    Graph = 0x6000_0000_0000,
    Node = 0x7000_0000_0000,
    Executable = 0x8000_0000_0000,
}

/// The locked state, given up while waiting.
pub(crate) struct Access {
    guard: Option<MutexGuard<'static, State>>,
}

impl Access {
    pub(crate) fn new() -> Self {
        Self { guard: Some(STATE.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Waits until the condition holds; an error after thirty seconds.
    pub(crate) fn wait_until(&mut self, what: &str, mut condition: impl FnMut(&State) -> bool) -> Answer {
        let deadline = Instant::now() + LONGEST_WAIT;
        while !condition(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                eprintln!("mock driver: {what} waited {LONGEST_WAIT:?} for work that nobody lets go on");
                return Err(LAUNCH_TIMEOUT);
            }
            if let Some(guard) = self.guard.take() {
                let (guard, _) = PROGRESS.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
                self.guard = Some(guard);
            }
        }
        Ok(())
    }
}

impl Deref for Access {
    type Target = State;

    fn deref(&self) -> &State {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is only away within a wait"),
        }
    }
}

impl DerefMut for Access {
    fn deref_mut(&mut self) -> &mut State {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is only away within a wait"),
        }
    }
}

pub(crate) fn tell_progress() {
    PROGRESS.notify_all();
}

/// Carries out an exported call.
pub(crate) fn call(function: &'static str, body: impl FnOnce(&mut Access) -> Answer) -> u32 {
    run(function, true, body)
}

/// Likewise, for calls that are allowed before `cuInit`.
pub(crate) fn call_uninitialized(function: &'static str, body: impl FnOnce(&mut Access) -> Answer) -> u32 {
    run(function, false, body)
}

fn run(function: &'static str, needs_initialization: bool, body: impl FnOnce(&mut Access) -> Answer) -> u32 {
    let mut access = Access::new();
    match access.enter(function, needs_initialization).and_then(|()| body(&mut access)) {
        Ok(()) => SUCCESS,
        Err(code) => code,
    }
}

/// Writes a call's result to the place its caller gave.
///
/// # Safety
///
/// `place` is null or a place for a `T`.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, so the caller's place.
    unsafe { place.write(value) };
    Ok(())
}
