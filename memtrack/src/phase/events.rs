//! The summary through `tracing`: one INFO event for the epoch, one DEBUG event for each phase. Bytes are `i64`.

use super::EpochSummary;

pub(super) fn log(summary: &EpochSummary) {
    let reconciled = summary.driver.reconciliation();
    tracing::info!(
        target: "memtrack::epoch",
        {
            epoch = summary.number as i64,
            mem.device = summary.device.as_str(),
            steps = summary.step_count as i64,
            duration_ms = summary.lasted.as_millis() as i64,
            mem.before = summary.before_bytes,
            mem.after = summary.after_bytes,
            mem.delta = summary.net_bytes(),
            mem.peak = summary.peak_bytes,
            peak_phase = summary.peak_phase,
            peak_step = summary.peak_step.map(|step| step as i64),
            mem.reserved = summary.reserved_bytes,
            mem.cached = summary.cached_bytes(),
            mem.retries = summary.retry_count,
            mem.ooms = summary.oom_count,
            driver.used = reconciled.map(|figures| figures.used_bytes as i64),
            driver.unexplained = reconciled.map(|figures| figures.unexplained_bytes),
        },
        "epoch summary"
    );
    for phase in &summary.phases {
        tracing::debug!(
            target: "memtrack::phase",
            {
                epoch = summary.number as i64,
                mem.device = summary.device.as_str(),
                mem.phase = phase.name,
                entered = phase.entered_count as i64,
                mem.delta = phase.net_bytes,
                mem.peak = phase.peak_bytes,
                rise_median = phase.rise_median_bytes,
                rise_max = phase.rise_max_bytes,
                mem.allocs = phase.allocation_count as i64,
                mem.frees = phase.free_count as i64,
                device_allocs = phase.device_allocation_count as i64,
                mem.retries = phase.retry_count as i64,
                mem.ooms = phase.oom_count as i64,
            },
            "phase summary"
        );
    }
}
