//! Futures that are measured.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::checks::Measured;
use crate::allocator::CachingAllocator;
use crate::observer::Observation;
use crate::scope::{InScope, OpenScope, Outcome, ScopedFuture};

pin_project_lite::pin_project! {
    /// A future that measures another one, for checks on what it completes with. Made by
    /// [`testing::expect_async`](super::expect_async).
    ///
    /// What the work allocates between its polls, on whichever threads, and what it frees when it is dropped, is measured; what
    /// others do between its polls is not. It is `Send` if the work is.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct ExpectFuture<F> {
        // Before the scope: what is left of a cancelled future is dropped inside.
        #[pin]
        work: ScopedFuture<F>,
        allocator: CachingAllocator,
        // None once the work is done.
        open: Option<(OpenScope, Observation)>,
    }
}

impl<F: Future> ExpectFuture<F> {
    pub(super) fn new(work: F, allocator: CachingAllocator, scope: OpenScope, observation: Observation) -> Self {
        Self { work: work.in_scope(scope.handle()), allocator, open: Some((scope, observation)) }
    }
}

impl<F: Future> Future for ExpectFuture<F> {
    type Output = Measured<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Poll::Ready(value) = this.work.poll(context) else { return Poll::Pending };
        let Some((scope, observation)) = this.open.take() else {
            unreachable!("the work completes once, and panics when it is polled again");
        };
        let observer = observation.end();
        scope.close(Outcome::Ok);
        Poll::Ready(Measured::new(value, this.allocator, observer))
    }
}
