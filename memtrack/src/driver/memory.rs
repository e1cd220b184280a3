//! The device-wide memory figures, and which query gave them.

use std::fmt;

/// Which of NVML's two memory queries was used. They disagree by hundreds of MiB, so their figures are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryQuery {
    /// `nvmlDeviceGetMemoryInfo_v2`: what the driver reserves for itself is apart from `used`.
    V2,
    /// `nvmlDeviceGetMemoryInfo`: what the driver reserves is part of `used`, and unknown. Drivers before 510 have only
    /// this one; some under WSL fail the other.
    V1,
}

impl fmt::Display for MemoryQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2 => "NVML v2",
            Self::V1 => "NVML v1",
        })
    }
}

/// What the driver says of a whole device's memory, all processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverMemory {
    /// Bytes the device has.
    pub total_bytes: u64,
    /// Bytes nobody uses.
    pub free_bytes: u64,
    /// Bytes in use by all processes; with [`MemoryQuery::V1`] also what the driver reserves.
    pub used_bytes: u64,
    /// Bytes the driver and firmware keep for themselves; `None` with [`MemoryQuery::V1`], where `used_bytes` has them.
    pub driver_reserved_bytes: Option<u64>,
    /// Which query gave these figures.
    pub query: MemoryQuery,
}

impl DriverMemory {
    /// Figures of the second query, where `total = driver_reserved + used + free`.
    pub fn v2(total_bytes: u64, driver_reserved_bytes: u64, free_bytes: u64, used_bytes: u64) -> Self {
        let driver_reserved_bytes = Some(driver_reserved_bytes);
        Self { total_bytes, free_bytes, used_bytes, driver_reserved_bytes, query: MemoryQuery::V2 }
    }

    /// Figures of the first query, where `total = used + free`.
    pub fn v1(total_bytes: u64, free_bytes: u64, used_bytes: u64) -> Self {
        Self { total_bytes, free_bytes, used_bytes, driver_reserved_bytes: None, query: MemoryQuery::V1 }
    }
}
