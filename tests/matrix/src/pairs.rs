//! The shape that is written here: every pair of options, in both orders.

use crate::shape::Shape;
use std::fmt::Write as _;

/// An option as it is given in a pair.
struct Sample {
    /// The option's word.
    word: &'static str,
    text: &'static str,
    /// Words of options that it cannot stand beside.
    not_beside: &'static [&'static str],
    /// Whether it may stand on an `async fn`.
    on_async: bool,
}

const fn sample(word: &'static str, text: &'static str) -> Sample {
    Sample { word, text, not_beside: &[], on_async: true }
}

/// Every option, once. The functions return a `Result<u32, String>` and have the arguments `first: u32` and
/// `second: &str`.
const SAMPLES: &[Sample] = &[
    sample("name", "name = \"pair\""),
    sample("phase", "phase = \"step\""),
    sample("device", "device = ::shape_support::device()"),
    sample("fields", "fields(a = first, b = %second)"),
    sample("level", "level = \"debug\""),
    sample("target", "target = \"a::b\""),
    sample("err", "err"),
    sample("crate", "crate = ::shape_support::memtrack"),
];

/// The pairs on functions, and those on `async fn`s.
pub(crate) fn shapes() -> Result<Vec<Shape>, String> {
    let shape = |asynchronous: bool| {
        let (name, title) = if asynchronous {
            ("shape_057_pairs_of_options_async", "every pair of options in both orders, async")
        } else {
            ("shape_057_pairs_of_options", "every pair of options in both orders")
        };
        Shape::parse(name.to_owned(), &text(title, asynchronous))
    };
    Ok(vec![shape(false)?, shape(true)?])
}

fn text(title: &str, asynchronous: bool) -> String {
    let mut functions = String::new();
    let mut calls = String::new();
    let mut named = 0;
    for (index, (first, second)) in pairs(asynchronous).into_iter().enumerate() {
        let word = if asynchronous { "async " } else { "" };
        let options = format!("{}, {}", first.text, second.text);
        let _ = writeln!(
            functions,
            "#[track(+err, {options})]\npub {word}fn pair_{index}(first: u32, second: &str) -> Result<u32, String> {{"
        );
        functions.push_str(
            "    let parsed: u32 = second.parse().map_err(|_| second.to_owned())?;\n    Ok(first + parsed)\n}\n",
        );
        let call = format!("pair_{index}({index}, \"{}\")", if index % 3 == 0 { "x" } else { "1" });
        let call = if asynchronous { format!("shape_support::block_on({call})") } else { call };
        let _ = writeln!(calls, "    let _ = write!(all, \"{{:?}}\", {call});");
        named += usize::from(first.word == "name" || second.word == "name");
    }
    format!(
        "//! shape: 57\n//! title: {title}\n\n// calls: pair {named}\n\
         use std::fmt::Write;\n\n{functions}\npub fn exercise() -> String {{\n    let mut all = String::new();\n\
         {calls}    all\n}}\n"
    )
}

/// Every pair of two samples that can stand together, in both orders.
fn pairs(asynchronous: bool) -> Vec<(&'static Sample, &'static Sample)> {
    let usable = || SAMPLES.iter().filter(move |sample| sample.on_async || !asynchronous);
    usable()
        .flat_map(|first| usable().map(move |second| (first, second)))
        .filter(|(first, second)| {
            first.word != second.word
                && !first.not_beside.contains(&second.word)
                && !second.not_beside.contains(&first.word)
        })
        .collect()
}
