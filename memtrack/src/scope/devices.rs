//! Scopes over several devices at once.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{CallSite, DeviceName, LiveBlock, Outcome, ScopeRecord};
use crate::allocator::{CachingAllocator, Inner};
use crate::context;
use crate::history::Stage;
use crate::ledger::{Combined, LedgerGuard, ScopeKey, ScopeKind, SharedLedger};
use crate::observer;
use crate::source;

/// What happened to the memory of several devices while a scope was open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DevicesRecord {
    /// All devices together: sums, except that `peak_bytes` and `own_peak_bytes` are the peaks of the sum, which are exact and
    /// mostly lower than the sum of the peaks. The device is named by all names, as `cuda:0,cuda:1`. It has what sources said.
    pub combined: ScopeRecord,
    /// Each device, in the order given.
    pub devices: Vec<ScopeRecord>,
    /// Devices on which anything was allocated or freed meanwhile, whoever did it.
    pub changed_device_count: usize,
}

/// One device's part.
#[derive(Debug)]
struct Part {
    inner: Arc<Inner>,
    key: ScopeKey,
}

/// One activation of a scope over several devices that belongs to no thread: it can be sent, and attached to whichever thread
/// works for it.
///
/// Opening and closing take the lock of each device, all at the same time. While such a scope is open, its devices' threads
/// may have to wait for each other's statistics where they would else put that off.
///
/// Dropped unclosed, it closes as [`Outcome::Cancelled`].
#[derive(Debug)]
#[must_use = "a scope that is dropped at once measures nothing"]
pub struct OpenDevicesScope {
    parts: Vec<Part>,
    combined: Arc<Combined>,
    name: &'static str,
    is_open: bool,
}

impl OpenDevicesScope {
    /// Opens a scope on the devices of these allocators, on each inside the scope this thread is in there. An allocator that is
    /// named twice counts once; of none, nothing is measured. With a phase, what happens in it is booked under that phase.
    pub fn open(allocators: &[CachingAllocator], name: &'static str, phase: Option<&'static str>) -> Self {
        Self::open_kind(allocators, name, ScopeKind::Function, phase)
    }

    /// As [`open`](Self::open), counted on each device with all other calls of a call site; the scope has the site's name.
    pub fn open_site(allocators: &[CachingAllocator], site: &'static CallSite, phase: Option<&'static str>) -> Self {
        Self::open_kind(allocators, site.name(), ScopeKind::CallSite(site.id()), phase)
    }

    fn open_kind(
        allocators: &[CachingAllocator],
        name: &'static str,
        kind: ScopeKind,
        phase: Option<&'static str>,
    ) -> Self {
        let mut inners: Vec<&Arc<Inner>> = Vec::with_capacity(allocators.len());
        for allocator in allocators {
            if inners.iter().all(|inner| !Arc::ptr_eq(inner, allocator.inner())) {
                inners.push(allocator.inner());
            }
        }
        let parents: Vec<_> = inners.iter().map(|inner| context::current(inner.id)).collect();
        let mut books = lock_all(&inners, SharedLedger::lock_at_once);
        let live_bytes = books.iter().map(|ledger| ledger.live_bytes()).fold(0, i64::wrapping_add);
        let combined = Arc::new(Combined::new(live_bytes));
        let mut parts = Vec::with_capacity(inners.len());
        for ((ledger, inner), parent) in books.iter_mut().zip(&inners).zip(&parents) {
            let key = ledger.open_scope(*parent, kind, phase);
            ledger.name_scope(key, name);
            ledger.join(key, &combined);
            parts.push(Part { inner: Arc::clone(inner), key });
        }
        drop(books);
        if source::is_active()
            && let Some(last) = parts.last()
        {
            source::opened(&last.inner, last.key, phase);
        }
        for (part, parent) in parts.iter().zip(parents) {
            observer::opened(part.inner.id, parent, part.key, name);
            part.inner.history.annotate(Stage::Start, name);
        }
        Self { parts, combined, name, is_open: true }
    }

