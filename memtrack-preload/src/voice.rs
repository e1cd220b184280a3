//! What memtrack has to say while the program runs, as lines on standard error.
//!
//! memtrack tells by events of `tracing`. The preloaded library has a `tracing` of its own, which the program knows nothing of, and sets
//! its subscriber there. A copy that is compiled into a program shares the program's: there a subscriber of the program's gets the
//! events, and only where there is none are they heard here, for the length of memtrack's own calls.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use memtrack::units::Bytes;
use memtrack::{OutOfMemory, plain_text};
use tracing::dispatcher::{self, Dispatch};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, NoSubscriber, Subscriber};
use tracing::{Event, Level, Metadata};

use crate::cache::ALLOCATING_FILE;
use crate::place::Place;
use crate::standard_error;

/// Out of memory errors that are told with all their findings.
const FULL_TEXTS: u64 = 3;
/// So often the same is told each time, and from there on at every power of two.
const EACH_TIME: u64 = 5;

const RETRY: &str = "memtrack::alloc_retry";
const OUT_OF_MEMORY: &str = "memtrack::oom";
const POST_MORTEM: &str = "memtrack::post_mortem";

/// Hears what memtrack says from now on, if this is the library.
pub(crate) fn begin() {
    if matches!(Place::own(), Place::Library) {
        // Nobody else can have set one in the library's own `tracing`.
        let _ = dispatcher::set_global_default(dispatch().clone());
    }
}

/// Does work of memtrack's with its events heard.
#[inline]
pub(crate) fn heard<R>(work: impl FnOnce() -> R) -> R {
    if matches!(Place::own(), Place::Library) || dispatcher::get_default(|current| !current.is::<NoSubscriber>()) {
        return work();
    }
    dispatcher::with_default(dispatch(), work)
}

/// Whether what memtrack says is heard here and not by the program, within [`heard`].
fn is_heard_here() -> bool {
    matches!(Place::own(), Place::Library) || dispatcher::get_default(Dispatch::is::<Voice>)
}

fn dispatch() -> &'static Dispatch {
    static DISPATCH: OnceLock<Dispatch> = OnceLock::new();
    DISPATCH.get_or_init(|| Dispatch::new(Voice))
}

/// One line, in one piece.
pub(crate) fn say(line: &str) {
    standard_error::write(&format!("memtrack: {}\n", line.trim_end()));
}

/// The program gets this error.
pub(crate) fn out_of_memory(error: &OutOfMemory) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // A subscriber of the program's has the event.
    if !is_heard_here() {
        return;
    }
    let Some(number) = is_told(&COUNT) else { return };
    match number {
        1..=FULL_TEXTS => say(&without_own_lines(&format!("{error:#}"))),
        _ => say(&format!("{error} (out of memory number {number})")),
    }
}

/// memtrack's text without the line of this library's that all blocks are allocated at.
pub(crate) fn without_own_lines(text: &str) -> String {
    let phrase = format!(", allocated at {ALLOCATING_FILE}:");
    let mut parts = text.split(&phrase);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // The numbers of line and column.
        plain += part.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ':');
    }
    plain
}

/// Memory that `cuMemFree` could not wait for during a capture was waited for, because there was no other.
pub(crate) fn deferred_freed(requested_bytes: u64, block_count: usize) {
    let (blocks, requested) = (plain_text::counted(block_count as u64, "block"), Bytes::unsigned(requested_bytes));
    tracing::warn!(
        target: "memtrack::preload",
        "no memory for {requested}; what was freed during a capture ({blocks}) is waited for, to try again"
    );
}

/// The number of this time, where it is to be told.
fn is_told(count: &AtomicU64) -> Option<u64> {
    let number = count.fetch_add(1, Ordering::Relaxed) + 1;
    (number <= EACH_TIME || number.is_power_of_two()).then_some(number)
}

/// Events of memtrack's that matter, as lines.
struct Voice;

impl Voice {
    fn is_heard(metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        metadata.is_event()
            && target.starts_with("memtrack")
            // What the program gets as an error is told where it gets it.
            && target != OUT_OF_MEMORY
            && (*metadata.level() <= Level::WARN || target == POST_MORTEM)
    }
}

impl Subscriber for Voice {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::is_heard(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::is_heard(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        static RETRIES: AtomicU64 = AtomicU64::new(0);
        let mut fields = Fields::default();
        event.record(&mut fields);
        if event.metadata().target() != RETRY {
            return say(&fields.text());
        }
        // One that failed is told as the program's error.
        if fields.outcome == "served"
            && let Some(number) = is_told(&RETRIES)
        {
            say(&fields.retry(number));
        }
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// What an event says.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    device: String,
    outcome: String,
    requested_bytes: i64,
    returned_bytes: i64,
    took_us: i64,
    others: String,
}

impl Fields {
    fn retry(&self, number: u64) -> String {
        let (requested, returned) = (Bytes(self.requested_bytes), Bytes(self.returned_bytes));
        let mut text = format!(
            "{}: there was no memory for {requested}; {returned} of the cache were given back to the device, and the request was served \
             ({} µs)",
            self.device, self.took_us
        );
        if number > EACH_TIME {
            // Writing to a string does not fail.
            let _ = write!(text, ", for the {number}th time");
        }
        text
    }

    fn text(&self) -> String {
        let Self { message, device, others, .. } = self;
        if device.is_empty() { format!("{message}{others}") } else { format!("{device}: {message}{others}") }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "mem.device" => value.clone_into(&mut self.device),
            "outcome" => value.clone_into(&mut self.outcome),
            "folder" => {}
            name => {
                let _ = write!(self.others, ", {name}: {value}");
            }
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match field.name() {
            "requested_bytes" => self.requested_bytes = value,
            "returned_bytes" => self.returned_bytes = value,
            "took_us" => self.took_us = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        // Messages say their error themselves, or it is a field.
        if field.name() != "error" || !self.message.contains(&text) {
            self.record_str(field, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_told_at_powers_of_two() {
        let count = AtomicU64::new(0);
        let told: Vec<u64> = (0..40).filter_map(|_| is_told(&count)).collect();
        assert_eq!(told, [1, 2, 3, 4, 5, 8, 16, 32]);
    }

    #[test]
    fn lines_of_the_library_are_left_out_and_all_else_stays() {
        let text = format!(
            "holds 4 MiB in 1 block, allocated at {ALLOCATING_FILE}:210:43\n  held, allocated at main.rs:1:2 in x"
        );
        assert_eq!(without_own_lines(&text), "holds 4 MiB in 1 block\n  held, allocated at main.rs:1:2 in x");
    }

    #[test]
    fn a_retry_says_what_was_asked_and_what_was_given_back() {
        let fields = Fields {
            device: "cuda:3".to_owned(),
            requested_bytes: 40 << 20,
            returned_bytes: 64 << 20,
            took_us: 12,
            ..Fields::default()
        };
        let text = fields.retry(1);
        for part in ["cuda:3: ", "40.00 MiB", "64.00 MiB of the cache", "served (12 µs)"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(fields.retry(8).ends_with("for the 8th time"));
    }
}
