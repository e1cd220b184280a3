//! One call of an asynchronous function.
//!
//! ```text
//!   not polled --first poll asks for a scope--> measured --ready, panic or drop--> recorded
//!        `-------first poll does not ask------> not measured
//! ```

use super::activation::Activation;
use super::budget::Verdict;
use super::hand_over::{Request, take_request};
use super::spare::{boxed, keep};
use super::subscriber::contained;
use crate::scope::Outcome;
use std::convert::Infallible;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use tracing::Span;
use tracing::span::Entered;

pin_project_lite::pin_project! {
    /// The future around an expanded body.
    ///
    /// The scope is open from the first poll to completion or drop, since memory is held across `.await`; at each poll
    /// the span is entered and the thread's allocations belong to the scope. The body is dropped in place, arguments
    /// and all, before the scope closes. Never polled, it leaves no trace. It is `Send` if the body is.
    pub struct Tracked<F>
    where
        F: Future,
    {
        // None once the body has ended.
        #[pin]
        body: Option<F>,
        outcome: fn(&F::Output) -> Outcome,
        polled: bool,
        // Some while the call is measured. Boxed: a future is moved and kept far more often than measured. Dropped by hand:
        // a destructor of its own would be a call at the end of every call that is not measured.
        measuring: ManuallyDrop<Option<Box<Measuring>>>,
    }

    impl<F> PinnedDrop for Tracked<F>
    where
        F: Future,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if this.measuring.is_some() {
                drop_measured(this.body, this.measuring);
            }
        }
    }
}

// What a measured call holds besides the body is handles, which a panic leaves whole.
impl<F: Future + UnwindSafe> UnwindSafe for Tracked<F> {}
impl<F: Future + RefUnwindSafe> RefUnwindSafe for Tracked<F> {}

impl<F: Future> Tracked<F> {
    /// A future around `body`; `outcome` judges the value it completes with.
    #[inline]
    pub const fn new(body: F, outcome: fn(&F::Output) -> Outcome) -> Self {
        Self { body: Some(body), outcome, polled: false, measuring: ManuallyDrop::new(None) }
    }

    /// A future around `body` that belongs to a call which is measured already, or is not to be.
    pub(super) const fn measured(
        body: F,
        outcome: fn(&F::Output) -> Outcome,
        measuring: Option<Box<Measuring>>,
    ) -> Self {
        Self { body: Some(body), outcome, polled: true, measuring: ManuallyDrop::new(measuring) }
    }
}

impl<F: Future<Output = Infallible>> Tracked<F> {
    /// A future around a body that never completes.
    #[inline]
    pub const fn never(body: F) -> Self {
        Self::new(body, |never| match *never {})
    }
}

/// Polls the body; once it has completed, drops it in place. A macro, to be no frame in backtraces.
macro_rules! poll_body {
    ($place:expr, $context:expr) => {{
        let mut place = $place;
        let Some(body) = place.as_mut().as_pin_mut() else {
            panic!("a future of a `#[track_memory]` function was polled after it had completed");
        };
        let poll = body.poll($context);
        if poll.is_ready() {
            place.set(None);
        }
        poll
    }};
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    // What is not measured passes through here alone, which is small enough to be inlined.
    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        if this.measuring.is_none() {
            let poll = poll_body!(this.body.as_mut(), context);
            // The body asks for a scope in its first poll or never.
            if *this.polled || poll.is_ready() {
                return poll;
            }
            *this.polled = true;
            **this.measuring = Measuring::asked_for();
            if this.measuring.is_none() {
                return poll;
            }
        }
        poll_measured(this.body, context, this.measuring, *this.outcome)
    }
}

/// One poll of a measured call, inside the span and the scope; on completion closes the scope and records.
#[inline(never)]
fn poll_measured<F: Future>(
    body: Pin<&mut Option<F>>,
    context: &mut Context<'_>,
    place: &mut Option<Box<Measuring>>,
    outcome: fn(&F::Output) -> Outcome,
) -> Poll<F::Output> {
    let Some(measuring) = place else { return poll_body!(body, context) };
    let poll = {
        let Measuring { span, activation, in_poll, verdict } = &mut **measuring;
        let _inside = Inside::enter(span);
        *in_poll = true;
        let poll = {
            let _attached = activation.as_ref().map(Activation::entered);
            poll_body!(body, context)
        };
        if let Poll::Ready(value) = &poll
            && activation.is_some()
        {
            // This may panic, as may a `Debug` of the value or a layer: then the call is recorded when the future is dropped.
            let outcome = outcome(value);
            if let Some(activation) = activation.take() {
                *verdict = activation.end(span, outcome);
            }
        }
        *in_poll = false;
        poll
    };
    if poll.is_ready() {
        Measuring::finish(place);
    }
    poll
}

