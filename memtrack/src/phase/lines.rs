//! The lines under the summary's table. A line that has nothing to say is left out.

use std::fmt;
use std::time::Duration;

use super::table::{percent, signed};
use super::{EpochSite, EpochSummary, PeakHolder};
use crate::plain_text::{counted, shown, shown_name};
use crate::units::Bytes;

/// So many sites and scopes are named; JSON has all.
const NAMED_COUNT: usize = 5;

impl EpochSummary {
    pub(super) fn write_nested(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for phase in self.phases.iter().filter(|phase| phase.has_inner()) {
            writeln!(
                f,
                "  nested    {}: {} in {} by itself, {} in {} with the phases inside it",
                shown_name(phase.name),
                signed(phase.net_bytes),
                counted(phase.allocation_count, "allocation"),
                signed(phase.inclusive_net_bytes),
                counted(phase.inclusive_allocation_count, "allocation"),
            )?;
        }
        Ok(())
    }

    pub(super) fn write_peak(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  peak      {} in {}", Bytes(self.peak_bytes), shown_name(self.peak_phase))?;
        if let Some(step) = self.peak_step {
            write!(f, ", step {step}")?;
        }
        self.write_peak_time(f)?;
        writeln!(f, ", of {} allowed", Bytes::unsigned(self.limit_bytes))?;
        let phases = self.peak_by_phase();
        if !phases.is_empty() {
            let parts =
                phases.iter().map(|(name, held)| format!("{} {}", shown_name(name), Bytes::unsigned(held.bytes)));
            writeln!(f, "  held by   {}", parts.collect::<Vec<_>>().join(", "))?;
        }
        // Phases are scopes too: they are named already.
        let says_more = |holder: &PeakHolder| holder.scope.is_some_and(|scope| scope != holder.phase);
        if self.peak_holders.iter().any(says_more) {
            let named = self.peak_holders.iter().take(NAMED_COUNT).map(|holder| {
                let PeakHolder { phase, scope, held } = holder;
                let held = format!("{} in {}", Bytes::unsigned(held.bytes), counted(held.block_count, "block"));
                match scope {
                    Some(scope) if scope != phase => format!("{} ({}) {held}", shown_name(scope), shown_name(phase)),
                    Some(scope) => format!("{} {held}", shown_name(scope)),
                    None => format!("outside scopes {held}"),
                }
            });
            writeln!(f, "  of scopes {}", with_rest(named.collect(), self.peak_holders.len()))?;
        }
        Ok(())
    }

