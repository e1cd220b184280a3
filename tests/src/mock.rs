//! The mock CUDA driver from the tests' side: put in the real driver's place, and steered.
#![expect(clippy::expect_used, reason = "a test without its mock can only stop")]

use std::ffi::{CString, OsString};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use memtrack::device::Stream;

/// The mock, for one test at a time: its state is the process's.
#[derive(Debug)]
pub struct Mock {
    _turn: MutexGuard<'static, ()>,
}

/// Something the mock counts while it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Live {
    /// From `cuMemAlloc`.
    Segments = 0,
    /// From memory pools.
    PoolAllocations = 1,
    /// From `cuMemCreate`, until released.
    Physical = 2,
    /// Mapped pieces.
    Mappings = 3,
    /// Reserved ranges.
    Reservations = 4,
    /// Events.
    Events = 5,
    /// Streams from `cuStreamCreate`.
    Streams = 6,
    /// Pinned host memory.
    HostMemory = 7,
    /// Primary contexts, as often as retained.
    Contexts = 8,
    /// Registered host memory.
    HostRegistrations = 9,
    /// Memory pools from `cuMemPoolCreate`.
    Pools = 10,
    /// Graphs, executable ones too.
    Graphs = 11,
}

/// All memory and addresses a device can have of the driver.
pub const MEMORY: [Live; 7] = [
    Live::Segments,
    Live::PoolAllocations,
    Live::Physical,
    Live::Mappings,
    Live::Reservations,
    Live::HostMemory,
    Live::HostRegistrations,
];

/// Where cargo puts the mock: beside the test executables, one folder below the programs.
fn path() -> PathBuf {
    let name = OsString::from("libmemtrack_mock_driver.so");
    let executable = std::env::current_exe().expect("a test knows its own path");
    let folder = executable.parent().expect("an executable lies in a folder");
    let candidates = [folder.join(&name), folder.join("deps").join(&name)];
    let found = candidates.iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("cargo has not built the mock driver: neither of {candidates:?} exists")).clone()
}

/// The open library. It is never closed: cudarc keeps the addresses of its functions.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = path();
        // SAFETY: the mock has no initialisers that do anything. Open under its SONAME `libcuda.so`, it is what the loader
        // gives to everybody who asks for the driver from here on.
        unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }.unwrap_or_else(|e| panic!("{path:?}: {e:?}"))
    })
}

/// Calls one of the mock's exported functions.
macro_rules! control {
    ($name:literal, ($($argument:expr => $type:ty),*) $(-> $answer:ty)?) => {{
        type Function = unsafe extern "C" fn($($type),*) $(-> $answer)?;
        // SAFETY: the mock exports the function under this name with this type; texts end in zero and outlive the call.
        unsafe {
            let function = library().get::<Function>($name).expect(concat!($name, " is exported"));
            function($($argument),*)
        }
    }};
}

impl Mock {
    /// Puts the mock in the driver's place and makes it as new, for as long as this value lives. Must come before the
    /// process's first CUDA call.
    pub fn exclusive() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        library();
        let mock = Self { _turn: turn };
        mock.reset();
        mock
    }

    /// Puts the mock in the driver's place as the environment sets it up.
    pub fn from_environment() {
        library();
    }

    /// One device of 80 GiB, no script, all counts at zero.
    pub fn reset(&self) {
        control!("mock_reset", ());
    }

    /// How many devices there are.
    pub fn set_device_count(&self, count: usize) {
        control!("mock_set_device_count", (count => usize));
    }

    /// Whether devices have virtual memory.
    pub fn set_virtual_memory(&self, has_virtual_memory: bool) {
        control!("mock_set_virtual_memory", (has_virtual_memory => bool));
    }

    /// How much memory a device has.
    pub fn set_capacity(&self, device: usize, bytes: u64) {
        control!("mock_set_capacity", (device => usize, bytes => u64));
    }

    /// How much of a device other processes have.
    pub fn set_other_use(&self, device: usize, bytes: u64) {
        control!("mock_set_other_use", (device => usize, bytes => u64));
    }

    /// Lets every call on a device's context fail with this code; 0 mends it.
    pub fn break_context(&self, device: usize, code: u32) {
        control!("mock_break_context", (device => usize, code => u32));
    }

    /// Makes a stream busy until [`let_stream_go`](Self::let_stream_go).
    pub fn hold_stream(&self, device: usize, stream: Stream) {
        let answer = control!("mock_hold_stream", (device => usize, stream.0 => u64) -> u32);
        assert_eq!(answer, 0, "{stream} is no stream of the mock");
    }

    /// Lets a held stream go on.
    pub fn let_stream_go(&self, device: usize, stream: Stream) {
        let answer = control!("mock_let_stream_go", (device => usize, stream.0 => u64) -> u32);
        assert_eq!(answer, 0, "{stream} is no stream of the mock");
    }

    /// Makes a stream one whose work goes into a graph, or ends that.
    pub fn set_capturing(&self, device: usize, stream: Stream, is_capturing: bool) {
        let answer = control!("mock_set_capturing",
            (device => usize, stream.0 => u64, is_capturing => bool) -> u32);
        assert_eq!(answer, 0, "{stream} is no stream of the mock");
    }

    /// Lets one call of a driver function fail, after `skip` more calls of it.
    pub fn fail(&self, function: &str, skip: u64, code: u32) {
        let function = CString::new(function).expect("no function's name has a zero in it");
        control!("mock_fail", (function.as_ptr() => *const std::ffi::c_char, skip => u64, code => u32));
    }

    /// Refuses every request for more than this many bytes.
    pub fn fail_above(&self, bytes: u64) {
        control!("mock_fail_above", (bytes => u64));
    }

    /// Scripted failures that have not happened yet.
    pub fn pending_failures(&self) -> usize {
        control!("mock_pending_failures", () -> usize)
    }

    /// How often a driver function was called since the last reset.
    pub fn calls(&self, function: &str) -> u64 {
        let function = CString::new(function).expect("no function's name has a zero in it");
        control!("mock_calls", (function.as_ptr() => *const std::ffi::c_char) -> u64)
    }

    /// The driver functions called since the last reset.
    pub fn called_functions(&self) -> Vec<String> {
        let mut buffer = [0_u8; 64];
        let name = |index: usize| {
            let (start, room) = (buffer.as_mut_ptr(), buffer.len());
            let length = control!("mock_called_function",
                (index => usize, start => *mut u8, room => usize) -> usize);
            (length > 0).then(|| String::from_utf8_lossy(&buffer[..length]).into_owned())
        };
        (0..).map_while(name).collect()
    }

    /// How many objects of a kind are alive.
    pub fn live(&self, kind: Live) -> u64 {
        control!("mock_live", (kind as u32 => u32) -> u64)
    }

    /// The kinds of memory of which some is alive, with how much.
    pub fn live_memory(&self) -> Vec<(Live, u64)> {
        MEMORY.into_iter().map(|kind| (kind, self.live(kind))).filter(|(_, count)| *count > 0).collect()
    }

    /// Bytes this process has of a device.
    pub fn used_bytes(&self, device: usize) -> u64 {
        control!("mock_used_bytes", (device => usize) -> u64)
    }
}
