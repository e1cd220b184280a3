//! Tracked scopes: what happened to a device's memory between two points of a program.
//!
//! Here live the guards that open and close scopes, on one device and on several, the record they give, who keeps memory in them
//! ([`LiveBlock`]), the handles that take them to other threads and tasks ([`ScopeHandle`]), and the totals of all calls of a
//! function. The arithmetic of peaks and owners is the ledger's; spans are the attribute's.

mod call_sites;
mod devices;
mod handle;
mod kept;
mod record;
mod table;

use std::marker::PhantomData;
use std::sync::Arc;

pub use call_sites::CallSiteTotals;
pub use devices::{AttachedDevices, DevicesRecord, DevicesScope, OpenDevicesScope};
pub use handle::{EnteredScopes, InScope, ScopeHandle, ScopedFuture};
pub use kept::LiveSite;
pub use record::{DeviceName, ScopeRecord};
pub use table::CallSiteTable;

pub use crate::allocator::LiveBlock;
use crate::allocator::{CachingAllocator, Inner};
use crate::context;
use crate::current;
pub use crate::current::{measure_all, set_measure_all};
use crate::history::Stage;
pub use crate::ledger::{CallSite, Outcome};
use crate::ledger::{ScopeKey, ScopeKind};
use crate::observer::{self, Observation};
use crate::source;

/// One activation of a scope that belongs to no thread: it can be sent, and attached to whichever thread works for it.
///
/// Opening and closing take one lock each. Dropped unclosed, it closes as [`Outcome::Cancelled`].
#[derive(Debug)]
#[must_use = "a scope that is dropped at once measures nothing"]
pub struct OpenScope {
    inner: Arc<Inner>,
    key: ScopeKey,
    name: &'static str,
    is_open: bool,
}

impl OpenScope {
    /// Opens a scope on an allocator's device, inside the scope this thread is in. With a phase, what happens in it is
    /// booked under that phase.
    pub fn open(allocator: &CachingAllocator, name: &'static str, phase: Option<&'static str>) -> Self {
        Self::open_kind(Arc::clone(allocator.inner()), name, ScopeKind::Function, phase)
    }

    /// As [`open`](Self::open), counted with all other calls of a call site; the scope has the site's name.
    pub fn open_site(allocator: &CachingAllocator, site: &'static CallSite, phase: Option<&'static str>) -> Self {
        Self::open_call(Arc::clone(allocator.inner()), site, phase)
    }

    /// As [`open_site`](Self::open_site), without a handle.
    #[inline]
    pub(crate) fn open_call(inner: Arc<Inner>, site: &'static CallSite, phase: Option<&'static str>) -> Self {
        Self::open_kind(inner, site.name(), ScopeKind::CallSite(site.id()), phase)
    }

    #[inline]
    pub(crate) fn open_kind(
        inner: Arc<Inner>,
        name: &'static str,
        kind: ScopeKind,
        phase: Option<&'static str>,
    ) -> Self {
        let parent = context::current(inner.id);
        Self::open_in(inner, parent, name, kind, phase)
    }

    /// Opens a scope, inside the one this thread is in, whose allocations are observed.
    pub(crate) fn open_observed(allocator: &CachingAllocator, name: &'static str) -> (Self, Observation) {
        let parent = context::current(allocator.inner().id);
        let open = Self::open_in(Arc::clone(allocator.inner()), parent, name, ScopeKind::Function, None);
        let observation = Observation::begin(open.inner.id, parent, open.key);
        (open, observation)
    }

    #[inline]
    fn open_in(
        inner: Arc<Inner>,
        parent: Option<ScopeKey>,
        name: &'static str,
        kind: ScopeKind,
        phase: Option<&'static str>,
    ) -> Self {
        let key = {
            let mut ledger = inner.ledger();
            let key = ledger.open_scope(parent, kind, phase);
            ledger.name_scope(key, name);
            key
        };
        observer::opened(inner.id, parent, key, name);
        inner.history.annotate(Stage::Start, name);
        if source::is_active() {
            source::opened(&inner, key, phase);
        }
        if let (Some(phase), Some(at_boundary)) = (phase, inner.at_phase_boundary.get()) {
            at_boundary(&inner, phase);
        }
        Self { inner, key, name, is_open: true }
    }

    /// The name it was opened with.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Makes allocations of this thread belong to the scope, until [`leave`](Self::leave) or its end.
    pub(crate) fn enter(&self) {
        context::enter(self.inner.id, self.key);
    }

    /// The number of the allocator measured, and the scope on it.
    pub(crate) fn part(&self) -> (u64, ScopeKey) {
        (self.inner.id, self.key)
    }

    /// Ends what [`enter`](Self::enter) began on this thread.
    pub(crate) fn leave(&self) {
        context::leave(self.inner.id, self.key);
    }

