//! The totals of call sites as a table for people. Widths follow the content; the order of rows is as given.

use std::fmt;

use super::CallSiteTotals;
use crate::units::Bytes;

const HEADINGS: [&str; 12] = [
    "function",
    "calls",
    "unmeasured",
    "inclusive",
    "exclusive",
    "net",
    "own peak",
    "rise max",
    "allocs",
    "retries",
    "ooms",
    "",
];

/// Totals of call sites whose `Display` is a table: a row for each, and the sum of what adds up.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host};
/// use memtrack::scope::{CallSite, CallSiteTable, Scope};
///
/// static LOAD: CallSite = CallSite::new("load", module_path!(), file!(), line!());
/// let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// let scope = Scope::open_site(&allocator, &LOAD, None);
/// drop(Buffer::<u8>::zeros(&allocator, 2048)?);
/// drop(scope);
/// let totals = allocator.call_sites();
/// assert_eq!(totals[0].inclusive_allocated_bytes, 2048);
/// println!("{}", CallSiteTable(&totals));
/// # Ok::<(), memtrack::AllocationError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct CallSiteTable<'a>(
    /// As [`CachingAllocator::call_sites`](crate::CachingAllocator::call_sites) gives them, or some of them.
    pub &'a [CallSiteTotals],
);

impl fmt::Display for CallSiteTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call sites")?;
        let mut devices: Vec<&str> = self.0.iter().map(|totals| totals.device.as_str()).collect();
        devices.dedup();
        if !devices.is_empty() {
            write!(f, "  {}", devices.join(", "))?;
        }
        writeln!(f)?;
        let mut rows = vec![HEADINGS.map(str::to_owned)];
        rows.extend(self.0.iter().map(row));
        rows.push(self.total_row());
        write_aligned(f, &rows)
    }
}

impl CallSiteTable<'_> {
    /// The sum of the columns in which nothing is counted twice.
    fn total_row(&self) -> [String; 12] {
        let sum = |of: fn(&CallSiteTotals) -> u64| self.0.iter().map(of).fold(0, u64::wrapping_add).to_string();
        let exclusive = self.0.iter().map(|totals| totals.exclusive_allocated_bytes).fold(0, i64::wrapping_add);
        let mut cells = [const { String::new() }; 12];
        cells[0] = "total".to_owned();
        cells[1] = sum(|totals| totals.call_count);
        cells[2] = sum(|totals| totals.unmeasured_call_count);
        cells[4] = Bytes(exclusive).to_string();
        cells
    }
}

fn row(totals: &CallSiteTotals) -> [String; 12] {
    let of_calls = |text: String| if totals.site.is_some() { text } else { "-".to_owned() };
    [
        totals.name().to_owned(),
        of_calls(totals.call_count.to_string()),
        of_calls(totals.unmeasured_call_count.to_string()),
        Bytes(totals.inclusive_allocated_bytes).to_string(),
        Bytes(totals.exclusive_allocated_bytes).to_string(),
        of_calls(format!("{:+}", Bytes(totals.net_bytes))),
        of_calls(Bytes(totals.own_peak_bytes).to_string()),
        of_calls(Bytes(totals.peak_delta_bytes).to_string()),
        totals.allocation_count.to_string(),
        totals.retry_count.to_string(),
        totals.oom_count.to_string(),
        remark(totals),
    ]
}

/// Where it is, and how many calls did not simply end.
fn remark(totals: &CallSiteTotals) -> String {
    let Some(site) = totals.site else { return String::new() };
    let mut text = format!("{}:{}", site.file(), site.line());
    let counts = [
        (totals.err_count, "err"),
        (totals.panic_count, "panic"),
        (totals.cancelled_count, "cancelled"),
        (totals.open_call_count, "open"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {count} {what}");
    }
    text
}

/// Columns as wide as their widest cell: the first to the left, the last unpadded, the rest to the right.
fn write_aligned(f: &mut fmt::Formatter<'_>, rows: &[[String; 12]]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 12] = std::array::from_fn(width);
    for (number, row) in rows.iter().enumerate() {
        let mut line = format!("    {:<1$}", row[0], widths[0]);
        for column in 1..11 {
            line += &format!("  {:>1$}", row[column], widths[column]);
        }
        line += &format!("  {}", row[11]);
        f.write_str(line.trim_end())?;
        if number + 1 < rows.len() {
            writeln!(f)?;
        }
    }
    Ok(())
}
