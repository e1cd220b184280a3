//! The driver's view that goes with an allocator: attached once, asked at the end of each epoch.

use super::companion;
use crate::allocator::CachingAllocator;
use crate::driver::{DriverReport, DriverUnavailable, DriverView};

pub(super) type Attached = Result<DriverView, DriverUnavailable>;

/// The allocator's view, attached on first use; a failure is kept too, with its reason.
pub(super) fn attached(allocator: &CachingAllocator) -> &Attached {
    companion::of(allocator).view.get_or_init(|| {
        let reserved_bytes = unsigned(allocator.memory_reserved());
        DriverView::attach(&**allocator.device(), reserved_bytes)
    })
}

/// The driver's figures now beside the allocator's.
pub(super) fn report(allocator: &CachingAllocator, allocated_bytes: i64, reserved_bytes: i64) -> DriverReport {
    match attached(allocator) {
        Ok(view) => view.report(unsigned(allocated_bytes), unsigned(reserved_bytes)),
        Err(why) => DriverReport::Unavailable(why.clone()),
    }
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

impl CachingAllocator {
    /// Attaches the driver's view (NVML), and measures as *context* what this process has on the device outside the
    /// allocator just now.
    ///
    /// The first epoch does this by itself. Call it after a warm-up, when kernels and libraries such as cuBLAS are loaded,
    /// to count them as context rather than as unexplained in the summaries. About 20 ms the first time, then 50 µs.
    ///
    /// # Errors
    ///
    /// [`DriverUnavailable`] says why there is no view: always so on host and simulated devices. The summaries say it too,
    /// so the result may be ignored.
    pub fn attach_driver(&self) -> Result<&DriverView, DriverUnavailable> {
        let view = attached(self).as_ref().map_err(Clone::clone)?;
        view.remeasure_context(unsigned(self.memory_reserved()))?;
        Ok(view)
    }
}
