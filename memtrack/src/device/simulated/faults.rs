//! The fault script: which calls are late or fail.

use std::time::Duration;

use crate::device::DeviceError;

/// Which call of a simulated device a script means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`Device::allocate`](crate::device::Device::allocate)
    Allocate,
    /// [`Device::release`](crate::device::Device::release)
    Release,
    /// [`Device::record_event`](crate::device::Device::record_event)
    RecordEvent,
    /// [`Device::query_event`](crate::device::Device::query_event)
    QueryEvent,
    /// [`Device::wait_event`](crate::device::Device::wait_event)
    WaitEvent,
    /// [`VirtualMemory::reserve`](crate::device::VirtualMemory::reserve)
    Reserve,
    /// [`VirtualMemory::create`](crate::device::VirtualMemory::create)
    Create,
    /// [`VirtualMemory::release_physical`](crate::device::VirtualMemory::release_physical)
    ReleasePhysical,
    /// [`VirtualMemory::map`](crate::device::VirtualMemory::map)
    Map,
    /// [`VirtualMemory::unmap`](crate::device::VirtualMemory::unmap)
    Unmap,
    /// [`PinnedMemory::allocate_pinned`](crate::device::PinnedMemory::allocate_pinned)
    AllocatePinned,
    /// [`PinnedMemory::release_pinned`](crate::device::PinnedMemory::release_pinned)
    ReleasePinned,
    /// [`PinnedMemory::register_pinned`](crate::device::PinnedMemory::register_pinned)
    RegisterPinned,
    /// [`PinnedMemory::unregister_pinned`](crate::device::PinnedMemory::unregister_pinned)
    UnregisterPinned,
    /// [`StreamOrderedMemory::allocate_ordered`](crate::device::StreamOrderedMemory::allocate_ordered)
    AllocateOrdered,
    /// [`StreamOrderedMemory::free_ordered`](crate::device::StreamOrderedMemory::free_ordered)
    FreeOrdered,
    /// [`StreamOrderedMemory::trim_ordered`](crate::device::StreamOrderedMemory::trim_ordered)
    TrimOrdered,
    /// [`Device::synchronize_stream`](crate::device::Device::synchronize_stream)
    SynchronizeStream,
    /// [`Device::synchronize`](crate::device::Device::synchronize)
    Synchronize,
    /// Either call of [`CaptureGraphs`](crate::device::CaptureGraphs)
    CapturePoint,
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
    /// Every call for more than this many bytes answers out of memory, until
    /// [`Simulated::clear_faults`](super::Simulated::clear_faults).
    LargerThan {
        /// Which call.
        operation: Operation,
        /// The largest size that goes through.
        bytes: u64,
    },
    /// Every call takes this long before it answers, until
    /// [`Simulated::clear_faults`](super::Simulated::clear_faults).
    Delay {
        /// Which call.
        operation: Operation,
        /// How long.
        duration: Duration,
    },
}

/// The lines that have not come true yet.
#[derive(Debug, Default)]
pub(super) struct FaultScript(pub(super) Vec<Fault>);

impl FaultScript {
    /// What one call comes to: how long it takes, and its answer.
    pub(super) fn consult(
        &mut self,
        operation: Operation,
        bytes: u64,
        device: &str,
    ) -> (Option<Duration>, Result<(), DeviceError>) {
        let mut delay = None;
        let mut outcome = Ok(());
        let out_of_memory = || DeviceError::OutOfMemory { device: device.to_owned(), requested_bytes: bytes };
        self.0.retain_mut(|fault| match fault {
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
}
