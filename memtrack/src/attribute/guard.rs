//! One call of a synchronous function.

use super::activation::Activation;
use super::allocator::Measured;
use super::budget::Verdict;
use super::site::Site;
use super::subscriber::DroppedContained;
use crate::scope::{OpenScope, Outcome};
use std::mem::ManuallyDrop;
use std::thread::panicking;
use tracing::Span;
use tracing::span::EnteredSpan;

/// The first variable of an expanded function, and so the last to be dropped.
///
/// Idle until the arguments are bound and the gates passed; then it holds the call's scope and the entered span. Dropped
/// it closes the scope, records the figures and leaves the span.
#[derive(Debug)]
pub struct Guard {
    /// Dropped by hand: all that an idle guard leaves to do is then one comparison, and not a call of a destructor.
    call: ManuallyDrop<Option<Call>>,
}

#[derive(Debug)]
struct Call {
    kind: Kind,
    /// The outcome unless the call unwinds.
    outcome: Outcome,
    /// Whether the thread already unwound at entry: then this call is made by a destructor, and not itself panicking.
    panicking_at_entry: bool,
}

#[derive(Debug)]
enum Kind {
    /// A call whose end has somebody to tell of: a span, or whoever set a budget.
    Told { span: EnteredSpan, activation: Activation },
    /// A call that counts for its phase and its call site alone. Nothing is moved for it that nobody will read.
    Quiet(OpenScope),
}

impl Kind {
    fn enter(&self) {
        match self {
            Self::Told { activation, .. } => activation.enter(),
            Self::Quiet(scope) => scope.enter(),
        }
    }

    fn leave(&self) {
        match self {
            Self::Told { activation, .. } => activation.leave(),
            Self::Quiet(scope) => scope.leave(),
        }
    }
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
        site: &'static Site,
        phase: Option<&'static str>,
        sampled: u64,
        measured: Measured,
    ) {
        let kind = match measured {
            Measured::One(target) if span.is_none() && site.options.tells_nobody() => {
                Kind::Quiet(target.open(site, phase))
            }
            measured => open_told(span, site, phase, sampled, measured),
        };
        kind.enter();
        *self.call = Some(Call { kind, outcome: Outcome::Ok, panicking_at_entry: panicking() });
    }

    /// Whether the call is measured.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.call.is_some()
    }

    /// The call returns with this outcome.
    #[inline]
    pub fn ends_with(&mut self, outcome: Outcome) {
        if let Some(call) = &mut *self.call {
            call.outcome = outcome;
        }
    }

    /// While it lives, what this thread allocates does not belong to the call: a returned value is told of, and what its
    /// `Debug` and the subscriber do is not the function's.
    #[inline]
    pub fn aside(&self) -> Aside<'_> {
        let kind = self.call.as_ref().map(|call| &call.kind);
        if let Some(kind) = kind {
            kind.leave();
        }
        Aside(kind)
    }

    /// From here on, a call that does not say how it ends has failed: it left by `?`.
    #[inline]
    pub fn left_early_with_error(&mut self) {
        self.ends_with(Outcome::Err);
    }

    /// Ends the call here, where a budget's panic goes to the caller like any other.
    ///
    /// # Panics
    ///
    /// If the call exceeded a budget that asks for a panic.
    #[inline]
    pub fn finish(&mut self) {
        if self.is_open() {
            self.end();
        }
    }

    #[inline(never)]
    fn end(&mut self) {
        if let Some(call) = self.call.take() {
            call.end().raise();
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        self.finish();
    }
}

/// See [`Guard::aside`].
#[derive(Debug)]
pub struct Aside<'a>(Option<&'a Kind>);

impl Drop for Aside<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(kind) = self.0 {
            kind.enter();
        }
    }
}

impl Call {
    #[inline]
    fn end(self) -> Verdict {
        let Self { kind, outcome, panicking_at_entry } = self;
        let outcome = if panicking() && !panicking_at_entry { Outcome::Panic } else { outcome };
        match kind {
            Kind::Told { span, activation } => end_told(span, activation, outcome),
            Kind::Quiet(scope) => {
                scope.close_unread(outcome);
                Verdict::none()
            }
        }
    }
}

#[inline(never)]
fn open_told(span: Span, site: &'static Site, phase: Option<&'static str>, sampled: u64, measured: Measured) -> Kind {
    let span = span.entered();
    Kind::Told { span, activation: Activation::open(site, phase, sampled, measured) }
}

#[inline(never)]
fn end_told(span: EnteredSpan, activation: Activation, outcome: Outcome) -> Verdict {
    // Leaving and closing the span are the subscriber's as well, also when recording panicked.
    let left = DroppedContained::new(span);
    let verdict = left.get().map_or(Verdict::none(), |span| activation.end(span, outcome));
    drop(left);
    verdict
}

/// A closure that is called once. The bound keeps rustc from inferring one that could be called again, whose borrows would
/// then be too short. Not called here: that would be a frame more in each backtrace.
#[inline(always)]
pub const fn called_once<T, F: FnOnce() -> T>(body: F) -> F {
    body
}

/// Does what no constant can: its name is what rustc then shows.
#[inline(always)]
pub fn at_run_time(open: impl FnOnce()) {
    open();
}

/// Ends a call that gave this value, where a budget's panic must leave the value to be dropped.
#[inline]
pub fn finished<T>(guard: &mut Guard, value: T, judge: impl FnOnce(&T) -> Outcome) -> T {
    let value = returned(guard, value, judge);
    guard.finish();
    value
}

/// Tells the guard how a value that is about to be returned looks.
#[inline]
pub fn returned<T>(guard: &mut Guard, value: T, judge: impl FnOnce(&T) -> Outcome) -> T {
    if guard.is_open() {
        let outcome = {
            let _aside = guard.aside();
            judge(&value)
        };
        guard.ends_with(outcome);
    }
    value
}
