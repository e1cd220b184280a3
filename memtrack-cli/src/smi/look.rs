//! Looking: the driver's devices with their figures now, and what processes published.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use memtrack::device::PciAddress;
use memtrack::driver::{
    CudaNumber, DeviceOrder, DriverDevice, DriverMemory, DriverUnavailable, Inventory, MaskEnd, PidNamespace,
    ProcessBytes, QueryFailure, QueryStatus, SystemMemory, VisibleDevices, cuda_numbers,
};
use memtrack::publish::{self, Liveness, Publication, PublishedAllocator};

use super::account::Account;
use super::namespaces;
use super::options::LookOptions;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// There is no driver to ask.
    #[error(transparent)]
    Driver(#[from] DriverUnavailable),
    /// The driver knows no device.
    #[error("the driver knows no device; is one visible to this container (NVIDIA_VISIBLE_DEVICES)?")]
    NoDevices,
    /// The driver knows no device of that name.
    #[error("no device `{device}` among {}; name one by NVML's index, the beginning of its UUID or its PCI address", known.join(", "))]
    NoSuchDevice {
        /// What was asked for.
        device: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The folder with published figures is there and cannot be read.
    #[error("cannot read the published figures in {}: {error}", folder.display())]
    Published {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}

/// The driver's devices, opened once and looked at as often as wanted.
#[derive(Debug)]
pub struct Machine {
    inventory: Inventory,
    /// Places of the devices to look at.
    chosen: Vec<usize>,
    numbers: Vec<CudaNumber>,
    mask_end: MaskEnd,
    folder: PathBuf,
    sees_all: bool,
}

/// Everything at one time.
#[derive(Debug)]
#[non_exhaustive]
pub struct Look {
    /// When.
    pub time: SystemTime,
    /// The driver's version, if it says.
    pub driver_version: Option<String>,
    /// The devices looked at.
    pub devices: Vec<DeviceLook>,
    /// How many the driver knows.
    pub device_count: usize,
    /// Why this process's mask shows no more devices.
    pub mask_end: MaskEnd,
    /// Where published figures are looked for.
    pub folder: PathBuf,
    /// Published files that are of no use, with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Published files of processes that ended.
    pub ended_count: usize,
    /// Published figures that belong to no process here, with the reason.
    pub unmatched: Vec<(Publication, &'static str)>,
}

/// One device at one time.
#[derive(Debug)]
#[non_exhaustive]
pub struct DeviceLook {
    /// NVML's index of the GPU.
    pub index: u32,
    /// The place of a MIG instance on it.
    pub mig_index: Option<u32>,
    /// The UUID, or why it is not known.
    pub uuid: Result<String, QueryFailure>,
    /// What a person calls it, or why that is not known.
    pub name: Result<String, QueryFailure>,
    /// The PCI address as text, or why it is not known.
    pub pci_bus_id: Result<String, QueryFailure>,
    /// Whether it is split into MIG instances; `None` when the driver does not say.
    pub mig_mode: Option<bool>,
    /// What a CUDA program with this process's environment calls it.
    pub cuda: Option<CudaNumber>,
    /// The device's memory, or why it is not known.
    pub memory: Result<DriverMemory, QueryFailure>,
    /// The machine's own memory, where the device says it has none of its own.
    pub system_memory: Option<SystemMemory>,
    /// The processes by number: those the driver lists, and those that published figures of this device.
    pub processes: Vec<ProcessLook>,
    /// Why the driver lists no processes.
    pub list_failure: Option<QueryFailure>,
    /// Whether the list has every process, under the numbers seen here.
    pub list_is_complete: bool,
    /// Where the used bytes are; `None` when those are not known.
    pub account: Option<Account>,
}

impl DeviceLook {
    /// `GPU 0`, or `GPU 0 MIG 1`.
    pub fn title(&self) -> String {
        title(self.index, self.mig_index)
    }
}

fn title(index: u32, mig_index: Option<u32>) -> String {
    mig_index.map_or_else(|| format!("GPU {index}"), |place| format!("GPU {index} MIG {place}"))
}

/// One process on a device.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProcessLook {
    /// Its number, as the driver gives it.
    pub pid: u32,
    /// The program's name, if it can be had.
    pub program: Option<String>,
    /// What the driver says it uses; `None` when the driver does not list it.
    pub driver: Option<ProcessBytes>,
    /// When it published.
    pub published_at: Option<SystemTime>,
    /// What it published of this device, its allocators one by one; empty for a process that does not publish.
    pub published: Vec<PublishedAllocator>,
}

impl ProcessLook {
    /// A sum over what it published.
    pub fn sum(&self, figure: impl Fn(&PublishedAllocator) -> u64) -> u64 {
        self.published.iter().map(figure).fold(0, u64::saturating_add)
    }

    /// Whether it publishes its figures.
    pub fn publishes(&self) -> bool {
        !self.published.is_empty()
    }
}

impl Machine {
    /// Opens the driver.
    ///
    /// # Errors
    ///
    /// [`LookError`] without a driver, without devices, and without the device that was asked for.
    pub fn open(options: &LookOptions) -> Result<Self, LookError> {
        let inventory = Inventory::open(options.library().as_deref())?;
        let devices = inventory.devices();
        if devices.is_empty() {
            return Err(LookError::NoDevices);
        }
        let chosen = match &options.device {
            None => (0..devices.len()).collect(),
            Some(name) => choose(devices, name)?,
        };
        let (numbers, mask_end) = cuda_numbers(devices, &VisibleDevices::from_env(), DeviceOrder::from_env());
        let sees_all = options.all_processes || PidNamespace::of_this_process() == PidNamespace::Initial;
        Ok(Self { chosen, numbers, mask_end, folder: options.folder(), sees_all, inventory })
    }

    /// Looks once.
    ///
    /// # Errors
    ///
    /// [`LookError::Published`]. What the driver does not say stands in its place.
    pub fn look(&self) -> Result<Look, LookError> {
        let time = SystemTime::now();
        let found = publish::read_folder(&self.folder)
            .map_err(|error| LookError::Published { folder: self.folder.clone(), error })?;
        let (mut publications, mut unreadable, mut ended_count) = (Vec::new(), Vec::new(), 0);
        for found in found {
            match found.publication {
                Err(error) => unreadable.push((found.path, error.to_string())),
                Ok(publication) if publication.liveness() == Liveness::Ended => ended_count += 1,
                Ok(publication) => publications.push((namespaces::pid_here(&publication), publication)),
            }
        }
        let mut matched = BTreeSet::new();
        let devices = self.chosen.iter().map(|place| self.device(*place, &publications, &mut matched)).collect();
        let is_whole_machine = self.chosen.len() == self.inventory.devices().len();
        let left = publications.into_iter().enumerate().filter(|(index, _)| !matched.contains(index));
        let unmatched = left.filter_map(|(_, (pid, publication))| {
            let on_gpu = publication.allocators.iter().any(|allocator| allocator.uuid.is_some());
            match pid {
                None => Some((publication, "its process is in another container and cannot be found from here")),
                Some(_) if on_gpu && is_whole_machine => Some((publication, "it is on no device of this driver")),
                Some(_) => None,
            }
        });
        Ok(Look {
            time,
            driver_version: self.inventory.driver_version().map(str::to_owned),
            devices,
            device_count: self.inventory.devices().iter().filter(|device| device.mig_index.is_none()).count(),
            mask_end: self.mask_end.clone(),
            folder: self.folder.clone(),
            unreadable,
            ended_count,
            unmatched: unmatched.collect(),
        })
    }

    fn device(
        &self,
        place: usize,
        publications: &[(Option<u32>, Publication)],
        matched: &mut BTreeSet<usize>,
    ) -> DeviceLook {
        let device = &self.inventory.devices()[place];
        let sample = device.sample();
        let (listed, list_failure) = match sample.processes {
            Ok(listed) => (listed, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let mut processes: Vec<ProcessLook> = Vec::new();
        for process in listed {
            let program = if self.sees_all { namespaces::program(process.pid) } else { None };
            match processes.iter_mut().find(|seen| seen.pid == process.pid) {
                // One entry for each MIG instance.
                Some(seen) => seen.driver = seen.driver.take().map(|bytes| sum(bytes, process.memory)),
                None => processes.push(ProcessLook {
                    pid: process.pid,
                    program,
                    driver: Some(process.memory),
                    published_at: None,
                    published: Vec::new(),
                }),
            }
        }
        for (index, (pid, publication)) in publications.iter().enumerate() {
            let is_listed = |pid| processes.iter().any(|process: &ProcessLook| process.pid == pid);
            let published: Vec<_> =
                publication.allocators.iter().filter(|allocator| is_on(allocator, device)).cloned().collect();
            // A file that does not say where it is from is taken at its word if the driver lists its number.
            let says_nothing = publication.start_ticks.is_none() && publication.pid_namespace.is_none();
            let pid = pid.or_else(|| Some(publication.pid).filter(|pid| says_nothing && is_listed(*pid)));
            let (Some(pid), false) = (pid, published.is_empty()) else { continue };
            matched.insert(index);
            let program = Some(publication.program.clone()).filter(|program| !program.is_empty());
            match processes.iter_mut().find(|process| process.pid == pid) {
                Some(process) => {
                    process.published.extend(published);
                    process.published_at = Some(publication.published);
                    process.program = program.or_else(|| process.program.take());
                }
                None => {
                    let published_at = Some(publication.published);
                    processes.push(ProcessLook { pid, program, driver: None, published_at, published });
                }
            }
        }
        processes.sort_by_key(|process| process.pid);
        let list_is_complete = self.sees_all && sample.list_is_whole;
        let not_supported =
            |failure: &QueryFailure| matches!(failure.status, QueryStatus::NotSupported | QueryStatus::NotAvailable);
        let account = sample
            .memory
            .as_ref()
            .ok()
            .map(|memory| Account::new(memory, &processes, list_failure.as_ref(), list_is_complete));
        DeviceLook {
            index: device.index,
            mig_index: device.mig_index,
            uuid: device.uuid.clone(),
            name: device.name.clone(),
            pci_bus_id: device.pci_address.clone().map(|address| address.to_string()),
            mig_mode: device.mig_mode,
            cuda: self.numbers.iter().find(|number| number.place == place).copied(),
            system_memory: sample
                .memory
                .as_ref()
                .err()
                .filter(|failure| not_supported(failure))
                .and_then(|_| SystemMemory::read()),
            memory: sample.memory,
            processes,
            list_failure,
            list_is_complete,
            account,
        }
    }
}

/// By UUID, then by PCI address, as the library finds devices; an instance by its UUID alone, since its GPU and the other
/// instances have the same address.
fn is_on(allocator: &PublishedAllocator, device: &DriverDevice) -> bool {
    match (&device.uuid, allocator.uuid) {
        (Ok(known), Some(uuid)) => known.split_once('-').is_some_and(|(_, known)| known == uuid.to_string()),
        _ => {
            device.mig_index.is_none()
                && device.pci_address.as_ref().ok() == allocator.pci_address.as_ref()
                && allocator.pci_address.is_some()
        }
    }
}

/// The places of the devices that a list names, each once and in the order of the driver.
fn choose(devices: &[DriverDevice], list: &str) -> Result<Vec<usize>, LookError> {
    let mut chosen = BTreeSet::new();
    for name in list.split(',').map(str::trim) {
        let named: Vec<usize> = (0..devices.len()).filter(|place| is_named(&devices[*place], name)).collect();
        chosen.extend(&named);
        if named.is_empty() || name.is_empty() {
            let known = devices.iter().map(|device| {
                let title = title(device.index, device.mig_index);
                device.uuid.as_ref().map_or_else(|_| title.clone(), |uuid| format!("{title} ({uuid})"))
            });
            return Err(LookError::NoSuchDevice { device: name.to_owned(), known: known.collect() });
        }
    }
    Ok(chosen.into_iter().collect())
}

/// By index, by PCI address, or by the beginning of the UUID. A GPU's index and address are its instances' too.
fn is_named(device: &DriverDevice, name: &str) -> bool {
    if let Ok(index) = name.parse::<u32>() {
        return device.index == index;
    }
    if let Some(address) = pci_address(name) {
        return device.pci_address.as_ref().is_ok_and(|known| *known == address);
    }
    let starts = |uuid: &String| uuid.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    device.uuid.as_ref().is_ok_and(starts)
}

/// `00000000:18:00.0`, as the driver writes it, `0000:18:00.0`, as Linux does, and without the domain 0: `18:00.0`, `18:00`.
fn pci_address(text: &str) -> Option<PciAddress> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => u32::from_str_radix(digits, 16).ok(),
        false => None,
    };
    // A GPU is its device's first function.
    if number(function)? != 0 {
        return None;
    }
    let numbers: Vec<u32> = address.split(':').map(number).collect::<Option<_>>()?;
    match numbers[..] {
        [domain, bus, device] => Some(PciAddress { domain, bus, device }),
        [bus, device] => Some(PciAddress { domain: 0, bus, device }),
        _ => None,
    }
}

/// Known when both are.
fn sum(first: ProcessBytes, second: ProcessBytes) -> ProcessBytes {
    match (first, second) {
        (ProcessBytes::Known(first), ProcessBytes::Known(second)) => ProcessBytes::Known(first.saturating_add(second)),
        (ProcessBytes::Unknown(reason), _) | (_, ProcessBytes::Unknown(reason)) => ProcessBytes::Unknown(reason),
    }
}
