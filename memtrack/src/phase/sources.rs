//! The summary's sections of memory sources.

use std::fmt;

use super::EpochSummary;
use super::table::{signed, write_aligned};
use crate::plain_text::{counted, shown, shown_name};
use crate::scope::DeviceName;
use crate::source::{SourceFigures, SourceSummary};
use crate::units::Bytes;

const HEADINGS: [&str; 9] = ["phase", "entered", "before", "after", "net", "peak", "rise max", "reserved", ""];

impl EpochSummary {
    /// Puts the first source where an allocator would be: nothing was allocated from what is measured.
    pub(super) fn stand_in(&mut self) {
        self.findings.clear();
        self.limit_bytes = 0;
        self.model.clear();
        let Some(SourceSummary { epoch, .. }) = self.sources.first() else {
            self.device = DeviceName::new(&"no source".into());
            return;
        };
        self.device = DeviceName::new(&epoch.name);
        self.before_bytes = epoch.before_bytes.unwrap_or(0);
        self.after_bytes = epoch.after_bytes.unwrap_or(0);
        self.peak_bytes = epoch.peak_bytes.unwrap_or(0);
        self.reserved_bytes = epoch.reserved_after_bytes.unwrap_or(0);
        self.retry_count = epoch.retry_count.unwrap_or(0);
        self.oom_count = epoch.oom_count.unwrap_or(0);
    }

    /// A section for each source, each on new lines.
    pub(super) fn write_sources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sources.iter().try_for_each(|source| write_source(f, source))
    }
}

fn write_source(f: &mut fmt::Formatter<'_>, source: &SourceSummary) -> fmt::Result {
    let SourceSummary { epoch, phases } = source;
    let (name, exactness) = (shown(&epoch.name), epoch.exactness.to_string());
    writeln!(f, "\n  source    {name}: {}; {}", shown(&exactness), source.peak_kind().explanation())?;
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    rows.extend(phases.iter().map(|phase| {
        let figures = [phase.before_bytes, phase.after_bytes];
        let mut cells = vec![shown_name(phase.name), phase.entered_count.to_string()];
        cells.extend(figures.map(amount));
        cells.push(phase.net_bytes.map_or_else(absent, signed));
        cells.extend([phase.peak_bytes, phase.rise_max_bytes, phase.reserved_peak_bytes].map(amount));
        cells.push(match phase.failure_count {
            0 => String::new(),
            count => format!("{} not read", counted(count, "time")),
        });
        cells
    }));
    rows.push(epoch_row(epoch));
    let mut text = String::new();
    write_aligned(&mut text, &rows)?;
    f.write_str(text.trim_end_matches('\n'))?;
    // What a source does not count is no zero.
    if let (Some(retries), Some(ooms)) = (epoch.retry_count, epoch.oom_count)
        && retries + ooms > 0
    {
        let retries = counted(u64::try_from(retries).unwrap_or(0), "retry");
        write!(f, "\n    {retries}, {ooms} out of memory")?;
    }
    match &epoch.failure {
        Some(failure) => write!(f, "\n    not known: {}", shown(&failure.to_string())),
        None => Ok(()),
    }
}

fn epoch_row(epoch: &SourceFigures) -> Vec<String> {
    let mut cells = vec!["epoch".to_owned(), "1".to_owned()];
    cells.extend([epoch.before_bytes, epoch.after_bytes].map(amount));
    cells.push(epoch.delta_bytes().map_or_else(absent, signed));
    cells.extend([epoch.peak_bytes, epoch.peak_delta_bytes(), epoch.reserved_peak_bytes].map(amount));
    cells.push(String::new());
    cells
}

fn amount(bytes: Option<i64>) -> String {
    bytes.map_or_else(absent, |bytes| Bytes(bytes).to_string())
}

fn absent() -> String {
    "-".to_owned()
}
