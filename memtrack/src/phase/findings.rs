//! What an epoch's summary finds: the state at its end, retries, and leaks by the floors of steps and of epochs.

use std::sync::Mutex;

use crate::allocator::CachingAllocator;
use crate::diagnosis::{self, AllocatorView, Finding, Floor, LeakDetector};
use crate::ledger::ClosedEpoch;
use crate::sync::lock;

/// The floors so far, kept with an allocator.
#[derive(Debug, Default)]
pub(super) struct Watched {
    steps: Mutex<Counted>,
    epochs: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    detector: LeakDetector,
    /// How many floors there were. A program's own numbers may begin anew with each epoch.
    count: u64,
}

impl Counted {
    fn end(&mut self, live_bytes: i64, peak_bytes: i64, look: impl FnOnce() -> AllocatorView) -> Option<Finding> {
        self.count += 1;
        let floor = Floor { number: self.count, live_bytes, peak_bytes: Some(peak_bytes) };
        self.detector.end_step(floor, look)
    }
}

impl Watched {
    /// A step has ended. A leak that shows is told at once, since the epoch's end may come too late.
    pub(super) fn step_ended(&self, allocator: &CachingAllocator, live_bytes: i64, peak_bytes: i64) {
        let found = lock(&self.steps).end(live_bytes, peak_bytes, || allocator.memory_view());
        if let Some(finding) = found {
            let device = allocator.inner().name.as_ref();
            let code = finding.code().as_str();
            tracing::warn!(target: "memtrack::finding", { mem.device = device, code }, "{finding:#}");
        }
    }

    /// What is to be said at the end of an epoch.
    pub(super) fn at_end(&self, allocator: &CachingAllocator, closed: &ClosedEpoch, limit_bytes: u64) -> Vec<Finding> {
        let view = allocator.memory_view();
        let mut findings = diagnosis::examine(&view);
        let retry_count = unsigned(closed.scope.retry_count);
        let reserved_bytes = unsigned(closed.reserved_bytes);
        findings.extend(diagnosis::retries_every_step(closed.step_count, retry_count, reserved_bytes, limit_bytes));
        let _ = lock(&self.epochs).end(closed.scope.after_bytes, closed.scope.peak_bytes, || view.clone());
        // Steps tell sooner, and of an epoch's they know nothing only where there are none.
        let of_steps = lock(&self.steps).detector.finding(&view);
        findings.extend(of_steps.or_else(|| lock(&self.epochs).detector.finding(&view)));
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
