//! The driver's view of a device, and why it differs from the allocator's.
//!
//! `nvidia-smi` shows more than an allocator has allocated: the cache, the CUDA context with its modules and
//! libraries, other processes, and what nobody accounts for. [`DriverView`] asks the driver through NVML;
//! [`Reconciliation`] sets its figures beside memtrack's so that they add up to the byte:
//!
//! ```text
//! used = allocated + cached + context + other processes + unexplained
//! ```
//!
//! Here live the look-up of the device, the queries, and the arithmetic on their answers. Nothing here allocates device
//! memory, knows an allocator, or decides what to do about a figure. A figure the driver does not give stays unknown
//! and says why; it is never shown as 0.
//!
//! [`Inventory`] has every device of the machine, [`VisibleDevices`] reads CUDA's mask, [`DriverChange`] compares two samples.
//!
//! Devices are matched by UUID, then by PCI address, never by index: CUDA numbers devices by speed and by
//! `CUDA_VISIBLE_DEVICES`, NVML by PCI address.

mod change;
mod context;
mod cuda_numbers;
mod error;
mod inventory;
mod memory;
#[cfg(feature = "nvml")]
mod nvml;
mod part;
mod process;
mod reconciliation;
mod report;
mod sample;
mod system_memory;
mod view;
mod visible_devices;
#[cfg(not(feature = "nvml"))]
mod without_nvml;

#[cfg(feature = "nvml")]
use nvml::{Connection, inventory as inventory_of};
#[cfg(not(feature = "nvml"))]
use without_nvml::{Connection, inventory as inventory_of};

pub use change::{ChangeUnknown, DriverChange, IdleContexts, OwnSource, comparable};
pub use context::{ContextMemory, ContextMethod};
pub use cuda_numbers::{CudaNumber, DeviceOrder, NumberedBy, cuda_numbers};
pub use error::{DriverUnavailable, QueryFailure, QueryStatus};
pub use inventory::{DeviceSample, DriverDevice, Inventory};
pub use memory::{DriverMemory, MemoryQuery};
pub use part::{Exactness, Part, PartKind, PartSource};
pub use process::{OtherProcesses, PidNamespace, ProcessBytes, ProcessMemory, UnknownReason};
pub use reconciliation::{Basis, Reconciliation};
pub use report::DriverReport;
pub use sample::DriverSample;
pub use system_memory::SystemMemory;
pub use view::{DriverView, DriverViewBuilder, MatchedBy};
pub use visible_devices::{MaskEnd, MaskEntry, Visible, VisibleDevices};
