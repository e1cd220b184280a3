//! What stands in for NVML in a build without it: nothing can be opened, so nothing is ever asked.

use std::ffi::OsStr;

use super::{DriverDevice, DriverMemory, DriverUnavailable, MatchedBy, MemoryQuery, ProcessMemory, QueryFailure};
use crate::device::Device;

/// A connection that cannot exist.
pub(super) enum Connection {}

impl Connection {
    pub(super) fn open(
        _lib_path: Option<&OsStr>,
        _device: &dyn Device,
    ) -> Result<(Self, MatchedBy), DriverUnavailable> {
        Err(DriverUnavailable::FeatureOff)
    }

    pub(super) fn driver_version(&self) -> Option<&str> {
        match *self {}
    }

    pub(super) fn memory(&self, _query: Option<MemoryQuery>) -> Result<DriverMemory, QueryFailure> {
        match *self {}
    }

    pub(super) fn processes(&self) -> (Result<Vec<ProcessMemory>, QueryFailure>, bool) {
        match *self {}
    }
}

pub(super) fn inventory(_lib_path: Option<&OsStr>) -> Result<(Option<String>, Vec<DriverDevice>), DriverUnavailable> {
    Err(DriverUnavailable::FeatureOff)
}
