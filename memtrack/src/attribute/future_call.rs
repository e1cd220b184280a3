//! One call of a function that returns a future, with the option `future`: the call itself, then the future's polls.

use super::activation::Activation;
use super::allocator::Measured;
use super::site::Site;
use super::spare::boxed;
use super::subscriber::contained;
use super::tracked::{Measuring, Tracked};
use crate::scope::Outcome;
use std::future::Future;
use std::pin::Pin;
use std::thread::panicking;
use tracing::Span;
use tracing::span::EnteredSpan;

/// The first variable of an expanded function that returns a future.
///
/// Idle until the arguments are bound and the gates passed. Then the call runs in the span and the scope, which the
/// future takes over; dropped before that, the call has unwound.
#[derive(Debug)]
pub struct FutureCall {
    call: Option<(EnteredSpan, Activation)>,
}

impl FutureCall {
    /// A call that is not measured, or not yet.
    #[inline]
    pub const fn idle() -> Self {
        Self { call: None }
    }

    /// Begins to measure: enters the span, then opens the scope.
    #[inline(never)]
    pub fn open(
        &mut self,
        span: Span,
        site: &'static Site,
        phase: Option<&'static str>,
        sampled: u64,
        measured: Measured,
    ) {
        let span = span.entered();
        let activation = Activation::open(site, phase, sampled, measured);
        activation.enter();
        self.call = Some((span, activation));
    }

    /// The call has returned its future, which is measured from here on.
    fn hand_over(mut self) -> Option<Box<Measuring>> {
        let (span, activation) = self.call.take()?;
        activation.leave();
        Some(boxed(Measuring::new(span.exit(), activation)))
    }

    /// The future of a function that returns an `impl Future`.
    pub fn wrap_opaque<F: Future>(self, future: F, outcome: fn(&F::Output) -> Outcome) -> Tracked<F> {
        Tracked::measured(future, outcome, self.hand_over())
    }

    /// The future of a function that returns a `Pin<Box<impl Future>>`.
    pub fn wrap_boxed_opaque<F: Future>(
        self,
        future: Pin<Box<F>>,
        outcome: fn(&F::Output) -> Outcome,
    ) -> Pin<Box<Tracked<Pin<Box<F>>>>> {
        Box::pin(self.wrap_opaque(future, outcome))
    }

    /// The future of a function that names its type.
    pub fn wrap<F: WrapFuture>(self, future: F, outcome: fn(&F::Output) -> Outcome) -> F {
        match self.hand_over() {
            Some(measuring) => future.wrap(Wrapping { outcome, measuring }),
            None => future,
        }
    }
}

impl Drop for FutureCall {
    fn drop(&mut self) {
        if let Some((span, activation)) = self.call.take() {
            let outcome = if panicking() { Outcome::Panic } else { Outcome::Cancelled };
            // No budget panics here: the call has not ended by itself.
            let _ = contained(|| activation.end(&span, outcome));
            contained(|| drop(span));
        }
    }
}

/// What a future is wrapped with.
pub struct Wrapping<T> {
    outcome: fn(&T) -> Outcome,
    measuring: Box<Measuring>,
}

/// A future that can be measured and keep its type.
#[diagnostic::on_unimplemented(
    message = "`future` cannot measure a `{Self}` and return the same type",
    label = "neither an `impl Future` nor a box of a `dyn Future`",
    note = "the option works with `impl Future<…>`, `Pin<Box<impl Future<…>>>` and `Pin<Box<dyn Future<…>>>`, the last with no \
            other traits beside it than `Send`, `Sync` and `Unpin`"
)]
pub trait WrapFuture: Future + Sized {
    /// The future, measured.
    fn wrap(self, wrapping: Wrapping<Self::Output>) -> Self;
}

macro_rules! boxed {
    ($($bounds:tt)*) => {
        impl<'a, T: 'a> WrapFuture for Pin<Box<dyn Future<Output = T> $($bounds)* + 'a>> {
            fn wrap(self, Wrapping { outcome, measuring }: Wrapping<T>) -> Self {
                Box::pin(Tracked::measured(self, outcome, Some(measuring)))
            }
        }
    };
}

boxed!();
boxed!(+ Send);
boxed!(+ Sync);
boxed!(+ Send + Sync);
boxed!(+ Unpin);
boxed!(+ Send + Unpin);
boxed!(+ Sync + Unpin);
boxed!(+ Send + Sync + Unpin);
