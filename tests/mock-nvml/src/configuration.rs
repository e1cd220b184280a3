//! The document a library answers from. Sizes are bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The whole document.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// What `nvmlSystemGetDriverVersion` answers.
    pub driver_version: String,
    /// Functions that fail on every device, or have no device: name and `nvmlReturn_t`.
    pub errors: BTreeMap<String, u32>,
    /// What a function answers at its first calls after this document came into force, one `nvmlReturn_t` a call;
    /// `None` is as usual.
    pub first_answers: BTreeMap<String, Vec<Option<u32>>>,
    /// The devices, in NVML's order.
    pub devices: Vec<Device>,
}

impl Configuration {
    /// Adds a device behind those there.
    pub fn device(mut self, device: Device) -> Self {
        self.devices.push(device);
        self
    }

    /// Lets a function fail with this `nvmlReturn_t`.
    pub fn error(mut self, function: &str, code: u32) -> Self {
        self.errors.insert(function.to_owned(), code);
        self
    }

    /// Lets a function answer so at its first calls (`None` is as usual), and as usual from then on.
    pub fn first_answers(mut self, function: &str, codes: &[Option<u32>]) -> Self {
        self.first_answers.insert(function.to_owned(), codes.to_vec());
        self
    }
}

/// One device, or one MIG instance with a UUID of its own.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Device {
    /// With its prefix: `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// `domain:bus:device.function`, in hexadecimal.
    pub pci_bus_id: String,
    /// What a person calls it; without one the library answers that names are not supported.
    pub name: Option<String>,
    /// Its memory.
    pub memory: Memory,
    /// What `nvmlDeviceGetComputeRunningProcesses_v3` lists.
    pub compute_processes: Vec<Process>,
    /// What `nvmlDeviceGetGraphicsRunningProcesses_v3` lists.
    pub graphics_processes: Vec<Process>,
    /// Functions that fail on this device: name and `nvmlReturn_t`.
    pub errors: BTreeMap<String, u32>,
    /// Its MIG instances, devices themselves; with one of them the MIG mode is on.
    pub mig_devices: Vec<Device>,
    /// What changes later, in order.
    pub then: Vec<Change>,
}

/// What is otherwise from some query of a device's memory on. What is not named stays as it was.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// It holds from the query of this device's memory on that follows so many, whichever of the two and with whatever result,
    /// since the document came into force.
    pub after_queries: u64,
    /// The memory from then on.
    pub memory: Option<Memory>,
    /// The compute processes from then on.
    pub compute_processes: Option<Vec<Process>>,
    /// The graphics processes from then on.
    pub graphics_processes: Option<Vec<Process>>,
    /// The functions that fail from then on, in place of those before.
    pub errors: Option<BTreeMap<String, u32>>,
}

impl Device {
    /// A device without memory or processes.
    pub fn new(uuid: &str, pci_bus_id: &str) -> Self {
        Self { uuid: uuid.to_owned(), pci_bus_id: pci_bus_id.to_owned(), ..Self::default() }
    }

    /// Sets the memory figures.
    pub fn memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// Adds a compute process; `None` is NVML's "not available".
    pub fn compute_process(mut self, pid: u32, used: Option<u64>) -> Self {
        self.compute_processes.push(Process { pid, used, ..Process::default() });
        self
    }

    /// Adds a graphics process; `None` is NVML's "not available".
    pub fn graphics_process(mut self, pid: u32, used: Option<u64>) -> Self {
        self.graphics_processes.push(Process { pid, used, ..Process::default() });
        self
    }

    /// Names the device.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Adds a MIG instance.
    pub fn mig_device(mut self, instance: Self) -> Self {
        self.mig_devices.push(instance);
        self
    }

    /// Adds a change behind those there.
    pub fn then(mut self, change: Change) -> Self {
        self.then.push(change);
        self
    }

    /// The device after so many queries of its memory.
    pub(crate) fn at(&self, queries: u64) -> Self {
        let mut device = self.clone();
        for change in self.then.iter().filter(|change| change.after_queries <= queries) {
            let Change { after_queries: _, memory, compute_processes, graphics_processes, errors } = change.clone();
            device.memory = memory.unwrap_or(device.memory);
            device.compute_processes = compute_processes.unwrap_or(device.compute_processes);
            device.graphics_processes = graphics_processes.unwrap_or(device.graphics_processes);
            device.errors = errors.unwrap_or(device.errors);
        }
        device
    }

    /// Lets a function fail on this device with this `nvmlReturn_t`.
    pub fn error(mut self, function: &str, code: u32) -> Self {
        self.errors.insert(function.to_owned(), code);
        self
    }
}

/// Memory as the second query gives it; the first one adds `reserved` to `used`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Bytes of the device.
    pub total: u64,
    /// Bytes the driver keeps.
    pub reserved: u64,
    /// Bytes free.
    pub free: u64,
    /// Bytes used.
    pub used: u64,
}

/// One entry of a process list.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its bytes; `None` is NVML's "not available".
    pub used: Option<u64>,
    /// The MIG GPU instance it runs on.
    #[serde(default)]
    pub gpu_instance: Option<u32>,
    /// The MIG compute instance it runs on.
    #[serde(default)]
    pub compute_instance: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_in_the_readme_is_one() {
        let readme = include_str!("../README.md");
        let (_, after) = readme.split_once("```json\n").unwrap();
        let (document, _) = after.split_once("```").unwrap();
        let configuration: Configuration = serde_json::from_str(document).unwrap();
        let device = &configuration.devices[0];
        assert_eq!(device.memory.total, 1000);
        assert_eq!(device.compute_processes[1].used, None);
        assert_eq!(device.errors["nvmlDeviceGetMemoryInfo_v2"], 13);
        assert_eq!(device.at(1).memory.used, 400);
        let later = device.at(2);
        assert_eq!((later.memory.used, later.compute_processes.len(), later.errors.len()), (900, 2, 0));
        assert!(serde_json::from_str::<Configuration>(&document.replace("\"used\"", "\"usde\"")).is_err());
    }
}
