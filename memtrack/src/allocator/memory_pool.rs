//! A private pool in the program's hands, as PyTorch's `MemPool`, `use_mem_pool` and the pools of CUDA graphs.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::error::AllocationError;
use super::inner::Inner;
use super::private_pools::{Accepts, PoolId, PoolOptions, PrivatePool};
use super::{CachingAllocator, events};
use crate::device::Stream;
use crate::sync::lock;

/// A pool of its own inside an allocator: its segments serve only the allocations that are led into it.
///
/// Statistics, scopes and phases count its memory like any other. While it exists its cached memory stays with it, also
/// through [`empty_cache`](CachingAllocator::empty_cache). Dropping it gives its cached memory back to the device; blocks that are still in use stay
/// valid, and their segments go with a later `empty_cache`.
///
/// ```
/// use std::sync::Arc;
/// use memtrack::{Buffer, CachingAllocator, PoolOptions, device::Host};
///
/// let allocator = CachingAllocator::new(Arc::new(Host::with_capacity(64 << 20)));
/// let pool = allocator.create_pool(PoolOptions::default());
/// {
///     let _inside = pool.enter()?;
///     let _scratch = Buffer::<f32>::zeros(&allocator, 1000)?;
/// }
/// assert_eq!(allocator.memory_reserved(), 2 << 20, "the pool keeps its segment");
/// drop(pool);
/// assert_eq!(allocator.memory_reserved(), 0);
/// # Ok::<(), memtrack::AllocationError>(())
/// ```
pub struct MemoryPool {
    inner: Arc<Inner>,
    pool: Arc<PrivatePool>,
}

impl CachingAllocator {
    /// Makes a private pool.
    pub fn create_pool(&self, options: PoolOptions) -> MemoryPool {
        let inner = Arc::clone(self.inner());
        let pool = inner.add_private_pool(options);
        MemoryPool { inner, pool }
    }
}

impl MemoryPool {
    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Its identifier.
    pub fn id(&self) -> PoolId {
        self.pool.id
    }

    /// Who uses it: its owner, guards of [`enter`](Self::enter), captures, and the memory of captured graphs.
    pub fn use_count(&self) -> usize {
        self.pool.use_count()
    }

    /// Leads this thread's allocations into the pool while the guard lives. Guards of several pools nest: the last wins.
    ///
    /// As in PyTorch, while any guard lives, on whatever thread, `empty_cache` leaves the default pools alone. PyTorch neither looks whether
    /// other streams are done with freed blocks then, nor gives cached memory back before it reports an out of memory; memtrack does, unless
    /// the configuration says `torch_exact`.
    ///
    /// # Errors
    ///
    /// [`AllocationError::PoolInUse`] while there is a guard or capture of this pool already, on whatever thread;
    /// [`AllocationError::AllocatorDropped`] when no handle of the allocator is left to allocate with.
    pub fn enter(&self) -> Result<PoolGuard, AllocationError> {
        let (route, usage) = self.route(Accepts::this_thread())?;
        Ok(PoolGuard { _route: route, usage, _of_this_thread: PhantomData })
    }

    /// Leads the allocations of a graph capture into the pool while the guard lives: those made on `stream` while it captures, and on
    /// every stream that has joined the same capture, by whatever thread. Call it before the driver's capture begins, and
    /// [`Capture::end`] once that has ended.
    ///
    /// A graph that is launched uses the addresses of its capture, what was freed meanwhile included, so the pool's memory must stay as
    /// long as the graph: keep what `Capture::end` returns with the graph. Graphs that share a pool, and whatever else is led into
    /// it, share memory too: as in PyTorch, launch them one after the other, in the order of their captures, and copy results out before
    /// the next launch.
    ///
    /// While it lives, blocks that other streams use wait for its end, no event is recorded, queried or waited for and nothing is
    /// synchronized, since the driver allows none of it; so an allocation that finds no memory is out of memory without a retry. Other
    /// threads that are just doing such things are waited for first.
    ///
    /// That is so for this allocator alone. In the driver's strictest mode a capture is broken by whatever queries events or
    /// synchronizes on any thread of the process: another allocator on the device, a `PinnedAllocator` with blocks that wait for streams (its
    /// background thread included), other libraries. Capture in the mode *thread local* or *relaxed* where there are such.
    ///
    /// # Errors
    ///
    /// As for [`enter`](Self::enter); an unknown stream.
    pub fn begin_capture(&self, stream: Stream) -> Result<Capture, AllocationError> {
        self.inner.device.check_stream(stream)?;
        let (route, usage) = self.route(Accepts::CaptureOf(stream))?;
        // Somebody may be giving memory back, which synchronizes streams, or be busy with events.
        drop(lock(&self.inner.growth));
        self.inner.pending.settle();
        Ok(Capture { _route: route, graph: GraphMemory::new(usage) })
    }

