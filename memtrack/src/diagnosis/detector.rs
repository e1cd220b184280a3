//! Watching for a leak while a program runs.

use std::cell::LazyCell;

use super::finding::Finding;
use super::growth::growth_by_group;
use super::leak::{self, Floor, FloorTrend, Trend, Unit, WARM_UP_COUNT};
use super::view::{AllocatorView, LiveGroup};

/// At this step the floors are looked at first; then whenever an eighth more have come, so that looking costs a step nothing
/// in the long run.
const REPORT_STEP: u64 = 20;
/// So many floors are kept; then the older half goes.
const KEPT_COUNT: usize = 1024;

/// Takes the live bytes at the end of each step and tells of a leak, once: at step 20, or when later floors show it, at the
/// latest when an eighth more steps have ended.
///
/// A step costs it a few words. Live blocks are looked at after the warm-up of two steps, at every 512th step after it, and for the
/// report. The last 512 to 1023 floors are kept: what it tells, the growth of each scope too, is of these steps.
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
    /// What was live before the first of the floors.
    base: Vec<LiveGroup>,
    /// What was live before those that stay when the older half goes.
    next_base: Vec<LiveGroup>,
    unit: Unit,
    has_reported: bool,
    /// The step at which the floors are looked at next.
    next_look: u64,
}

impl LeakDetector {
    /// A detector that has seen no step.
    pub fn new() -> Self {
        Self::default()
    }

    /// A detector whose steps are the ends of epochs, so that what it says counts epochs.
    pub fn of_epochs() -> Self {
        Self { unit: Unit::Epoch, ..Self::default() }
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
        let view = LazyCell::new(look);
        self.floors.push(floor);
        if self.floors.len() >= KEPT_COUNT {
            self.floors.drain(..KEPT_COUNT / 2);
            self.base = std::mem::take(&mut self.next_base);
        }
        if self.floors.len() == KEPT_COUNT / 2 {
            self.next_base.clone_from(&view.live);
        }
        if self.has_reported || self.step_count < self.next_look.max(REPORT_STEP) {
            return None;
        }
        self.next_look = self.step_count + self.step_count.div_ceil(8);
        if self.trend().trend != Trend::Leak {
            return None;
        }
        self.has_reported = true;
        self.finding(&view)
    }

    /// What the floors so far come to.
    pub fn trend(&self) -> FloorTrend {
        leak::judge(&self.floors).of(self.unit)
    }

    /// The same when `live_bytes` are live now: what has been given back since the last step ended was no leak.
    pub(crate) fn trend_at(&self, live_bytes: i64) -> FloorTrend {
        match self.floors.split_last() {
            Some((last, before)) if live_bytes < last.live_bytes => {
                let now = Floor { live_bytes, peak_bytes: None, ..*last };
                leak::judge(&[before, &[now]].concat()).of(self.unit)
            }
            _ => self.trend(),
        }
    }

    /// What is to be said of them now, whether it was reported or not: a leak with its forecast, or a one-time allocation.
    pub fn finding(&self, view: &AllocatorView) -> Option<Finding> {
        self.finding_of(self.trend(), view)
    }

    /// As [`finding`](Self::finding), of a trend of these floors.
    pub(crate) fn finding_of(&self, trend: FloorTrend, view: &AllocatorView) -> Option<Finding> {
        let growth = growth_by_group(&self.base, &view.live);
        trend.finding(Some(live_capacity_bytes(view)), &growth, self.floors.len() as u64)
    }
}

/// What may be live at most: what the device has less what others have on it, or the limit.
fn live_capacity_bytes(view: &AllocatorView) -> u64 {
    let ours_bytes = view.device_total_bytes.saturating_sub(view.outside_bytes().unwrap_or(0));
    view.limit_bytes.map_or(ours_bytes, |limit| limit.min(ours_bytes))
}
