//! Which of the driver's devices a CUDA program calls 0, 1, ….

use super::visible_devices::by_name;
use super::{DriverDevice, MaskEnd, MaskEntry, VisibleDevices};

/// The order in which CUDA numbers devices before the mask (`CUDA_DEVICE_ORDER`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeviceOrder {
    /// The fastest first, the rest in no order that is promised. CUDA's own choice.
    #[default]
    FastestFirst,
    /// By PCI address, as NVML does (`PCI_BUS_ID`).
    PciBusId,
}

impl DeviceOrder {
    /// The variable's name.
    pub const VARIABLE: &'static str = "CUDA_DEVICE_ORDER";

    /// Reads the variable's value; CUDA takes what it does not know for its own choice.
    pub fn parse(value: Option<&str>) -> Self {
        match value {
            Some("PCI_BUS_ID") => Self::PciBusId,
            _ => Self::FastestFirst,
        }
    }

    /// Reads this process's own variable.
    pub fn from_env() -> Self {
        Self::parse(std::env::var(Self::VARIABLE).ok().as_deref())
    }
}

/// How sure it is that CUDA's number is of this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NumberedBy {
    /// The mask names its UUID.
    Uuid,
    /// CUDA and NVML both count by PCI address.
    PciOrder,
    /// There is no other device.
    OnlyDevice,
    /// NVML's order is taken for CUDA's, which counts by speed unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set; or the GPU is
    /// split into MIG instances, of which CUDA takes one, whatever the mask calls it. A [`DriverView`](super::DriverView) does not need to guess.
    Guess,
}

/// A device's number in a CUDA program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaNumber {
    /// The number.
    pub ordinal: u32,
    /// The device's place in the list that was given.
    pub place: usize,
    /// How sure that is.
    pub by: NumberedBy,
}

/// CUDA's numbers of these devices in a program that runs with this mask and order, and why there are no more.
pub fn cuda_numbers(devices: &[DriverDevice], mask: &VisibleDevices, order: DeviceOrder) -> (Vec<CudaNumber>, MaskEnd) {
    let uuids: Vec<&str> = devices.iter().map(|device| device.uuid.as_deref().unwrap_or("")).collect();
    let visible = mask.resolve_with(&uuids, |name| by_old_name(name, devices, &uuids));
    let gpu_count = devices.iter().filter(|device| device.mig_index.is_none()).count();
    let by_number = matches!(mask.entries().map(<[MaskEntry]>::first), None | Some(Some(MaskEntry::Ordinal(_))));
    let numbers = visible.devices.iter().zip(0..).map(|(&place, ordinal)| {
        let by = match (by_number, order) {
            // Of a GPU in instances CUDA takes an instance, also when it is named by its UUID.
            _ if devices[place].mig_mode != Some(false) => NumberedBy::Guess,
            (false, _) => NumberedBy::Uuid,
            _ if gpu_count == 1 => NumberedBy::OnlyDevice,
            (true, DeviceOrder::PciBusId) => NumberedBy::PciOrder,
            (true, DeviceOrder::FastestFirst) => NumberedBy::Guess,
        };
        CudaNumber { ordinal, place, by }
    });
    (numbers.collect(), visible.end)
}

