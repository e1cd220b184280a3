//! The finding of all devices and MIG instances.

use std::ffi::OsStr;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::{NvmlError, nvml_try};

use super::{Connection, failure, load};
use crate::device::PciAddress;
use crate::driver::{DriverDevice, DriverUnavailable, QueryFailure, QueryStatus};

const COUNT: &str = "nvmlDeviceGetCount_v2";
const BY_INDEX: &str = "nvmlDeviceGetHandleByIndex_v2";
const UUID: &str = "nvmlDeviceGetUUID";
const NAME: &str = "nvmlDeviceGetName";
const PCI_INFO: &str = "nvmlDeviceGetPciInfo_v3";

/// More MIG instances than a GPU can have, in case a driver answers nonsense.
const MOST_MIG_INSTANCES: u32 = 64;

type Found = nvml_wrapper::Device<'static>;

/// The driver's version and its devices by index, each followed by its MIG instances.
///
/// A device that cannot be reached is in the list too, with its reason.
pub(in crate::driver) fn inventory(
    lib_path: Option<&OsStr>,
) -> Result<(Option<String>, Vec<DriverDevice>), DriverUnavailable> {
    let nvml = load(lib_path)?;
    let count = nvml.device_count().map_err(|error| failure(COUNT, &error))?;
    let mut devices = Vec::new();
    for index in 0..count {
        match nvml.device_by_index(index) {
            Ok(found) => with_instances(nvml, index, found, &mut devices),
            Err(error) => devices.push(DriverDevice::unreachable(index, failure(BY_INDEX, &error))),
        }
    }
    Ok((nvml.sys_driver_version().ok(), devices))
}

fn with_instances(nvml: &'static Nvml, index: u32, found: Found, devices: &mut Vec<DriverDevice>) {
    let mig_mode = match found.mig_mode() {
        Ok(mode) => Some(mode.current != 0),
        // A device that cannot have instances has none.
        Err(NvmlError::NotSupported) => Some(false),
        Err(_) => None,
    };
    let pci_address = pci_address(&found);
    let instances: Vec<(u32, Found)> = match (mig_mode, found.mig_device_count()) {
        (Some(true), Ok(most)) => {
            let places = 0..most.min(MOST_MIG_INSTANCES);
            // Places without an instance are answered with "not found".
            places.filter_map(|place| Some((place, found.mig_device_by_index(place).ok()?))).collect()
        }
        _ => Vec::new(),
    };
    devices.push(known(nvml, index, None, found, pci_address.clone(), mig_mode));
    for (place, instance) in instances {
        let ids = instance_ids(nvml, &instance);
        devices.push(known(nvml, index, Some(place), instance, pci_address.clone(), Some(false)));
        if let Some(device) = devices.last_mut() {
            device.instance_ids = ids;
        }
    }
}

/// nvml-wrapper has no function for these queries, only their symbols.
fn instance_ids(nvml: &'static Nvml, instance: &Found) -> Option<(u32, u32)> {
    let ask = |query: unsafe extern "C" fn(_, *mut u32) -> _| {
        let mut id = 0;
        // SAFETY: the handle is of this loaded library, which is never unloaded, and the pointer is good for the call.
        let code = unsafe { query(instance.handle(), &mut id) };
        nvml_try(code).ok().map(|()| id)
    };
    let (gpu, compute) = (&nvml.lib().nvmlDeviceGetGpuInstanceId, &nvml.lib().nvmlDeviceGetComputeInstanceId);
    Some((ask(*gpu.as_ref().ok()?)?, ask(*compute.as_ref().ok()?)?))
}

fn known(
    nvml: &'static Nvml,
    index: u32,
    mig_index: Option<u32>,
    found: Found,
    pci_address: Result<PciAddress, QueryFailure>,
    mig_mode: Option<bool>,
) -> DriverDevice {
    let uuid = found.uuid().map_err(|error| failure(UUID, &error));
    let name = found.name().map_err(|error| failure(NAME, &error));
    let identity = (uuid, name, pci_address);
    let mut device = DriverDevice::reached(index, identity, Connection::to(nvml, found));
    device.mig_index = mig_index;
    device.mig_mode = mig_mode;
    device
}

fn pci_address(found: &Found) -> Result<PciAddress, QueryFailure> {
    let info = found.pci_info().map_err(|error| failure(PCI_INFO, &error))?;
    if info.bus_id.is_empty() {
        return Err(QueryFailure::new(PCI_INFO, QueryStatus::NotAvailable, "the driver answers without an address"));
    }
    Ok(PciAddress { domain: info.domain, bus: info.bus, device: info.device })
}
