//! What PyTorch 2.11.0 did on an H200 where the card itself was full, and in graph captures.
//! `fixtures/torch-2.11/special/README.md` describes the files.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::HashMap;
use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::{CachingAllocator, Capture, Config, GraphMemory, MemoryPool, PoolOptions};
use memtrack_tests::conformance::memtrack::Memtrack;
use memtrack_tests::conformance::replay::replay_all;
use memtrack_tests::conformance::special::{CAPTURING, CapturesGraphs, driver_out_of_memory, replay_graphs};
use memtrack_tests::reference_allocator::{Counters, PoolId, ReferenceAllocator, Routed, flatten};

#[test]
fn memtrack_gives_pytorchs_answers_on_a_full_card() {
    assert_eq!(replay_all::<Memtrack>(driver_out_of_memory()), (2, Vec::new()), "these recordings differ");
}

#[test]
fn the_reference_allocator_gives_pytorchs_answers_on_a_full_card() {
    assert_eq!(replay_all::<ReferenceAllocator>(driver_out_of_memory()), (2, Vec::new()), "these recordings differ");
}

#[test]
fn memtrack_counts_as_pytorch_in_captures() {
    replay_graphs::<OnMemtrack<true>>();
}

#[test]
fn memtracks_own_ways_change_nothing_about_captures() {
    replay_graphs::<OnMemtrack<false>>();
}

#[test]
fn the_reference_allocator_counts_as_pytorch_in_captures() {
    replay_graphs::<OnReference>();
}

/// memtrack on a simulated device, with or without PyTorch's mistakes.
struct OnMemtrack<const TORCH_EXACT: bool> {
    device: Arc<Simulated>,
    allocator: CachingAllocator,
    pool: Option<MemoryPool>,
    capture: Option<Capture>,
    graphs: HashMap<u64, GraphMemory>,
}

impl<const TORCH_EXACT: bool> CapturesGraphs for OnMemtrack<TORCH_EXACT> {
    fn start(total_bytes: u64, first_address: u64) -> Self {
        let device = Arc::new(Simulated::with_capacity(total_bytes));
        device.script_addresses([first_address]);
        let mut config = Config::default();
        config.torch_exact = TORCH_EXACT;
        let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
        Self { device, allocator, pool: None, capture: None, graphs: HashMap::new() }
    }

    fn allocate(&mut self, bytes: u64, stream: u64) -> u64 {
        self.allocator.allocate_raw(bytes, Stream(stream)).unwrap()
    }

    fn free(&mut self, address: u64) {
        self.allocator.free_raw(address).unwrap();
    }

    fn begin_capture(&mut self, new_pool: bool) {
        if new_pool {
            self.pool = Some(self.allocator.create_pool(PoolOptions::default()));
        }
        self.capture = Some(self.pool.as_ref().unwrap().begin_capture(Stream(CAPTURING)).unwrap());
        self.device.set_capture(Stream(CAPTURING), Some(1));
    }

    fn end_capture(&mut self, graph: u64) {
        self.device.set_capture(Stream(CAPTURING), None);
        self.graphs.insert(graph, self.capture.take().unwrap().end());
        if graph == 2 {
            // PyTorch's pool of a capture is the graphs' alone.
            self.pool = None;
        }
    }

    fn delete_graph(&mut self, graph: u64) {
        drop(self.graphs.remove(&graph).unwrap());
    }

    fn empty_cache(&mut self) {
        self.allocator.empty_cache().unwrap();
    }

    fn counters(&self) -> Counters {
        flatten(&self.allocator.memory_stats())
    }
}

/// The reference allocator, to which a capture is a pool that is used as long as its graph lives, with its stream routed to it as
/// long as it is recorded.
struct OnReference {
    allocator: ReferenceAllocator,
    pool: Option<PoolId>,
}

impl CapturesGraphs for OnReference {
    fn start(total_bytes: u64, first_address: u64) -> Self {
        let addresses = [first_address].into_iter().chain((1..9).map(|n| n << 40));
        Self { allocator: ReferenceAllocator::new("", total_bytes, addresses).unwrap().torch_exact(true), pool: None }
    }

    fn allocate(&mut self, bytes: u64, stream: u64) -> u64 {
        self.allocator.allocate(bytes, stream, 0).unwrap()
    }

    fn free(&mut self, address: u64) {
        assert!(self.allocator.free(address));
    }

    fn begin_capture(&mut self, new_pool: bool) {
        if new_pool {
            self.pool = Some(self.allocator.create_pool(false, false));
        } else {
            self.allocator.begin_use(self.pool.unwrap());
        }
        self.allocator.begin_route(self.pool.unwrap(), Routed::Stream(CAPTURING));
    }

    fn end_capture(&mut self, _graph: u64) {
        self.allocator.end_route(self.pool.unwrap());
    }

    fn delete_graph(&mut self, _graph: u64) {
        self.allocator.end_use(self.pool.unwrap());
    }

    fn empty_cache(&mut self) {
        self.allocator.empty_cache();
    }

    fn counters(&self) -> Counters {
        self.allocator.check();
        self.allocator.counters().clone()
    }
}
