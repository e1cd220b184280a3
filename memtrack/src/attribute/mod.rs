//! What code written by `#[track_memory]` calls at run time.
//!
//! The expansion stays small: it names the arguments and the options, and everything that can be decided here is. Here
//! live the guard of a synchronous call, the future around an asynchronous one, and the recording of a scope's figures
//! on its span. What a scope counts is the business of [`scope`](mod@crate::scope).

mod activation;
mod allocator;
mod argument;
mod budget;
mod callsite;
mod future_call;
mod guard;
mod hand_over;
mod oom;
mod opened;
mod outcome;
mod record;
mod returned_closure;
mod site;
mod spare;
mod subscriber;
mod tracked;
mod value;

pub use allocator::{AsAllocator, AsAllocators};
pub use budget::{Budget, Exceeded};

/// The names generated code uses. Not for people: they change with the macro, in any release.
pub mod private {
    use crate::scope::measure_all;

    pub use super::allocator::{all_allocators, allocator_of, allocators_of, current_allocator};
    pub use super::argument::{Argument, DebugKind, Recorded, SignedKind, ValueKind};
    pub use super::budget::OnExceed;
    pub use super::callsite::{Callsite, Description, description, is_wanted, span, span_in};
    pub use super::future_call::FutureCall;
    pub use super::guard::{Guard, at_run_time, called_once, finished, returned};
    pub use super::hand_over::{Pause, hand_over};
    pub use super::outcome::{Fallible, Returns, outcome_of, outcome_ok, tell_error, tell_success, tell_value};
    pub use super::returned_closure::ReturnedClosure;
    pub use super::site::{Options, Site};
    pub use super::tracked::Tracked;
    pub use super::value::{Limit, debug, display, follows_from, level, not_empty, rate, value};
    pub use crate::enabled;
    pub use tracing::{Level, Span, event};

    /// The type of a scope's and a phase's name.
    pub type Name = &'static str;

    /// For a call without the option `sample`: one of one.
    pub const ALL_CALLS: u64 = 1;

    /// Whether a call with the option `sample` gets a span, by what [`Site::samples`] said.
    #[inline]
    pub const fn is_sampled(sampled: u64) -> bool {
        sampled != 0
    }

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
    /// Its figures must have a reader: the span, the summary of the phase it opens, a budget, or the totals by call site. A span that a filter
    /// turned off is no reader, but the others count all the same, since a log level must not change their result.
    ///
    /// `needs_no_span`: whether there is a budget, or an out of memory is watched for.
    #[inline]
    pub fn measures(span: &Span, needs_no_span: bool, phase: Option<Name>) -> bool {
        !span.is_disabled() || phase.is_some() || needs_no_span || measure_all()
    }
}
