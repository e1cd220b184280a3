//! Texts of others for terminals and tables: names of phases and scopes, of programs and devices, and what drivers say.
//!
//! A name may hold anything: a line break that looks like a further row, an escape sequence that clears the screen, a mark that turns
//! what follows from right to left. Here it is decided how such a text is *shown*. In JSON texts stand as they are.

/// Longer names are cut in their middle, where they are shown among others.
pub const NAME_COLUMNS: usize = 60;

/// The whole text in one line: characters that steer a terminal are written out, as `\n` and `\u{202e}`, and no text at all is `""`.
///
/// ```
/// use memtrack::plain_text::shown;
///
/// assert_eq!(shown("vorwärts"), "vorwärts");
/// assert_eq!(shown("a\n\u{1b}[2Jb\u{202e}"), r"a\n\u{1b}[2Jb\u{202e}");
/// assert_eq!(shown(""), r#""""#);
/// ```
pub fn shown(text: &str) -> String {
    if text.is_empty() {
        return "\"\"".to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match steers(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// The same of a name, of at most [`NAME_COLUMNS`] columns: what is longer keeps its beginning and its end.
pub fn shown_name(name: &str) -> String {
    let whole = shown(name);
    if columns(&whole) <= NAME_COLUMNS {
        return whole;
    }
    let room = NAME_COLUMNS - 1;
    let head = fitting(whole.chars(), room - room / 2);
    let tail = fitting(whole.chars().rev(), room / 2);
    let start: String = whole.chars().take(head).collect();
    let end: String = whole.chars().skip(whole.chars().count() - tail).collect();
    format!("{start}…{end}")
}

/// How many of these characters fit into so many columns.
fn fitting(characters: impl Iterator<Item = char>, most_columns: usize) -> usize {
    let widths = characters.scan(0, |sum, character| {
        *sum += width(character);
        Some(*sum)
    });
    widths.take_while(|sum| *sum <= most_columns).count()
}

/// How many columns of a terminal a shown text takes: two for the wide characters of East Asia and for pictures, none for accents that
/// stand on the letter before.
pub fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// The text, and so many blanks behind it that it takes `width` columns.
pub fn padded(text: &str, width: usize) -> String {
    format!("{text}{:blanks$}", "", blanks = width.saturating_sub(columns(text)))
}

/// Whether a character steers a terminal rather than being shown: control characters, and those without a form of their own that break lines, turn the direction or hide.
pub fn steers(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

fn width(character: char) -> usize {
    match character {
        '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115e}'
        | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1f64f}'
        | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f900}'..='\u{1f9ff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

/// `1 block`, `2 blocks`; `1 retry`, `2 retries`.
pub fn counted(count: u64, what: &str) -> String {
    match (count, what.strip_suffix("try")) {
        (1, _) => format!("1 {what}"),
        // A retry, an entry.
        (_, Some(stem)) => format!("{count} {stem}tries"),
        (_, None) if what.ends_with('s') => format!("{count} {what}es"),
        (_, None) => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out_and_all_else_stays() {
        assert_eq!(shown("tab\tbell\u{7}del\u{7f}c1\u{9b}31m"), r"tab\tbell\u{7}del\u{7f}c1\u{9b}31m");
        assert_eq!(shown("\u{200f}\u{2028}\u{2066}\u{feff}"), r"\u{200f}\u{2028}\u{2066}\u{feff}");
        assert_eq!(shown("it's \"quoted\" \\ déjà vu 前向 🚀"), "it's \"quoted\" \\ déjà vu 前向 🚀");
    }

    #[test]
    fn a_long_name_keeps_both_ends_and_fits() {
        let name = format!("begin{}end", "x".repeat(500));
        let cut = shown_name(&name);
        assert!(cut.starts_with("beginx") && cut.ends_with("xend") && cut.contains('…'), "{cut}");
        assert_eq!(columns(&cut), NAME_COLUMNS);
        assert_eq!(shown_name(&"y".repeat(NAME_COLUMNS)), "y".repeat(NAME_COLUMNS));
        let wide = shown_name(&"前".repeat(100));
        assert!(columns(&wide) <= NAME_COLUMNS && columns(&wide) > NAME_COLUMNS - 3, "{wide}");
        let written_out = shown_name(&"\n".repeat(100));
        assert_eq!(columns(&written_out), NAME_COLUMNS);
    }

    #[test]
    fn columns_are_those_of_a_terminal() {
        assert_eq!(["abc", "é", "e\u{301}", "前向", "🚀"].map(columns), [3, 1, 1, 4, 2]);
        assert_eq!(padded("前", 4), "前  ");
        assert_eq!(padded("longer", 2), "longer");
    }

    #[test]
    fn one_is_singular() {
        let both = |what| [0, 1, 2].map(|count| counted(count, what));
        assert_eq!(both("file"), ["0 files", "1 file", "2 files"]);
        assert_eq!(both("other process"), ["0 other processes", "1 other process", "2 other processes"]);
        assert_eq!(both("retry"), ["0 retries", "1 retry", "2 retries"]);
    }
}
