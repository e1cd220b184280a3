//! The shapes that are written here: every pair of options, in both orders.

use crate::shape::Shape;
use std::fmt::Write as _;

/// An option as it is given in a pair.
struct Sample {
    /// The option's word.
    word: &'static str,
    text: &'static str,
    /// Words of options that it cannot stand beside.
    not_beside: &'static [&'static str],
    /// Words of options of which one must stand beside it.
    beside: &'static [&'static str],
    on: &'static [Kind],
}

/// The kind of function that the pairs stand on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sync,
    Async,
    /// It returns a boxed future; only pairs with the option `future` are of interest.
    Future,
}

const ALL_KINDS: &[Kind] = &[Kind::Sync, Kind::Async, Kind::Future];

const fn sample(word: &'static str, text: &'static str) -> Sample {
    Sample { word, text, not_beside: &[], beside: &[], on: ALL_KINDS }
}

impl Sample {
    const fn not_beside(self, not_beside: &'static [&'static str]) -> Self {
        Self { not_beside, ..self }
    }

    const fn beside(self, beside: &'static [&'static str]) -> Self {
        Self { beside, ..self }
    }

    const fn on(self, on: &'static [Kind]) -> Self {
        Self { on, ..self }
    }
}

/// Every option, once or more. The functions return a `Result<u32, String>` and have the arguments `first: u32`,
/// `second: &str` and `cause: &Span`; their calls change no memory. A new option needs a line here.
const SAMPLES: &[Sample] = &[
    sample("name", "name = \"pair\""),
    sample("phase", "phase = \"step\""),
    sample("device", "device = ::shape_support::device()"),
    sample("fields", "fields(a = first, b = %second, c)"),
    sample("args", "args(first)").not_beside(&["skip", "skip_all"]),
    sample("skip", "skip(first)").not_beside(&["args", "skip_all"]),
    sample("skip_all", "skip_all").not_beside(&["args", "skip"]),
    sample("level", "level = \"warn\""),
    sample("target", "target = \"a::b\""),
    sample("parent", "parent = cause"),
    sample("follows_from", "follows_from = [cause]"),
    sample("err", "err").on(&[Kind::Sync, Kind::Async]),
    sample("err", "err(Debug, level = \"info\")").on(&[Kind::Sync, Kind::Async]),
    sample("ret", "ret").on(&[Kind::Sync, Kind::Async]),
    sample("ret", "ret").on(&[Kind::Future]).beside(&["future"]),
    sample("future", "future").on(&[Kind::Future]),
    sample("max_delta", "max_delta = \"1GiB\""),
    sample("max_peak", "max_peak = \"1GiB\""),
    sample("max_allocs", "max_allocs = 1000"),
    sample("leak_check", "leak_check"),
    sample("on_exceed", "on_exceed = \"event\"").beside(&["max_delta", "max_peak", "max_allocs", "leak_check"]),
    sample("sample", "sample = 1"),
    sample("oom", "oom(event)"),
    sample("min_delta", "min_delta = 0"),
    sample("only", "only(device, self)"),
    sample("crate", "crate = ::shape_support::memtrack"),
];

/// The pairs on each kind of function.
pub(crate) fn shapes() -> Result<Vec<Shape>, String> {
    [
        (Kind::Sync, "shape_057_pairs_of_options", "every pair of options in both orders"),
        (Kind::Async, "shape_057_pairs_of_options_async", "every pair of options in both orders, async"),
        (Kind::Future, "shape_057_pairs_of_options_future", "every pair of options in both orders, on a boxed future"),
    ]
    .into_iter()
    .map(|(kind, name, title)| Shape::parse(name.to_owned(), &text(title, kind)))
    .collect()
}

fn text(title: &str, kind: Kind) -> String {
    let (before, output, tail) = match kind {
        Kind::Sync => ("", "Result<u32, String>", "Ok(first + parsed)"),
        Kind::Async => ("async ", "Result<u32, String>", "shape_support::yield_now().await;\n    Ok(first + parsed)"),
        Kind::Future => ("", "Pin<Box<dyn Future<Output = u32> + Send>>", "Box::pin(async move { first + parsed })"),
    };
    let mut functions = String::new();
    let mut calls = String::new();
    let mut named = 0;
    for (index, (first, second)) in pairs(kind).into_iter().enumerate() {
        let parsed = if kind == Kind::Future {
            "second.parse().unwrap_or(0)"
        } else {
            "second.parse().map_err(|_| second.to_owned())?"
        };
        let _ = writeln!(
            functions,
            "#[track({}, {})]\npub {before}fn pair_{index}(first: u32, second: &str, cause: &Span) -> {output} {{\n    \
             let parsed: u32 = {parsed};\n    drop(cause.id());\n    {tail}\n}}",
            first.text, second.text
        );
        let call = format!("pair_{index}({index}, \"{}\", &cause)", if index % 3 == 0 { "x" } else { "1" });
        let call = if kind == Kind::Sync { call } else { format!("shape_support::block_on({call})") };
        let _ = writeln!(calls, "    let _ = write!(all, \"{{:?}}\", {call});");
        named += usize::from(first.word == "name" || second.word == "name");
    }
    let uses = if kind == Kind::Future { "use std::future::Future;\nuse std::pin::Pin;\n" } else { "" };
    format!(
        "//! shape: 57\n//! title: {title}\n//! own options only: the options of the other forms are among the pairs\n\n// calls: pair {named}\n{uses}use shape_support::tracing::Span;\nuse std::fmt::Write;\n\n{functions}\n\
         pub fn exercise() -> String {{\n    let cause = Span::none();\n    let mut all = String::new();\n{calls}    all\n}}\n"
    )
}

/// Every pair of two samples that can stand together, in both orders.
fn pairs(kind: Kind) -> Vec<(&'static Sample, &'static Sample)> {
    let usable = || SAMPLES.iter().filter(move |sample| sample.on.contains(&kind));
    usable()
        .flat_map(|first| usable().map(move |second| (first, second)))
        .filter(|(first, second)| {
            first.word != second.word
                && (kind != Kind::Future || first.word == "future" || second.word == "future")
                && stand_together(first, second)
                && stand_together(second, first)
        })
        .collect()
}

fn stand_together(sample: &Sample, other: &Sample) -> bool {
    !sample.not_beside.contains(&other.word) && (sample.beside.is_empty() || sample.beside.contains(&other.word))
}
