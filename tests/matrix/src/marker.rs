//! The markers in a shape's text: a line `#[track]` or `#[track(…)]` becomes the attribute, or a comment.
//!
//! In the parentheses stand the options that the function has in each form, and `+err` if it returns a `Result`, so that
//! the form `err` can add the option.
//! With `via = path` another attribute writes `#[track_memory]`. A marker fills its line, so that every other line has
//! the same number with and without the attribute.

use crate::form::Form;

/// One marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker {
    indent: String,
    options: Vec<String>,
    /// Whether the function returns a `Result`.
    pub(crate) takes_err: bool,
    via: Option<String>,
}

impl Marker {
    /// Reads a line; none if it holds no marker.
    pub(crate) fn read(line: &str) -> Result<Option<Self>, String> {
        let text = line.trim();
        let Some(rest) = text.strip_prefix("#[track") else {
            if text.contains("#[track") && !text.contains("#[track_") && !text.starts_with("//") {
                return Err(format!("a marker fills its line: `{text}`"));
            }
            return Ok(None);
        };
        if rest.starts_with('_') {
            return Ok(None);
        }
        let inside = match rest.strip_suffix(']') {
            Some("") => "",
            Some(list) if list.starts_with('(') && list.ends_with(')') => &list[1..list.len() - 1],
            _ => return Err(format!("a marker is `#[track]` or `#[track(…)]` alone on its line: `{text}`")),
        };
        let indent = line[..line.len() - line.trim_start().len()].to_owned();
        let mut marker = Self { indent, options: Vec::new(), takes_err: false, via: None };
        for option in split_at_commas(inside) {
            if option == "+err" {
                marker.takes_err = true;
            } else if let Some(path) = option.strip_prefix("via = ") {
                marker.via = Some(path.to_owned());
            } else {
                marker.options.push(option);
            }
        }
        Ok(Some(marker))
    }

    /// The line in a form.
    pub(crate) fn render(&self, form: Form) -> String {
        let Self { indent, options, takes_err, via } = self;
        if form == Form::Plain {
            return format!("{indent}// not annotated");
        }
        let mut options = options.clone();
        if let Some((words, option)) = form.option() {
            let given = options.iter().any(|option| words.contains(&first_word(option)));
            if !given && (form != Form::Err || *takes_err) {
                options.push(option.to_owned());
            }
        }
        let path = via.as_deref().unwrap_or("::memtrack::track_memory");
        match options.as_slice() {
            [] => format!("{indent}#[{path}]"),
            options => format!("{indent}#[{path}({})]", options.join(", ")),
        }
    }

    /// The name that the marker gives the span.
    pub(crate) fn name(&self) -> Option<String> {
        self.options.iter().find_map(|option| {
            let value = option.strip_prefix("name = ").unwrap_or(option);
            Some(value.strip_prefix('"')?.strip_suffix('"')?.to_owned())
        })
    }
}

fn first_word(option: &str) -> &str {
    option.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(option)
}

/// The parts between the commas outside of brackets and strings.
fn split_at_commas(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut depth, mut in_string) = (Vec::new(), String::new(), 0_usize, false);
    for c in text.chars() {
        match c {
            '"' => in_string = !in_string,
            '(' | '[' | '{' if !in_string => depth += 1,
            ')' | ']' | '}' if !in_string => depth = depth.saturating_sub(1),
            ',' if !in_string && depth == 0 => {
                parts.push(std::mem::take(&mut part).trim().to_owned());
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part.trim().to_owned());
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(line: &str) -> Marker {
        Marker::read(line).unwrap().unwrap()
    }

    #[test]
    fn a_marker_becomes_the_attribute_of_the_form_or_a_comment() {
        let marker = marker("    #[track(+err, fields(a = 1, b = \"x, y\"))]");
        let rendered = |form| marker.render(form);
        assert_eq!(rendered(Form::Plain), "    // not annotated");
        assert_eq!(rendered(Form::Attribute), "    #[::memtrack::track_memory(fields(a = 1, b = \"x, y\"))]");
        assert_eq!(rendered(Form::Err), "    #[::memtrack::track_memory(fields(a = 1, b = \"x, y\"), err)]");
    }

    #[test]
    fn err_is_added_only_where_it_can_stand_and_no_option_twice() {
        assert_eq!(marker("#[track]").render(Form::Err), "#[::memtrack::track_memory]");
        let phase = marker("#[track(phase = NAME)]");
        assert_eq!(phase.render(Form::Phase), "#[::memtrack::track_memory(phase = NAME)]");
        let via = marker("#[track(via = a::b)]");
        assert_eq!(via.render(Form::Phase), "#[a::b(phase = \"step\")]");
    }

    #[test]
    fn a_marker_beside_something_else_is_refused() {
        assert!(Marker::read("#[track] fn f() {}").is_err());
        assert!(Marker::read("fn f() {} #[track]").is_err());
        assert_eq!(Marker::read("#[track_caller]"), Ok(None));
        assert_eq!(Marker::read("// a word on #[track]"), Ok(None));
    }

    #[test]
    fn a_name_is_found_in_both_spellings() {
        assert_eq!(marker("#[track(\"a\")]").name().as_deref(), Some("a"));
        assert_eq!(marker("#[track(phase = \"p\", name = \"b\")]").name().as_deref(), Some("b"));
        assert_eq!(marker("#[track(phase = \"p\")]").name(), None);
    }
}
