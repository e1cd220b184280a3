//! The driver's list of processes: which entry is this process, and what may be said of the others.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::QueryFailure;

/// One entry of the driver's process list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessMemory {
    /// The process's number as the driver gives it: on older drivers the host's, also inside a container.
    pub pid: u32,
    /// Bytes it uses on the device.
    pub memory: ProcessBytes,
    /// The MIG GPU instance it runs on, if it runs on one.
    pub gpu_instance: Option<u32>,
    /// The MIG compute instance it runs on, if it runs on one.
    pub compute_instance: Option<u32>,
}

impl ProcessMemory {
    /// An entry outside MIG, as listed: `None` is the driver's "not available", and 0 is taken as no figure either,
    /// since a process with a context has memory.
    pub fn listed(pid: u32, used_bytes: Option<u64>) -> Self {
        let memory = match used_bytes {
            None => ProcessBytes::Unknown(UnknownReason::NotAvailable { pid }),
            Some(0) => ProcessBytes::Unknown(UnknownReason::ListedWithZero { pid }),
            Some(bytes) => ProcessBytes::Known(bytes),
        };
        Self { pid, memory, gpu_instance: None, compute_instance: None }
    }
}

/// What the driver says this process uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessBytes {
    /// Bytes in use, context and libraries included.
    Known(u64),
    /// No figure, and why. Never to be read as 0.
    Unknown(UnknownReason),
}

impl ProcessBytes {
    /// The figure, if there is one.
    pub fn known(&self) -> Option<u64> {
        match self {
            Self::Known(bytes) => Some(*bytes),
            Self::Unknown(_) => None,
        }
    }
}

/// Why a process has no figure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownReason {
    /// The driver lists others but not this process, and numbers processes as this process does.
    #[error("process {pid} is not in the driver's list")]
    NotListed {
        /// This process.
        pid: u32,
    },
    /// This process is in a pid namespace of its own, and the list does not have its number: it may be listed under
    /// another one.
    #[error("process {pid} is not in the driver's list, which may name it by its pid outside this container")]
    ForeignPidNamespace {
        /// This process, by its number inside.
        pid: u32,
    },
    /// Listed, but with 0 bytes, as in containers on some drivers.
    #[error("the driver lists process {pid} with 0 bytes")]
    ListedWithZero {
        /// This process.
        pid: u32,
    },
    /// Listed with the driver's mark for "not available" (Windows, WSL, MIG).
    #[error("the driver lists process {pid} without its memory")]
    NotAvailable {
        /// This process.
        pid: u32,
    },
    /// The list could not be had.
    #[error(transparent)]
    ListFailed(#[from] QueryFailure),
}

/// What the driver says the other processes use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherProcesses {
    /// Those in the list.
    Listed {
        /// Sum over the processes that have a figure.
        known_bytes: u64,
        /// How many have a figure.
        known_count: u32,
        /// How many are listed without a figure; their bytes are nowhere in `known_bytes`.
        unknown_count: u32,
        /// Whether the list has every process; not so inside a container, which may not see those outside.
        complete: bool,
    },
    /// No figure, and why. In a container this process may be one of those listed.
    Unknown(UnknownReason),
}

impl OtherProcesses {
    /// The sum of the known figures; `None` where there is none, or only processes without one.
    pub fn known_bytes(&self) -> Option<u64> {
        match self {
            Self::Listed { known_count: 0, unknown_count: 1.., .. } | Self::Unknown(_) => None,
            Self::Listed { known_bytes, .. } => Some(*known_bytes),
        }
    }
}

/// Whether this process's own number is the one the driver may know it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PidNamespace {
    /// The machine's own: the numbers agree.
    Initial,
    /// A container's, or not known: the numbers may differ, and processes may be hidden.
    Nested,
}

/// The inode of the first pid namespace, fixed in Linux (`PROC_PID_INIT_INO`).
#[cfg(target_os = "linux")]
const INITIAL_NAMESPACE: &str = "pid:[4026531836]";

impl PidNamespace {
    /// The namespace this process is in.
    pub fn of_this_process() -> Self {
        #[cfg(target_os = "linux")]
        {
            match std::fs::read_link("/proc/self/ns/pid") {
                Ok(link) if link.as_os_str() == INITIAL_NAMESPACE => Self::Initial,
                _ => Self::Nested,
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            Self::Initial
        }
    }
}

/// Puts the lists of compute and graphics processes together: a process that is in both is one process, with one figure.
#[cfg_attr(not(feature = "nvml"), allow(dead_code))]
pub(super) fn merged(lists: impl IntoIterator<Item = ProcessMemory>) -> Vec<ProcessMemory> {
    let mut merged = BTreeMap::new();
    for process in lists {
        let key = (process.pid, process.gpu_instance, process.compute_instance);
        match merged.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(process);
            }
            Entry::Occupied(mut seen) => {
                if process.memory.known() > seen.get().memory.known() {
                    seen.insert(process);
                }
            }
        }
    }
    merged.into_values().collect()
}

