//! The statistics as a table for people, laid out as PyTorch's `memory_summary` lays them out.

use std::fmt::Write as _;

use super::{MemoryStats, PoolStatistic, Statistic};

/// Characters between the table's borders.
const WIDTH: usize = 75;

/// How a value is shown: divided until the column's reference is below a bound, with the unit that stands for it.
struct Format {
    units: &'static [&'static str],
    divisor: i64,
    bound: f64,
    number_width: usize,
}

const SIZES: Format = Format {
    units: &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"],
    divisor: 1024,
    bound: 768.0 * 1024.0,
    number_width: 6,
};
const COUNTS: Format = Format { units: &["  ", "K ", "M "], divisor: 1000, bound: 750_000.0, number_width: 7 };

impl Format {
    /// Ten characters, more when the number needs them. Rounded down, in the unit that fits `reference`.
    fn cell(&self, mut value: i64, reference: i64) -> String {
        let mut reference = reference as f64;
        let mut unit = 0;
        while unit + 1 < self.units.len() && reference >= self.bound {
            value = value.div_euclid(self.divisor);
            reference /= self.divisor as f64;
            unit += 1;
        }
        format!("{value:width$} {unit}", width = self.number_width, unit = self.units[unit])
    }

    /// A row; each column takes its unit from `reference`, so that a pool's figures compare with those of both.
    fn row(&self, name: &str, statistic: &Statistic, reference: &Statistic) -> String {
        let Statistic { current, peak, allocated, freed } = *statistic;
        let cells = [
            self.cell(current, reference.current),
            self.cell(peak, reference.peak),
            self.cell(allocated, reference.allocated),
            self.cell(freed, reference.freed),
        ];
        format!(" {name:<21} | {} ", cells.join(" | "))
    }
}

impl MemoryStats {
    /// The statistics as a table of 77 characters a line, with a line break after the last: the layout, the rows and the figures
    /// of PyTorch's `memory_summary`, under a title that names memtrack and the device.
    ///
    /// Sizes are rounded down, in the unit that fits the row of both pools. `abbreviated` leaves out the rows of each pool.
    pub fn memory_summary(&self, device: &str, abbreviated: bool) -> String {
        let title: String = format!("memtrack memory summary, device {device}").chars().take(WIDTH).collect();
        self.table(&format!("{title:^WIDTH$}"), abbreviated)
    }

    /// As [`memory_summary`](Self::memory_summary), with the title of PyTorch's table: character for character what
    /// `torch.cuda.memory_summary(ordinal, abbreviated)` of PyTorch 2.11 makes of these statistics.
    pub fn torch_memory_summary(&self, ordinal: usize, abbreviated: bool) -> String {
        let title = format!(" {:16} PyTorch CUDA memory summary, device ID {ordinal:<17} ", "");
        self.table(&title, abbreviated)
    }

    fn table(&self, title: &str, abbreviated: bool) -> String {
        let thin = "-".repeat(WIDTH);
        let thick = "=".repeat(WIDTH);
        let mut lines = vec![thick.clone(), title.to_owned(), thin.clone()];
        let (ooms, retries) = (self.num_ooms, self.num_alloc_retries);
        lines.push(format!("  {0:9} CUDA OOMs: {ooms:<12} | {0:6} cudaMalloc retries: {retries:<8}  ", ""));
        lines.push(thick.clone());
        lines.push("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ".to_owned());
        let metrics: [(&str, &PoolStatistic, &Format); 9] = [
            ("Allocated memory", &self.allocated_bytes, &SIZES),
            ("Active memory", &self.active_bytes, &SIZES),
            ("Requested memory", &self.requested_bytes, &SIZES),
            ("GPU reserved memory", &self.reserved_bytes, &SIZES),
            ("Non-releasable memory", &self.inactive_split_bytes, &SIZES),
            ("Allocations", &self.allocation, &COUNTS),
            ("Active allocs", &self.active, &COUNTS),
            ("GPU reserved segments", &self.segment, &COUNTS),
            ("Non-releasable allocs", &self.inactive_split, &COUNTS),
        ];
        for (name, PoolStatistic { all, small_pool, large_pool }, format) in metrics {
            lines.push(thin.clone());
            lines.push(format.row(name, all, all));
            if !abbreviated {
                lines.push(format.row("      from large pool", large_pool, all));
                lines.push(format.row("      from small pool", small_pool, all));
            }
        }
        let oversize =
            [("Oversize allocations", &self.oversize_allocations), ("Oversize GPU segments", &self.oversize_segments)];
        for (name, statistic) in oversize {
            lines.push(thin.clone());
            lines.push(COUNTS.row(name, statistic, statistic));
        }
        lines.push(thick);
        let mut table = String::with_capacity(lines.len() * (WIDTH + 3));
        for line in lines {
            // Writing to a text does not fail.
            let _ = writeln!(table, "|{line}|");
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_where_pytorchs_do() {
        assert_eq!(SIZES.cell(0, 0), "     0 B  ");
        assert_eq!(SIZES.cell(786_431, 786_431), "786431 B  ");
        assert_eq!(SIZES.cell(786_432, 786_432), "   768 KiB");
        assert_eq!(SIZES.cell(1_048_575, 1_048_575), "  1023 KiB");
        assert_eq!(SIZES.cell(805_306_368, 805_306_368), "   768 MiB");
        assert_eq!(SIZES.cell(512, 805_306_368), "     0 MiB");
        assert_eq!(SIZES.cell(i64::MAX, i64::MAX), "  8191 PiB");
        assert_eq!(SIZES.cell(-1, 1 << 30), "    -1 MiB", "rounded down below zero too");
        assert_eq!(SIZES.cell(-1 << 40, -1 << 40), "-1099511627776 B  ", "too wide, as PyTorch's");
        assert_eq!(COUNTS.cell(749_999, 749_999), " 749999   ");
        assert_eq!(COUNTS.cell(750_000, 750_000), "    750 K ");
        assert_eq!(COUNTS.cell(749_999_999, 749_999_999), " 749999 K ");
        assert_eq!(COUNTS.cell(750_000_000, 750_000_000), "    750 M ");
        assert_eq!(COUNTS.cell(i64::MAX, i64::MAX), "9223372036854 M ");
    }

    #[test]
    fn a_long_device_name_keeps_the_borders() {
        let summary = MemoryStats::default().memory_summary(&"n".repeat(100), true);
        assert!(summary.lines().all(|line| line.chars().count() == WIDTH + 2));
        let summary = MemoryStats::default().memory_summary("cuda:0", true);
        assert_eq!(summary.lines().nth(1).unwrap().trim_matches('|').trim(), "memtrack memory summary, device cuda:0");
    }
}
