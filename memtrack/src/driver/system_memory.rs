//! The machine's own memory, for devices that share it.

use std::path::Path;

use crate::units::KIB;

/// What the operating system says of its memory.
///
/// On machines where the GPU has no memory of its own (DGX Spark, Jetson) the driver answers "not supported" for the
/// device's; then these are the totals, and have to be labelled so: they count every process's host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SystemMemory {
    /// Bytes the machine has.
    pub total_bytes: u64,
    /// Bytes a program could still get, caches that can be dropped included.
    pub available_bytes: u64,
}

impl SystemMemory {
    /// Reads Linux's `/proc/meminfo`; `None` where there is none, or it does not say.
    pub fn read() -> Option<Self> {
        Self::read_from(Path::new("/proc/meminfo"))
    }

    /// As [`read`](Self::read), from another file of the same form.
    pub fn read_from(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(KIB)
        };
        Some(Self { total_bytes: bytes("MemTotal:")?, available_bytes: bytes("MemAvailable:")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_figures_are_read_in_bytes_and_a_missing_one_is_no_zero() {
        let text = "MemTotal:       130000 kB\nMemFree:  1 kB\nMemAvailable:   70000 kB\n";
        let expected = SystemMemory { total_bytes: 130_000 * 1024, available_bytes: 70_000 * 1024 };
        assert_eq!(SystemMemory::parse(text), Some(expected));
        assert_eq!(SystemMemory::parse("MemTotal:       130000 kB\n"), None);
        assert_eq!(SystemMemory::parse("MemTotal: many kB\nMemAvailable: 1 kB\n"), None);
    }
}