    /// Makes allocations of this thread belong to the scope, until the guard is dropped.
    pub fn attach(&self) -> Attached<'_> {
        self.enter();
        Attached { scope: self, not_send: PhantomData }
    }

    /// Ends the scope and says what happened in it.
    pub fn close(mut self, outcome: Outcome) -> ScopeRecord {
        self.end(outcome)
    }

    /// As [`close`](Self::close) where nobody reads the record.
    #[inline]
    pub(crate) fn close_unread(mut self, outcome: Outcome) {
        self.end_unread(outcome);
    }

    #[inline]
    fn end_unread(&mut self, outcome: Outcome) {
        self.is_open = false;
        if source::is_active() {
            source::closed_unread(&self.inner, self.key);
        }
        context::leave(self.inner.id, self.key);
        let phase = self.inner.ledger().close_scope_unread(self.key, outcome);
        self.inner.history.annotate(Stage::End, self.name);
        if let (Some(phase), Some(at_boundary)) = (phase, self.inner.at_phase_boundary.get()) {
            at_boundary(&self.inner, phase);
        }
    }

    #[inline]
    fn end(&mut self, outcome: Outcome) -> ScopeRecord {
        if source::is_active() { self.end_with_sources(outcome) } else { self.end_alone(outcome) }
    }

    #[cold]
    #[inline(never)]
    fn end_with_sources(&mut self, outcome: Outcome) -> ScopeRecord {
        let sources = source::closed(&self.inner, self.key);
        let mut record = self.end_alone(outcome);
        if !sources.is_empty() {
            record.add_sources(sources, self.inner.is_stand_in);
        }
        record
    }

    #[inline]
    fn end_alone(&mut self, outcome: Outcome) -> ScopeRecord {
        self.is_open = false;
        // In case this thread's attachment was forgotten: it would hide the scopes around.
        context::leave(self.inner.id, self.key);
        let closed = self.inner.ledger().close_scope(self.key, outcome);
        self.inner.history.annotate(Stage::End, self.name);
        if let Some(at_boundary) = self.inner.at_phase_boundary.get()
            && let Some(phase) = closed.and_then(|closed| closed.own_phase.and(closed.phase_name))
        {
            at_boundary(&self.inner, phase);
        }
        ScopeRecord::new(self.name, &self.inner.name, closed, outcome)
    }
}

impl Drop for OpenScope {
    fn drop(&mut self) {
        if self.is_open {
            self.end_unread(Outcome::Cancelled);
        }
    }
}

/// While it lives, allocations of this thread belong to a scope.
#[derive(Debug)]
#[must_use = "the scope is left when this guard is dropped"]
pub struct Attached<'scope> {
    scope: &'scope OpenScope,
    not_send: PhantomData<*const ()>,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        context::leave(self.scope.inner.id, self.scope.key);
    }
}

/// A scope that belongs to the thread that opened it.
///
/// Dropped unclosed, it closes as [`Outcome::Panic`] when a panic that began inside it is under way, else as
/// [`Outcome::Ok`].
#[derive(Debug)]
#[must_use = "a scope that is dropped at once measures nothing"]
pub struct Scope {
    open: OpenScope,
    was_panicking: bool,
    not_send: PhantomData<*const ()>,
}

impl Scope {
    /// Opens a scope on an allocator's device and enters it on this thread. With a phase, what happens in it is booked
    /// under that phase.
    pub fn open(allocator: &CachingAllocator, name: &'static str, phase: Option<&'static str>) -> Self {
        Self::enter(OpenScope::open(allocator, name, phase))
    }

    /// As [`open`](Self::open), counted with all other calls of a call site; the scope has the site's name.
    pub fn open_site(allocator: &CachingAllocator, site: &'static CallSite, phase: Option<&'static str>) -> Self {
        Self::enter(OpenScope::open_site(allocator, site, phase))
    }

    pub(crate) fn enter(open: OpenScope) -> Self {
        open.enter();
        Self { open, was_panicking: std::thread::panicking(), not_send: PhantomData }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.open.inner
    }

    /// Ends the scope and says what happened in it.
    pub fn close(mut self, outcome: Outcome) -> ScopeRecord {
        self.open.end(outcome)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.open.is_open {
            let panicked = std::thread::panicking() && !self.was_panicking;
            self.open.end_unread(if panicked { Outcome::Panic } else { Outcome::Ok });
        }
    }
}

/// Opens a scope on the current allocator, entered on this thread; `None` when measuring is off, or no allocator is current and no
/// [source] registered.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host, scope::Outcome};
/// let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// memtrack::set_default(&allocator);
/// let scope = memtrack::scope("warm up").unwrap();
/// let kept = Buffer::<u8>::zeros(&allocator, 1000)?;
/// drop(Buffer::<u8>::zeros(&allocator, 5000)?);
/// let record = scope.close(Outcome::Ok);
/// assert_eq!(record.delta_bytes(), 1024);
/// assert_eq!(record.peak_delta_bytes(), 1024 + 5120);
/// # Ok::<(), memtrack::AllocationError>(())
/// ```
#[must_use = "a scope that is dropped at once measures nothing"]
pub fn scope(name: &'static str) -> Option<Scope> {
    current::measured_inner().map(|inner| Scope::enter(OpenScope::open_kind(inner, name, ScopeKind::Function, None)))
}
