//! One look at the driver's figures.

use super::process::own_and_others;
use super::{DriverMemory, OtherProcesses, PidNamespace, ProcessBytes, ProcessMemory, QueryFailure, UnknownReason};

/// The driver's figures of one device at one time.
///
/// The queries follow each other, so a process that allocates in between is in one figure and not in the other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverSample {
    /// The whole device's memory, or why the driver does not say.
    pub memory: Result<DriverMemory, QueryFailure>,
    /// The processes on the device, by pid, or why the driver does not say.
    pub processes: Result<Vec<ProcessMemory>, QueryFailure>,
    /// What this process uses, its context and libraries included.
    pub own_process: ProcessBytes,
    /// What the others use.
    pub other_processes: OtherProcesses,
    /// The driver's version, such as `580.95.05`, if it says.
    pub driver_version: Option<String>,
}

impl DriverSample {
    /// A sample from the driver's answers, with this process looked up in the list by `own_pid`.
    ///
    /// `list_is_whole` is false when some query that should have added to the list failed.
    pub fn new(
        memory: Result<DriverMemory, QueryFailure>,
        processes: Result<Vec<ProcessMemory>, QueryFailure>,
        list_is_whole: bool,
        own_pid: u32,
        namespace: PidNamespace,
    ) -> Self {
        let (own_process, other_processes) = match &processes {
            Ok(list) => own_and_others(list, list_is_whole, own_pid, namespace),
            Err(failure) => {
                let reason = UnknownReason::ListFailed(failure.clone());
                (ProcessBytes::Unknown(reason.clone()), OtherProcesses::Unknown(reason))
            }
        };
        Self { memory, processes, own_process, other_processes, driver_version: None }
    }
}
