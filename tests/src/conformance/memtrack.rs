//! memtrack's allocator on a simulated device runs what it has.

use std::sync::Arc;

use memtrack::device::{Device, Simulated, Stream};
use memtrack::{AllocationError, CachingAllocator, Config, OutOfMemory, Refusal};

use super::features::Features;
use super::subject::{Figures, Setup, Subject};
use crate::reference_allocator::{Counters, PoolId, Refused, SegmentState, TraceEntry, flatten};

/// The allocator, its device, and the last refusal.
#[derive(Debug)]
pub struct Memtrack {
    /// The device.
    pub device: Arc<Simulated>,
    /// The allocator.
    pub allocator: CachingAllocator,
    last_refusal: Option<OutOfMemory>,
}

impl Subject for Memtrack {
    /// What recordings and random programs may ask of memtrack: the one place where a feature is switched on.
    const FEATURES: Features = Features { expandable: false, settings: false, pools: false, threads: false };

    fn start(setup: &Setup) -> Result<Self, String> {
        let device = Arc::new(Simulated::with_capacity(setup.total_bytes));
        device.script_addresses(setup.addresses.iter().copied());
        let config: Config = setup.settings.parse().map_err(|error| format!("{error:?}"))?;
        let allocator = CachingAllocator::with_config(device.clone(), config).map_err(|error| format!("{error:?}"))?;
        Ok(Self { device, allocator, last_refusal: None })
    }

    fn allocate(&mut self, bytes: u64, stream: u64, thread: usize) -> Result<u64, Refused> {
        assert_eq!(thread, 0, "one thread");
        self.allocator.allocate_raw(bytes, Stream(stream)).map_err(|error| {
            let AllocationError::OutOfMemory(error) = error else { panic!("{error}") };
            assert_eq!(error.requested_bytes, bytes);
            let refused = if error.refused_by == Refusal::Limit { Refused::ByLimit } else { Refused::ByDevice };
            self.last_refusal = Some(*error);
            refused
        })
    }

    fn free(&mut self, address: u64) {
        self.allocator.free_raw(address).unwrap();
    }

    fn record_stream(&mut self, address: u64, stream: u64) {
        self.allocator.record_stream_raw(address, Stream(stream)).unwrap();
    }

    fn set_busy(&mut self, stream: u64) {
        self.device.set_busy(Stream(stream));
    }

    fn set_idle(&mut self, stream: u64) {
        self.device.set_idle(Stream(stream));
    }

    fn complete_oldest_events(&mut self, count: usize) {
        self.device.complete_oldest_events(count);
    }

    fn synchronize(&mut self) {
        self.device.synchronize().unwrap();
    }

    fn set_other_use(&mut self, bytes: u64) {
        self.device.set_other_use(bytes);
    }

    fn empty_cache(&mut self) {
        self.allocator.empty_cache().unwrap();
    }

    fn reset_peak(&mut self) {
        self.allocator.reset_peak_memory_stats();
    }

    fn reset_accumulated(&mut self) {
        self.allocator.reset_accumulated_memory_stats();
    }

    fn set_memory_fraction(&mut self, fraction: f64) {
        self.allocator.set_memory_fraction(fraction).unwrap();
    }

    fn apply_settings(&mut self, _text: &str) -> Result<(), String> {
        panic!("not among the features")
    }

    fn create_pool(&mut self, _use_on_oom: bool, _no_split: bool) -> PoolId {
        panic!("not among the features")
    }

    fn enter_pool(&mut self, _pool: PoolId, _thread: usize) -> bool {
        panic!("not among the features")
    }

    fn leave_pool(&mut self, _pool: PoolId) {
        panic!("not among the features")
    }

    fn delete_pool(&mut self, _pool: PoolId) {
        panic!("not among the features")
    }

    fn last_refusal(&self) -> Figures {
        let error = self.last_refusal.as_ref().unwrap();
        Figures {
            reserved_bytes: error.reserved_bytes,
            largest_free_block_bytes: error.largest_free_block_bytes,
            limit_bytes: error.limit_bytes,
        }
    }

    fn device_segments(&self) -> Vec<(u64, u64)> {
        self.device.segments()
    }

    fn device_used_bytes(&self) -> u64 {
        self.device.used_bytes()
    }

    fn counters(&self) -> Counters {
        flatten(&self.allocator.memory_stats())
    }

    fn snapshot(&self) -> Option<Vec<SegmentState>> {
        None
    }

    fn trace(&self) -> Option<Vec<TraceEntry>> {
        None
    }
}
