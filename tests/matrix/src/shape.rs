//! One shape: a file of `tests/shapes`, its header and its text in each form.

use crate::form::{Edition, Form};
use crate::marker::Marker;
use std::collections::BTreeMap;
use std::path::Path;

/// Whether a lint is reported no more, newly, or in other words on the same line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Lost,
    Gained,
    Reworded,
}

impl Change {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Gained => "gained",
            Self::Reworded => "reworded",
        }
    }
}

/// A difference that the shape's header declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) change: Change,
    pub(crate) lint: String,
    /// Where it must occur; empty means everywhere.
    pub(crate) forms: Vec<Form>,
    pub(crate) editions: Vec<Edition>,
}

impl Declared {
    /// Whether the difference is declared for this cell.
    pub(crate) fn covers(&self, edition: Edition, form: Form) -> bool {
        (self.forms.is_empty() || self.forms.contains(&form))
            && (self.editions.is_empty() || self.editions.contains(&edition))
    }
}

/// How a shape is compiled and called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// A library with a function `exercise`.
    Library,
    /// A program of the test harness, which calls it.
    Tests,
}

/// A shape.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// The file's name without its end; also the crate's.
    pub(crate) name: String,
    pub(crate) number: String,
    pub(crate) title: String,
    pub(crate) build: Build,
    /// Why the form `err` does not apply, if it does not.
    pub(crate) without_err: Option<String>,
    /// Why it has no other annotated form than the attribute with its own options, if so.
    pub(crate) own_options_only: Option<String>,
    /// The editions it is for, and why not the others.
    pub(crate) editions: Vec<Edition>,
    pub(crate) other_editions: Option<String>,
    pub(crate) declared: Vec<Declared>,
    /// How often each name is called.
    pub(crate) calls: BTreeMap<String, usize>,
    lines: Vec<Line>,
}

#[derive(Debug, Clone)]
enum Line {
    Text(String),
    Marker(Marker),
}

