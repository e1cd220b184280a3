//! Private pools, and whose allocations go to them.

use super::state::PrivatePool;
use super::{PoolId, ReferenceAllocator, Routed};

impl ReferenceAllocator {
    /// A pool with one use, that of its owner.
    pub fn create_pool(&mut self, use_on_oom: bool, no_split: bool) -> PoolId {
        let id = (0, self.next_pool);
        self.next_pool += 1;
        self.private_pools.push(PrivatePool { id, use_count: 1, use_on_oom, no_split });
        id
    }

    /// Uses of a pool: its owner's, and one for each that is entered. `None` when it is gone.
    pub fn pool_use_count(&self, id: PoolId) -> Option<u64> {
        self.private_pools.iter().find(|pool| pool.id == id).map(|pool| pool.use_count)
    }

    /// The owner's use ends: the pool is no fallback any more, and if nobody else uses it, its free memory goes back.
    pub fn delete_pool(&mut self, id: PoolId) {
        for pool in self.private_pools.iter_mut().filter(|pool| pool.id == id) {
            pool.use_on_oom = false;
        }
        self.end_use(id);
        self.release_freeable(Some(id));
    }

    /// Allocations of a thread or on a stream go to the pool; false when they do already, from whomever.
    pub fn enter_pool(&mut self, id: PoolId, whose: Routed) -> bool {
        if self.routes.iter().any(|(entered, _)| *entered == id) {
            return false;
        }
        self.begin_use(id);
        self.begin_route(id, whose);
        true
    }

    /// Ends what [`enter_pool`](Self::enter_pool) began.
    pub fn leave_pool(&mut self, id: PoolId) {
        self.end_route(id);
        self.end_use(id);
    }

    /// One more use, as a graph has of its pool as long as it lives.
    pub fn begin_use(&mut self, id: PoolId) {
        for pool in self.private_pools.iter_mut().filter(|pool| pool.id == id) {
            pool.use_count += 1;
        }
    }

    /// One use less. After the last the pool's memory may be given back.
    pub fn end_use(&mut self, id: PoolId) {
        let Some(pool) = self.private_pools.iter_mut().find(|pool| pool.id == id) else { return };
        pool.use_count -= 1;
        if pool.use_count == 0 {
            self.freeable.push(id);
        }
    }

    /// Routes allocations without using the pool, as a capture does between its begin and its end.
    pub fn begin_route(&mut self, id: PoolId, whose: Routed) {
        self.routes.push((id, whose));
    }

    /// Ends a route.
    pub fn end_route(&mut self, id: PoolId) {
        self.routes.retain(|(entered, _)| *entered != id);
    }

    /// Whether events wait: during captures, and for PyTorch while any pool is entered.
    pub(super) fn holds_events(&self) -> bool {
        self.routes.iter().any(|(_, whose)| self.torch_exact || matches!(whose, Routed::Stream(_)))
    }

    /// The pool that was entered last for this thread or stream.
    pub(super) fn route(&self, thread: usize, stream: u64) -> PoolId {
        let fits = |whose: &Routed| *whose == Routed::Thread(thread) || *whose == Routed::Stream(stream);
        self.routes.iter().rev().find(|(_, whose)| fits(whose)).map_or((0, 0), |(id, _)| *id)
    }
}
