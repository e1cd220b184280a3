//! What PyTorch 2.11.0 did on an H200 where the card itself was full, and in graph captures.
//! `fixtures/torch-2.11/special/README.md` describes the files.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::HashMap;

use memtrack_tests::conformance::memtrack::Memtrack;
use memtrack_tests::conformance::recording::{Names, apply, differences};
use memtrack_tests::conformance::replay::replay_all;
use memtrack_tests::conformance::special::{driver_out_of_memory, read};
use memtrack_tests::reference_allocator::{COUNTER_COUNT, Counters, PoolId, ReferenceAllocator, Routed};

#[test]
fn memtrack_gives_pytorchs_answers_on_a_full_card() {
    assert_eq!(replay_all::<Memtrack>(driver_out_of_memory()), (2, Vec::new()), "these recordings differ");
}

#[test]
fn the_reference_allocator_gives_pytorchs_answers_on_a_full_card() {
    assert_eq!(replay_all::<ReferenceAllocator>(driver_out_of_memory()), (2, Vec::new()), "these recordings differ");
}

/// Captures run on this stream.
const CAPTURING: u64 = 0x1000;

/// A capture is a pool that is used as long as its graph lives, with its stream routed to it as long as it is recorded.
#[derive(Default)]
struct Graphs {
    pool: Option<PoolId>,
    /// The two small tensors of the random generator, which go with the first graph.
    generator: Vec<u64>,
    live: HashMap<String, u64>,
}

#[test]
fn the_reference_allocator_counts_as_pytorch_in_captures() {
    let file = read("graph.json");
    let names = Names::default();
    let total_bytes = file["total_memory"].as_u64().unwrap();
    let mut allocator = ReferenceAllocator::new("", total_bytes, (1..9).map(|n| n << 40)).unwrap().torch_exact(true);
    let mut expected = Counters([0; COUNTER_COUNT]);
    apply(&names.all(&file["initial_stats"]), &mut expected);
    let mut graphs = Graphs::default();
    for step in file["ops"].as_array().unwrap() {
        let op = &step["op"];
        graphs.run(&mut allocator, op[0].as_str().unwrap(), &op[1].to_string(), op[2].as_u64(), op[1].as_u64());
        allocator.check();
        apply(&names.changes(&step["changed"]), &mut expected);
        assert_eq!(differences(allocator.counters(), &expected), None, "{op}");
    }
    apply(&names.all(&file["final_stats"]), &mut expected);
    assert_eq!(differences(allocator.counters(), &expected), None);
}

impl Graphs {
    fn run(&mut self, allocator: &mut ReferenceAllocator, op: &str, id: &str, bytes: Option<u64>, graph: Option<u64>) {
        match op {
            "alloc" => self.allocate(allocator, id, bytes, 0),
            "alloc_in_capture" => self.allocate(allocator, id, bytes, CAPTURING),
            "free" | "free_in_capture" => assert!(allocator.free(self.live.remove(id).unwrap())),
            "capture_begin" => {
                self.generator = (0..2).map(|_| allocator.allocate(8, 0, 0).unwrap()).collect();
                let pool = *self.pool.insert(allocator.create_pool(false, false));
                allocator.begin_route(pool, Routed::Stream(CAPTURING));
            }
            "capture_begin_shared_pool" => {
                allocator.begin_use(self.pool.unwrap());
                allocator.begin_route(self.pool.unwrap(), Routed::Stream(CAPTURING));
            }
            "capture_end" => allocator.end_route(self.pool.unwrap()),
            "replay" => {}
            "graph_deleted" => {
                allocator.end_use(self.pool.unwrap());
                if graph == Some(1) {
                    self.generator.drain(..).for_each(|address| assert!(allocator.free(address)));
                }
            }
            "empty_cache" => allocator.empty_cache(),
            other => panic!("unknown step {other}"),
        }
    }

    fn allocate(&mut self, allocator: &mut ReferenceAllocator, id: &str, bytes: Option<u64>, stream: u64) {
        self.live.insert(id.to_owned(), allocator.allocate(bytes.unwrap(), stream, 0).unwrap());
    }
}
