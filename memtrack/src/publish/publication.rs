//! What a process publishes.

use std::time::SystemTime;

use crate::device::{DeviceKind, DeviceUuid, PciAddress};
use crate::driver::{ContextMemory, ContextMethod};

use super::Liveness;
use super::liveness::start_of;

/// The number of the form in which files are written.
pub(super) const FORM: u64 = 1;

/// A process and its allocators at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Publication {
    /// Its number, in its own pid namespace.
    pub pid: u32,
    /// When it started, in the kernel's ticks since the machine did; `None` where that cannot be had.
    pub start_ticks: Option<u64>,
    /// Its pid namespace, as Linux writes it: `pid:[4026531836]`.
    pub pid_namespace: Option<String>,
    /// The program's file name.
    pub program: String,
    /// When this was written.
    pub published: SystemTime,
    /// Its allocators, in the order in which they were made.
    pub allocators: Vec<PublishedAllocator>,
}

impl Publication {
    /// Whether both are of one process: its number, its start and its pid namespace are the same.
    #[cfg(feature = "json")]
    pub(super) fn is_of_same_process(&self, other: &Self) -> bool {
        self.pid == other.pid && self.start_ticks == other.start_ticks && self.pid_namespace == other.pid_namespace
    }

    /// Whether the process is there still.
    pub fn liveness(&self) -> Liveness {
        Liveness::of(self.pid, self.start_ticks, self.pid_namespace.as_deref())
    }

    /// Whether the process that has this number here started when the one that published did: for readers outside its
    /// container, who know it by another number.
    pub fn started_as(&self, pid: u32) -> bool {
        self.start_ticks.is_some() && start_of(pid) == self.start_ticks
    }
}

/// One allocator's figures. Sizes are rounded bytes unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishedAllocator {
    /// The device by the process's own name for it, as `cuda:0`.
    pub device: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// What a person calls it.
    pub model: String,
    /// Its UUID, by which the driver knows it.
    pub uuid: Option<DeviceUuid>,
    /// Where it sits on the PCI bus.
    pub pci_address: Option<PciAddress>,
    /// Bytes handed to the program.
    pub allocated_bytes: u64,
    /// Bytes the program asked for, before rounding.
    pub requested_bytes: u64,
    /// Bytes taken from the device.
    pub reserved_bytes: u64,
    /// The most bytes that were handed to the program.
    pub peak_allocated_bytes: u64,
    /// The most bytes that were taken from the device.
    pub peak_reserved_bytes: u64,
    /// Free bytes in segments that also hold live blocks.
    pub inactive_split_bytes: u64,
    /// The largest free block.
    pub largest_free_block_bytes: u64,
    /// What may be reserved; `None` without a limit.
    pub limit_bytes: Option<u64>,
    /// Times an allocation gave cached memory back and asked again.
    pub retry_count: u64,
    /// Out of memory errors returned.
    pub oom_count: u64,
    /// The CUDA context as the process measured it; `None` where it did not.
    pub context: Option<ContextMemory>,
}

impl PublishedAllocator {
    /// One on a device of this name and kind, with nothing allocated and nothing known of it.
    pub fn new(device: impl Into<String>, kind: DeviceKind) -> Self {
        Self {
            device: device.into(),
            kind,
            model: String::new(),
            uuid: None,
            pci_address: None,
            allocated_bytes: 0,
            requested_bytes: 0,
            reserved_bytes: 0,
            peak_allocated_bytes: 0,
            peak_reserved_bytes: 0,
            inactive_split_bytes: 0,
            largest_free_block_bytes: 0,
            limit_bytes: None,
            retry_count: 0,
            oom_count: 0,
            context: None,
        }
    }

    /// Bytes that are reserved and not allocated.
    pub fn cached_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.allocated_bytes)
    }

    /// How much of what is reserved is cached in pieces smaller than the largest one, from 0 to 1: 0 with one free block or
    /// none, near 1 where much is cached and no piece of it is large. `None` with nothing reserved.
    pub fn fragmentation(&self) -> Option<f64> {
        let scattered_bytes = self.cached_bytes().saturating_sub(self.largest_free_block_bytes);
        (self.reserved_bytes > 0).then(|| scattered_bytes as f64 / self.reserved_bytes as f64)
    }
}

/// How files name the ways to measure a context.
pub(super) const CONTEXT_METHODS: [(ContextMethod, &str); 3] = [
    (ContextMethod::OwnProcess, "own process"),
    (ContextMethod::AboveBaseline, "above baseline"),
    (ContextMethod::WholeDevice, "whole device"),
];
