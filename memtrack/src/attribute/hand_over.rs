//! How the body of an asynchronous function asks the future around it for a scope.
//!
//! Only inside the body's async block are the arguments bound under their own names, so only there the span's fields and
//! the device can be evaluated; but the scope must belong to the future around the block, to outlive the arguments. The
//! block leaves a request in a thread-local and stops once, and the future takes it as the poll returns: between the two
//! nothing else runs on the thread.

use super::allocator::Measured;
use super::site::Site;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tracing::Span;

/// What [`Tracked`](super::tracked::Tracked) needs to open a scope.
pub(super) struct Request {
    pub(super) span: Span,
    pub(super) site: &'static Site,
    pub(super) phase: Option<&'static str>,
    pub(super) sampled: u64,
    pub(super) measured: Measured,
}

thread_local! {
    static REQUEST: Cell<Option<Request>> = const { Cell::new(None) };
}

/// Leaves a request for the future around the caller, which must await [`Pause::once`] next.
///
/// In a thread that is being torn down the request is lost, and the activation not measured. The same goes if something
/// between the two calls drives another measured future: it leaves and takes a request of its own in this one's place.
pub fn hand_over(span: Span, site: &'static Site, phase: Option<&'static str>, sampled: u64, measured: Measured) {
    let _ = REQUEST.try_with(|request| request.set(Some(Request { span, site, phase, sampled, measured })));
}

/// Takes the request that the last poll left, if it left one.
pub(super) fn take_request() -> Option<Request> {
    REQUEST.try_with(Cell::take).ok().flatten()
}

/// Whether a request is left.
fn request_waits() -> bool {
    let waits = REQUEST.try_with(|place| {
        let request = place.take();
        let waits = request.is_some();
        place.set(request);
        waits
    });
    waits.unwrap_or(false)
}

/// A future that is pending once, if the request was not lost. Wakes nobody: the future around polls again at once when it
/// finds the request. Without one it would pass the pending on, and no executor would ever poll again.
pub struct Pause {
    passed: bool,
}

impl Pause {
    /// The one stop after [`hand_over`].
    pub const fn once() -> Self {
        Self { passed: false }
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.passed, true) || !request_waits() { Poll::Ready(()) } else { Poll::Pending }
    }
}