    /// When; nothing where all that is known is that it was in the epoch.
    fn write_peak_time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (earliest, latest) = (self.peak_earliest, self.peak_latest);
        if latest.is_zero() {
            return f.write_str(", at the beginning");
        }
        if earliest.is_zero() && latest >= self.lasted {
            return Ok(());
        }
        match (seconds_text(earliest), seconds_text(latest)) {
            (first, last) if first == last => write!(f, ", {first} s into the epoch"),
            (first, last) => write!(f, ", between {first} and {last} s into the epoch"),
        }
    }

    pub(super) fn write_growth(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(growth) = self.growth else { return Ok(()) };
        let mut grown: Vec<&EpochSite> = self.live.iter().filter(|site| site.grown_bytes > 0).collect();
        // Stable, and in the order of lines before: equals have one order.
        grown.sort_by_key(|site| (std::cmp::Reverse(site.grown_bytes), site.location));
        if growth.bytes == 0 && grown.is_empty() {
            return Ok(());
        }
        write!(f, "  growth    {}", signed(growth.bytes))?;
        if growth.change_count > 1 {
            write!(f, ", {} an epoch over the last {}", signed(growth.bytes_per_epoch), growth.change_count + 1)?;
        }
        let named: Vec<String> = grown
            .iter()
            .take(NAMED_COUNT)
            .map(|site| {
                let blocks = match site.grown_blocks {
                    1 => "+1 block".to_owned(),
                    blocks => format!("{blocks:+} blocks"),
                };
                format!("{} {}, {blocks}", place(site), signed(site.grown_bytes))
            })
            .collect();
        match named.is_empty() {
            true => writeln!(f)?,
            false => writeln!(f, ": {}", with_rest(named, grown.len()))?,
        }
        for site in self.live.iter().filter(|site| site.is_suspected()).take(NAMED_COUNT) {
            writeln!(
                f,
                "  leak?     {} grew at the last {} ends of epochs: {} in {}, the oldest {} and {} old",
                place(site),
                site.grown_epoch_count,
                Bytes::unsigned(site.size_bytes),
                counted(site.block_count, "block"),
                counted(site.oldest_age_epochs(), "epoch"),
                counted(site.oldest_age_steps, "step"),
            )?;
        }
        Ok(())
    }

    pub(super) fn write_interference(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for phase in self.phases.iter().filter(|phase| phase.foreign_bytes != 0) {
            let moved = Bytes(phase.foreign_bytes);
            let name = shown_name(phase.name);
            match phase.other_thread_count {
                // As where a task is moved out of its scope and in again.
                0 => writeln!(f, "  others    {moved} were moved outside {name} by its own threads meanwhile")?,
                threads => {
                    let threads = counted(u64::from(threads), "other thread");
                    writeln!(f, "  others    {threads} moved {moved} during {name}")?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn write_slow_path(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: Duration = self.phases.iter().map(|phase| phase.slow_path).sum();
        if total.is_zero() {
            return Ok(());
        }
        let phases = self.phases.iter().filter(|phase| !phase.slow_path.is_zero());
        let parts: Vec<_> =
            phases.map(|phase| format!("{} {}", shown_name(phase.name), milliseconds(phase.slow_path))).collect();
        writeln!(
            f,
            "  slow path {} in allocations that found no cached block: {}",
            milliseconds(total),
            parts.join(", ")
        )
    }

    pub(super) fn write_reserved(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  reserved  {}, of it {} cached (largest free block {}",
            Bytes(self.reserved_bytes),
            Bytes(self.cached_bytes()),
            Bytes::unsigned(self.largest_free_block_bytes)
        )?;
        if let Some(fragmentation) = self.fragmentation() {
            write!(f, ", fragmentation {} %", percent(fragmentation))?;
        }
        let (reserved, cached) = (Bytes(self.peak_reserved_bytes), Bytes(self.peak_cached_bytes()));
        write!(f, "); at the peak {reserved}, of it {cached} cached")?;
        match self.peak_cached_share() {
            Some(share) => writeln!(f, " ({} %)", percent(share)),
            None => writeln!(f),
        }
    }

    pub(super) fn write_sampled(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failure = self.sampling_failure.as_ref();
        let Some(sampled) = &self.sampled else {
            let Some(failure) = failure else { return Ok(()) };
            let samples = counted(failure.count, "sample");
            return writeln!(f, "  sampled   nothing: {samples} failed, the latest with: {}", shown(&failure.error));
        };
        let (lowest, phase) = (Bytes::unsigned(sampled.lowest_free_bytes), shown_name(sampled.lowest_phase));
        write!(f, "  sampled   lowest free {lowest} in {phase} (")?;
        write!(f, "{} at phase boundaries", counted(sampled.boundary_count, "sample"))?;
        if sampled.background_count > 0 {
            write!(f, ", {} in the background", sampled.background_count)?;
        }
        if let Some(failure) = failure {
            write!(f, ", {} failed, the latest with: {}", failure.count, shown(&failure.error))?;
        }
        writeln!(f, ")")
    }
}

/// As `src/train.rs:31:20 in step (forward)`.
fn place(site: &EpochSite) -> String {
    let EpochSite { phase, scope, location, .. } = site;
    let (location, phase_name) = (shown(&location.to_string()), shown_name(phase));
    match scope {
        Some(scope) if scope == phase => format!("{location} in {phase_name}"),
        Some(scope) => format!("{location} in {} ({phase_name})", shown_name(scope)),
        None => format!("{location} ({phase_name})"),
    }
}

fn with_rest(mut named: Vec<String>, count: usize) -> String {
    if count > named.len() {
        named.push(format!("{} more", count - named.len()));
    }
    named.join("; ")
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

fn seconds_text(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}
