//! Scopes for work that is done elsewhere: on other threads, and in tasks that are spawned.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{OpenScope, Scope};
use crate::allocator::Inner;
use crate::context;
use crate::ledger::ScopeKey;

/// Takes the scopes that a thread is in to other threads: what is allocated there belongs to them too.
///
/// It is to scopes what `tracing::Span::current()` and its clones are to spans. It has the innermost scope of every allocator,
/// and says whether budgets are strict ([`testing::strict`](crate::testing::strict)); it does not make an allocator current.
///
/// A handle does not keep its scope open. What is allocated through it after the scope has closed belongs to the nearest scope
/// around that is still open. With several threads in one scope the scope's own figures are those of all of them together.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host, scope::Outcome};
/// use memtrack::scope::{Scope, ScopeHandle};
///
/// let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// let scope = Scope::open(&allocator, "load", None);
/// let handle = ScopeHandle::current();
/// std::thread::scope(|threads| {
///     for _ in 0..4 {
///         threads.spawn(|| handle.in_scope(|| Buffer::<u8>::zeros(&allocator, 1000)));
///     }
/// });
/// assert_eq!(scope.close(Outcome::Ok).own_allocation_count, 4);
/// ```
///
/// Taking one costs a lock an allocator, and so does entering it; clones are cheap.
#[derive(Debug, Clone)]
pub struct ScopeHandle {
    held: Arc<Held>,
}

// As for allocators: a panic leaves the books whole.
impl UnwindSafe for ScopeHandle {}
impl RefUnwindSafe for ScopeHandle {}

#[derive(Debug)]
struct Held {
    scopes: Vec<HeldScope>,
    is_strict: bool,
}

/// A scope whose record is kept, open or closed, so that it can be told which scopes are around it.
#[derive(Debug)]
struct HeldScope {
    inner: Arc<Inner>,
    key: ScopeKey,
}

impl HeldScope {
    /// `None` when the scope is gone.
    fn new(inner: Arc<Inner>, key: ScopeKey) -> Option<Self> {
        let is_held = inner.ledger().hold_scope(key);
        is_held.then(|| Self { inner, key })
    }
}

impl Drop for HeldScope {
    fn drop(&mut self) {
        self.inner.ledger().release_scope(self.key);
    }
}

impl ScopeHandle {
    /// The scopes that this thread is in, on all allocators. Outside any scope, a handle that changes nothing where it is
    /// entered.
    pub fn current() -> Self {
        let held = |(id, key): (u64, ScopeKey)| HeldScope::new(Inner::find(id)?, key);
        let scopes = context::everywhere().into_iter().filter_map(held).collect();
        Self { held: Arc::new(Held { scopes, is_strict: context::is_strict() }) }
    }

    /// Enters the scopes on this thread, until the guard is dropped; in a future, use [`InScope`] instead.
    pub fn enter(&self) -> EnteredScopes<'_> {
        let Held { scopes, is_strict } = &*self.held;
        let enter = |held: &HeldScope| {
            let HeldScope { inner, key } = held;
            // With nothing open around, allocations are nobody's, and not those of a scope that this thread happens to be in.
            let scope = inner.ledger().nearest_open(*key).unwrap_or(ScopeKey::NOBODY);
            context::enter(inner.id, scope);
            (inner.id, scope)
        };
        let entered = scopes.iter().map(enter).collect();
        if *is_strict {
            context::enter_strict();
        }
        EnteredScopes { entered, is_strict: *is_strict, handle: PhantomData, not_send: PhantomData }
    }

    /// Runs a closure inside the scopes. A panic leaves them too.
    pub fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        work()
    }
}

impl OpenScope {
    /// A handle of this scope alone.
    pub fn handle(&self) -> ScopeHandle {
        let held = HeldScope::new(Arc::clone(&self.inner), self.key);
        let scopes = held.into_iter().collect();
        ScopeHandle { held: Arc::new(Held { scopes, is_strict: context::is_strict() }) }
    }
}

impl Scope {
    /// A handle of this scope alone; [`ScopeHandle::current`] has those of other allocators too.
    pub fn handle(&self) -> ScopeHandle {
        self.open.handle()
    }
}

/// While it lives, allocations of this thread belong to the scopes of a [`ScopeHandle`].
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// fn is_send<T: Send>() {}
/// is_send::<memtrack::scope::EnteredScopes<'_>>();
/// ```
#[derive(Debug)]
#[must_use = "the scopes are left when this guard is dropped"]
pub struct EnteredScopes<'handle> {
    entered: Vec<(u64, ScopeKey)>,
    is_strict: bool,
    handle: PhantomData<&'handle ScopeHandle>,
    not_send: PhantomData<*const ()>,
}

impl Drop for EnteredScopes<'_> {
    fn drop(&mut self) {
        if self.is_strict {
            context::leave_strict();
        }
        for (allocator, scope) in self.entered.drain(..).rev() {
            context::leave(allocator, scope);
        }
    }
}

/// Futures that work inside scopes, on whichever thread they are polled.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host, scope::Outcome};
/// use memtrack::scope::{InScope, OpenScope};
///
/// async fn load(allocator: CachingAllocator) -> Result<Buffer<u8>, memtrack::AllocationError> {
///     Buffer::zeros(&allocator, 1000)
/// }
///
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
/// # runtime.block_on(async {
/// let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// let scope = OpenScope::open(&allocator, "load", None);
/// // Inside a `#[track_memory]` function `in_current_scope()` is enough.
/// let child = tokio::spawn(load(allocator.clone()).in_scope(scope.handle()));
/// let buffer = child.await??;
/// assert_eq!(scope.close(Outcome::Ok).own_delta_bytes, 1000);
/// # drop(buffer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })
/// # .unwrap();
/// ```
pub trait InScope: Future + Sized {
    /// Enters the handle's scopes at each poll, and to drop the future.
    fn in_scope(self, handle: ScopeHandle) -> ScopedFuture<Self> {
        ScopedFuture { future: Some(self), handle }
    }

    /// Enters the scopes that this thread is in now at each poll, and to drop the future.
    fn in_current_scope(self) -> ScopedFuture<Self> {
        self.in_scope(ScopeHandle::current())
    }
}

impl<F: Future> InScope for F {}

pin_project_lite::pin_project! {
    /// A future that works inside scopes. Made by [`InScope`]. It is `Send` if the future is.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct ScopedFuture<F> {
        // None once it has completed.
        #[pin]
        future: Option<F>,
        handle: ScopeHandle,
    }

    impl<F> PinnedDrop for ScopedFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.future.is_some() {
                this.handle.in_scope(|| this.future.set(None));
            }
        }
    }
}

impl<F: Future> Future for ScopedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let _entered = this.handle.enter();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            panic!("a future in a scope was polled after it had completed");
        };
        let poll = future.poll(context);
        if poll.is_ready() {
            // Dropped while the scopes are entered.
            this.future.set(None);
        }
        poll
    }
}