    /// The name it was opened with.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Makes allocations of this thread on any of the devices belong to the scope, until the guard is dropped.
    pub fn attach(&self) -> AttachedDevices<'_> {
        self.enter();
        AttachedDevices { scope: self, not_send: PhantomData }
    }

    /// Makes allocations of this thread on any of the devices belong to the scope, until [`leave`](Self::leave) or its end.
    pub(crate) fn enter(&self) {
        for part in &self.parts {
            context::enter(part.inner.id, part.key);
        }
    }

    /// The numbers of the allocators measured, with the scope on each.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, ScopeKey)> {
        self.parts.iter().map(|part| (part.inner.id, part.key))
    }

    /// The requested bytes allocated in the scope that are live.
    pub(crate) fn own_live_bytes(&self) -> i64 {
        self.parts.iter().fold(0, |sum, part| sum.wrapping_add(part.inner.ledger().own_live_bytes(part.key)))
    }

    /// As [`OpenScope::live_blocks`](super::OpenScope::live_blocks), of one device after the other.
    pub fn live_blocks(&self) -> Vec<LiveBlock> {
        self.parts.iter().flat_map(|part| part.inner.live_blocks_inside(part.key)).collect()
    }

    /// Ends what [`enter`](Self::enter) began on this thread.
    pub(crate) fn leave(&self) {
        for part in self.parts.iter().rev() {
            context::leave(part.inner.id, part.key);
        }
    }

    /// Ends the scope and says what happened in it.
    pub fn close(mut self, outcome: Outcome) -> DevicesRecord {
        self.end(outcome)
    }

    fn end(&mut self, outcome: Outcome) -> DevicesRecord {
        self.is_open = false;
        let sources = match self.parts.last() {
            Some(last) if source::is_active() => source::closed(&last.inner, last.key),
            _ => Vec::new(),
        };
        // In case this thread's attachment was forgotten: it would hide the scopes around.
        self.leave();
        let inners: Vec<&Arc<Inner>> = self.parts.iter().map(|part| &part.inner).collect();
        let mut books = lock_all(&inners, SharedLedger::lock);
        let closed: Vec<_> = books
            .iter_mut()
            .zip(&self.parts)
            .map(|(ledger, part)| {
                ledger.part(part.key);
                ledger.close_scope(part.key, outcome)
            })
            .collect();
        let peaks = (self.combined.peak_bytes(), self.combined.own_peak_bytes());
        drop(books);
        let mut devices = Vec::with_capacity(closed.len());
        for (part, closed) in self.parts.iter().zip(closed) {
            part.inner.ledger.end_at_once();
            part.inner.history.annotate(Stage::End, self.name);
            devices.push(ScopeRecord::new(self.name, &part.inner.name, closed, outcome));
        }
        let mut record = DevicesRecord::new(self.name, devices, peaks, outcome);
        record.combined.sources = sources;
        record
    }
}

/// All books at once, in the order of the list. They are locked in one order for all, or two scopes could wait for each other.
fn lock_all<'a>(inners: &[&'a Arc<Inner>], lock: impl Fn(&'a SharedLedger) -> LedgerGuard<'a>) -> Vec<LedgerGuard<'a>> {
    let mut order: Vec<usize> = (0..inners.len()).collect();
    order.sort_by_key(|at| inners[*at].id);
    let mut books: Vec<_> = order.into_iter().map(|at| (at, lock(&inners[at].ledger))).collect();
    books.sort_by_key(|(at, _)| *at);
    books.into_iter().map(|(_, ledger)| ledger).collect()
}

impl Drop for OpenDevicesScope {
    fn drop(&mut self) {
        if self.is_open {
            self.end(Outcome::Cancelled);
        }
    }
}

/// While it lives, allocations of this thread belong to a scope over several devices.
#[derive(Debug)]
#[must_use = "the scope is left when this guard is dropped"]
pub struct AttachedDevices<'scope> {
    scope: &'scope OpenDevicesScope,
    not_send: PhantomData<*const ()>,
}

impl Drop for AttachedDevices<'_> {
    fn drop(&mut self) {
        self.scope.leave();
    }
}

