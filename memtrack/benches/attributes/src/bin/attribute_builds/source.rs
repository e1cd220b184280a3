//! The crates that are compiled: the same functions, with another attribute on each.

use std::fmt::Write as _;

/// A crate.
pub(crate) struct Variant {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its dependencies, as in a manifest, with `{memtrack}` for memtrack's folder.
    pub(crate) dependencies: &'static str,
    /// The attribute of a function.
    attribute: &'static str,
    /// The attribute of a function that returns a `Result`.
    attribute_with_err: &'static str,
    has_functions: bool,
}

/// All crates. The first one has no functions: what cargo and rustc take themselves.
pub(crate) const VARIANTS: [Variant; 6] = [
    Variant { name: "empty", dependencies: "", attribute: "", attribute_with_err: "", has_functions: false },
    Variant { name: "plain", dependencies: "", attribute: "", attribute_with_err: "", has_functions: true },
    Variant {
        name: "track_memory",
        dependencies: "memtrack = { path = \"{memtrack}\" }",
        attribute: "#[memtrack::track_memory]",
        attribute_with_err: "#[memtrack::track_memory(err)]",
        has_functions: true,
    },
    Variant {
        name: "instrument",
        dependencies: "tracing = \"0.1.44\"",
        attribute: "#[tracing::instrument(skip_all)]",
        attribute_with_err: "#[tracing::instrument(skip_all, err)]",
        has_functions: true,
    },
    Variant {
        name: "trace",
        dependencies: "fastrace = { version = \"0.7.19\", features = [\"enable\"] }",
        attribute: "#[fastrace::trace]",
        attribute_with_err: "#[fastrace::trace]",
        has_functions: true,
    },
    Variant {
        name: "measure",
        dependencies: "hotpath = { version = \"0.30.3\", features = [\"hotpath\"] }",
        attribute: "#[hotpath::measure]",
        attribute_with_err: "#[hotpath::measure]",
        has_functions: true,
    },
];

impl Variant {
    pub(crate) fn manifest(&self, memtrack: &str) -> String {
        let Self { name, dependencies, .. } = self;
        let dependencies = dependencies.replace("{memtrack}", memtrack);
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}\n"
        )
    }

    /// The library: so many functions, two fifths of them synchronous and a fifth each asynchronous, fallible and generic,
    /// and one that calls them all, so that generic and asynchronous ones are compiled too.
    pub(crate) fn library(&self, functions: usize) -> String {
        let mut source = String::from(PREAMBLE);
        let mut calls = String::new();
        for number in 0..if self.has_functions { functions } else { 0 } {
            let (attribute, function, call) = match number % 5 {
                0 | 1 => (self.attribute, SYNCHRONOUS, "synchronous_N(&[number, total], number)"),
                2 => (self.attribute, ASYNCHRONOUS, "complete(asynchronous_N(vec![number, total], number))"),
                3 => (self.attribute_with_err, FALLIBLE, "fallible_N(text, number).unwrap_or(0)"),
                _ => (self.attribute, GENERIC, "generic_N(&[number as u8]) + generic_N(&[number as u32, 7])"),
            };
            let number = number.to_string();
            let _ = writeln!(source, "\n{attribute}\n{}", function.replace('N', &number));
            let _ = writeln!(calls, "    total = total.wrapping_add({});", call.replace('N', &number));
        }
        let _ = write!(
            source,
            "\npub fn call_all(number: u64, text: &str) -> u64 {{\n    let _ = text;\n    let mut total = number;\n{calls}    total\n}}\n"
        );
        source
    }

    /// A program that calls everything.
    pub(crate) fn program(&self) -> String {
        format!(
            "fn main() {{\n    let number = std::env::args().count() as u64;\n    println!(\"{{}}\", {}::call_all(number, \"12\"));\n}}\n",
            self.name
        )
    }
}

const PREAMBLE: &str = "#![allow(unused)]
use std::num::ParseIntError;
use std::task::{Context, Poll, Waker};

pub fn complete(future: impl Future<Output = u64>) -> u64 {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => 0,
    }
}

pub async fn step(number: u64) -> u64 {
    number.rotate_left(7)
}
";

const SYNCHRONOUS: &str = "pub fn synchronous_N(values: &[u64], start: u64) -> u64 {
    let mut total = start;
    for value in values {
        if value % 3 == 0 {
            continue;
        }
        total = total.wrapping_mul(31).wrapping_add(*value);
    }
    total
}";

const ASYNCHRONOUS: &str = "pub async fn asynchronous_N(values: Vec<u64>, start: u64) -> u64 {
    let first = step(start).await;
    if first == N {
        return first;
    }
    let second = step(first ^ start).await;
    values.iter().fold(second, |total, value| total.wrapping_add(*value))
}";

const FALLIBLE: &str = "pub fn fallible_N(text: &str, limit: u64) -> Result<u64, ParseIntError> {
    let value: u64 = text.parse()?;
    if value > limit {
        return Ok(limit);
    }
    Ok(value * 2)
}";

const GENERIC: &str = "pub fn generic_N<T: Copy + Into<u64>>(items: &[T]) -> u64 {
    items.iter().map(|item| (*item).into()).fold(N, |total: u64, item: u64| total.wrapping_mul(7).wrapping_add(item))
}";
