//! A difference for people.

use std::fmt;

use memtrack::plain_text::{columns, counted, padded, shown, shown_name};
use memtrack::units::Bytes;

use super::compare::{Change, Difference, PhaseChange, SiteChange};
use super::sources::SourceChange;

/// So many call sites are named; `--json` has all.
const NAMED_COUNT: usize = 20;

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |epoch: u64, file: &str| format!("epoch {epoch} of {}", shown(file));
        let (earlier, later) = (side(self.earlier_epoch, &self.earlier_file), side(self.later_epoch, &self.later_file));
        let (before, after) = (shown(&self.labels.0), shown(&self.labels.1));
        match before == after {
            true => writeln!(f, "{after}: {earlier} -> {later}")?,
            false => {
                writeln!(f, "{before}, {earlier} -> {after}, {later}")?;
            }
        }
        // Without an allocator these would be the first source's once more, and nothing is known of blocks and lines.
        if self.has_allocator {
            for (name, change) in
                [("live", &self.live_bytes), ("peak", &self.peak_bytes), ("reserved", &self.reserved_bytes)]
            {
                write_change(f, "  ", name, change)?;
            }
            write_phases(f, &self.phases)?;
            write_sites(f, &self.sites)?;
        }
        if !self.has_allocator && self.sources.is_empty() {
            writeln!(f, "  no memory source is in both epochs")?;
        }
        self.sources.iter().try_for_each(|source| write_source(f, source))
    }
}

fn write_change(f: &mut fmt::Formatter<'_>, indent: &str, name: &str, change: &Change) -> fmt::Result {
    let Change { before, after, change, .. } = *change;
    writeln!(f, "{indent}{name:<8}  {} -> {}  {:+}", Bytes(before), Bytes(after), Bytes(change))
}

fn write_source(f: &mut fmt::Formatter<'_>, source: &SourceChange) -> fmt::Result {
    writeln!(f, "  source    {}", shown(&source.source))?;
    for (name, change) in
        [("in use", &source.live_bytes), ("peak", &source.peak_bytes), ("reserved", &source.reserved_bytes)]
    {
        match change {
            Some(change) => write_change(f, "    ", name, change)?,
            None => writeln!(f, "    {name:<8}  one side does not say")?,
        }
    }
    if source.phases.is_empty() {
        return writeln!(f, "    by phase  no change");
    }
    writeln!(f, "    by phase")?;
    let mut rows = vec![["phase", "net", "peak", "rise max"].map(str::to_owned).to_vec()];
    rows.extend(source.phases.iter().map(|phase| {
        let mut cells = vec![shown_name(&phase.phase)];
        cells.extend([phase.net_bytes, phase.peak_bytes, phase.rise_max_bytes].map(|figure| match figure {
            Some(figure) => format!("{:+}", Bytes(figure.change)),
            None => "-".to_owned(),
        }));
        cells
    }));
    write_rows(f, "      ", &rows)
}

fn write_phases(f: &mut fmt::Formatter<'_>, phases: &[PhaseChange]) -> fmt::Result {
    if phases.is_empty() {
        return writeln!(f, "  by phase  no change");
    }
    writeln!(f, "  by phase")?;
    let mut rows = vec![["phase", "live", "blocks", "peak", "allocated", "allocs"].map(str::to_owned).to_vec()];
    rows.extend(phases.iter().map(|phase| {
        let bytes = |change: &Change| format!("{:+}", Bytes(change.change));
        [
            shown_name(&phase.phase),
            bytes(&phase.live_bytes),
            format!("{:+}", phase.live_blocks.change),
            bytes(&phase.peak_bytes),
            bytes(&phase.allocated_bytes),
            format!("{:+}", phase.allocations.change),
        ]
        .to_vec()
    }));
    write_rows(f, "    ", &rows)
}

/// The first column to the left, all others to the right.
fn write_rows(f: &mut fmt::Formatter<'_>, indent: &str, rows: &[Vec<String>]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| columns(&row[column])).max().unwrap_or(0);
    for row in rows {
        write!(f, "{indent}{}", padded(&row[0], width(0)))?;
        for (column, cell) in row.iter().enumerate().skip(1) {
            write!(f, "  {cell:>0$}", width(column))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn write_sites(f: &mut fmt::Formatter<'_>, sites: &[SiteChange]) -> fmt::Result {
    let grown: Vec<&SiteChange> = sites.iter().filter(|site| site.bytes.change > 0).collect();
    let shrunk = || sites.iter().filter(|site| site.bytes.change < 0);
    match (grown.is_empty(), shrunk().next().is_none()) {
        (true, true) => return writeln!(f, "  by line   no change"),
        (true, false) => writeln!(f, "  by line   nothing grew")?,
        (false, _) => writeln!(f, "  by line   what grew")?,
    }
    for site in grown.iter().take(NAMED_COUNT) {
        let SiteChange { phase, scope, file, line, column, bytes, blocks } = site;
        let place = match scope {
            Some(scope) if scope == phase => format!(" in {}", shown_name(scope)),
            Some(scope) => format!(" in {} ({})", shown_name(scope), shown_name(phase)),
            None => format!(" ({})", shown_name(phase)),
        };
        let held = counted(blocks.after.unsigned_abs(), "block");
        writeln!(
            f,
            "    {:+}  {}:{line}:{column}{place}: {} in {held} ({:+})",
            Bytes(bytes.change),
            shown(file),
            Bytes(bytes.after),
            blocks.change,
        )?;
    }
    if grown.len() > NAMED_COUNT {
        writeln!(f, "    and {} more", grown.len() - NAMED_COUNT)?;
    }
    let shrunk_count = shrunk().count();
    if shrunk_count > 0 {
        let sum = shrunk().fold(0_i64, |sum, site| sum.saturating_add(site.bytes.change));
        writeln!(f, "    {:+}  {} that shrank", Bytes(sum), counted(shrunk_count as u64, "line"))?;
    }
    Ok(())
}
