//! The summary through `tracing`: one INFO event for the epoch, one for each phase. Bytes are `i64`.

use super::EpochSummary;
use crate::units::signed;

pub(super) fn log(summary: &EpochSummary) {
    let reconciled = summary.driver.reconciliation();
    let codes: Vec<&str> = summary.findings.iter().map(|finding| finding.code().as_str()).collect();
    let findings = (!codes.is_empty()).then(|| codes.join(" "));
    tracing::info!(
        target: "memtrack::epoch",
        {
            epoch = signed(summary.number),
            mem.device = summary.device.as_str(),
            steps = signed(summary.step_count),
            duration_ms = signed(u64::try_from(summary.lasted.as_millis()).unwrap_or(u64::MAX)),
            mem.before = summary.before_bytes,
            mem.after = summary.after_bytes,
            mem.delta = summary.net_bytes(),
            mem.peak = summary.peak_bytes,
            peak_phase = summary.peak_phase,
            peak_step = summary.peak_step.map(signed),
            mem.reserved = summary.reserved_bytes,
            mem.cached = summary.cached_bytes(),
            peak_reserved = summary.peak_reserved_bytes,
            largest_free_block = signed(summary.largest_free_block_bytes),
            growth = summary.growth.map_or(0, |growth| growth.bytes),
            mem.retries = summary.retry_count,
            mem.ooms = summary.oom_count,
            driver.used = reconciled.map(|figures| signed(figures.used_bytes)),
            driver.unexplained = reconciled.map(|figures| figures.unexplained_bytes),
            findings = findings.as_deref(),
        },
        "epoch summary"
    );
    log_sources(summary);
    // Without an allocator nothing is booked in them.
    for phase in summary.phases.iter().filter(|_| summary.has_allocator) {
        tracing::info!(
            target: "memtrack::phase",
            {
                epoch = signed(summary.number),
                mem.device = summary.device.as_str(),
                mem.phase = phase.name,
                entered = signed(phase.entered_count),
                mem.delta = phase.net_bytes,
                mem.peak = phase.peak_bytes,
                rise_median = phase.rise_median_bytes,
                rise_p95 = phase.rise_p95_bytes,
                rise_max = phase.rise_max_bytes,
                headroom = summary.headroom_bytes(phase.peak_bytes),
                mem.allocs = signed(phase.allocation_count),
                allocated = signed(phase.allocated_bytes),
                mem.frees = signed(phase.free_count),
                device_allocs = signed(phase.device_allocation_count),
                mem.retries = signed(phase.retry_count),
                mem.ooms = signed(phase.oom_count),
                slow_path_us = signed(u64::try_from(phase.slow_path.as_micros()).unwrap_or(u64::MAX)),
                inclusive_delta = phase.inclusive_net_bytes,
                mem.foreign = phase.foreign_bytes,
                other_threads = i64::from(phase.other_thread_count),
            },
            "phase summary"
        );
    }
}

/// One event for each source, and one for each of its phases.
fn log_sources(summary: &EpochSummary) {
    for source in &summary.sources {
        let epoch = &source.epoch;
        tracing::info!(
            target: "memtrack::source",
            {
                epoch = signed(summary.number),
                mem.source = epoch.name.as_ref(),
                mem.exactness = %epoch.exactness,
                mem.before = epoch.before_bytes,
                mem.after = epoch.after_bytes,
                mem.delta = epoch.delta_bytes(),
                mem.peak = epoch.peak_bytes,
                mem.peak_kind = epoch.peak_kind.as_str(),
                mem.reserved = epoch.reserved_after_bytes,
                peak_reserved = epoch.reserved_peak_bytes,
                mem.retries = epoch.retry_count,
                mem.ooms = epoch.oom_count,
                error = epoch.failure.as_ref().map(tracing::field::display),
            },
            "source summary"
        );
        for phase in &source.phases {
            tracing::info!(
                target: "memtrack::source",
                {
                    epoch = signed(summary.number),
                    mem.source = epoch.name.as_ref(),
                    mem.phase = phase.name,
                    entered = signed(phase.entered_count),
                    mem.before = phase.before_bytes,
                    mem.after = phase.after_bytes,
                    mem.delta = phase.net_bytes,
                    mem.peak = phase.peak_bytes,
                    mem.peak_kind = phase.peak_kind.as_str(),
                    rise_max = phase.rise_max_bytes,
                    peak_reserved = phase.reserved_peak_bytes,
                    failures = signed(phase.failure_count),
                },
                "source phase summary"
            );
        }
    }
}
