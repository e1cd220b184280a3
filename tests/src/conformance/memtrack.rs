//! memtrack's allocator on a simulated device runs what it has.

use std::sync::Arc;

use memtrack::device::{Device, Simulated, Stream};
use memtrack::{AllocationError, CachingAllocator, Config, Refusal};

use super::features::Features;
use super::subject::{Setup, Subject};
use crate::reference_allocator::{Counters, PoolId, Refused, SegmentState, TraceEntry, flatten};

/// The allocator, its device, and the last refusal with all that it says.
#[derive(Debug)]
pub struct Memtrack {
    /// The device.
    pub device: Arc<Simulated>,
    /// The allocator.
    pub allocator: CachingAllocator,
    /// The error behind the last [`Refused`].
    pub last_error: Option<AllocationError>,
}

impl Subject for Memtrack {
    /// What recordings and random programs may ask of memtrack: the one place where a feature is switched on.
    const FEATURES: Features = Features { expandable: false, settings: false, pools: false, threads: false };

    fn start(setup: &Setup) -> Result<Self, String> {
        let device = Arc::new(Simulated::with_capacity(setup.total_bytes));
        device.script_addresses(setup.addresses.iter().copied());
        let config: Config = setup.settings.parse().map_err(|error| format!("{error:?}"))?;
        let allocator = CachingAllocator::with_config(device.clone(), config).map_err(|error| format!("{error:?}"))?;
        Ok(Self { device, allocator, last_error: None })
    }

    fn allocate(&mut self, bytes: u64, stream: u64, thread: usize) -> Result<u64, Refused> {
        assert_eq!(thread, 0, "one thread");
        self.allocator.allocate_raw(bytes, Stream(stream)).map_err(|error| {
            let refused = match &error {
                AllocationError::OutOfMemory(error) if error.refused_by == Refusal::Limit => Refused::ByLimit,
                AllocationError::OutOfMemory(_) => Refused::ByDevice,
                error => panic!("{error}"),
            };
            self.last_error = Some(error);
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
