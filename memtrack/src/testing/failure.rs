//! What a failed check says: the limit, what was measured, and the lines that allocated.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::thread::panicking;

use crate::observer::{Site, SiteCount};
use crate::units::{Bytes, KIB};

/// So many lines of the program are listed.
const ROW_LIMIT: usize = 10;
/// So many sizes of the blocks of one line.
const SIZE_LIMIT: usize = 3;

/// What a figure may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    AtMost(u64),
    Under(u64),
}

impl Limit {
    pub(super) fn allows(self, figure: u64) -> bool {
        match self {
            Self::None => figure == 0,
            Self::AtMost(limit) => figure <= limit,
            Self::Under(limit) => figure < limit,
        }
    }
}

/// Requested bytes of all sites together.
pub(super) fn sum(counts: &[SiteCount]) -> u64 {
    counts
        .iter()
        .fold(0, |sum, SiteCount { site, count }| sum.saturating_add(site.requested_bytes.saturating_mul(*count)))
}

/// A check that does not hold.
#[derive(Debug)]
pub(super) struct Failure {
    /// What was measured, and what was allowed.
    verdict: String,
    /// What the rows are.
    heading: &'static str,
    rows: Vec<Row>,
}

impl Failure {
    pub(super) fn kept(device: &str, bytes: u64, limit: Limit, kept: Vec<SiteCount>) -> Self {
        let allowed = match limit {
            Limit::None => "may keep nothing".to_owned(),
            Limit::AtMost(limit) => format!("may keep at most {}", Amount(limit)),
            Limit::Under(limit) => format!("must keep less than {}", Amount(limit)),
        };
        let verdict = format!("the work kept {} of {device} memory and {allowed}", Amount(bytes));
        Self { verdict, heading: "still live, by where it was allocated", rows: rows(kept) }
    }

    pub(super) fn peak(device: &str, bytes: u64, limit: Limit, live: Vec<SiteCount>) -> Self {
        let allowed = match limit {
            Limit::None => "may use none".to_owned(),
            Limit::AtMost(limit) => format!("may use at most {}", Amount(limit)),
            Limit::Under(limit) => format!("must stay under {}", Amount(limit)),
        };
        let verdict = format!("the work used {} of {device} memory at its peak and {allowed}", Amount(bytes));
        Self { verdict, heading: "live at the peak, by where it was allocated", rows: rows(live) }
    }

    pub(super) fn allocations(device: &str, count: u64, limit: Limit, made: Vec<SiteCount>) -> Self {
        let allowed = match limit {
            Limit::None => "may make none".to_owned(),
            Limit::AtMost(limit) => format!("may make at most {limit}"),
            Limit::Under(limit) => format!("must make fewer than {limit}"),
        };
        let plural = if count == 1 { "" } else { "s" };
        let verdict = format!("the work made {count} allocation{plural} of {device} memory and {allowed}");
        Self { verdict, heading: "allocated, freed or not, by where", rows: rows(made) }
    }

    /// Panics; where a panic is under way already, which another would make an abort, only logs.
    #[track_caller]
    pub(super) fn raise(self) {
        if panicking() {
            tracing::error!(target: "memtrack::testing", "{self}");
        } else {
            panic!("{self}");
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, heading, rows } = self;
        write!(f, "memtrack: {verdict}\n  {heading}:")?;
        let (shown, others) = rows.split_at(rows.len().min(ROW_LIMIT));
        let texts: Vec<[String; 2]> = shown.iter().map(|row| [Amount(row.bytes).to_string(), row.counts()]).collect();
        let width = |column: usize| texts.iter().map(|text| text[column].chars().count()).max().unwrap_or(0);
        let widths = [width(0), width(1)];
        for (row, [amount, counts]) in shown.iter().zip(&texts) {
            write!(f, "\n    {amount:>0$}  {counts:<1$}  {2}", widths[0], widths[1], row.location)?;
            if let Some(scope) = row.scope {
                write!(f, " in {scope}")?;
            }
        }
        if !others.is_empty() {
            let bytes = others.iter().fold(0_u64, |sum, row| sum.saturating_add(row.bytes));
            let plural = if others.len() == 1 { "" } else { "s" };
            write!(f, "\n    and {} more place{plural} with {}", others.len(), Amount(bytes))?;
        }
        Ok(())
    }
}

/// Bytes in a unit for people and exactly.
struct Amount(u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => write!(f, "1 byte"),
            bytes if bytes < KIB => write!(f, "{bytes} bytes"),
            bytes => write!(f, "{} ({bytes} bytes)", Bytes::unsigned(bytes)),
        }
    }
}

/// The blocks of one line in one scope.
#[derive(Debug)]
struct Row {
    location: &'static Location<'static>,
    scope: Option<&'static str>,
    bytes: u64,
    /// (requested bytes of each, how many), the most bytes together first.
    sizes: Vec<(u64, u64)>,
}

impl Row {
    /// As `2 × 4096 + 1 × 512 B`.
    fn counts(&self) -> String {
        let shown: Vec<String> =
            self.sizes.iter().take(SIZE_LIMIT).map(|(size, count)| format!("{count} × {size}")).collect();
        let others: u64 = self.sizes.iter().skip(SIZE_LIMIT).map(|(_, count)| count).sum();
        let rest = if others > 0 { format!(" and {others} of other sizes") } else { String::new() };
        format!("{} B{rest}", shown.join(" + "))
    }
}

/// Rows by line and scope, the most bytes first.
fn rows(counts: Vec<SiteCount>) -> Vec<Row> {
    let mut rows: BTreeMap<(&Location<'static>, Option<&str>), Row> = BTreeMap::new();
    for SiteCount { site: Site { location, scope, requested_bytes }, count } in counts {
        let row = rows.entry((location, scope)).or_insert_with(|| Row { location, scope, bytes: 0, sizes: Vec::new() });
        row.bytes = row.bytes.saturating_add(requested_bytes.saturating_mul(count));
        row.sizes.push((requested_bytes, count));
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    for row in &mut rows {
        row.sizes.sort_by_key(|(size, count)| (Reverse(size.saturating_mul(*count)), Reverse(*size)));
    }
    // Stable: rows of equal bytes stay in the order of the program's text.
    rows.sort_by_key(|row| Reverse(row.bytes));
    rows
}
