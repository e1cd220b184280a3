//! Private pools and the routes that lead allocations into them.
//!
//! A route is in force while a guard lives: for the allocations of one thread, or for those of the streams of one graph
//! capture. The route that began last and accepts an allocation wins.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use crate::device::{Device, DeviceError, Stream};
use crate::sync::lock;

/// Identifies a pool: PyTorch's pair. Pools that a program makes are `(0, k)`, counted from 1 in the whole process; the default
/// pools are `(0, 0)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// The pools of everybody who uses no pool of his own.
    pub const DEFAULT: Self = Self(0, 0);

    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(0, NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
}

/// What a private pool is to do; none of it by default. As the arguments of PyTorch's `MemPool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolOptions {
    /// Its cached memory also serves requests that otherwise find none.
    pub use_on_oom: bool,
    /// Each of its blocks is a whole segment.
    pub no_split: bool,
}

impl PoolOptions {
    /// Whether its cached memory also serves requests for the default pools that would otherwise be out of memory. Not while it
    /// serves a graph, which would write to it (PyTorch does not look).
    pub fn use_on_oom(mut self, on: bool) -> Self {
        self.use_on_oom = on;
        self
    }

    /// Whether each of its blocks is a whole segment, never split.
    pub fn no_split(mut self, on: bool) -> Self {
        self.no_split = on;
        self
    }
}

/// A private pool. Its blocks are in the shards that name it.
#[derive(Debug)]
pub(crate) struct PrivatePool {
    pub(crate) id: PoolId,
    pub(super) no_split: bool,
    pub(super) use_on_oom: AtomicBool,
    /// The pool's owner, routes into it, and captured graphs. At zero its cached memory may go.
    use_count: AtomicUsize,
    /// Of these, captures underway and captured graphs.
    graph_count: AtomicUsize,
    /// When the use count came to zero, among all pools.
    freeable_since: AtomicU64,
}

impl PrivatePool {
    pub(super) fn new(options: PoolOptions) -> Self {
        let PoolOptions { use_on_oom, no_split } = options;
        Self {
            id: PoolId::next(),
            no_split,
            use_on_oom: use_on_oom.into(),
            use_count: 1.into(),
            graph_count: 0.into(),
            freeable_since: 0.into(),
        }
    }

    pub(super) fn use_count(&self) -> usize {
        self.use_count.load(Ordering::Acquire)
    }

    fn acquire(&self) {
        self.use_count.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn begin_graph(&self) {
        self.graph_count.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn end_graph(&self) {
        self.graph_count.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a graph was or is being captured with its memory, which comes to all of it again each time it is launched.
    pub(super) fn serves_graphs(&self) -> bool {
        self.graph_count.load(Ordering::Acquire) > 0
    }

    /// Whether its cached memory may serve others.
    pub(super) fn helps_out(&self) -> bool {
        self.use_on_oom.load(Ordering::Acquire) && !self.serves_graphs()
    }

    pub(super) fn release(&self) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.freeable_since.store(NEXT.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.use_count.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn freeable_since(&self) -> u64 {
        self.freeable_since.load(Ordering::Relaxed)
    }

    pub(super) fn is_freeable(&self) -> bool {
        self.use_count() == 0
    }
}

/// Whose allocations a route is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Accepts {
    Thread(ThreadId),
    /// Streams that take part in the same graph capture as this one.
    CaptureOf(Stream),
}

impl Accepts {
    pub(super) fn this_thread() -> Self {
        Self::Thread(thread::current().id())
    }

    fn accepts(&self, device: &dyn Device, stream: Stream) -> Result<bool, DeviceError> {
        match self {
            Self::Thread(thread) => Ok(*thread == thread::current().id()),
            Self::CaptureOf(origin) => {
                let capture = device.capture_id(*origin)?;
                Ok(capture.is_some() && device.capture_id(stream)? == capture)
            }
        }
    }
}

#[derive(Debug)]
struct Route {
    pool: Arc<PrivatePool>,
    accepts: Accepts,
}

/// The routes in force, oldest first.
#[derive(Debug)]
pub(super) struct Routes {
    /// Zero spares an allocation the lock.
    count: AtomicUsize,
    /// Of these, how many keep the allocator from asking and waiting for events: graph captures, since the driver allows
    /// neither meanwhile. PyTorch takes every route for a capture.
    holding_events: AtomicUsize,
    every_route_holds_events: bool,
    routes: Mutex<Vec<Route>>,
}

impl Routes {
    pub(super) fn new(torch_exact: bool) -> Self {
        Self {
            count: AtomicUsize::new(0),
            holding_events: AtomicUsize::new(0),
            every_route_holds_events: torch_exact,
            routes: Mutex::default(),
        }
    }

    /// Whether any route is in force.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether events may not be recorded, asked or waited for now.
    #[inline]
    pub(super) fn hold_events(&self) -> bool {
        self.holding_events.load(Ordering::Acquire) > 0
    }

    /// Whether a graph is captured.
    pub(super) fn any_capture(&self) -> bool {
        lock(&self.routes).iter().any(|route| matches!(route.accepts, Accepts::CaptureOf(_)))
    }

    fn count(&self, routes: &[Route]) {
        let holds = |route: &&Route| self.every_route_holds_events || matches!(route.accepts, Accepts::CaptureOf(_));
        self.holding_events.store(routes.iter().filter(holds).count(), Ordering::Release);
        self.count.store(routes.len(), Ordering::Release);
    }

    /// The pool that an allocation on `stream` by this thread belongs to, `None` for the default pools.
    pub(super) fn find(&self, device: &dyn Device, stream: Stream) -> Result<Option<Arc<PrivatePool>>, DeviceError> {
        for Route { pool, accepts } in lock(&self.routes).iter().rev() {
            if accepts.accepts(device, stream)? {
                return Ok(Some(Arc::clone(pool)));
            }
        }
        Ok(None)
    }

    /// Begins a route. `false` when there is one into the pool already.
    pub(super) fn begin(&self, pool: &Arc<PrivatePool>, accepts: Accepts) -> bool {
        let mut routes = lock(&self.routes);
        if routes.iter().any(|route| route.pool.id == pool.id) {
            return false;
        }
        pool.acquire();
        routes.push(Route { pool: Arc::clone(pool), accepts });
        self.count(&routes);
        true
    }

    /// Ends the route into a pool. The pool's use goes on: whoever ends the route keeps it or releases it.
    pub(super) fn end(&self, id: PoolId) {
        let mut routes = lock(&self.routes);
        routes.retain(|route| route.pool.id != id);
        self.count(&routes);
    }
}