/// Sorts the list into this process and the others.
///
/// `whole` says whether every query that makes up the list gave an answer.
pub(super) fn own_and_others(
    list: &[ProcessMemory],
    whole: bool,
    own_pid: u32,
    namespace: PidNamespace,
) -> (ProcessBytes, OtherProcesses) {
    let (own_entries, other_entries): (Vec<_>, Vec<_>) = list.iter().partition(|process| process.pid == own_pid);
    let absent = match namespace {
        PidNamespace::Initial => UnknownReason::NotListed { pid: own_pid },
        PidNamespace::Nested => UnknownReason::ForeignPidNamespace { pid: own_pid },
    };
    if own_entries.is_empty() && (namespace == PidNamespace::Nested || other_entries.is_empty()) {
        // This process may be any of those listed, under a host's number: it must not be counted with the others. And a
        // list with nobody in it, while this process uses the device, does not say that there are no others.
        return (ProcessBytes::Unknown(absent.clone()), OtherProcesses::Unknown(absent));
    }
    let mut own = if own_entries.is_empty() { ProcessBytes::Unknown(absent) } else { ProcessBytes::Known(0) };
    let complete = whole && !own_entries.is_empty() && namespace == PidNamespace::Initial;
    // Under MIG a process may have one entry for each instance; the sum is known when each of them is.
    for process in own_entries {
        own = match (own, &process.memory) {
            (ProcessBytes::Known(sum), ProcessBytes::Known(bytes)) => ProcessBytes::Known(sum.saturating_add(*bytes)),
            (unknown @ ProcessBytes::Unknown(_), _) => unknown,
            (_, unknown) => unknown.clone(),
        };
    }
    let (mut known_bytes, mut known_count, mut unknown_count) = (0_u64, 0, 0);
    for process in other_entries {
        match process.memory.known() {
            Some(bytes) => {
                known_bytes = known_bytes.saturating_add(bytes);
                known_count += 1;
            }
            None => unknown_count += 1,
        }
    }
    (own, OtherProcesses::Listed { known_bytes, known_count, unknown_count, complete })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(entries: &[(u32, Option<u64>)]) -> Vec<ProcessMemory> {
        entries.iter().map(|(pid, bytes)| ProcessMemory::listed(*pid, *bytes)).collect()
    }

    #[test]
    fn in_a_container_without_its_own_pid_in_the_list_nobody_is_counted_as_another() {
        let foreign = UnknownReason::ForeignPidNamespace { pid: 7 };
        for list in [listed(&[(91_234, Some(784_334_848))]), listed(&[])] {
            let (own, others) = own_and_others(&list, true, 7, PidNamespace::Nested);
            assert_eq!(own, ProcessBytes::Unknown(foreign.clone()));
            assert_eq!(others, OtherProcesses::Unknown(foreign.clone()));
            assert_eq!(others.known_bytes(), None);
        }
    }

    #[test]
    fn in_a_container_that_lists_this_process_the_others_may_be_incomplete() {
        let list = listed(&[(7, Some(100)), (8, Some(30))]);
        let (own, others) = own_and_others(&list, true, 7, PidNamespace::Nested);
        assert_eq!(own, ProcessBytes::Known(100));
        let expected = OtherProcesses::Listed { known_bytes: 30, known_count: 1, unknown_count: 0, complete: false };
        assert_eq!(others, expected);
    }

    #[test]
    fn an_empty_list_is_no_proof_that_nobody_else_is_there() {
        let (own, others) = own_and_others(&[], true, 7, PidNamespace::Initial);
        assert_eq!(own, ProcessBytes::Unknown(UnknownReason::NotListed { pid: 7 }));
        assert_eq!(others.known_bytes(), None);
    }

    #[test]
    fn a_process_in_both_lists_counts_once() {
        let lists = listed(&[(7, Some(100)), (8, Some(30)), (7, None), (8, Some(40))]);
        assert_eq!(merged(lists), listed(&[(7, Some(100)), (8, Some(40))]));
    }

    #[test]
    fn entries_of_this_process_on_several_instances_add_up_only_when_all_are_known() {
        let on = |instance, bytes| ProcessMemory { gpu_instance: Some(instance), ..ProcessMemory::listed(7, bytes) };
        let own = |list: &[ProcessMemory]| own_and_others(list, true, 7, PidNamespace::Initial).0;
        assert_eq!(own(&[on(1, Some(100)), on(2, Some(30))]), ProcessBytes::Known(130));
        let unavailable = ProcessBytes::Unknown(UnknownReason::NotAvailable { pid: 7 });
        assert_eq!(own(&[on(1, Some(100)), on(2, None)]), unavailable);
        assert_eq!(own(&[on(1, None), on(2, Some(30))]), unavailable);
    }
}
