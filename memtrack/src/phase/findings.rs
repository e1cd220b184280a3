//! What an epoch's summary finds: the state at its end, retries, and leaks by the floors of steps and of epochs.

use std::sync::Mutex;

use crate::allocator::{CachingAllocator, Inner};
use crate::diagnosis::{self, AllocatorView, Finding, Floor, LeakDetector, Trend};
use crate::ledger::ClosedEpoch;
use crate::plain_text::shown;
use crate::sync::lock;

use super::growth::EpochSite;

/// The floors so far, kept with an allocator.
#[derive(Debug)]
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

impl Default for Watched {
    fn default() -> Self {
        let epochs = Counted { detector: LeakDetector::of_epochs(), count: 0 };
        Self { steps: Mutex::default(), epochs: Mutex::new(epochs) }
    }
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
    pub(super) fn step_ended(&self, inner: &Inner, live_bytes: i64, peak_bytes: i64) {
        let found = lock(&self.steps).end(live_bytes, peak_bytes, || inner.view_now());
        if let Some(finding) = found {
            let device = inner.name.as_ref();
            let code = finding.code().as_str();
            let told = lines_of(&finding);
            tracing::warn!(target: "memtrack::finding", { mem.device = device, code }, "{told}");
        }
    }

    /// What is to be said at the end of an epoch, at which `live` is live.
    pub(super) fn at_end(
        &self,
        allocator: &CachingAllocator,
        closed: &ClosedEpoch,
        live: &[EpochSite],
        limit_bytes: u64,
    ) -> Vec<Finding> {
        let view = allocator.memory_view();
        let mut findings = diagnosis::examine(&view);
        let retry_count = unsigned(closed.scope.retry_count);
        let reserved_bytes = unsigned(closed.reserved_bytes);
        findings.extend(diagnosis::retries_every_step(closed.step_count, retry_count, reserved_bytes, limit_bytes));
        let _ = lock(&self.epochs).end(closed.scope.after_bytes, closed.scope.peak_bytes, || view.clone());
        let is_suspected = live.iter().any(EpochSite::is_suspected);
        let live_bytes = closed.scope.after_bytes;
        let (steps, epochs) = (lock(&self.steps), lock(&self.epochs));
        findings.extend(of_floors([&steps.detector, &epochs.detector], live_bytes, is_suspected, &view));
        drop((steps, epochs));
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }
}

/// A leak that either series shows; what was allocated once only where nothing speaks for a leak. Steps go first, since they tell sooner;
/// what is kept once an epoch is flat for most of them, and shows in the epochs. What is live at the end of the epoch is the latest of
/// both: what its steps kept and it gave back is no leak.
fn of_floors(
    detectors: [&LeakDetector; 2],
    live_bytes: i64,
    is_suspected: bool,
    view: &AllocatorView,
) -> Option<Finding> {
    let series = detectors.map(|detector| (detector, detector.trend_at(live_bytes)));
    let first = |sought| series.iter().find(|(_, trend)| trend.trend == sought);
    let is_open = is_suspected || first(Trend::Unclear).is_some();
    let (detector, trend) = first(Trend::Leak).or_else(|| first(Trend::OneTime).filter(|_| !is_open))?;
    detector.finding_of(*trend, view)
}

/// As `{finding:#}`, with names that stay in their line.
fn lines_of(finding: &Finding) -> String {
    let mut told = shown(&finding.to_string());
    for (sign, line) in
        finding.evidence.iter().map(|line| ("", line)).chain(finding.advice.iter().map(|line| ("-> ", line)))
    {
        told += &format!("\n  {sign}{}", shown(line));
    }
    told
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_told_line_by_line_and_a_name_cannot_add_one() {
        let allocator = CachingAllocator::new(std::sync::Arc::new(crate::device::Simulated::with_capacity(1 << 30)));
        drop(crate::Buffer::<u8>::uninit(&allocator, 600 << 20).unwrap());
        let mut finding = diagnosis::examine(&allocator.memory_view()).remove(0);
        assert!(finding.evidence.len() + finding.advice.len() > 0);
        assert_eq!(lines_of(&finding), format!("{finding:#}"), "as its own text");
        let count = lines_of(&finding).lines().count();
        finding.headline += "\n\u{1b}[2J";
        finding.evidence.push("phase \n\u{202e}".to_owned());
        let told = lines_of(&finding);
        assert_eq!(told.lines().count(), count + 1, "{told}");
        assert!(!told.contains(['\u{1b}', '\u{202e}']), "{told:?}");
    }
}