impl Shape {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(name, &text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads a shape's text.
    pub(crate) fn parse(name: String, text: &str) -> Result<Self, String> {
        let mut shape = Self {
            name,
            number: String::new(),
            title: String::new(),
            build: Build::Library,
            without_err: None,
            own_options_only: None,
            editions: Edition::ALL.to_vec(),
            other_editions: None,
            declared: Vec::new(),
            calls: BTreeMap::new(),
            lines: Vec::new(),
        };
        let mut overrides = Vec::new();
        let mut in_header = true;
        for line in text.lines() {
            match line.strip_prefix("//! ").filter(|_| in_header) {
                Some(entry) => shape.read_entry(entry)?,
                None => in_header = false,
            }
            if let Some(calls) = line.strip_prefix("// calls: ") {
                read_calls(calls, &mut overrides)?;
            }
            shape.lines.push(match Marker::read(line)? {
                Some(marker) => Line::Marker(marker),
                None => Line::Text(line.to_owned()),
            });
        }
        shape.count_calls(overrides);
        shape.check()?;
        Ok(shape)
    }

    fn read_entry(&mut self, entry: &str) -> Result<(), String> {
        let (word, value) =
            entry.split_once(": ").ok_or_else(|| format!("no `word: value` in the header: `{entry}`"))?;
        match word {
            "shape" => value.clone_into(&mut self.number),
            "title" => value.clone_into(&mut self.title),
            "build" if value == "tests" => self.build = Build::Tests,
            "without err" => self.without_err = Some(value.to_owned()),
            "own options only" => self.own_options_only = Some(value.to_owned()),
            "editions" => {
                let (editions, reason) = value.split_once(", ").ok_or("`editions: 2024 …, why`")?;
                self.editions = editions
                    .split_whitespace()
                    .map(|edition| Edition::parse(edition).ok_or_else(|| format!("no edition `{edition}`")))
                    .collect::<Result<_, _>>()?;
                self.other_editions = Some(reason.to_owned());
            }
            "lost" => self.declared.push(declared(Change::Lost, value)?),
            "gained" => self.declared.push(declared(Change::Gained, value)?),
            "reworded" => self.declared.push(declared(Change::Reworded, value)?),
            _ => return Err(format!("unknown word in the header: `{word}`")),
        }
        Ok(())
    }

    /// One call of each annotated function, unless the header says otherwise.
    fn count_calls(&mut self, overrides: Vec<(String, usize)>) {
        for (index, line) in self.lines.iter().enumerate() {
            let Line::Marker(marker) = line else { continue };
            let declared = self.lines[index + 1..].iter().find_map(|line| match line {
                Line::Text(text) => declared_function(text),
                Line::Marker(_) => None,
            });
            if let Some(name) = marker.name().or(declared.flatten()) {
                *self.calls.entry(name).or_default() += 1;
            }
        }
        self.calls.extend(overrides);
        self.calls.retain(|_, count| *count > 0);
    }

    fn check(&self) -> Result<(), String> {
        if self.number.is_empty() || self.title.is_empty() {
            return Err("the header needs `//! shape: …` and `//! title: …`".to_owned());
        }
        if self.calls.is_empty() {
            return Err("no annotated function is called".to_owned());
        }
        let takes_err = self.lines.iter().any(|line| matches!(line, Line::Marker(marker) if marker.takes_err));
        if self.own_options_only.is_some() {
            return Ok(());
        }
        match (&self.without_err, takes_err) {
            (None, false) => Err("no marker takes `err`; the header needs `//! without err: why`".to_owned()),
            (Some(_), true) => Err("`without err` is said, but a marker takes `err`".to_owned()),
            _ => Ok(()),
        }
    }

    /// Whether a line, counted from 1, is a marker.
    pub(crate) fn is_marker(&self, line: usize) -> bool {
        matches!(self.lines.get(line.wrapping_sub(1)), Some(Line::Marker(_)))
    }

    /// Its text in a form.
    pub(crate) fn render(&self, form: Form) -> String {
        let mut text = String::new();
        for line in &self.lines {
            match line {
                Line::Text(line) => text.push_str(line),
                Line::Marker(marker) => text.push_str(&marker.render(form)),
            }
            text.push('\n');
        }
        text
    }

    /// Whether it is compiled in this edition and form.
    pub(crate) fn applies(&self, edition: Edition, form: Form) -> bool {
        self.editions.contains(&edition) && self.reason_against(form).is_none()
    }

    /// Why it is not compiled in a form, if it is not.
    pub(crate) fn reason_against(&self, form: Form) -> Option<&str> {
        match form {
            Form::Plain | Form::Attribute => None,
            Form::Err if self.own_options_only.is_none() => self.without_err.as_deref(),
            _ => self.own_options_only.as_deref(),
        }
    }
}

/// `name count, …`.
fn read_calls(text: &str, calls: &mut Vec<(String, usize)>) -> Result<(), String> {
    for call in text.split(", ") {
        let (name, count) = call.rsplit_once(' ').ok_or("`// calls: name count, …`")?;
        calls.push((name.to_owned(), count.parse().map_err(|_| format!("no count `{count}`"))?));
    }
    Ok(())
}

/// `clippy::a in 2021 err phase`.
fn declared(change: Change, value: &str) -> Result<Declared, String> {
    let (lint, cells) = value.split_once(" in ").unwrap_or((value, ""));
    let mut declared = Declared { change, lint: lint.to_owned(), forms: Vec::new(), editions: Vec::new() };
    for word in cells.split_whitespace() {
        if let Some(edition) = Edition::parse(word) {
            declared.editions.push(edition);
        } else if let Some(form) = Form::ANNOTATED.into_iter().find(|form| form.word() == word) {
            declared.forms.push(form);
        } else {
            return Err(format!("neither an edition nor a form: `{word}`"));
        }
    }
    Ok(declared)
}

/// The function that a line declares, if it declares one: its name, or none if that is a macro's variable, or if the line
/// begins a block of functions.
fn declared_function(line: &str) -> Option<Option<String>> {
    let first = line.split_whitespace().find(|word| !matches!(*word, "pub" | "unsafe"));
    if first.is_some_and(|word| matches!(word, "trait" | "mod") || word == "impl" || word.starts_with("impl<")) {
        return Some(None);
    }
    let (before, after) = line.split_once("fn ")?;
    if before.trim_start().starts_with("//") || !(before.is_empty() || before.ends_with(' ')) {
        return None;
    }
    let name = after.strip_prefix("r#").unwrap_or(after);
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some((end > 0).then(|| name[..end].to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Shape, String> {
        Shape::parse("name".to_owned(), text)
    }

    const HEAD: &str = "//! shape: 1\n//! title: t\n\n";

    #[test]
    fn lines_keep_their_numbers_in_every_form() {
        let text = format!("{HEAD}#[track(+err)]\nfn f() {{}}\n    #[track]\n    fn g() {{}}\n");
        let shape = parse(&text).unwrap();
        for form in Form::ALL {
            assert_eq!(shape.render(form).lines().count(), text.lines().count());
            assert_eq!(shape.render(form).lines().nth(4), Some("fn f() {}"));
        }
        assert!(shape.is_marker(4) && !shape.is_marker(5));
    }

    #[test]
    fn each_annotated_function_is_called_once_unless_the_shape_says_otherwise() {
        let text = format!(
            "{HEAD}#[track(+err)]\nfn f() {{}}\n#[track]\npub async fn r#loop() {{}}\n#[track(name = \"n\")]\nfn g() {{}}\n\
             #[track]\nfn $name() {{}}\n#[track]\nimpl S {{\n    fn h() {{}}\n}}\n// calls: f 0, made 2\n"
        );
        let calls = parse(&text).unwrap().calls;
        let calls: Vec<_> = calls.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(calls, [("loop", 1), ("made", 2), ("n", 1)]);
    }

    #[test]
    fn what_does_not_apply_needs_a_reason() {
        let text = |head: &str, marker: &str| format!("//! shape: 1\n//! title: t\n{head}\n{marker}\nfn f() {{}}\n");
        assert!(parse(&text("", "#[track]")).is_err());
        assert!(parse(&text("//! without err: why", "#[track(+err)]")).is_err());
        let shape = parse(&text("//! without err: why", "#[track]")).unwrap();
        assert_eq!(shape.reason_against(Form::Err), Some("why"));
        assert!(!shape.applies(Edition::E2021, Form::Err) && shape.applies(Edition::E2021, Form::Phase));
        let shape = parse(&text("//! editions: 2024, because", "#[track(+err)]")).unwrap();
        assert!(!shape.applies(Edition::E2018, Form::Plain) && shape.applies(Edition::E2024, Form::Err));
    }

    #[test]
    fn mistakes_in_a_header_are_told() {
        for text in [
            "//! title: t\n",
            "//! shape: 1\n//! title: t\n//! lots: x\n",
            "//! shape: 1\n//! title: t\n//! lost: a in 2017\n",
        ] {
            assert!(parse(&format!("{text}#[track(+err)]\nfn f() {{}}\n")).is_err(), "{text}");
        }
        assert!(parse(HEAD).is_err(), "nothing is annotated");
    }
}
