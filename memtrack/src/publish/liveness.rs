//! Which process a file is of, and whether it still lives.

/// Whether a file's process is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Liveness {
    /// A process of this number and this start is there.
    Alive,
    /// It ended: there is none of this number, or one that started at another time.
    Ended,
    /// It is in another pid namespace (a container), or this is no Linux: not to be told from here.
    Unknown,
}

impl Liveness {
    /// Of a process as it named itself.
    pub(super) fn of(pid: u32, start: Option<u64>, namespace: Option<&str>) -> Self {
        let (Some(start), Some(namespace), Some(own)) = (start, namespace, own_namespace()) else {
            return Self::Unknown;
        };
        if namespace != own {
            return Self::Unknown;
        }
        match start_of(pid) {
            Some(found) if found == start => Self::Alive,
            _ => Self::Ended,
        }
    }
}

/// When a process started, in the kernel's ticks since the machine did; `None` where there is no such process.
#[cfg(target_os = "linux")]
pub(super) fn start_of(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may have spaces and parentheses of its own: fields count from behind the last one.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    // One that ended and was not waited for holds nothing.
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The pid namespace, as the kernel writes it.
#[cfg(target_os = "linux")]
pub(super) fn own_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.into_os_string().into_string().ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn start_of(_pid: u32) -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn own_namespace() -> Option<String> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_of_its_number_with_another_start_ended() {
        let (pid, namespace) = (std::process::id(), own_namespace().unwrap());
        let start = start_of(pid).unwrap();
        assert_eq!(Liveness::of(pid, Some(start), Some(&namespace)), Liveness::Alive);
        assert_eq!(Liveness::of(pid, Some(start + 1), Some(&namespace)), Liveness::Ended);
        assert_eq!(Liveness::of(u32::MAX, Some(start), Some(&namespace)), Liveness::Ended);
    }

    #[test]
    fn a_process_of_another_container_is_not_taken_for_ended() {
        let pid = std::process::id();
        assert_eq!(Liveness::of(pid, Some(1), Some("pid:[1]")), Liveness::Unknown);
        assert_eq!(Liveness::of(pid, None, own_namespace().as_deref()), Liveness::Unknown);
        assert_eq!(Liveness::of(pid, start_of(pid), None), Liveness::Unknown);
    }
}
