//! One call of a synchronous function.

use super::outcome::{Fallible, outcome_of};
use super::record::record;
use super::subscriber::contained;
use crate::CachingAllocator;
use crate::scope::{Outcome, Scope};
use std::mem::ManuallyDrop;
use std::thread::panicking;
use tracing::Span;
use tracing::span::EnteredSpan;

/// The first variable of an expanded function, and so the last to be dropped.
///
/// Idle until the arguments are bound and the gates passed; then it holds the call's scope and the entered span. Dropped
/// it closes the scope, records the figures and leaves the span.
pub struct Guard {
    /// Dropped by hand: all that an idle guard leaves to do is then one comparison, and not a call of a destructor.
    call: ManuallyDrop<Option<Call>>,
}

struct Call {
    span: EnteredSpan,
    scope: Option<Scope>,
    phase_given: bool,
    /// The outcome unless the call unwinds.
    outcome: Outcome,
    /// Whether the thread already unwound at entry: then this call is made by a destructor, and not itself panicking.
    panicking_at_entry: bool,
}

impl Guard {
    /// A guard of a call that is not measured, or not yet.
    #[inline]
    pub const fn idle() -> Self {
        Self { call: ManuallyDrop::new(None) }
    }

    /// Begins to measure: enters the span, then opens the scope. Without an allocator only the outcome will be known.
    #[inline(never)]
    pub fn open(
        &mut self,
        span: Span,
        name: &'static str,
        phase: Option<&'static str>,
        allocator: Option<CachingAllocator>,
    ) {
        let span = span.entered();
        let scope = allocator.map(|allocator| Scope::open(&allocator, name, phase));
        *self.call = Some(Call {
            span,
            scope,
            phase_given: phase.is_some(),
            outcome: Outcome::Ok,
            panicking_at_entry: panicking(),
        });
    }

    /// The call returns with this outcome.
    #[inline]
    pub fn ends_with(&mut self, outcome: Outcome) {
        if let Some(call) = &mut *self.call {
            call.outcome = outcome;
        }
    }

    /// From here on, a call that does not say how it ends has failed: it left by `?`.
    #[inline]
    pub fn left_early_with_error(&mut self) {
        self.ends_with(Outcome::Err);
    }

    #[inline(never)]
    fn finish(&mut self) {
        if let Some(call) = self.call.take() {
            call.finish();
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.call.is_some() {
            self.finish();
        }
    }
}

impl Call {
    fn finish(self) {
        let Self { span, scope, phase_given, outcome, panicking_at_entry } = self;
        let outcome = if panicking() && !panicking_at_entry { Outcome::Panic } else { outcome };
        let scope = scope.map(|scope| scope.close(outcome));
        contained(|| record(&span, scope.as_ref(), outcome, phase_given));
        // Leaving and closing the span are the subscriber's as well.
        contained(|| drop(span));
    }
}

/// Calls a closure once. The bound keeps rustc from inferring a closure that could be called again, whose borrows would
/// then be too short.
#[inline(always)]
pub fn call_once<T>(body: impl FnOnce() -> T) -> T {
    body()
}

/// Tells the guard how a value that is about to be returned looks.
#[inline]
pub fn returned<T: Fallible>(guard: &mut Guard, value: T) -> T {
    guard.ends_with(outcome_of(&value));
    value
}
