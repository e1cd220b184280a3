//! The summary through `tracing`: one INFO event for the epoch, one for each phase. Bytes are `i64`.

use super::EpochSummary;
use crate::source::SourceFigures;
use crate::units::signed;

pub(super) fn log(summary: &EpochSummary) {
    let reconciled = summary.driver.reconciliation();
    let codes: Vec<&str> = summary.findings.iter().map(|finding| finding.code().as_str()).collect();
    let findings = (!codes.is_empty()).then(|| codes.join(" "));
    // Without an allocator, what the first source said; nobody knows the rest.
    let is_known = summary.has_allocator;
    let source = summary.sources.first().map(|source| &source.epoch).filter(|_| !is_known);
    let figure = |own: i64, told: fn(&SourceFigures) -> Option<i64>| source.map_or(is_known.then_some(own), told);
    tracing::info!(
        target: "memtrack::epoch",
        {
            epoch = signed(summary.number),
            mem.device = summary.device.as_str(),
            steps = signed(summary.step_count),
            duration_ms = signed(u64::try_from(summary.lasted.as_millis()).unwrap_or(u64::MAX)),
            mem.before = figure(summary.before_bytes, |source| source.before_bytes),
            mem.after = figure(summary.after_bytes, |source| source.after_bytes),
            mem.delta = figure(summary.net_bytes(), SourceFigures::delta_bytes),
            mem.peak = figure(summary.peak_bytes, |source| source.peak_bytes),
            peak_phase = is_known.then_some(summary.peak_phase),
            peak_step = summary.peak_step.map(signed),
            mem.reserved = figure(summary.reserved_bytes, |source| source.reserved_after_bytes),
            mem.cached = is_known.then(|| summary.cached_bytes()),
            peak_reserved = figure(summary.peak_reserved_bytes, |source| source.reserved_peak_bytes),
            largest_free_block = is_known.then(|| signed(summary.largest_free_block_bytes)),
            growth = is_known.then(|| summary.growth.map_or(0, |growth| growth.bytes)),
            mem.retries = figure(summary.retry_count, |source| source.retry_count),
            mem.ooms = figure(summary.oom_count, |source| source.oom_count),
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
