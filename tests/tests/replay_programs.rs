//! Programs measured on PyTorch 2.11.0 on an H200, replayed step by step: every statistic and every address must agree.
//!
//! After waiting for other streams memtrack looks into the pool once more where PyTorch gives up; none of these programs
//! comes to that point with a block to find, so there is no exception. The files and their format are described in `fixtures/torch-2.11/programs/README.md`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use memtrack::device::{Device, Simulated, Stream};
use memtrack::{AllocationError, CachingAllocator, Config, Refusal};
use serde_json::Value;

/// The number of files, so that a lost one is noticed.
const PROGRAM_COUNT: usize = 47;

type Stats = BTreeMap<String, i64>;

fn program_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/torch-2.11/programs");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .collect();
    files.sort();
    files
}

fn read_program(path: &Path) -> Value {
    let mut text = String::new();
    GzDecoder::new(BufReader::new(File::open(path).unwrap())).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn stats_of(value: &Value) -> Stats {
    value.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.as_i64().unwrap())).collect()
}

fn entries<'a>(program: &'a Value, action: &str) -> impl Iterator<Item = &'a Vec<Value>> {
    program["trace"].as_array().unwrap().iter().map(|entry| entry.as_array().unwrap()).filter(move |e| e[0] == action)
}

/// One program's allocator, device and what it has allocated.
struct Replay {
    device: Arc<Simulated>,
    allocator: CachingAllocator,
    /// Stream numbers to the handles that PyTorch ordered its pools by.
    streams: HashMap<u64, Stream>,
    /// Ids to addresses; a failed allocation has none.
    live: HashMap<u64, u64>,
}

impl Replay {
    fn new(program: &Value) -> Self {
        let total_bytes = program["total_memory"].as_u64().unwrap();
        let device = Arc::new(Simulated::with_capacity(total_bytes));
        device.script_addresses(entries(program, "segment_alloc").map(|entry| entry[1].as_u64().unwrap()));
        let config: Config = program["config"].as_str().unwrap().parse().unwrap();
        let allocator = CachingAllocator::with_config(device.clone(), config);
        if let Some(limit_bytes) = program.get("limit_bytes") {
            allocator.set_memory_fraction(limit_bytes.as_f64().unwrap() / total_bytes as f64).unwrap();
        }
        // The n-th allocation that succeeded is the n-th of the history, which has the stream's handle.
        let numbers = program["ops"].as_array().unwrap().iter().filter(|step| step.get("ptr").is_some());
        let streams = numbers
            .zip(entries(program, "alloc"))
            .map(|(step, entry)| (step["op"][3].as_u64().unwrap(), Stream(entry[3].as_u64().unwrap())))
            .collect();
        Self { device, allocator, streams, live: HashMap::new() }
    }

    fn stream(&self, number: &Value) -> Stream {
        let number = number.as_u64().unwrap();
        self.streams.get(&number).copied().unwrap_or(Stream(number))
    }

    fn run(&mut self, step: &Value) -> Result<(), String> {
        let op = &step["op"];
        let id = || op[1].as_u64().unwrap();
        match op[0].as_str().unwrap() {
            "alloc" => return self.allocate(step),
            "free" => {
                if let Some(address) = self.live.remove(&id()) {
                    self.allocator.free_raw(address).unwrap();
                }
            }
            "record_stream" => self.allocator.record_stream_raw(self.live[&id()], self.stream(&op[2])).unwrap(),
            "sleep" => self.device.set_busy(self.stream(&op[1])),
            "sync" => self.device.synchronize().unwrap(),
            "empty_cache" => self.allocator.empty_cache().unwrap(),
            "reset_peak" => self.allocator.reset_peak_memory_stats(),
            "reset_accumulated" => self.allocator.reset_accumulated_memory_stats(),
            "set_fraction" => self.allocator.set_memory_fraction(op[1].as_f64().unwrap()).unwrap(),
            other => panic!("unknown step {other}"),
        }
        Ok(())
    }

