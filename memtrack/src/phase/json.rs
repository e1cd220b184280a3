//! The summary as one line of JSON: the lines of a run file. Bytes are exact, names and meanings are those of the fields.

use std::fmt::Write as _;

use super::origins::BlockTotal;
use super::{EpochSite, EpochSummary, PhaseSummary};
use crate::diagnosis::Finding;
use crate::driver::DriverReport;
use crate::source::SourceSummary;

/// Of what [`EpochSummary::to_json`] writes. It is raised when the meaning of a key changes or a key goes; new keys may come without.
const SCHEMA_VERSION: u64 = 1;

impl EpochSummary {
    /// The summary as one line of JSON, without a line break: everything, in bytes and nanoseconds.
    ///
    /// The keys always come in the same order. `docs/summary.md` describes them.
    pub fn to_json(&self) -> String {
        let mut text = String::with_capacity(4096);
        Object::write(&mut text, |line| {
            line.text("schema", "memtrack.run");
            line.number("version", SCHEMA_VERSION);
            line.text("kind", "epoch");
            line.number("process", std::process::id());
            line.number("epoch", self.number);
            line.text("device", self.device.as_str());
            line.text("model", &self.model);
            line.number("allocator", self.allocator);
            line.number("steps", self.step_count);
            line.number("lasted_ns", self.lasted.as_nanos());
            line.number("before_bytes", self.before_bytes);
            line.number("after_bytes", self.after_bytes);
            line.number("limit_bytes", self.limit_bytes);
            line.number("retries", self.retry_count);
            line.number("ooms", self.oom_count);
            line.number("reserved_bytes", self.reserved_bytes);
            line.number("active_bytes", self.active_bytes);
            line.number("largest_free_block_bytes", self.largest_free_block_bytes);
            line.list("phases", &self.phases, write_phase);
            line.object("peak", |peak| self.write_json_peak(peak));
            line.list("origins", &self.origins, |row, origin| {
                row.text("phase", origin.phase);
                total(row, "before", origin.before);
                total(row, "allocated", origin.allocated);
                row.list("freed", &origin.freed, |cell, (phase, freed)| {
                    cell.text("phase", phase);
                    cell.number("bytes", freed.bytes);
                    cell.number("blocks", freed.block_count);
                });
                total(row, "live", origin.live);
            });
            line.list("live", &self.live, write_site);
            if let Some(growth) = &self.growth {
                line.object("growth", |change| {
                    change.number("bytes", growth.bytes);
                    change.number("bytes_per_epoch", growth.bytes_per_epoch);
                    change.number("changes", growth.change_count);
                });
            }
            if self.sampled.is_some() || self.sampling_failure.is_some() {
                line.object("sampled", |samples| self.write_json_samples(samples));
            }
            line.object("driver", |driver| write_driver(driver, &self.driver));
            let findings: Vec<String> = self.findings.iter().map(Finding::to_json).collect();
            line.written("findings", &format!("[{}]", findings.join(",")));
            if !self.sources.is_empty() {
                line.list("sources", &self.sources, write_source);
            }
            if !self.has_allocator {
                line.number("has_allocator", false);
            }
        });
        text
    }

    fn write_json_peak(&self, peak: &mut Object<'_>) {
        peak.number("bytes", self.peak_bytes);
        peak.text("phase", self.peak_phase);
        if let Some(step) = self.peak_step {
            peak.number("step", step);
        }
        peak.number("earliest_ns", self.peak_earliest.as_nanos());
        peak.number("latest_ns", self.peak_latest.as_nanos());
        peak.number("reserved_bytes", self.peak_reserved_bytes);
        peak.number("cached_bytes", self.peak_cached_bytes());
        peak.number("active_bytes", self.peak_active_bytes);
        peak.list("held", &self.peak_holders, |row, holder| {
            row.text("phase", holder.phase);
            if let Some(scope) = holder.scope {
                row.text("scope", scope);
            }
            row.number("bytes", holder.held.bytes);
            row.number("blocks", holder.held.block_count);
        });
    }

    fn write_json_samples(&self, samples: &mut Object<'_>) {
        let sampled = self.sampled.as_ref();
        samples.number("at_boundaries", sampled.map_or(0, |sampled| sampled.boundary_count));
        samples.number("in_background", sampled.map_or(0, |sampled| sampled.background_count));
        samples.number("failures", self.sampling_failure.as_ref().map_or(0, |failure| failure.count));
        if let Some(failure) = &self.sampling_failure {
            samples.text("latest_error", &failure.error);
        }
        if let Some(sampled) = sampled {
            samples.number("lowest_free_bytes", sampled.lowest_free_bytes);
            samples.text("lowest_phase", sampled.lowest_phase);
            samples.number("highest_used_bytes", sampled.highest_used_bytes);
        }
    }
}

fn write_phase(row: &mut Object<'_>, phase: &PhaseSummary) {
    row.text("name", phase.name);
    row.number("entered", phase.entered_count);
    row.number("net_bytes", phase.net_bytes);
    row.number("peak_bytes", phase.peak_bytes);
    row.number("rise_p50_bytes", phase.rise_median_bytes);
    row.number("rise_p95_bytes", phase.rise_p95_bytes);
    row.number("rise_max_bytes", phase.rise_max_bytes);
    row.number("allocated_bytes", phase.allocated_bytes);
    row.number("allocations", phase.allocation_count);
    row.number("frees", phase.free_count);
    row.number("device_allocations", phase.device_allocation_count);
    row.number("retries", phase.retry_count);
    row.number("ooms", phase.oom_count);
    row.number("slow_path_ns", phase.slow_path.as_nanos());
    row.number("inclusive_net_bytes", phase.inclusive_net_bytes);
    row.number("inclusive_allocated_bytes", phase.inclusive_allocated_bytes);
    row.number("inclusive_allocations", phase.inclusive_allocation_count);
    row.number("foreign_bytes", phase.foreign_bytes);
    row.number("other_threads", phase.other_thread_count);
}

