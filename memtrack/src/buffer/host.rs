//! Slices of buffers in host memory.

use std::ptr::NonNull;

use super::{Buffer, Element, Storage};
use crate::allocator::AllocationError;
use crate::device::{Host, pointer_to};

impl<T: Element> Buffer<T> {
    /// The elements in place, on host memory.
    ///
    /// # Errors
    ///
    /// [`AllocationError::NoAccess`] on every other device.
    pub fn as_slice(&self) -> Result<&[T], AllocationError> {
        self.check_host("borrowed as a slice", "copy it with `to_vec`")?;
        // SAFETY: the block is `len` elements long, aligned to 512 bytes, initialised (host segments come zeroed and `T`
        // takes every bit pattern), and held by this buffer; `&self` excludes writers for the slice's life. Without a
        // block there are no bytes to read.
        Ok(unsafe { std::slice::from_raw_parts(self.host_pointer(), self.len()) })
    }

    /// The elements in place and writable, on host memory.
    ///
    /// # Errors
    ///
    /// [`AllocationError::NoAccess`] on every other device.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T], AllocationError> {
        self.check_host("borrowed as a slice", "write it with `copy_from_slice`")?;
        // SAFETY: as for `as_slice`; `&mut self` excludes all others, and no other buffer shares the block.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.host_pointer(), self.len()) })
    }

    fn host_pointer(&self) -> *mut T {
        match &self.storage {
            Storage::Empty { .. } => NonNull::dangling().as_ptr(),
            Storage::Block(lease) => pointer_to(lease.address()).cast(),
        }
    }

    fn check_host(&self, access: &'static str, advice: &'static str) -> Result<(), AllocationError> {
        if self.device().as_any().is::<Host>() {
            return Ok(());
        }
        Err(AllocationError::NoAccess { device: self.device().name().to_owned(), access, advice })
    }
}
