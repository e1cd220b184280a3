//! Compiling a shape in one form, and what rustc and clippy report about it.

use crate::form::{Edition, Form};
use crate::shape::{Build, Shape};
use crate::toolchain::Toolchain;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Every lint that a user may have switched on: rustc's groups and those that are off by default, and all of clippy's
/// but `cargo`, which looks at manifests.
///
/// Not `unused_crate_dependencies`, which judges the command line, nor lints that a stable rustc does not know.
const LINTS: &[&str] = &[
    "warnings",
    "future_incompatible",
    "nonstandard_style",
    "rust_2018_compatibility",
    "rust_2018_idioms",
    "rust_2021_compatibility",
    "rust_2024_compatibility",
    "unused",
    "keyword_idents",
    "let_underscore",
    "refining_impl_trait",
    "absolute_paths_not_starting_with_crate",
    "ambiguous_negative_literals",
    "closure_returning_async_block",
    "deprecated_in_future",
    "explicit_outlives_requirements",
    "ffi_unwind_calls",
    "impl_trait_redundant_captures",
    "let_underscore_drop",
    "macro_use_extern_crate",
    "meta_variable_misuse",
    "missing_copy_implementations",
    "missing_debug_implementations",
    "missing_docs",
    "non_ascii_idents",
    "redundant_imports",
    "redundant_lifetimes",
    "single_use_lifetimes",
    "trivial_casts",
    "trivial_numeric_casts",
    "unit_bindings",
    "unnameable_types",
    "unreachable_pub",
    "unsafe_code",
    "unsafe_op_in_unsafe_fn",
    "unused_import_braces",
    "unused_lifetimes",
    "unused_macro_rules",
    "unused_qualifications",
    "unused_results",
    "variant_size_differences",
    "clippy::all",
    "clippy::pedantic",
    "clippy::nursery",
    "clippy::restriction",
];

/// What is not compared, and why.
pub(crate) const NOT_COMPARED: &[(&str, &str)] = &[
    (
        "clippy::implicit_return",
        "of the restriction group; in an annotated function it reports nothing, where it asks elsewhere for `return`",
    ),
    (
        "clippy::default_numeric_fallback",
        "of the restriction group; it guesses by the syntax around a number whether its type is known, and guesses otherwise",
    ),
    ("clippy::blanket_clippy_restriction_lints", "it reports that the whole restriction group is switched on"),
];

/// One report: the lint, the lines from and to, the text under the caret, and the words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Report {
    pub(crate) lint: String,
    pub(crate) lines: (u64, u64),
    pub(crate) caret: String,
    pub(crate) message: String,
}

/// What came of one compilation.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    /// Each report and how often it came.
    pub(crate) reports: BTreeMap<Report, usize>,
    /// The errors, rendered. Empty means that it compiled.
    pub(crate) errors: Vec<String>,
}

/// The folder of all shapes in one edition and form.
pub(crate) fn folder(toolchain: &Toolchain, edition: Edition, form: Form) -> PathBuf {
    let form = match form {
        Form::Attribute => "attribute",
        form => form.word(),
    };
    toolchain.output.join(edition.to_string()).join(form)
}

/// Compiles a shape in one form.
pub(crate) fn compile(toolchain: &Toolchain, shape: &Shape, edition: Edition, form: Form) -> Result<Compiled, String> {
    let folder = folder(toolchain, edition, form);
    let source = format!("{}.rs", shape.name);
    std::fs::write(folder.join(&source), shape.render(form)).map_err(|error| format!("{source}: {error}"))?;
    let mut command = Command::new(&toolchain.driver);
    command.current_dir(&folder).arg(&source).args(["--edition", &edition.to_string(), "--crate-name", &shape.name]);
    match shape.build {
        Build::Library => command.args(["--crate-type", "lib", "--emit", "link"]),
        Build::Tests => command.args(["--test", "--emit", "link"]),
    };
    command.args(["--error-format", "json", "-C", "debuginfo=0", "-C", "codegen-units=1"]).args(toolchain.libraries());
    for lint in LINTS {
        command.args(["-W", lint]);
    }
    for (lint, _) in NOT_COMPARED {
        command.args(["-A", lint]);
    }
    // No one's `clippy.toml`.
    command.env("CLIPPY_CONF_DIR", &toolchain.output).env_remove("CLIPPY_ARGS");
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let mut compiled = Compiled::default();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            compiled.errors.push(line.to_owned());
            continue;
        };
        take(&message, shape, &mut compiled);
    }
    if !output.status.success() && compiled.errors.is_empty() {
        compiled.errors.push(format!("{}", output.status));
    }
    Ok(compiled)
}

/// Adds one of rustc's messages.
fn take(message: &Value, shape: &Shape, compiled: &mut Compiled) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if message["$message_type"] != "diagnostic" {
        return;
    }
    let code = text(&message["code"]["code"]);
    // A lint's name; an error's number begins with `E`.
    let is_lint = !code.is_empty() && !code.starts_with('E');
    if message["level"] == "error" {
        let rendered = text(&message["rendered"]);
        // The last line only counts the errors.
        if !rendered.starts_with("error: aborting due to") {
            compiled.errors.push(rendered);
        }
    }
    if !is_lint {
        if message["level"] == "warning" && !message["spans"].as_array().is_some_and(Vec::is_empty) {
            compiled.errors.push(text(&message["rendered"]));
        }
        return;
    }
    let primary = message["spans"].as_array().into_iter().flatten().filter(|span| span["is_primary"] == true);
    let mut report = Report { lint: code, lines: (0, 0), caret: String::new(), message: text(&message["message"]) };
    for span in primary {
        let line = |name: &str| span[name].as_u64().unwrap_or_default();
        if report.caret.is_empty() {
            report.lines = (line("line_start"), line("line_end"));
        } else {
            report.caret.push_str(" … ");
        }
        report.caret.push_str(&under_the_caret(span, shape));
    }
    *compiled.reports.entry(report).or_default() += 1;
}

/// The text that a span covers; a marker is the same in every form.
fn under_the_caret(span: &Value, shape: &Shape) -> String {
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(1);
    let first = number(&span["line_start"]);
    let lines = span["text"].as_array().into_iter().flatten().enumerate().map(|(index, line)| {
        if shape.is_marker(first + index) {
            return "#[track]".to_owned();
        }
        let (from, to) = (number(&line["highlight_start"]) - 1, number(&line["highlight_end"]) - 1);
        let text = line["text"].as_str().unwrap_or_default();
        text.chars().skip(from).take(to.saturating_sub(from)).collect::<String>().trim().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}