fn write_site(row: &mut Object<'_>, site: &EpochSite) {
    row.text("phase", site.phase);
    if let Some(scope) = site.scope {
        row.text("scope", scope);
    }
    row.text("file", site.location.file());
    row.number("line", site.location.line());
    row.number("column", site.location.column());
    row.number("bytes", site.size_bytes);
    row.number("requested_bytes", site.requested_bytes);
    row.number("blocks", site.block_count);
    row.number("oldest_steps", site.oldest_age_steps);
    row.list("ages", &site.ages, |group, age| {
        group.number("epochs", age.age_epochs);
        group.number("bytes", age.size_bytes);
        group.number("blocks", age.block_count);
    });
    row.number("grown_bytes", site.grown_bytes);
    row.number("grown_blocks", site.grown_blocks);
    row.number("grown_epochs", site.grown_epoch_count);
}

fn write_source(row: &mut Object<'_>, source: &SourceSummary) {
    let SourceSummary { epoch, phases } = source;
    row.text("name", &epoch.name);
    if let Some(device) = epoch.device {
        row.number("device", device);
    }
    row.text("exactness", &epoch.exactness.to_string());
    row.text("peak_kind", epoch.peak_kind.as_str());
    let figures = [
        ("before_bytes", epoch.before_bytes),
        ("after_bytes", epoch.after_bytes),
        ("peak_bytes", epoch.peak_bytes),
        ("reserved_before_bytes", epoch.reserved_before_bytes),
        ("reserved_after_bytes", epoch.reserved_after_bytes),
        ("reserved_peak_bytes", epoch.reserved_peak_bytes),
        ("retries", epoch.retry_count),
        ("ooms", epoch.oom_count),
    ];
    figures.into_iter().for_each(|(name, figure)| known(row, name, figure));
    if let Some(failure) = &epoch.failure {
        row.text("failure", &failure.to_string());
    }
    row.list("phases", phases, |row, phase| {
        row.text("name", phase.name);
        row.number("entered", phase.entered_count);
        known(row, "before_bytes", phase.before_bytes);
        known(row, "after_bytes", phase.after_bytes);
        known(row, "net_bytes", phase.net_bytes);
        known(row, "peak_bytes", phase.peak_bytes);
        known(row, "rise_max_bytes", phase.rise_max_bytes);
        known(row, "reserved_peak_bytes", phase.reserved_peak_bytes);
        row.text("peak_kind", phase.peak_kind.as_str());
        row.number("failures", phase.failure_count);
    });
}

/// A figure that is absent has no key.
fn known(row: &mut Object<'_>, name: &str, figure: Option<i64>) {
    if let Some(figure) = figure {
        row.number(name, figure);
    }
}

fn write_driver(driver: &mut Object<'_>, report: &DriverReport) {
    match report {
        DriverReport::Reconciled(figures) => {
            driver.number("used_bytes", figures.used_bytes);
            driver.number("allocated_bytes", figures.allocated_bytes);
            driver.number("cached_bytes", figures.cached_bytes);
            driver.number("context_bytes", figures.context_bytes);
            if let Some(bytes) = figures.other_processes_bytes {
                driver.number("other_processes_bytes", bytes);
            }
            driver.number("unexplained_bytes", figures.unexplained_bytes);
        }
        DriverReport::Unavailable(why) => driver.text("unavailable", &why.to_string()),
    }
}

fn total(row: &mut Object<'_>, name: &str, BlockTotal { bytes, block_count }: BlockTotal) {
    row.object(name, |total| {
        total.number("bytes", bytes);
        total.number("blocks", block_count);
    });
}

/// A JSON object under way.
struct Object<'a> {
    text: &'a mut String,
    is_empty: bool,
}

impl<'a> Object<'a> {
    fn write(text: &'a mut String, fill: impl FnOnce(&mut Object<'_>)) {
        text.push('{');
        fill(&mut Object { text, is_empty: true });
        text.push('}');
    }

    fn key(&mut self, name: &str) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.text.push(',');
        }
        // Keys are plain words of this file.
        self.text.push('"');
        self.text.push_str(name);
        self.text.push_str("\":");
    }

    fn number(&mut self, name: &str, value: impl std::fmt::Display) {
        self.key(name);
        // Writing to a string does not fail.
        let _ = write!(self.text, "{value}");
    }

    fn text(&mut self, name: &str, value: &str) {
        self.key(name);
        self.text.push('"');
        for character in value.chars() {
            match character {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\0'..='\u{1f}' => {
                    let _ = write!(self.text, "\\u{:04x}", u32::from(character));
                }
                _ => self.text.push(character),
            }
        }
        self.text.push('"');
    }

    fn object(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        self.key(name);
        Object::write(self.text, fill);
    }

    /// A value that is JSON already.
    fn written(&mut self, name: &str, json: &str) {
        self.key(name);
        self.text.push_str(json);
    }

    fn list<T>(&mut self, name: &str, items: &[T], fill: impl Fn(&mut Object<'_>, &T)) {
        self.key(name);
        self.text.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            Object::write(self.text, |object| fill(object, item));
        }
        self.text.push(']');
    }
}
