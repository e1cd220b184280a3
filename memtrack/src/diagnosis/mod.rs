//! Findings: why memory ran out or may, with the numbers behind it, the evidence, and what to do.
//!
//! Each finding has a code that stays ([`FindingCode`]), its figures ([`Numbers`]), lines of evidence and lines of advice with
//! numbers in them. Advice never repeats what is done already: expandable segments are suggested where they are off.
//! `docs/findings.md` has a table of all codes.
//!
//! Here live pure functions from plain figures to findings: no allocator, no lock, no device and no clock, so that the error of an
//! out of memory, a summary and a command can all use them, on the living allocator or on a file. An allocator gives its figures as an
//! [`AllocatorView`]; see [`CachingAllocator::diagnose`](crate::CachingAllocator::diagnose),
//! [`diagnose_external`](crate::CachingAllocator::diagnose_external) and [`OutOfMemory::findings`](crate::OutOfMemory::findings).

mod capacity;
mod churn;
mod codes;
mod detector;
mod examine;
mod file;
mod finding;
mod fragmentation;
mod growth;
mod json;
mod late_leak;
mod leak;
mod limit;
mod outside;
mod segment_fit;
mod series;
mod size;
mod streams;
mod sums;
mod view;

pub use churn::{growing_sizes, idle_cache, retries_every_step, rounding_overhead};
pub use codes::{FindingCode, Numbers};
pub use detector::LeakDetector;
pub use examine::{examine, examine_external, examine_failure};
pub use finding::{Finding, Severity};
pub use fragmentation::{fragmentation, pinned_segments};
pub use growth::{GroupGrowth, growth_by_group};
pub(crate) use json::text as json_text;
pub use leak::{Floor, FloorTrend, Forecast, Trend, judge_floors};
pub(crate) use size::told_apart;
pub use view::{
    AllocatorView, BlockView, FailedAttemptView, LiveGroup, OutsideView, Request, SegmentView, SettingsView,
};
