//! Watching for a leak while a program runs.

use super::finding::Finding;
use super::leak::{self, Floor, FloorTrend, Trend, WARM_UP_COUNT};
use super::view::{AllocatorView, LiveGroup};

/// At this step the floors are looked at first; then whenever an eighth more have come, so that looking costs a step nothing
/// in the long run.
const REPORT_STEP: u64 = 20;
/// So many floors are kept; then the older half goes.
const KEPT_COUNT: usize = 1024;

/// Takes the live bytes at the end of each step and tells of a leak, once: at step 20, or when later floors show it, at the
/// latest when an eighth more steps have ended.
///
/// A step costs it a few words. Live blocks are looked at twice: after the warm-up of two steps, and for the report.
///
/// ```
/// use std::sync::Arc;
/// use memtrack::diagnosis::{Floor, FindingCode, LeakDetector};
/// use memtrack::{Buffer, CachingAllocator, device::Host};
///
/// let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// let mut detector = LeakDetector::new();
/// let mut losses = Vec::new();
/// for number in 1..=20 {
///     losses.push(Buffer::<f32>::zeros(&allocator, 1)?); // Never freed.
///     let floor = Floor { number, live_bytes: allocator.memory_allocated(), peak_bytes: None };
///     if let Some(finding) = detector.end_step(floor, || allocator.memory_view()) {
///         assert_eq!((number, finding.code()), (20, FindingCode::Leak));
///         println!("{finding:#}");
///     }
/// }
/// # Ok::<(), memtrack::AllocationError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct LeakDetector {
    /// After the warm-up.
    floors: Vec<Floor>,
    step_count: u64,
    /// What was live after the warm-up.
    base: Vec<LiveGroup>,
    has_reported: bool,
    /// The step at which the floors are looked at next.
    next_look: u64,
}

impl LeakDetector {
    /// A detector that has seen no step.
    pub fn new() -> Self {
        Self::default()
    }

    /// A step has ended. `look` gives the allocator's figures, see [`CachingAllocator::memory_view`]; it is called
    /// when they are needed. Returns the finding once.
    ///
    /// [`CachingAllocator::memory_view`]: crate::CachingAllocator::memory_view
    pub fn end_step(&mut self, floor: Floor, look: impl FnOnce() -> AllocatorView) -> Option<Finding> {
        self.step_count += 1;
        if self.step_count <= WARM_UP_COUNT as u64 {
            if self.step_count == WARM_UP_COUNT as u64 {
                self.base = look().live;
            }
            return None;
        }
        if self.floors.len() >= KEPT_COUNT {
            self.floors.drain(..KEPT_COUNT / 2);
        }
        self.floors.push(floor);
        if self.has_reported || self.step_count < self.next_look.max(REPORT_STEP) {
            return None;
        }
        self.next_look = self.step_count + self.step_count.div_ceil(8);
        if self.trend().trend != Trend::Leak {
            return None;
        }
        self.has_reported = true;
        self.finding(&look())
    }

    /// What the floors so far come to.
    pub fn trend(&self) -> FloorTrend {
        leak::judge(&self.floors)
    }

    /// What is to be said of them now, whether it was reported or not: a leak with its forecast, or a one-time allocation.
    pub fn finding(&self, view: &AllocatorView) -> Option<Finding> {
        let growth = leak::growth_by_group(&self.base, &view.live);
        let growth_step_count = self.step_count.saturating_sub(WARM_UP_COUNT as u64);
        self.trend().finding(Some(live_capacity_bytes(view)), &growth, growth_step_count)
    }
}

/// What may be live at most: what the device has less what others have on it, or the limit.
fn live_capacity_bytes(view: &AllocatorView) -> u64 {
    let ours_bytes = view.device_total_bytes.saturating_sub(view.outside_bytes().unwrap_or(0));
    view.limit_bytes.map_or(ours_bytes, |limit| limit.min(ours_bytes))
}
