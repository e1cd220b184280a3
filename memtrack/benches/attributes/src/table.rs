//! Tables in Markdown, and the numbers in them.

/// A table whose first `words` columns are text, and the others numbers.
pub fn markdown(header: &[&str], rows: &[Vec<String>], words: usize) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
        cells.chain(header.get(column).copied()).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).zip(0..).map(|((cell, width), column)| {
            if column < words { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") }
        });
        format!("|{}\n", cells.collect::<String>())
    };
    let mut table = line(&mut header.iter().copied());
    let rule = widths.iter().zip(0..).map(|(width, column)| {
        let dashes = "-".repeat(width + 1);
        if column < words { format!("{dashes}-|") } else { format!("{dashes}:|") }
    });
    table.push_str(&format!("|{}\n", rule.collect::<String>()));
    for row in rows {
        table.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    table
}

/// A number with the three digits that count.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