/// A scope over several devices that belongs to the thread that opened it.
///
/// Dropped unclosed, it closes as [`Outcome::Panic`] when a panic that began inside it is under way, else as
/// [`Outcome::Ok`].
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host};
/// use memtrack::scope::{DevicesScope, Outcome};
///
/// let devices = [CachingAllocator::new(Arc::new(Host::new())), CachingAllocator::new(Arc::new(Host::new()))];
/// let scope = DevicesScope::open(&devices, "move", None);
/// for allocator in &devices {
///     drop(Buffer::<u8>::zeros(allocator, 1024)?);
/// }
/// let record = scope.close(Outcome::Ok);
/// assert_eq!(record.combined.peak_delta_bytes(), 1024, "never both at once");
/// assert_eq!(record.devices[1].peak_delta_bytes(), 1024);
/// # Ok::<(), memtrack::AllocationError>(())
/// ```
#[derive(Debug)]
#[must_use = "a scope that is dropped at once measures nothing"]
pub struct DevicesScope {
    open: OpenDevicesScope,
    was_panicking: bool,
    not_send: PhantomData<*const ()>,
}

impl DevicesScope {
    /// As [`OpenDevicesScope::open`], entered on this thread.
    pub fn open(allocators: &[CachingAllocator], name: &'static str, phase: Option<&'static str>) -> Self {
        Self::enter(OpenDevicesScope::open(allocators, name, phase))
    }

    /// As [`OpenDevicesScope::open_site`], entered on this thread.
    pub fn open_site(allocators: &[CachingAllocator], site: &'static CallSite, phase: Option<&'static str>) -> Self {
        Self::enter(OpenDevicesScope::open_site(allocators, site, phase))
    }

    fn enter(open: OpenDevicesScope) -> Self {
        open.enter();
        Self { open, was_panicking: std::thread::panicking(), not_send: PhantomData }
    }

    /// Ends the scope and says what happened in it.
    pub fn close(mut self, outcome: Outcome) -> DevicesRecord {
        self.open.end(outcome)
    }
}

impl Drop for DevicesScope {
    fn drop(&mut self) {
        if self.open.is_open {
            let panicked = std::thread::panicking() && !self.was_panicking;
            self.open.end(if panicked { Outcome::Panic } else { Outcome::Ok });
        }
    }
}

impl DevicesRecord {
    fn new(name: &'static str, devices: Vec<ScopeRecord>, peaks: (i64, i64), outcome: Outcome) -> Self {
        let names: Vec<&str> = devices.iter().map(|record| record.device.as_str()).collect();
        let device = DeviceName::new(&names.join(",").into());
        let sum = |of: fn(&ScopeRecord) -> i64| devices.iter().map(of).fold(0, i64::wrapping_add);
        let combined = ScopeRecord {
            name,
            device,
            phase: devices.first().and_then(|record| record.phase),
            before_bytes: sum(|record| record.before_bytes),
            after_bytes: sum(|record| record.after_bytes),
            peak_bytes: peaks.0,
            allocation_count: sum(|record| record.allocation_count),
            free_count: sum(|record| record.free_count),
            retry_count: sum(|record| record.retry_count),
            oom_count: sum(|record| record.oom_count),
            reserved_delta_bytes: sum(|record| record.reserved_delta_bytes),
            own_delta_bytes: sum(|record| record.own_delta_bytes),
            own_peak_bytes: peaks.1,
            own_allocated_bytes: sum(|record| record.own_allocated_bytes),
            exclusive_allocated_bytes: sum(|record| record.exclusive_allocated_bytes),
            own_allocation_count: sum(|record| record.own_allocation_count),
            own_free_count: sum(|record| record.own_free_count),
            own_retry_count: sum(|record| record.own_retry_count),
            own_oom_count: sum(|record| record.own_oom_count),
            foreign_bytes: sum(|record| record.foreign_bytes),
            outcome,
            sources: Vec::new(),
            has_allocator: true,
        };
        let changed = |record: &&ScopeRecord| record.allocation_count > 0 || record.free_count > 0;
        let changed_device_count = devices.iter().filter(changed).count();
        Self { combined, devices, changed_device_count }
    }
}