    fn allocate(&mut self, step: &Value) -> Result<(), String> {
        let op = &step["op"];
        let outcome = self.allocator.allocate_raw(op[2].as_u64().unwrap(), self.stream(&op[3]));
        match (outcome, step.get("ptr").and_then(Value::as_u64)) {
            (Ok(address), Some(expected)) if address == expected => {
                self.live.insert(op[1].as_u64().unwrap(), address);
                Ok(())
            }
            (Ok(address), Some(expected)) => Err(format!("address {address:#x}, PyTorch {expected:#x}")),
            (Err(AllocationError::OutOfMemory(error)), None) => {
                assert!(step.get("oom").is_some());
                // No measured program filled the card: every refusal came from the limit.
                if error.refused_by == Refusal::Limit { Ok(()) } else { Err(format!("the device refused: {error}")) }
            }
            (outcome, expected) => Err(format!("{outcome:x?}, PyTorch {expected:x?}")),
        }
    }

    fn stats(&self) -> Stats {
        self.allocator.memory_stats().to_map()
    }
}

/// Runs one program; returns the number of steps, or the first that differs.
fn replay(program: &Value) -> Result<usize, String> {
    let mut replay = Replay::new(program);
    let mut expected = stats_of(&program["initial_stats"]);
    compare(&replay.stats(), &expected).map_err(|difference| format!("before the first step: {difference}"))?;
    let steps = program["ops"].as_array().unwrap();
    for (number, step) in steps.iter().enumerate() {
        let at = |difference| format!("step {number}, {}: {difference}", step["op"]);
        replay.run(step).map_err(at)?;
        expected.extend(stats_of(&step["changed"]));
        compare(&replay.stats(), &expected).map_err(at)?;
    }
    compare(&replay.stats(), &stats_of(&program["final_stats"]))
        .map_err(|difference| format!("at the end: {difference}"))?;
    Ok(steps.len())
}

/// All keys, both ways.
fn compare(ours: &Stats, theirs: &Stats) -> Result<(), String> {
    let keys: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let differences: Vec<String> = keys
        .into_iter()
        .filter(|key| ours.get(*key) != theirs.get(*key))
        .map(|key| format!("{key} is {:?}, PyTorch {:?}", ours.get(key), theirs.get(key)))
        .collect();
    if differences.is_empty() { Ok(()) } else { Err(differences.join("; ")) }
}

#[test]
fn every_measured_program_gives_pytorchs_statistics_and_addresses() {
    let files = program_files();
    assert_eq!(files.len(), PROGRAM_COUNT);
    let mut failures = Vec::new();
    for file in &files {
        let program = read_program(file);
        let name = program["name"].as_str().unwrap();
        match replay(&program) {
            Ok(step_count) => println!("{name}: {step_count} steps agree"),
            Err(difference) => {
                println!("{name}: {difference}");
                failures.push(name.to_owned());
            }
        }
    }
    assert!(failures.is_empty(), "{} of {} programs differ: {failures:?}", failures.len(), files.len());
}

#[test]
fn a_wrong_address_statistic_or_outcome_is_noticed() {
    let path = program_files().into_iter().find(|path| path.ends_with("oom-simple.json.gz")).unwrap();
    let program = read_program(&path);
    assert_eq!(replay(&program), Ok(4));
    let spoilt = |spoil: fn(&mut Value)| {
        let mut program = program.clone();
        spoil(&mut program);
        replay(&program).unwrap_err()
    };
    assert!(spoilt(|program| program["ops"][0]["ptr"] = 512.into()).starts_with("step 0"));
    assert!(spoilt(|program| program["ops"][0]["changed"]["num_ooms"] = 7.into()).contains("num_ooms"));
    assert!(spoilt(|program| program["limit_bytes"] = (1_u64 << 36).into()).contains("PyTorch None"));
    assert!(spoilt(|program| program["final_stats"]["active.all.peak"] = 9.into()).starts_with("at the end"));
}
