//! Which of the driver's devices a CUDA program calls 0, 1, ….

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
    /// split into MIG instances, of which CUDA takes one. A [`DriverView`](super::DriverView) does not need to guess.
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
    let visible = mask.resolve(&uuids);
    let gpu_count = devices.iter().filter(|device| device.mig_index.is_none()).count();
    let by_number = matches!(mask.entries().map(<[MaskEntry]>::first), None | Some(Some(MaskEntry::Ordinal(_))));
    let numbers = visible.devices.iter().zip(0..).map(|(&place, ordinal)| {
        let by = match (by_number, order) {
            (false, _) => NumberedBy::Uuid,
            _ if devices[place].mig_mode != Some(false) => NumberedBy::Guess,
            _ if gpu_count == 1 => NumberedBy::OnlyDevice,
            (true, DeviceOrder::PciBusId) => NumberedBy::PciOrder,
            (true, DeviceOrder::FastestFirst) => NumberedBy::Guess,
        };
        CudaNumber { ordinal, place, by }
    });
    (numbers.collect(), visible.end)
}
