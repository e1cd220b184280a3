//! `special/driver_oom*.json` and `special/graph.json`, as far as an allocator of device memory can follow them.

use std::collections::HashMap;

use serde_json::Value;

use super::files::fixture;
use super::programs;
use super::recording::{Names, Recording, apply, differences};
use super::step::Step;
use super::subject::Setup;
use crate::reference_allocator::{COUNTER_COUNT, Counters};

const MIB: u64 = 1 << 20;

/// A file's content.
pub fn read(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture("special").join(name)).unwrap()).unwrap()
}

/// Both runs into a full card. How much the rest of the card was holds the error's text, to a hundredth of a MiB.
pub fn driver_out_of_memory() -> impl Iterator<Item = Recording> {
    let names = Names::default();
    [("driver_oom", ""), ("driver_oom_expandable", "expandable_segments:True")].into_iter().map(
        move |(name, settings)| {
            let file = read(&format!("{name}.json"));
            let total_bytes = file["total_memory"].as_u64().unwrap();
            let ops = file["ops"].as_array().unwrap();
            let oom = ops.iter().find_map(|op| op.get("oom")).unwrap().as_str().unwrap();
            let free: f64 =
                oom.split(" of which ").nth(1).unwrap().split(" MiB is free").next().unwrap().parse().unwrap();
            let reserved = file["final_stats"]["reserved_bytes.all.current"].as_u64().unwrap();
            let bytes = total_bytes - reserved - (free * MIB as f64) as u64;
            Recording {
                name: name.to_owned(),
                setup: Setup {
                    settings: settings.to_owned(),
                    total_bytes,
                    addresses: (1..=ops.len() as u64).map(|n| n << 40).collect(),
                    torch_exact: true,
                },
                preparation: vec![Step::OtherUse { bytes }],
                initial: names.all(&file["initial_stats"]),
                steps: ops.iter().map(|op| programs::step(op, &HashMap::new(), &names)).collect(),
                last: Some(names.all(&file["final_stats"])),
                trace: None,
                segments: None,
            }
        },
    )
}

/// A capture's stream in `graph.json`.
pub const CAPTURING: u64 = 0x1000;

/// What runs `graph.json`: an allocator with one pool that graphs are captured with.
pub trait CapturesGraphs {
    /// A fresh one, in PyTorch's own ways; the first segment comes to lie at the address.
    fn start(total_bytes: u64, first_address: u64) -> Self;
    /// Allocates.
    fn allocate(&mut self, bytes: u64, stream: u64) -> u64;
    /// Frees.
    fn free(&mut self, address: u64);
    /// [`CAPTURING`] is captured from now on, with the pool: a new one, or the one there is.
    fn begin_capture(&mut self, new_pool: bool);
    /// The capture ends; the graph gets this number, from 1.
    fn end_capture(&mut self, graph: u64);
    /// A graph goes. The pool's memory may go with the last.
    fn delete_graph(&mut self, graph: u64);
    /// Gives cached memory back.
    fn empty_cache(&mut self);
    /// The 122 statistics.
    fn counters(&self) -> Counters;
}

/// Runs `graph.json` and compares every statistic after every step, and every address that was recorded.
pub fn replay_graphs<S: CapturesGraphs>() {
    let file = read("graph.json");
    let names = Names::default();
    let ops = file["ops"].as_array().unwrap();
    let first_address = ops[0]["ptr"].as_u64().unwrap();
    let mut run = GraphRun {
        subject: S::start(file["total_memory"].as_u64().unwrap(), first_address),
        captured: 0,
        generator: Vec::new(),
        live: HashMap::new(),
    };
    let mut expected = Counters([0; COUNTER_COUNT]);
    apply(&names.all(&file["initial_stats"]), &mut expected);
    for step in ops {
        let op = &step["op"];
        let address = run.step(op[0].as_str().unwrap(), &op[1], op[2].as_u64());
        if let Some(recorded) = step["ptr"].as_u64() {
            assert_eq!(address, Some(recorded), "{op}");
        }
        apply(&names.changes(&step["changed"]), &mut expected);
        assert_eq!(differences(&run.subject.counters(), &expected), None, "{op}");
    }
    apply(&names.all(&file["final_stats"]), &mut expected);
    assert_eq!(differences(&run.subject.counters(), &expected), None);
    assert!(run.live.is_empty());
}

struct GraphRun<S> {
    subject: S,
    captured: u64,
    /// The two small tensors of the random generator, which go with the first graph.
    generator: Vec<u64>,
    live: HashMap<String, u64>,
}

impl<S: CapturesGraphs> GraphRun<S> {
    /// The address, for an allocation.
    fn step(&mut self, op: &str, subject: &Value, bytes: Option<u64>) -> Option<u64> {
        match op {
            "alloc" => return Some(self.allocate(subject, bytes, 0)),
            "alloc_in_capture" => return Some(self.allocate(subject, bytes, CAPTURING)),
            "free" | "free_in_capture" => self.subject.free(self.live.remove(&subject.to_string()).unwrap()),
            "capture_begin" => {
                self.generator = (0..2).map(|_| self.subject.allocate(8, 0)).collect();
                self.subject.begin_capture(true);
            }
            "capture_begin_shared_pool" => self.subject.begin_capture(false),
            "capture_end" => {
                self.captured += 1;
                self.subject.end_capture(self.captured);
            }
            // The device's work, with nothing for an allocator to do.
            "replay" => {}
            "graph_deleted" => {
                self.subject.delete_graph(subject.as_u64().unwrap());
                if subject.as_u64() == Some(1) {
                    self.generator.drain(..).for_each(|address| self.subject.free(address));
                }
            }
            "empty_cache" => self.subject.empty_cache(),
            other => panic!("unknown step {other}"),
        }
        None
    }

    fn allocate(&mut self, id: &Value, bytes: Option<u64>, stream: u64) -> u64 {
        let address = self.subject.allocate(bytes.unwrap(), stream);
        self.live.insert(id.to_string(), address);
        address
    }
}
