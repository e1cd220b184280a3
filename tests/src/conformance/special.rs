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

/// What runs `graph.json`: a fresh allocator with one pool that graphs are captured with.
pub trait CapturesGraphs {
    /// Allocates.
    fn allocate(&mut self, bytes: u64, stream: u64) -> Result<u64, Failure>;
    /// Frees.
    fn free(&mut self, address: u64) -> Result<(), Failure>;
    /// [`CAPTURING`] is captured from now on, with the pool: a new one, or the one there is.
    fn begin_capture(&mut self, new_pool: bool) -> Result<(), Failure>;
    /// The capture ends; the graph gets this number, from 1. After the second the pool is the graphs' alone.
    fn end_capture(&mut self, graph: u64) -> Result<(), Failure>;
    /// The first graph is launched, and done.
    fn replay(&mut self) -> Result<(), Failure>;
    /// A graph goes. The pool's memory may go with the last.
    fn delete_graph(&mut self, graph: u64) -> Result<(), Failure>;
    /// Gives cached memory back.
    fn empty_cache(&mut self) -> Result<(), Failure>;
    /// The 122 statistics.
    fn counters(&self) -> Counters;
}

/// What goes wrong, in words.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Part of the program: it also runs where the file is not.
fn graph_file() -> Value {
    serde_json::from_str(include_str!("../../fixtures/torch-2.11/special/graph.json")).unwrap()
}

/// Runs `graph.json` and compares every statistic after every step, and every address that was recorded with where the first came
/// to lie.
///
/// # Errors
///
/// The first step that does not come out as recorded.
pub fn replay_graphs(subject: &mut dyn CapturesGraphs) -> Result<(), Failure> {
    let file = graph_file();
    let names = Names::default();
    let mut run = GraphRun { subject, captured: 0, generator: Vec::new(), live: HashMap::new() };
    let mut offset = None;
    let mut expected = Counters([0; COUNTER_COUNT]);
    apply(&names.all(&file["initial_stats"]), &mut expected);
    for step in file["ops"].as_array().unwrap() {
        let op = &step["op"];
        let address = run.step(op[0].as_str().unwrap(), &op[1], op[2].as_u64())?;
        if let (Some(address), Some(recorded)) = (address, step["ptr"].as_u64()) {
            let here = address.wrapping_sub(recorded);
            if *offset.get_or_insert(here) != here {
                return Err(format!("{op} came to lie at {address:#x}, another place than in PyTorch").into());
            }
        }
        apply(&names.changes(&step["changed"]), &mut expected);
        if let Some(differences) = differences(&run.subject.counters(), &expected) {
            return Err(format!("after {op}: {differences}").into());
        }
    }
    apply(&names.all(&file["final_stats"]), &mut expected);
    differences(&run.subject.counters(), &expected).map_or(Ok(()), |differences| Err(differences.into()))
}

struct GraphRun<'a> {
    subject: &'a mut dyn CapturesGraphs,
    captured: u64,
    /// The two small tensors of the random generator, which go with the first graph.
    generator: Vec<u64>,
    live: HashMap<String, u64>,
}

impl GraphRun<'_> {
    /// The address, for an allocation.
    fn step(&mut self, op: &str, object: &Value, bytes: Option<u64>) -> Result<Option<u64>, Failure> {
        match op {
            "alloc" => return self.allocate(object, bytes, 0).map(Some),
            "alloc_in_capture" => return self.allocate(object, bytes, CAPTURING).map(Some),
            "free" | "free_in_capture" => self.subject.free(self.live.remove(&object.to_string()).unwrap())?,
            "capture_begin" => {
                self.generator = vec![self.subject.allocate(8, 0)?, self.subject.allocate(8, 0)?];
                self.subject.begin_capture(true)?;
            }
            "capture_begin_shared_pool" => self.subject.begin_capture(false)?,
            "capture_end" => {
                self.captured += 1;
                self.subject.end_capture(self.captured)?;
            }
            "replay" => self.subject.replay()?,
            "graph_deleted" => {
                self.subject.delete_graph(object.as_u64().unwrap())?;
                if object.as_u64() == Some(1) {
                    self.generator.drain(..).try_for_each(|address| self.subject.free(address))?;
                }
            }
            "empty_cache" => self.subject.empty_cache()?,
            other => panic!("unknown step {other}"),
        }
        Ok(None)
    }

    fn allocate(&mut self, id: &Value, bytes: Option<u64>, stream: u64) -> Result<u64, Failure> {
        let address = self.subject.allocate(bytes.unwrap(), stream)?;
        self.live.insert(id.to_string(), address);
        Ok(address)
    }
}
