//! The slow allocator runs everything.

use super::features::Features;
use super::subject::{Figures, Setup, Subject};
use crate::reference_allocator::{Counters, PoolId, ReferenceAllocator, Refused, Routed, SegmentState, TraceEntry};

impl Subject for ReferenceAllocator {
    const FEATURES: Features = Features::ALL;

    fn start(setup: &Setup) -> Result<Self, String> {
        let allocator = Self::new(&setup.settings, setup.total_bytes, setup.addresses.iter().copied());
        allocator.map(|allocator| allocator.torch_exact(setup.torch_exact)).map_err(|error| format!("{error:?}"))
    }

    fn allocate(&mut self, bytes: u64, stream: u64, thread: usize) -> Result<u64, Refused> {
        self.allocate(bytes, stream, thread)
    }

    fn free(&mut self, address: u64) {
        assert!(self.free(address), "nobody has a block at {address:#x}");
    }

    fn record_stream(&mut self, address: u64, stream: u64) {
        self.record_stream(address, stream);
    }

    fn set_busy(&mut self, stream: u64) {
        self.set_busy(stream);
    }

    fn set_idle(&mut self, stream: u64) {
        self.set_idle(stream);
    }

    fn complete_oldest_events(&mut self, count: usize) {
        self.complete_oldest_events(count);
    }

    fn synchronize(&mut self) {
        self.synchronize();
    }

    fn set_other_use(&mut self, bytes: u64) {
        self.set_other_use(bytes);
    }

    fn empty_cache(&mut self) {
        self.empty_cache();
    }

    fn reset_peak(&mut self) {
        self.reset_peak();
    }

    fn reset_accumulated(&mut self) {
        self.reset_accumulated();
    }

    fn set_memory_fraction(&mut self, fraction: f64) {
        self.set_memory_fraction(fraction);
    }

    fn apply_settings(&mut self, text: &str) -> Result<(), String> {
        self.apply_settings(text).map_err(|error| format!("{error:?}"))
    }

    fn create_pool(&mut self, use_on_oom: bool, no_split: bool) -> PoolId {
        self.create_pool(use_on_oom, no_split)
    }

    fn enter_pool(&mut self, pool: PoolId, thread: usize) -> bool {
        self.enter_pool(pool, Routed::Thread(thread))
    }

    fn leave_pool(&mut self, pool: PoolId) {
        self.leave_pool(pool);
    }

    fn delete_pool(&mut self, pool: PoolId) {
        self.delete_pool(pool);
    }

    fn last_refusal(&self) -> Figures {
        Figures {
            reserved_bytes: self.reserved_bytes(),
            largest_free_block_bytes: self.largest_free_block_bytes(),
            limit_bytes: self.limit_bytes(),
        }
    }

    fn device_segments(&self) -> Vec<(u64, u64)> {
        self.segments()
    }

    fn device_used_bytes(&self) -> u64 {
        self.reserved_bytes()
    }

    fn counters(&self) -> Counters {
        self.counters().clone()
    }

    fn snapshot(&self) -> Option<Vec<SegmentState>> {
        Some(self.snapshot())
    }

    fn trace(&self) -> Option<Vec<TraceEntry>> {
        Some(self.trace().to_vec())
    }
}
