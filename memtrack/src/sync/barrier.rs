//! Two barriers for two sides of which one passes often and the other hardly ever: together they order the two as two full
//! barriers would.
//!
//! The light one is free: it keeps the compiler from moving reads and writes across it. The heavy one is a call of the kernel, some
//! microseconds: every processor that runs a thread of this process passes a full barrier during it. Linux has it (`membarrier`,
//! since 4.14), unless a sandbox forbids the call.

/// For the side that passes often.
#[inline(always)]
pub(super) fn light() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
mod kernel {
    use rustix::thread::{MembarrierCommand, membarrier};
    use std::io;
    use std::sync::OnceLock;

    /// Whether [`heavy`] works. The first call asks the kernel.
    pub(in crate::sync) fn is_available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        // Tried once, since a filter may grant the one and forbid the other.
        *AVAILABLE.get_or_init(|| register().is_ok() && heavy().is_ok())
    }

    fn register() -> io::Result<()> {
        Ok(membarrier(MembarrierCommand::RegisterPrivateExpedited)?)
    }

    /// For the side that hardly ever passes.
    pub(in crate::sync) fn heavy() -> io::Result<()> {
        // The kernel forgets the registration where a process begins anew.
        membarrier(MembarrierCommand::PrivateExpedited)
            .or_else(|_| register().and_then(|()| Ok(membarrier(MembarrierCommand::PrivateExpedited)?)))
    }
}

#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
mod kernel {
    use std::io;

    pub(in crate::sync) fn is_available() -> bool {
        false
    }

    pub(in crate::sync) fn heavy() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(super) use kernel::{heavy, is_available};