/// Drops the body of a measured call, and records.
#[cold]
#[inline(never)]
fn drop_measured<F>(mut body: Pin<&mut Option<F>>, place: &mut Option<Box<Measuring>>) {
    Measuring::drop_body(place, &mut || body.set(None));
}

/// An entered span. Leaving it calls the subscriber, which must not panic while the body unwinds.
struct Inside<'a>(Option<Entered<'a>>);

impl<'a> Inside<'a> {
    // Compiled once, and not with each future.
    #[inline(never)]
    fn enter(span: &'a Span) -> Self {
        Self(Some(span.enter()))
    }
}

impl Drop for Inside<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        contained(|| drop(self.0.take()));
    }
}

/// A measured call.
#[derive(Debug)]
pub(super) struct Measuring {
    span: Span,
    /// None after the end.
    activation: Option<Activation>,
    /// Whether a poll has begun and not returned. Seen after a poll, it unwound.
    in_poll: bool,
    verdict: Verdict,
}

impl Measuring {
    pub(super) const fn new(span: Span, activation: Activation) -> Self {
        Self { span, activation: Some(activation), in_poll: false, verdict: Verdict::none() }
    }

    /// The call that the last poll asked to be measured, if it did.
    #[inline(never)]
    fn asked_for() -> Option<Box<Self>> {
        take_request().map(|request| boxed(Self::open(request)))
    }

    pub(super) fn let_go_of_span(&mut self) {
        contained(|| self.span = Span::none());
    }

    fn open(request: Request) -> Self {
        let Request { span, site, phase, sampled, measured } = request;
        Self::new(span, Activation::open(site, phase, sampled, measured))
    }

    /// What is left to do after a poll that completed.
    #[inline(never)]
    fn finish(place: &mut Option<Box<Self>>) {
        if let Some(mut measuring) = place.take() {
            let verdict = std::mem::replace(&mut measuring.verdict, Verdict::none());
            keep(measuring);
            verdict.raise();
        }
    }

    /// Drops a body that has not completed, inside the span and the scope; then closes the scope and records.
    ///
    /// A body that has completed is gone, and if its figures were recorded, nothing is left to do: then recording itself
    /// panicked.
    fn drop_body(place: &mut Option<Box<Self>>, drop_body: &mut dyn FnMut()) {
        let Some(mut measuring) = place.take() else { return };
        let Self { span, activation, in_poll, .. } = &mut *measuring;
        if activation.is_some() {
            let entered = contained(|| span.enter());
            {
                let _attached = activation.as_ref().map(Activation::entered);
                drop_body();
            }
            let outcome = if *in_poll { Outcome::Panic } else { Outcome::Cancelled };
            if let Some(activation) = activation.take() {
                // Neither outcome lets a budget panic.
                let _ = activation.end(span, outcome);
            }
            contained(|| drop(entered));
        }
        keep(measuring);
    }
}

impl Drop for Measuring {
    /// The way out of a body whose own destructor panics while it is dropped.
    fn drop(&mut self) {
        if let Some(activation) = self.activation.take() {
            let _ = activation.end(&self.span, Outcome::Panic);
        }
        self.let_go_of_span();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CachingAllocator;
    use crate::attribute::allocator::allocator_of;
    use crate::attribute::hand_over::hand_over;
    use crate::attribute::outcome::outcome_ok;
    use crate::attribute::site::{Options, Site};
    use crate::context;
    use crate::device::Host;
    use std::cell::Cell;
    use std::pin::pin;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::task::Waker;

    impl Measuring {
        /// What is left of a call.
        pub(in super::super) fn ended() -> Self {
            Self { span: Span::none(), activation: None, in_poll: false, verdict: Verdict::none() }
        }
    }

    /// Unlike an async block, it still owns everything when it has completed.
    struct Manual {
        allocator: CachingAllocator,
        asked: bool,
        attached_at_drop: Rc<Cell<Option<bool>>>,
    }

    impl Future for Manual {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if self.asked {
                return Poll::Ready(());
            }
            self.asked = true;
            static SITE: Site = Site::new("manual", module_path!(), file!(), line!(), Options::new());
            hand_over(Span::none(), &SITE, None, 1, allocator_of(&self.allocator));
            Poll::Pending
        }
    }

    impl Drop for Manual {
        fn drop(&mut self) {
            self.attached_at_drop.set(Some(context::current(self.allocator.inner().id).is_some()));
        }
    }

    #[test]
    fn a_completed_body_is_dropped_while_its_scope_is_open() {
        let attached_at_drop = Rc::new(Cell::new(None));
        let allocator = CachingAllocator::new(Arc::new(Host::new()));
        let manual = Manual { allocator, asked: false, attached_at_drop: Rc::clone(&attached_at_drop) };
        let mut tracked = pin!(Tracked::new(manual, outcome_ok));
        assert_eq!(attached_at_drop.get(), None);
        assert!(tracked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(attached_at_drop.get(), Some(true));
    }
}
