//! What PyTorch 2.11.0 did on an H200 where the card itself was full, and in graph captures.
//! `fixtures/torch-2.11/special/README.md` describes the files.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack_tests::conformance::memtrack::Memtrack;
use memtrack_tests::conformance::replay::replay_all;
use memtrack_tests::conformance::special::{CAPTURING, CapturesGraphs, driver_out_of_memory, replay_graphs};
use memtrack_tests::device_list::subjects;
use memtrack_tests::device_list::{CapturedOn, Failure};
use memtrack_tests::reference_allocator::{Counters, PoolId, ReferenceAllocator, Routed};

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
    // Also where it has its own ways: captures have none of PyTorch's mistakes.
    for torch_exact in [true, false] {
        let (device, controls) = subjects::simulated();
        let mut subject = CapturedOn::new(device.clone(), &controls, torch_exact).unwrap().unwrap();
        replay_graphs(&mut subject).unwrap();
        assert_eq!(device.memory().unwrap().free_bytes, device.total_bytes());
    }
}

#[test]
fn the_reference_allocator_counts_as_pytorch_in_captures() {
    let allocator = ReferenceAllocator::new("", 80 << 30, (1..9).map(|n| n << 40)).unwrap().torch_exact(true);
    replay_graphs(&mut OnReference { allocator, pool: None }).unwrap();
}

/// The reference allocator, to which a capture is a pool that is used as long as its graph lives, with its stream routed to it as
/// long as it is recorded.
struct OnReference {
    allocator: ReferenceAllocator,
    pool: Option<PoolId>,
}

type Outcome<T = ()> = Result<T, Failure>;

impl CapturesGraphs for OnReference {
    fn allocate(&mut self, bytes: u64, stream: u64) -> Outcome<u64> {
        self.allocator.allocate(bytes, stream, 0).map_err(|refused| format!("{refused:?}").into())
    }

    fn free(&mut self, address: u64) -> Outcome {
        if self.allocator.free(address) { Ok(()) } else { Err("no such block".into()) }
    }

    fn begin_capture(&mut self, new_pool: bool) -> Outcome {
        if new_pool {
            self.pool = Some(self.allocator.create_pool(false, false));
        } else {
            self.allocator.begin_use(self.pool.unwrap());
        }
        self.allocator.begin_route(self.pool.unwrap(), Routed::Stream(CAPTURING));
        Ok(())
    }

    fn end_capture(&mut self, _graph: u64) -> Outcome {
        self.allocator.end_route(self.pool.unwrap());
        Ok(())
    }

    fn replay(&mut self) -> Outcome {
        Ok(())
    }

    fn delete_graph(&mut self, _graph: u64) -> Outcome {
        self.allocator.end_use(self.pool.unwrap());
        Ok(())
    }

    fn empty_cache(&mut self) -> Outcome {
        self.allocator.empty_cache();
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.allocator.check();
        self.allocator.counters().clone()
    }
}
