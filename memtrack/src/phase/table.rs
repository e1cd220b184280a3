//! The summary as a table for people. Widths follow the content; the order of rows is the summary's.

use std::fmt;

use super::{EpochSummary, PhaseSummary};
use crate::units::Bytes;

const HEADINGS: [&str; 12] =
    ["phase", "entered", "net", "peak", "headroom", "rise p50", "rise max", "allocs", "hit %", "retries", "ooms", ""];

impl fmt::Display for EpochSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        let seconds = self.lasted.as_secs_f64();
        let steps = if self.step_count == 1 { "step" } else { "steps" };
        writeln!(f, "epoch {}  {device} ({})  {} {steps}  {seconds:.2} s", self.number, self.model, self.step_count)?;
        let mut rows = vec![HEADINGS.map(str::to_owned)];
        rows.extend(self.phases.iter().map(|phase| self.row(phase)));
        rows.push(self.total_row());
        write_aligned(f, &rows)?;
        self.write_peak(f)?;
        writeln!(
            f,
            "  reserved  {}, of it {} cached (largest free block {})",
            Bytes(self.reserved_bytes),
            Bytes(self.cached_bytes()),
            Bytes::unsigned(self.largest_free_block_bytes)
        )?;
        write!(f, "  {}", self.driver)
    }
}

impl EpochSummary {
    fn row(&self, phase: &PhaseSummary) -> [String; 12] {
        let is_other = phase.name == "other";
        let unless_other = |text: String| if is_other { "-".to_owned() } else { text };
        [
            phase.name.to_owned(),
            unless_other(phase.entered_count.to_string()),
            signed(phase.net_bytes),
            Bytes(phase.peak_bytes).to_string(),
            Bytes(self.headroom_bytes(phase.peak_bytes)).to_string(),
            unless_other(Bytes(phase.rise_median_bytes).to_string()),
            unless_other(Bytes(phase.rise_max_bytes).to_string()),
            phase.allocation_count.to_string(),
            phase.hit_rate().map_or_else(|| "-".to_owned(), percent),
            phase.retry_count.to_string(),
            phase.oom_count.to_string(),
            String::new(),
        ]
    }

    fn total_row(&self) -> [String; 12] {
        let mut cells = [const { String::new() }; 12];
        cells[0] = "total".to_owned();
        cells[2] = signed(self.net_bytes());
        let sum = if self.adds_up() { "adds up" } else { "does not add up with the rows: please report this" };
        cells[11] = match self.previous {
            None => sum.to_owned(),
            Some((number, bytes)) => {
                let change = self.after_bytes - bytes;
                let amount = Bytes(change.saturating_abs());
                match change {
                    0 => format!("{sum}; epoch {number} ended equal"),
                    1.. => format!("{sum}; epoch {number} ended {amount} lower"),
                    _ => format!("{sum}; epoch {number} ended {amount} higher"),
                }
            }
        };
        cells
    }

    fn write_peak(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  peak      {} in {}", Bytes(self.peak_bytes), self.peak_phase)?;
        if let Some(step) = self.peak_step {
            write!(f, ", step {step}")?;
        }
        writeln!(f, ", of {} allowed", Bytes::unsigned(self.limit_bytes))
    }
}

fn signed(bytes: i64) -> String {
    format!("{:+}", Bytes(bytes))
}

/// A share as a percentage that says 100 and 0 only when it is.
fn percent(share: f64) -> String {
    let tenths = (share * 1000.0).round();
    if share >= 1.0 {
        "100".to_owned()
    } else {
        format!("{:.1}", tenths.clamp(if share > 0.0 { 1.0 } else { 0.0 }, 999.0) / 10.0)
    }
}

/// Columns as wide as their widest cell: the first to the left, the last unpadded, the rest to the right.
fn write_aligned(f: &mut fmt::Formatter<'_>, rows: &[[String; 12]]) -> fmt::Result {
    // The total's remark stands in the empty columns to the right of its net, so only short columns count there.
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for row in rows {
        write!(f, "    {:<1$}", row[0], width(0))?;
        let remark = &row[11];
        let last = if remark.is_empty() { 10 } else { 2 };
        for (column, cell) in row.iter().enumerate().take(last + 1).skip(1) {
            write!(f, "  {cell:>0$}", width(column))?;
        }
        if !remark.is_empty() {
            write!(f, "  {remark}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}
