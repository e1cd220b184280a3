//! Host memory behind device addresses: anonymous mappings, ranges without memory, and memory that can be mapped twice.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// A range of this process's address space, given back when dropped.
pub(crate) struct Mapping {
    address: u64,
    bytes: u64,
}

impl Mapping {
    /// Zeroed memory that takes room only where touched.
    pub(crate) fn memory(bytes: u64) -> Option<Self> {
        Self::anonymous(bytes, READ_WRITE)
    }

    /// Addresses without memory, aligned to `alignment_bytes`, a power of two.
    pub(crate) fn addresses(bytes: u64, alignment_bytes: u64) -> Option<Self> {
        let wide = Self::anonymous(bytes.checked_add(alignment_bytes)?, libc::PROT_NONE)?;
        let start = wide.address.next_multiple_of(alignment_bytes);
        let (before, after) = (start - wide.address, wide.address + wide.bytes - (start + bytes));
        let whole = wide.address;
        std::mem::forget(wide);
        // Both ends go back; the middle is what the caller gets.
        drop(Self { address: whole, bytes: before });
        drop(Self { address: start + bytes, bytes: after });
        Some(Self { address: start, bytes })
    }

    fn anonymous(bytes: u64, protection: i32) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let size = usize::try_from(bytes).ok()?;
        // SAFETY: a new mapping wherever the system likes; nothing that exists is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
        (start != libc::MAP_FAILED).then(|| Self { address: start.expose_provenance() as u64, bytes })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: a range this value owns.
            unsafe { libc::munmap(pointer(self.address), self.bytes as usize) };
        }
    }
}

/// A file in memory of this size.
pub(crate) fn shared_memory(bytes: u64) -> io::Result<OwnedFd> {
    // SAFETY: a name that ends in zero.
    let number = unsafe { libc::memfd_create(c"memtrack-mock-physical".as_ptr(), libc::MFD_CLOEXEC) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a file the line above opened, owned by nobody else.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    let size = i64::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: an open file.
    if unsafe { libc::ftruncate(file.as_raw_fd(), size) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Puts shared memory behind a range, not yet accessible.
///
/// # Safety
///
/// The range lies in a [`Mapping`] of the caller's, and nobody uses it.
pub(crate) unsafe fn place_shared(address: u64, bytes: u64, file: &OwnedFd) -> bool {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: as promised by the caller.
    let start = unsafe { libc::mmap(pointer(address), bytes as usize, libc::PROT_NONE, flags, file.as_raw_fd(), 0) };
    start != libc::MAP_FAILED
}

/// Takes what is behind a range away again; the addresses stay taken.
///
/// # Safety
///
/// The range lies in a [`Mapping`] of the caller's, and nobody uses it.
pub(crate) unsafe fn clear(address: u64, bytes: u64) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: as promised by the caller.
    let start = unsafe { libc::mmap(pointer(address), bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    start != libc::MAP_FAILED
}

/// Lets a range be read and written, or neither.
///
/// # Safety
///
/// The range lies in a [`Mapping`] of the caller's, and nobody uses it who would be surprised.
pub(crate) unsafe fn protect(address: u64, bytes: u64, is_accessible: bool) -> bool {
    let protection = if is_accessible { READ_WRITE } else { libc::PROT_NONE };
    // SAFETY: as promised by the caller.
    unsafe { libc::mprotect(pointer(address), bytes as usize, protection) == 0 }
}

/// The host pointer behind a device address.
pub(crate) fn bytes_at(address: u64) -> *mut u8 {
    pointer(address).cast()
}
