//! One device's queries.

use std::ffi::OsStr;

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use super::{failure, load};
use crate::device::Device;
use crate::driver::process::merged;
use crate::driver::{
    DriverMemory, DriverUnavailable, MatchedBy, MemoryQuery, ProcessMemory, QueryFailure, QueryStatus,
};

const MEMORY_V2: &str = "nvmlDeviceGetMemoryInfo_v2";
const MEMORY_V1: &str = "nvmlDeviceGetMemoryInfo";
const COMPUTE_PROCESSES: &str = "nvmlDeviceGetComputeRunningProcesses_v3";

/// Tries at a process list that grew between the driver's count and its listing.
const LIST_TRIES: usize = 3;

/// One device of a loaded NVML.
pub(in crate::driver) struct Connection {
    nvml: &'static Nvml,
    device: nvml_wrapper::Device<'static>,
    driver_version: Option<String>,
}

impl Connection {
    pub(in crate::driver) fn open(
        lib_path: Option<&OsStr>,
        device: &dyn Device,
    ) -> Result<(Self, MatchedBy), DriverUnavailable> {
        if device.uuid().is_none() && device.pci_address().is_none() {
            return Err(DriverUnavailable::NoIdentity { device: device.name().to_owned() });
        }
        let nvml = load(lib_path)?;
        let (device, matched_by) = find(nvml, device)?;
        Ok((Self::to(nvml, device), matched_by))
    }

    pub(super) fn to(nvml: &'static Nvml, device: nvml_wrapper::Device<'static>) -> Self {
        Self { nvml, device, driver_version: nvml.sys_driver_version().ok() }
    }

    pub(in crate::driver) fn driver_version(&self) -> Option<&str> {
        self.driver_version.as_deref()
    }

    /// The device's memory by `query`, or, without one, by whichever answers, the second before the first.
    pub(in crate::driver) fn memory(&self, query: Option<MemoryQuery>) -> Result<DriverMemory, QueryFailure> {
        match query {
            Some(MemoryQuery::V2) => self.memory_v2(),
            Some(MemoryQuery::V1) => self.memory_v1(),
            None => self.memory_v2().or_else(|failure| match failure.status {
                // The first query would fail too, and say less.
                QueryStatus::DeviceLost | QueryStatus::NoPermission => Err(failure),
                _ => self.memory_v1(),
            }),
        }
    }

    fn memory_v2(&self) -> Result<DriverMemory, QueryFailure> {
        let info = self.device.memory_info().map_err(|error| failure(MEMORY_V2, &error))?;
        available(MEMORY_V2, DriverMemory::v2(info.total, info.reserved, info.free, info.used))
    }

    /// nvml-wrapper has no function for the first query, only its symbol.
    fn memory_v1(&self) -> Result<DriverMemory, QueryFailure> {
        let query = self
            .nvml
            .lib()
            .nvmlDeviceGetMemoryInfo
            .as_ref()
            .map_err(|error| QueryFailure::new(MEMORY_V1, QueryStatus::MissingFunction, error.to_string()))?;
        // SAFETY: the type, inferred from the function below, is a C struct of three integers, for which zeros are a
        // value. The handle is of the same loaded library, which is never unloaded, and the pointer is good for the call.
        let (code, info) = unsafe {
            let mut info = std::mem::zeroed();
            let code = query(self.device.handle(), &mut info);
            (code, info)
        };
        nvml_try(code).map_err(|error| failure(MEMORY_V1, &error))?;
        available(MEMORY_V1, DriverMemory::v1(info.total, info.free, info.used))
    }

    /// The processes with a context or a surface on the device, and whether every list gave an answer.
    pub(in crate::driver) fn processes(&self) -> (Result<Vec<ProcessMemory>, QueryFailure>, bool) {
        let compute = match listed(|| self.device.running_compute_processes()) {
            Ok(compute) => compute,
            Err(error) => return (Err(failure(COMPUTE_PROCESSES, &error)), false),
        };
        // A desktop's processes are in this list only. It adds to the first one and its failure leaves that one good.
        let graphics = listed(|| self.device.running_graphics_processes());
        let whole = graphics.is_ok();
        let all = compute.into_iter().chain(graphics.unwrap_or_default());
        (Ok(merged(all.map(process_memory))), whole)
    }
}

fn find(
    nvml: &'static Nvml,
    device: &dyn Device,
) -> Result<(nvml_wrapper::Device<'static>, MatchedBy), DriverUnavailable> {
    const BY_UUID: &str = "nvmlDeviceGetHandleByUUID";
    let (uuid, pci_address) = (device.uuid(), device.pci_address());
    let mut refusal = None;
    let mut unless_unknown = |call, error: NvmlError| {
        // An older NVML calls the text of a MIG instance's UUID an invalid argument.
        if !matches!(error, NvmlError::NotFound | NvmlError::InvalidArg) {
            refusal.get_or_insert_with(|| failure(call, &error));
        }
    };
    if let Some(uuid) = uuid {
        for (prefix, matched_by) in [("GPU-", MatchedBy::GpuUuid), ("MIG-", MatchedBy::MigUuid)] {
            match nvml.device_by_uuid(format!("{prefix}{uuid}")) {
                Ok(found) => return Ok((found, matched_by)),
                Err(error) => unless_unknown(BY_UUID, error),
            }
        }
    }
    if let Some(pci_address) = pci_address {
        match nvml.device_by_pci_bus_id(pci_address.to_string()) {
            Ok(found) => return Ok((found, MatchedBy::PciAddress)),
            Err(error) => unless_unknown("nvmlDeviceGetHandleByPciBusId_v2", error),
        }
    }
    Err(match refusal {
        Some(refusal) => refusal.into(),
        None => DriverUnavailable::DeviceNotFound { device: device.name().to_owned(), uuid, pci_address },
    })
}

/// nvml-wrapper counts, then lists with room for a few more; more than a few may come in between.
fn listed(list: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>) -> Result<Vec<ProcessInfo>, NvmlError> {
    let mut result = list();
    for _ in 1..LIST_TRIES {
        if !matches!(result, Err(NvmlError::InsufficientSize(_))) {
            break;
        }
        result = list();
    }
    result
}

fn process_memory(process: ProcessInfo) -> ProcessMemory {
    let used_bytes = match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    ProcessMemory {
        gpu_instance: process.gpu_instance_id,
        compute_instance: process.compute_instance_id,
        ..ProcessMemory::listed(process.pid, used_bytes)
    }
}

/// Refuses what some drivers answer, with success, for memory they do not know: a total of 0, or all bits set.
fn available(call: &'static str, memory: DriverMemory) -> Result<DriverMemory, QueryFailure> {
    if memory.total_bytes == 0 || memory.total_bytes == u64::MAX || memory.used_bytes == u64::MAX {
        return Err(QueryFailure::new(call, QueryStatus::NotAvailable, "the driver answers without figures"));
    }
    Ok(memory)
}