/// `MIG-GPU-…/1/0`: the GPU's UUID, the numbers of the GPU instance and of the compute instance.
fn by_old_name(name: &str, devices: &[DriverDevice], uuids: &[&str]) -> Result<usize, MaskEnd> {
    // Drivers of that time have it as the UUID.
    let unknown = match by_name(name, uuids) {
        Ok(place) => return Ok(place),
        Err(unknown) => unknown,
    };
    let parent = |device: &DriverDevice| {
        let gpu = devices.iter().find(|gpu| gpu.index == device.index && gpu.mig_index.is_none());
        gpu.and_then(|gpu| gpu.uuid.clone().ok()).unwrap_or_default()
    };
    let instances = || devices.iter().enumerate().filter(|(_, device)| device.mig_index.is_some());
    let found = instances().find(|(_, device)| {
        let ids = device.instance_ids;
        ids.is_some_and(|(gpu, compute)| format!("MIG-{}/{gpu}/{compute}", parent(device)).eq_ignore_ascii_case(name))
    });
    let gpu = name.split('/').next().unwrap_or_default();
    let is_hidden = |device: &DriverDevice| {
        device.instance_ids.is_none() && format!("MIG-{}", parent(device)).eq_ignore_ascii_case(gpu)
    };
    match found {
        Some((place, _)) => Ok(place),
        None if instances().any(|(_, device)| is_hidden(device)) => {
            Err(MaskEnd::InstanceNotTold { entry: name.to_owned() })
        }
        None => Err(unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{QueryFailure, QueryStatus};

    const GPU: &str = "GPU-0a0a0a0a-0000-0000-0000-000000000000";

    fn device(index: u32, uuid: &str, mig: Option<(u32, Option<(u32, u32)>)>, mig_mode: Option<bool>) -> DriverDevice {
        let mut device = DriverDevice::unreachable(index, QueryFailure::new("test", QueryStatus::Other, "no device"));
        device.uuid = Ok(uuid.to_owned());
        (device.mig_index, device.mig_mode) = (mig.map(|(place, _)| place), mig_mode);
        device.instance_ids = mig.and_then(|(_, ids)| ids);
        device
    }

    fn split(ids: [Option<(u32, u32)>; 2]) -> [DriverDevice; 4] {
        [
            device(0, "GPU-ff", None, Some(false)),
            device(1, GPU, None, Some(true)),
            device(1, "MIG-aa", Some((0, ids[0])), Some(false)),
            device(1, "MIG-bb", Some((1, ids[1])), Some(false)),
        ]
    }

    fn numbers(devices: &[DriverDevice], mask: &str) -> (Vec<(usize, NumberedBy)>, MaskEnd) {
        let (numbers, end) = cuda_numbers(devices, &VisibleDevices::parse(Some(mask)), DeviceOrder::FastestFirst);
        (numbers.iter().map(|number| (number.place, number.by)).collect(), end)
    }

    #[test]
    fn an_old_name_is_the_instance_with_these_numbers_and_no_other() {
        let devices = split([Some((1, 10)), Some((1, 1))]);
        let name = |gpu, compute| format!("MIG-{GPU}/{gpu}/{compute}");
        assert_eq!(numbers(&devices, &name(1, 1)), (vec![(3, NumberedBy::Uuid)], MaskEnd::Complete));
        assert_eq!(numbers(&devices, &name(1, 10)).0, [(2, NumberedBy::Uuid)]);
        let unknown = name(2, 0);
        assert_eq!(numbers(&devices, &unknown), (vec![], MaskEnd::NoSuchUuid { entry: unknown }));
        let elsewhere = "MIG-GPU-ee/1/1".to_owned();
        assert_eq!(numbers(&devices, &elsewhere), (vec![], MaskEnd::NoSuchUuid { entry: elsewhere }));
        // The first only, as of all instances.
        let both = format!("{},MIG-aa", name(1, 1));
        assert_eq!(numbers(&devices, &both), (vec![(3, NumberedBy::Uuid)], MaskEnd::OneMigInstance));
    }

    #[test]
    fn where_the_driver_does_not_tell_the_numbers_that_is_said() {
        let entry = format!("MIG-{GPU}/1/0");
        let (visible, end) = numbers(&split([None, None]), &entry);
        assert_eq!((visible, &end), (vec![], &MaskEnd::InstanceNotTold { entry }));
        assert!(end.to_string().contains("`nvidia-smi -L`"), "{end}");
    }

    #[test]
    fn drivers_of_before_470_have_the_old_name_as_the_uuid() {
        let name = format!("MIG-{GPU}/1/1");
        let devices = [
            device(0, GPU, None, Some(true)),
            device(0, &format!("{name}0"), Some((0, None)), Some(false)),
            device(0, &name, Some((1, None)), Some(false)),
        ];
        assert_eq!(numbers(&devices, &name), (vec![(2, NumberedBy::Uuid)], MaskEnd::Complete));
    }

    #[test]
    fn a_gpu_in_instances_is_a_guess_however_it_is_named() {
        let devices = split([Some((1, 0)), Some((2, 0))]);
        for mask in ["1", GPU, "GPU-0a"] {
            assert_eq!(numbers(&devices, mask).0, [(1, NumberedBy::Guess)], "{mask}");
        }
        assert_eq!(numbers(&devices, "GPU-ff").0, [(0, NumberedBy::Uuid)]);
        assert_eq!(numbers(&devices, "MIG-bb").0, [(3, NumberedBy::Uuid)]);
    }
}
