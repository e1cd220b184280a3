//! The driver's view that goes with an allocator: attached once, asked at the end of each epoch.

use super::companion::{self, Companion};
use crate::allocator::{CachingAllocator, DriverReporter, Inner};
use crate::driver::{ContextMemory, DriverReport, DriverUnavailable, DriverView};

pub(super) type Attached = Result<DriverView, DriverUnavailable>;

/// The allocator's view, attached on first use; a failure is kept too, with its reason.
pub(super) fn attached(allocator: &CachingAllocator) -> &Attached {
    // So that diagnoses have it too.
    let _ = allocator
        .inner()
        .driver_reporter
        .set(DriverReporter { report: report_if_attached, context: context_if_attached });
    companion::of(allocator).view.get_or_init(|| {
        let reserved_bytes = unsigned(allocator.memory_reserved());
        DriverView::attach(&**allocator.device(), reserved_bytes)
    })
}

/// The same, if a view was attached before.
fn report_if_attached(inner: &Inner, allocated_bytes: u64, reserved_bytes: u64) -> Option<DriverReport> {
    let attached = inner.companion.get()?.downcast_ref::<Companion>()?.view.get()?;
    Some(match attached {
        Ok(view) => view.report(allocated_bytes, reserved_bytes),
        Err(why) => DriverReport::Unavailable(why.clone()),
    })
}

fn context_if_attached(inner: &Inner) -> Option<ContextMemory> {
    let attached = inner.companion.get()?.downcast_ref::<Companion>()?.view.get()?;
    attached.as_ref().ok().map(DriverView::context)
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
