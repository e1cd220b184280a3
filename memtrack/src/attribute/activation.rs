//! One measured call, synchronous or not: its span, its scope, and what is due at its end.

use super::allocator::Measured;
use super::budget::{Verdict, judge, judge_unmeasured};
use super::opened::Opened;
use super::record::{log_sources, record};
use super::site::Site;
use super::subscriber::contained;
use crate::allocator::watch;
use crate::scope::Outcome;
use std::thread::panicking;
use tracing::Span;

/// The scope of a call, with what is needed to end it.
#[derive(Debug)]
pub(super) struct Activation {
    site: &'static Site,
    /// None if there is no allocator to measure.
    opened: Option<Opened>,
    phase_given: bool,
    /// One of how many calls this is; 0 if it has no span.
    sampled: u64,
}

impl Activation {
    #[inline]
    pub(super) fn open(site: &'static Site, phase: Option<&'static str>, sampled: u64, measured: Measured) -> Self {
        let opened = Opened::open(measured, site, phase);
        Self { site, opened, phase_given: phase.is_some(), sampled }
    }

    /// Makes this thread's allocations belong to the call.
    #[inline]
    pub(super) fn enter(&self) {
        if let Some(opened) = &self.opened {
            opened.enter();
            if self.site.options.watches_oom() {
                opened.each_part(|(allocator, scope)| watch::enter(allocator, scope, self.site));
            }
        }
    }

    /// Ends what [`enter`](Self::enter) began.
    #[inline]
    pub(super) fn leave(&self) {
        if let Some(opened) = &self.opened {
            opened.leave();
            self.stop_watching();
        }
    }

    #[inline]
    fn stop_watching(&self) {
        if let Some(opened) = &self.opened
            && self.site.options.watches_oom()
        {
            opened.each_part(|(allocator, scope)| watch::leave(allocator, scope));
        }
    }

    /// While the guard lives, this thread's allocations belong to the call.
    pub(super) fn entered(&self) -> Entered<'_> {
        self.enter();
        Entered(self)
    }

    /// Closes the scope, which leaves it too, records the figures on the span and holds them against the budgets.
    ///
    /// To be called inside the span. What calls a subscriber is contained while the thread unwinds.
    #[inline]
    pub(super) fn end(self, span: &Span, outcome: Outcome) -> Verdict {
        self.stop_watching();
        let Self { site, opened, phase_given, sampled } = self;
        let opened = match opened {
            // Measured for its phase or its call site alone: there is nobody to tell.
            Some(Opened::One(scope)) if span.is_disabled() && !site.options.has_budget() => {
                scope.close_unread(outcome);
                return Verdict::none();
            }
            opened => opened,
        };
        let closed = opened.map(|opened| opened.close(outcome, site.options.allowed_bytes()));
        contained(|| {
            record(span, site, closed.as_ref(), outcome, phase_given, sampled);
            if let Some(devices) = closed.as_ref().and_then(|closed| closed.devices.as_ref()) {
                devices.log();
            }
            if let Some(closed) = closed.as_ref().filter(|closed| !closed.record.sources.is_empty()) {
                log_sources(&closed.record);
            }
            let may_panic = matches!(outcome, Outcome::Ok | Outcome::Err) && !panicking();
            match &closed {
                Some(closed) => judge(site, closed, may_panic),
                None => judge_unmeasured(site, may_panic),
            }
        })
        .unwrap_or(Verdict::none())
    }
}

/// See [`Activation::entered`].
pub(super) struct Entered<'a>(&'a Activation);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
