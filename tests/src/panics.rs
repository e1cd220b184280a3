//! Panics that a test expects: what they say, and of which line.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// A panic that was caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panicked {
    /// What it said.
    pub text: String,
    /// The file it was raised in.
    pub file: String,
    /// The line there.
    pub line: u32,
}

thread_local! {
    /// Set while this thread expects a panic.
    static EXPECTED: RefCell<Option<Vec<Panicked>>> = const { RefCell::new(None) };
}

/// Runs what is to panic, without a word on the terminal.
///
/// # Panics
///
/// When it does not.
#[track_caller]
pub fn panicked(work: impl FnOnce()) -> Panicked {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |info| {
            let is_expected = EXPECTED.with_borrow_mut(|expected| {
                let Some(expected) = expected else { return false };
                let text = info.payload_as_str().unwrap_or("no text").to_owned();
                let (file, line) = info.location().map_or((String::new(), 0), |at| (at.file().to_owned(), at.line()));
                expected.push(Panicked { text, file, line });
                true
            });
            if !is_expected {
                others(info);
            }
        }));
    });
    EXPECTED.set(Some(Vec::new()));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let mut seen = EXPECTED.take().unwrap_or_default();
    assert!(outcome.is_err(), "no panic");
    assert_eq!(seen.len(), 1, "{seen:?}");
    seen.remove(0)
}

/// A text with each `FILE:LINE:COLUMN` of this file as `FILE:LINE`, for comparison with one that `line!` is written into.
pub fn without_columns(text: &str, file: &str) -> String {
    let mut pieces = text.split(file);
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // `:LINE:COLUMN` and what follows.
        let mut parts = piece.splitn(3, ':');
        let (_, line, rest) = (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        shown.push_str(&format!("{file}:{line}{}", rest.trim_start_matches(|digit: char| digit.is_ascii_digit())));
    }
    shown
}
