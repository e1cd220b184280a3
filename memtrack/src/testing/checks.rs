//! Doing a piece of work while it is measured, and checking what came out.

use std::future::Future;
use std::sync::Arc;

use super::bytes::{self, IntoBytes};
use super::failure::{Failure, Limit};
use super::future::ExpectFuture;
use crate::allocator::CachingAllocator;
use crate::context;
use crate::observer::{Observation, Observer, SiteCount};
use crate::scope::{OpenScope, Outcome, Scope};

/// The name of the scope around work that is measured.
pub(super) const SCOPE: &str = "test";

/// Names the allocator to be measured, for tests where it is not the current one.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host, testing};
/// let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// testing::on(&allocator).expect(|| drop(Buffer::<u8>::zeros(&allocator, 1000))).keeps_nothing();
/// ```
pub fn on(allocator: &CachingAllocator) -> On<'_> {
    On { allocator }
}

/// An allocator to be measured. Made by [`on`].
#[derive(Debug, Clone, Copy)]
#[must_use = "it measures nothing by itself"]
pub struct On<'a> {
    allocator: &'a CachingAllocator,
}

impl On<'_> {
    /// Does the work and measures it, as [`testing::expect`](super::expect); also with measuring switched off.
    ///
    /// # Panics
    ///
    /// As the work does.
    #[track_caller]
    #[must_use = "nothing is checked yet"]
    pub fn expect<T>(self, work: impl FnOnce() -> T) -> Measured<T> {
        let (scope, observation) = self.open();
        let scope = Scope::enter(scope);
        let value = work();
        let observer = observation.end();
        scope.close(Outcome::Ok);
        Measured::new(value, self.allocator, observer)
    }

    /// As [`expect`](Self::expect), of a future.
    #[track_caller]
    pub fn expect_async<F: Future>(self, work: F) -> ExpectFuture<F> {
        let (scope, observation) = self.open();
        ExpectFuture::new(work, self.allocator.clone(), scope, observation)
    }

    #[track_caller]
    fn open(self) -> (OpenScope, Observation) {
        if !context::is_available() {
            panic!("memtrack: nothing can be measured: this thread is ending");
        }
        OpenScope::open_observed(self.allocator, SCOPE)
    }
}

/// Work that has been done, with its value and what it came to. Its checks panic when they do not hold, except while the thread
/// unwinds from another panic, and return it otherwise.
#[derive(Debug)]
pub struct Measured<T> {
    value: T,
    device: Arc<str>,
    observer: Arc<Observer>,
    /// What was live when the work was done, or its value dropped.
    kept: Vec<SiteCount>,
}

impl<T> Measured<T> {
    /// The observer's work has ended.
    pub(super) fn new(value: T, allocator: &CachingAllocator, observer: Arc<Observer>) -> Self {
        let kept = observer.live();
        Self { value, device: Arc::clone(&allocator.inner().name), observer, kept }
    }

    /// Bytes that the work allocated and that were live at its end.
    pub fn kept_bytes(&self) -> u64 {
        super::failure::sum(&self.kept)
    }

    /// The most bytes allocated by the work that were live at once.
    pub fn peak_bytes(&self) -> u64 {
        self.observer.peak_bytes()
    }

    /// Allocations that the work made.
    pub fn allocation_count(&self) -> u64 {
        self.observer.allocation_count()
    }

    /// All that the work allocated is freed.
    ///
    /// # Panics
    ///
    /// When it is not, with the lines that allocated what is live.
    #[track_caller]
    pub fn keeps_nothing(self) -> Self {
        self.check_kept(Limit::None)
    }

    /// No more than `limit` of what the work allocated is live.
    ///
    /// # Panics
    ///
    /// When more is, as [`keeps_nothing`](Self::keeps_nothing); when the limit is no size.
    #[track_caller]
    pub fn keeps_at_most(self, limit: impl IntoBytes) -> Self {
        self.check_kept(Limit::AtMost(bytes::required(limit)))
    }

    /// At every moment, less than `limit` of what the work allocated was live.
    ///
    /// # Panics
    ///
    /// When not, with the lines that allocated what was live at the peak; when the limit is no size.
    #[track_caller]
    pub fn peak_under(self, limit: impl IntoBytes) -> Self {
        self.check_peak(Limit::Under(bytes::required(limit)))
    }

    /// At every moment, no more than `limit` of what the work allocated was live.
    ///
    /// # Panics
    ///
    /// As [`peak_under`](Self::peak_under).
    #[track_caller]
    pub fn peak_at_most(self, limit: impl IntoBytes) -> Self {
        self.check_peak(Limit::AtMost(bytes::required(limit)))
    }

    /// The work allocated nothing, not even for a moment.
    ///
    /// # Panics
    ///
    /// When it did, with the lines that allocated.
    #[track_caller]
    pub fn no_allocations(self) -> Self {
        self.check_count(Limit::None)
    }

    /// The work made no more than `limit` allocations.
    ///
    /// # Panics
    ///
    /// When it made more, as [`no_allocations`](Self::no_allocations).
    #[track_caller]
    pub fn allocations_at_most(self, limit: u64) -> Self {
        self.check_count(Limit::AtMost(limit))
    }

    #[track_caller]
    fn check_kept(self, limit: Limit) -> Self {
        let kept_bytes = self.kept_bytes();
        if !limit.allows(kept_bytes) {
            Failure::kept(&self.device, kept_bytes, limit, self.kept.clone()).raise();
        }
        self
    }

    #[track_caller]
    fn check_peak(self, limit: Limit) -> Self {
        let peak_bytes = self.peak_bytes();
        if !limit.allows(peak_bytes) {
            Failure::peak(&self.device, peak_bytes, limit, self.observer.live_at_peak()).raise();
        }
        self
    }

    #[track_caller]
    fn check_count(self, limit: Limit) -> Self {
        let count = self.allocation_count();
        if !limit.allows(count) {
            Failure::allocations(&self.device, count, limit, self.observer.made()).raise();
        }
        self
    }

    /// Drops the value, so that memory in it does not count as kept any more.
    #[must_use = "nothing is checked yet"]
    pub fn without_value(self) -> Measured<()> {
        let Self { value, device, observer, .. } = self;
        drop(value);
        let kept = observer.live();
        Measured { value: (), device, observer, kept }
    }

    /// The value of the work.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The value of the work, to go on with.
    pub fn into_value(self) -> T {
        self.value
    }
}
