//! What an allocator has to say about its own state.

use super::CachingAllocator;
use crate::diagnosis::{self, AllocatorView, Finding};

impl CachingAllocator {
    /// The figures that findings are made from, as of now: segments with their blocks, live blocks by line and scope, settings.
    ///
    /// All blocks are looked at, and allocations and frees wait meanwhile: for reports, not for each step of a training loop.
    pub fn memory_view(&self) -> AllocatorView {
        self.inner().view_now()
    }

    /// What costs memory now, or may: [`diagnosis::examine`] of the [`memory_view`](Self::memory_view). Empty when there is nothing to
    /// say.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use memtrack::{CachingAllocator, device::Host};
    ///
    /// let allocator = CachingAllocator::new(Arc::new(Host::with_capacity(64 << 20)));
    /// for finding in allocator.diagnose() {
    ///     println!("{finding:#}");
    /// }
    /// ```
    pub fn diagnose(&self) -> Vec<Finding> {
        diagnosis::examine(&self.memory_view())
    }

    /// Why a request of somebody else, such as a library that asks the driver itself, failed for `requested_bytes`: whether this
    /// allocator's cache starves it, and the limit that would not. No counter changes: the failure was not the allocator's.
    ///
    /// Empty when the device has room, or when emptying the cache would not do.
    pub fn diagnose_external(&self, requested_bytes: u64) -> Vec<Finding> {
        diagnosis::examine_external(&self.memory_view(), requested_bytes)
    }
}
