//! The summary as a table for people. Widths follow the content; the order of rows is the summary's.

use std::fmt;

use super::origins::{BlockTotal, OriginSummary};
use super::{EpochSummary, OUTSIDE, PhaseSummary};
use crate::plain_text::{columns as columns_of, counted, padded, shown, shown_name};
use crate::units::Bytes;

const COLUMN_COUNT: usize = 14;

const HEADINGS: [&str; COLUMN_COUNT] = [
    "phase",
    "entered",
    "net",
    "peak",
    "headroom",
    "rise p50",
    "rise p95",
    "rise max",
    "allocs",
    "allocated",
    "hit %",
    "retries",
    "ooms",
    "",
];

impl fmt::Display for EpochSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        let seconds = self.lasted.as_secs_f64();
        let (device, model) = (shown(device.as_str()), shown(&self.model));
        let steps = counted(self.step_count, "step");
        if !self.has_allocator {
            write!(f, "epoch {}  {device}  {steps}  {seconds:.2} s", self.number)?;
            return self.write_sources(f);
        }
        writeln!(f, "epoch {}  {device} ({model})  {steps}  {seconds:.2} s", self.number)?;
        let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
        rows.extend(self.phases.iter().map(|phase| self.row(phase).to_vec()));
        rows.push(self.total_row().to_vec());
        write_aligned(f, &rows)?;
        self.write_nested(f)?;
        self.write_peak(f)?;
        self.write_matrix(f)?;
        self.write_growth(f)?;
        self.write_interference(f)?;
        self.write_slow_path(f)?;
        self.write_reserved(f)?;
        self.write_sampled(f)?;
        write!(f, "  {}", self.driver)?;
        self.findings.iter().try_for_each(|finding| write!(f, "\n  finding   {}", shown(&finding.to_string())))?;
        self.write_sources(f)
    }
}

impl EpochSummary {
    fn row(&self, phase: &PhaseSummary) -> [String; COLUMN_COUNT] {
        // Where the attribute names a phase so, it is booked under the same row, which then is of activations too.
        let is_other = phase.name == OUTSIDE && phase.entered_count == 0;
        let unless_other = |text: String| if is_other { "-".to_owned() } else { text };
        [
            shown_name(phase.name),
            unless_other(phase.entered_count.to_string()),
            signed(phase.net_bytes),
            Bytes(phase.peak_bytes).to_string(),
            Bytes(self.headroom_bytes(phase.peak_bytes)).to_string(),
            unless_other(Bytes(phase.rise_median_bytes).to_string()),
            unless_other(Bytes(phase.rise_p95_bytes).to_string()),
            unless_other(Bytes(phase.rise_max_bytes).to_string()),
            phase.allocation_count.to_string(),
            Bytes::unsigned(phase.allocated_bytes).to_string(),
            phase.hit_rate().map_or_else(|| "-".to_owned(), percent),
            phase.retry_count.to_string(),
            phase.oom_count.to_string(),
            String::new(),
        ]
    }

    fn total_row(&self) -> [String; COLUMN_COUNT] {
        let mut cells = [const { String::new() }; COLUMN_COUNT];
        cells[0] = "total".to_owned();
        cells[2] = signed(self.net_bytes());
        let sum = if self.adds_up() { "adds up" } else { "does not add up with the rows: please report this" };
        cells[COLUMN_COUNT - 1] = match self.previous {
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

    /// Rows are phases that allocated, columns phases that freed. Phases that freed nothing have no column.
    fn write_matrix(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // "other" alone tells nothing that the rows above do not.
        if self.origins.iter().all(|origin| origin.phase == OUTSIDE) {
            return Ok(());
        }
        writeln!(f, "  origins   by phase of the allocation (rows) and of the free (columns)")?;
        let freed = |name: &str| self.origins.iter().any(|origin| origin.freed_in(name) != BlockTotal::default());
        let beyond = self.origins.iter().flat_map(|origin| origin.freed.iter().map(|(name, _)| *name));
        let mut columns: Vec<&str> = self.phases.iter().map(|phase| phase.name).filter(|name| freed(name)).collect();
        for name in beyond {
            if !columns.contains(&name) {
                columns.push(name);
            }
        }
        let mut headings: Vec<String> = ["phase", "before", "allocated"].map(str::to_owned).to_vec();
        headings.extend(columns.iter().map(|name| format!("in {}", shown_name(name))));
        headings.extend(["still live".to_owned(), String::new()]);
        let mut rows = vec![headings];
        rows.extend(self.origins.iter().map(|origin| matrix_row(origin, &columns)));
        write_aligned(f, &rows)
    }
}

fn matrix_row(origin: &OriginSummary, columns: &[&str]) -> Vec<String> {
    let amount = |total: BlockTotal| match total.bytes {
        0 => "-".to_owned(),
        bytes => Bytes::unsigned(bytes).to_string(),
    };
    let mut cells = vec![shown_name(origin.phase), amount(origin.before), amount(origin.allocated)];
    cells.extend(columns.iter().map(|name| amount(origin.freed_in(name))));
    cells.extend([amount(origin.live), String::new()]);
    cells
}

pub(super) fn signed(bytes: i64) -> String {
    format!("{:+}", Bytes(bytes))
}

/// A share as a percentage that says 100 and 0 only when it is.
pub(super) fn percent(share: f64) -> String {
    let tenths = (share * 1000.0).round();
    if share >= 1.0 {
        "100".to_owned()
    } else {
        format!("{:.1}", tenths.clamp(if share > 0.0 { 1.0 } else { 0.0 }, 999.0) / 10.0)
    }
}

/// Columns as wide as their widest cell: the first to the left, the last unpadded, the rest to the right.
pub(super) fn write_aligned(f: &mut impl fmt::Write, rows: &[Vec<String>]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| columns_of(&row[column])).max().unwrap_or(0);
    for row in rows {
        write!(f, "    {}", padded(&row[0], width(0)))?;
        let Some((remark, cells)) = row.split_last() else { continue };
        // A total's remark stands in the empty columns to the right of its net.
        let is_total = !remark.is_empty() && cells.iter().skip(3).all(String::is_empty);
        let shown = if is_total { &cells[..3] } else { cells };
        for (column, cell) in shown.iter().enumerate().skip(1) {
            write!(f, "  {:blanks$}{cell}", "", blanks = width(column).saturating_sub(columns_of(cell)))?;
        }
        if !remark.is_empty() {
            write!(f, "  {remark}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}
