//! Texts as JSON.

use std::fmt::Write as _;

/// A text in quotes.
pub(crate) fn text(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for character in value.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            character if (character as u32) < 0x20 => {
                // Writing to a text cannot fail.
                let _ = write!(quoted, "\\u{:04x}", character as u32);
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// A list of texts.
pub(super) fn texts(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| text(value)).collect();
    format!("[{}]", values.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_backslashes_and_control_characters_are_escaped() {
        assert_eq!(text("a\"b\\c\nd\u{1}é"), "\"a\\\"b\\\\c\\nd\\u0001é\"");
        assert_eq!(texts(&["x".to_owned(), String::new()]), r#"["x",""]"#);
    }
}
