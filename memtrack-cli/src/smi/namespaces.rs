//! What Linux says of processes: their names, and the numbers of those in containers.

use memtrack::publish::{Liveness, Publication};

/// A program's short name; `None` where there is no such process, or none may be looked at.
pub(super) fn program(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}

/// The number by which a process that published is known here: its own, or, for one in a container, the outer one.
///
/// That of a container is found by its pid namespace, its number inside and its start, which takes the right to look at the process.
pub(super) fn pid_here(publication: &Publication) -> Option<u32> {
    match publication.liveness() {
        Liveness::Alive => Some(publication.pid),
        Liveness::Ended => None,
        _ => outer_pid(publication),
    }
}

fn outer_pid(publication: &Publication) -> Option<u32> {
    let namespace = publication.pid_namespace.as_deref()?;
    let entries = std::fs::read_dir("/proc").ok()?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut inside = pids.filter(|pid| {
        let link = std::fs::read_link(format!("/proc/{pid}/ns/pid"));
        link.is_ok_and(|link| link.as_os_str() == namespace)
    });
    inside.find(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        innermost_pid(&status) == Some(publication.pid) && publication.started_as(*pid)
    })
}

/// The last number of the line `NSpid:`, which is the process's own.
fn innermost_pid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_inside_a_container_is_the_last_one() {
        assert_eq!(innermost_pid("Name:\ttrain\nNSpid:\t91234\t17\t1\nUid:\t0\n"), Some(1));
        assert_eq!(innermost_pid("Name:\ttrain\nNSpid:\t415\n"), Some(415));
        assert_eq!(innermost_pid("Name:\ttrain\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_has_a_name_and_a_number_that_none_has_none() {
        assert!(program(std::process::id()).is_some());
        assert_eq!(program(u32::MAX), None);
    }
}