    fn route(&self, accepts: Accepts) -> Result<(RouteGuard, PoolUse), AllocationError> {
        if self.inner.is_stream_ordered {
            return Err(AllocationError::NotWithBackend { what: "memory pools and captures" });
        }
        if self.inner.is_shut_down() {
            return Err(AllocationError::AllocatorDropped);
        }
        if !self.inner.routes.begin(&self.pool, accepts) {
            return Err(AllocationError::PoolInUse { pool: self.id() });
        }
        let inner = || Arc::clone(&self.inner);
        let usage = PoolUse { inner: inner(), pool: Arc::clone(&self.pool) };
        Ok((RouteGuard { inner: inner(), id: self.id() }, usage))
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPool").field("id", &self.id()).field("use_count", &self.use_count()).finish()
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        self.pool.use_on_oom.store(false, Ordering::Release);
        self.pool.release();
        if let Err(error) = self.inner.release_private_pool(&self.pool) {
            events::log_kept_segments(&self.inner, &error);
        }
        self.inner.pending.report_lost(&self.inner);
        after_use(&self.inner);
    }
}

/// Whoever used a pool or routed to it does so no more. Where no handle of the allocator is left, nobody but the last user can give
/// the memory back.
fn after_use(inner: &Inner) {
    if inner.is_shut_down() {
        inner.give_up_unused();
    }
}

/// One use of a pool, ended when dropped.
struct PoolUse {
    inner: Arc<Inner>,
    pool: Arc<PrivatePool>,
}

impl Drop for PoolUse {
    fn drop(&mut self) {
        self.pool.release();
        after_use(&self.inner);
    }
}

/// A route into a pool, ended when dropped.
struct RouteGuard {
    inner: Arc<Inner>,
    id: PoolId,
}

impl Drop for RouteGuard {
    fn drop(&mut self) {
        self.inner.routes.end(self.id);
        after_use(&self.inner);
    }
}

/// While it lives, its thread's allocations come from a [`MemoryPool`]. Made by [`MemoryPool::enter`].
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// fn is_send<T: Send>() {}
/// is_send::<memtrack::PoolGuard>();
/// ```
#[must_use = "allocations are led into the pool only while the guard lives"]
pub struct PoolGuard {
    /// Ends before the use of the pool does.
    _route: RouteGuard,
    usage: PoolUse,
    /// The route is for the thread that made it.
    _of_this_thread: PhantomData<*const ()>,
}

impl fmt::Debug for PoolGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolGuard").field("pool", &self.usage.pool.id).finish()
    }
}

/// While it lives, a graph capture's allocations come from a [`MemoryPool`]. Made by [`MemoryPool::begin_capture`].
///
/// Dropping it, as a panic does, gives the capture's use of the pool up: right where the graph is not kept.
#[must_use = "allocations are led into the pool only while the capture lives"]
pub struct Capture {
    /// Ends before the use of the pool does.
    _route: RouteGuard,
    graph: GraphMemory,
}

impl Capture {
    /// Ends the capture's route, once the driver's capture has ended. Keep what it returns as long as the graph: it holds the pool's memory.
    #[must_use = "the pool's memory is held only as long as this lives"]
    pub fn end(self) -> GraphMemory {
        self.graph
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("pool", &self.graph.0.pool.id).finish()
    }
}

/// Holds the memory that a captured graph uses, also when the pool's owner and the allocator's handles go first. Once it and the pool's
/// owner are gone, what is cached goes back to the device with the next [`empty_cache`](CachingAllocator::empty_cache), or when memory runs
/// short; at once where no handle of the allocator is left.
#[must_use = "the pool's memory is held only as long as this lives"]
pub struct GraphMemory(PoolUse);

impl GraphMemory {
    fn new(usage: PoolUse) -> Self {
        usage.pool.begin_graph();
        Self(usage)
    }
}

impl fmt::Debug for GraphMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphMemory").field("pool", &self.0.pool.id).finish()
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        self.0.pool.end_graph();
    }
}
