//! Everything that is found out from one view, the cause first.

use std::cmp::Reverse;

use super::finding::{Finding, Severity};
use super::view::{AllocatorView, Request};
use super::{capacity, churn, fragmentation, limit, outside, segment_fit, streams};
use crate::units::MIB;

/// Why a request failed, the most likely cause first; never empty.
pub fn examine_failure(view: &AllocatorView, request: &Request) -> Vec<Finding> {
    if let Some(finding) = limit::request_never_fits(view, request) {
        return vec![finding];
    }
    let mut findings = capacity::failed_attempts_alive(view);
    findings.extend(limit::limit_refuses(view, request));
    match capacity::live_memory_too_large(view, request) {
        Some(finding) => {
            findings.push(finding);
            findings.extend(outside::other_processes(view, Some(request)));
        }
        None => {
            let of_streams = streams::idle_cache_of_another_stream(view, request);
            if of_streams.is_none() {
                findings.extend(fragmentation::fragmentation(view, request));
            }
            findings.extend(of_streams);
            findings.extend(fragmentation::split_limit_refuses(view, request));
            let least_idle_bytes = request.rounded_bytes / 10;
            findings.extend(fragmentation::pinned_segments(view, least_idle_bytes, Severity::Cause));
            findings.extend(segment_fit::segment_too_large(view, request));
            findings.extend(capacity::device_refuses_with_room(view, request));
            // However little waits: it is the cause where the rest would not do.
            let least_pending_bytes = if capacity::needs_pending(view, request) { 1 } else { least_idle_bytes };
            findings.extend(streams::pending_frees(view, least_pending_bytes, Severity::Cause));
            findings.extend(outside::other_processes(view, Some(request)));
        }
    }
    findings.extend(outside::foreign_growth(view));
    // Where the driver's own pool serves there are no segments to look at.
    if findings.is_empty() {
        findings.push(capacity::freed_meanwhile(view, request));
    }
    findings
}

/// Why a request of somebody else, a library that takes memory from the driver itself, failed.
///
/// Empty when the device has room for it, or when all that this allocator could give back would not do.
pub fn examine_external(view: &AllocatorView, requested_bytes: u64) -> Vec<Finding> {
    let mut findings: Vec<Finding> = outside::cache_starves_outside(view, requested_bytes).into_iter().collect();
    findings.extend(outside::foreign_growth(view));
    findings
}

/// What may cost memory, without any failure; what matters most first.
pub fn examine(view: &AllocatorView) -> Vec<Finding> {
    let mut findings = capacity::failed_attempts_alive(view);
    for finding in &mut findings {
        finding.severity = Severity::Warning;
    }
    findings.extend(outside::foreign_growth(view));
    findings.extend(churn::growing_sizes(view));
    findings.extend(fragmentation::pinned_segments(view, 64 * MIB, Severity::Warning));
    findings.extend(streams::pending_frees(view, 64 * MIB, Severity::Note));
    findings.extend(churn::idle_cache(view));
    findings.extend(outside::driver_above_allocated(view));
    findings.extend(outside::other_processes(view, None));
    findings.extend(churn::rounding_overhead(view));
    findings.sort_by_key(|finding| Reverse(finding.severity));
    findings
}
