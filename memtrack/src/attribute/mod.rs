//! What code written by `#[track_memory]` calls at run time.
//!
//! The expansion stays small: it names the arguments and the options, and everything that can be decided here is. Here
//! live the guard of a synchronous call, the future around an asynchronous one, and the recording of a scope's figures
//! on its span. What a scope counts is the business of [`scope`](mod@crate::scope).

mod allocator;
mod guard;
mod hand_over;
mod outcome;
mod record;
mod spare;
mod subscriber;
mod tracked;
mod value;

pub use allocator::AsAllocator;

/// The names generated code uses. Not for people: they change with the macro, in any release.
pub mod private {
    pub use super::allocator::{allocator_of, current_allocator};
    pub use super::guard::{Guard, call_once, returned};
    pub use super::hand_over::{Pause, hand_over};
    pub use super::outcome::{Fallible, outcome_of, outcome_ok};
    pub use super::tracked::Tracked;
    pub use super::value::{debug, display, level, not_empty, value};
    pub use crate::__scope_span as scope_span;
    pub use crate::enabled;
    pub use tracing::field::Empty;
    pub use tracing::{Level, Span, span};

    /// The type of a scope's and a phase's name.
    pub type Name = &'static str;

    /// A phase that is given.
    #[inline]
    pub const fn phase(name: Name) -> Option<Name> {
        Some(name)
    }

    /// No phase of its own.
    #[inline]
    pub const fn no_phase() -> Option<Name> {
        None
    }

    /// Whether an activation is measured, memtrack being switched on.
    ///
    /// Its figures must have a reader: the span, or the summary of the phase it opens. A span that a filter turned off
    /// is no reader, but a phase counts all the same, since a log level must not change a summary.
    #[inline]
    pub fn measures(span: &Span, phase: Option<Name>) -> bool {
        !span.is_disabled() || phase.is_some()
    }
}
