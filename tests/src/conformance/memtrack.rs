//! memtrack's allocator on a simulated device runs all of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtrack::device::{Device, Simulated, Stream};
use memtrack::history::{BlockStatus, ContextLevel, HistoryOptions, TraceAction};
use memtrack::{AllocationError, CachingAllocator, Config, MemoryPool, OutOfMemory, PoolKind, PoolOptions, Refusal};

use super::features::Features;
use super::programs::action;
use super::subject::{Figures, Setup, Subject};
use super::threads::Threads;
use crate::reference_allocator::{
    Action, Activity, BlockState, Counters, Kind, PoolId, Refused, SegmentState, TraceEntry, flatten,
};

/// The allocator, its device, and the last refusal.
#[derive(Debug)]
pub struct Memtrack {
    /// The device.
    pub device: Arc<Simulated>,
    /// The allocator.
    pub allocator: CachingAllocator,
    last_refusal: Option<OutOfMemory>,
    pools: BTreeMap<PoolId, Arc<MemoryPool>>,
    threads: Threads,
}

impl Subject for Memtrack {
    const FEATURES: Features = Features::ALL;

    fn start(setup: &Setup) -> Result<Self, String> {
        let device = Arc::new(Simulated::with_capacity(setup.total_bytes));
        device.script_addresses(setup.addresses.iter().copied());
        let mut config = Config::from_torch(&setup.settings).map_err(|error| format!("{error:?}"))?;
        config.torch_exact = setup.torch_exact;
        let allocator = CachingAllocator::with_config(device.clone(), config).map_err(|error| format!("{error:?}"))?;
        let options = HistoryOptions::new().context(ContextLevel::None).skip_actions([TraceAction::Snapshot]);
        allocator.record_memory_history(Some(&options));
        Ok(Self { device, allocator, last_refusal: None, pools: BTreeMap::new(), threads: Threads::default() })
    }

    fn allocate(&mut self, bytes: u64, stream: u64, thread: usize) -> Result<u64, Refused> {
        let allocator = self.allocator.clone();
        let outcome = self.threads.run(thread, move |_| allocator.allocate_raw(bytes, Stream(stream)));
        outcome.map_err(|error| match error {
            AllocationError::OutOfMemory(error) => {
                assert_eq!(error.requested_bytes, bytes);
                let refused = if error.refused_by == Refusal::Limit { Refused::ByLimit } else { Refused::ByDevice };
                self.last_refusal = Some(*error);
                refused
            }
            AllocationError::TooLarge { .. } => Refused::TooLarge,
            AllocationError::Device(error) if error.to_string().contains("part of a segment") => Refused::PartOfSegment,
            error => panic!("{error}"),
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

    fn apply_settings(&mut self, text: &str) -> Result<(), String> {
        self.allocator.apply_settings(text).map_err(|error| error.to_string())
    }

    fn create_pool(&mut self, use_on_oom: bool, no_split: bool) -> PoolId {
        let pool = self.allocator.create_pool(PoolOptions::default().use_on_oom(use_on_oom).no_split(no_split));
        let id = (pool.id().0, pool.id().1);
        self.pools.insert(id, Arc::new(pool));
        id
    }

    fn enter_pool(&mut self, pool: PoolId, thread: usize) -> bool {
        let memory_pool = Arc::clone(&self.pools[&pool]);
        self.threads.run(thread, move |guards| match memory_pool.enter() {
            Ok(guard) => guards.insert(pool, guard).is_none(),
            Err(AllocationError::PoolInUse { .. }) => false,
            Err(error) => panic!("{error}"),
        })
    }

    fn leave_pool(&mut self, pool: PoolId) {
        self.threads.run_on_each(move |guards| drop(guards.remove(&pool)));
    }

    fn delete_pool(&mut self, pool: PoolId) {
        self.pools.remove(&pool);
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
        let segments = self.allocator.memory_snapshot();
        let state = |segment: memtrack::history::Segment| SegmentState {
            address: segment.address,
            stream: segment.stream.0,
            kind: if segment.segment_type == PoolKind::Small { Kind::Small } else { Kind::Large },
            pool: segment.segment_pool_id,
            expandable: segment.is_expandable,
            blocks: segment
                .blocks
                .iter()
                .map(|block| BlockState {
                    address: block.address,
                    size: block.size,
                    requested: block.requested_size,
                    activity: match block.state {
                        BlockStatus::ActiveAllocated => Activity::Allocated,
                        BlockStatus::ActivePendingFree => Activity::Pending,
                        _ => Activity::Inactive,
                    },
                })
                .collect(),
        };
        Some(segments.into_iter().map(state).collect())
    }

    fn trace(&self) -> Option<Vec<TraceEntry>> {
        let snapshot = self.allocator.snapshot();
        if let Err(inconsistency) = snapshot.check_consistency() {
            panic!("{inconsistency}");
        }
        let entries = snapshot.device_traces.first()?.iter();
        Some(entries.map(entry).collect())
    }
}

fn entry(entry: &memtrack::history::TraceEntry) -> TraceEntry {
    let action = action(entry.action.name());
    // What the device has free at an out of memory is the recording machine's affair.
    let address = if action == Action::Oom { 0 } else { entry.addr };
    TraceEntry { action, address, bytes: entry.size, stream: entry.stream.0 }
}
