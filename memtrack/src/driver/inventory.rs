//! All devices the driver knows, whoever uses them.

use std::ffi::OsStr;
use std::fmt;
use std::sync::Mutex;

use super::{Connection, DriverMemory, DriverUnavailable, MemoryQuery, ProcessMemory, QueryFailure};
use crate::device::PciAddress;
use crate::sync::lock;

/// The devices of this machine or container, as NVML lists them, for tools that look at all of them.
///
/// A program that asks for the memory of its own device wants a [`DriverView`](super::DriverView), which finds it
/// whatever either side numbers first. No CUDA context is made, and none is needed.
///
/// ```
/// use memtrack::driver::{DriverUnavailable, Inventory};
///
/// match Inventory::open(None) {
///     Ok(inventory) => println!("{} devices", inventory.devices().len()),
///     Err(why) => println!("no figures: {why}"),
/// }
/// assert!(matches!(
///     Inventory::open(Some("/does/not/exist.so".as_ref())),
///     Err(DriverUnavailable::LibraryNotLoaded { .. } | DriverUnavailable::FeatureOff)
/// ));
/// ```
#[derive(Debug)]
pub struct Inventory {
    driver_version: Option<String>,
    devices: Vec<DriverDevice>,
}

impl Inventory {
    /// Lists the devices of NVML, or of the library at `lib_path` in its place.
    ///
    /// Each path is loaded once in a process and stays loaded.
    ///
    /// # Errors
    ///
    /// [`DriverUnavailable`] when there is no usable library or no driver behind it, or it does not count its devices. A
    /// single device that cannot be reached is no error; its figures say why they are missing.
    pub fn open(lib_path: Option<&OsStr>) -> Result<Self, DriverUnavailable> {
        let (driver_version, devices) = super::inventory_of(lib_path)?;
        Ok(Self { driver_version, devices })
    }

    /// The driver's version, such as `580.95.05`, if it says.
    pub fn driver_version(&self) -> Option<&str> {
        self.driver_version.as_deref()
    }

    /// The devices by NVML's index, each followed by its MIG instances.
    pub fn devices(&self) -> &[DriverDevice] {
        &self.devices
    }
}

/// One GPU, or one MIG instance of it.
#[non_exhaustive]
pub struct DriverDevice {
    /// NVML's index of the GPU. CUDA's number for it is another one in general.
    pub index: u32,
    /// The instance's place on the GPU; `None` for the GPU itself.
    pub mig_index: Option<u32>,
    /// With its prefix: `GPU-…` or `MIG-…`.
    pub uuid: Result<String, QueryFailure>,
    /// What a person calls it.
    pub name: Result<String, QueryFailure>,
    /// Where the GPU sits; an instance has its GPU's address.
    pub pci_address: Result<PciAddress, QueryFailure>,
    /// Whether the GPU is split into instances; `None` when the driver does not say.
    pub mig_mode: Option<bool>,
    /// Of a MIG instance: the numbers of its GPU instance and of its compute instance, by which masks of before driver 470 name it;
    /// `None` when the driver does not say.
    pub instance_ids: Option<(u32, u32)>,
    connection: Result<Connection, QueryFailure>,
    /// The memory query that answered first; the other one counts differently.
    query: Mutex<Option<MemoryQuery>>,
}

/// What the driver says, or why it does not.
type Known<T> = Result<T, QueryFailure>;

impl DriverDevice {
    #[cfg_attr(not(feature = "nvml"), allow(dead_code))]
    pub(super) fn reached(
        index: u32,
        (uuid, name, pci_address): (Known<String>, Known<String>, Known<PciAddress>),
        connection: Connection,
    ) -> Self {
        Self::new(index, (uuid, name, pci_address), Ok(connection))
    }

    #[cfg_attr(not(any(feature = "nvml", test)), allow(dead_code))]
    pub(super) fn unreachable(index: u32, failure: QueryFailure) -> Self {
        let identity = (Err(failure.clone()), Err(failure.clone()), Err(failure.clone()));
        Self::new(index, identity, Err(failure))
    }

    fn new(
        index: u32,
        (uuid, name, pci_address): (Known<String>, Known<String>, Known<PciAddress>),
        connection: Known<Connection>,
    ) -> Self {
        let (mig_index, mig_mode, instance_ids, query) = (None, None, None, Mutex::new(None));
        Self { index, mig_index, uuid, name, pci_address, mig_mode, instance_ids, connection, query }
    }

    /// The device's figures now. The memory query that answers first is the one of all later samples.
    ///
    /// Costs as much as [`DriverView::sample`](super::DriverView::sample).
    pub fn sample(&self) -> DeviceSample {
        let connection = match &self.connection {
            Ok(connection) => connection,
            Err(failure) => return DeviceSample::without_figures(failure),
        };
        let mut query = lock(&self.query);
        let memory = connection.memory(*query);
        if let Ok(memory) = &memory {
            *query = Some(memory.query);
        }
        let (processes, list_is_whole) = connection.processes();
        DeviceSample { memory, processes, list_is_whole }
    }
}

impl fmt::Debug for DriverDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverDevice")
            .field("index", &self.index)
            .field("mig_index", &self.mig_index)
            .field("uuid", &self.uuid)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A device's figures at one time, seen from outside: no process is "this one".
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceSample {
    /// The whole device's memory, or why the driver does not say.
    pub memory: Result<DriverMemory, QueryFailure>,
    /// The processes on the device, by pid, or why the driver does not say. In a container those outside may be missing, or
    /// listed by numbers that mean nothing inside.
    pub processes: Result<Vec<ProcessMemory>, QueryFailure>,
    /// Whether every query that makes up the list gave an answer.
    pub list_is_whole: bool,
}

impl DeviceSample {
    /// A sample from the driver's answers.
    pub fn new(
        memory: Result<DriverMemory, QueryFailure>,
        processes: Result<Vec<ProcessMemory>, QueryFailure>,
        list_is_whole: bool,
    ) -> Self {
        Self { memory, processes, list_is_whole }
    }

    fn without_figures(failure: &QueryFailure) -> Self {
        Self::new(Err(failure.clone()), Err(failure.clone()), false)
    }
}
