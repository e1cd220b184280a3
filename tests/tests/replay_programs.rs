//! Programs measured on PyTorch 2.11.0 on an H200, replayed step by step: every statistic and every address must agree.
//!
//! After waiting for other streams memtrack looks into the pool once more where PyTorch gives up; none of these programs
//! comes to that point with a block to find, so there is no exception. The files and their format are described in `fixtures/torch-2.11/programs/README.md`.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use memtrack::device::{Device, Simulated, Stream};
use memtrack::{AllocationError, CachingAllocator, Config, Refusal};
use memtrack_tests::reference_allocator::{ReferenceAllocator, Refused, counter_names};
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

/// One file's content.
#[derive(Clone)]
struct Program(Value);

impl Program {
    fn read(path: &Path) -> Self {
        let mut text = String::new();
        GzDecoder::new(BufReader::new(File::open(path).unwrap())).read_to_string(&mut text).unwrap();
        Self(serde_json::from_str(&text).unwrap())
    }

    fn name(&self) -> &str {
        self.0["name"].as_str().unwrap()
    }

    fn steps(&self) -> &[Value] {
        self.0["ops"].as_array().unwrap()
    }

    fn total_bytes(&self) -> u64 {
        self.0["total_memory"].as_u64().unwrap()
    }

    fn fraction(&self) -> Option<f64> {
        self.0.get("limit_bytes").map(|bytes| bytes.as_f64().unwrap() / self.total_bytes() as f64)
    }

    fn config(&self) -> Config {
        Config::from_torch(self.0["config"].as_str().unwrap()).unwrap()
    }

    fn history(&self, action: &str) -> impl Iterator<Item = &Value> {
        self.0["trace"].as_array().unwrap().iter().filter(move |entry| entry[0] == action)
    }

    fn segment_addresses(&self) -> Vec<u64> {
        self.history("segment_alloc").map(|entry| entry[1].as_u64().unwrap()).collect()
    }

    /// Stream numbers to the handles that PyTorch orders its pools by: the n-th allocation that succeeded is the n-th of
    /// the history, which has the handle.
    fn stream_handles(&self) -> HashMap<u64, u64> {
        let served = self.steps().iter().filter(|step| step.get("ptr").is_some());
        let pairs = served.zip(self.history("alloc"));
        pairs.map(|(step, entry)| (step["op"][3].as_u64().unwrap(), entry[3].as_u64().unwrap())).collect()
    }
}

fn stats_of(value: &Value) -> Stats {
    value.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.as_i64().unwrap())).collect()
}

/// What a program is run on.
trait Subject {
    fn new(program: &Program) -> Self;
    /// The address, or who refused.
    fn allocate(&mut self, bytes: u64, stream: u64) -> Result<u64, String>;
    fn free(&mut self, address: u64);
    fn record_stream(&mut self, address: u64, stream: u64);
    fn sleep(&mut self, stream: u64);
    fn synchronize(&mut self);
    fn empty_cache(&mut self);
    fn reset_peak(&mut self);
    fn reset_accumulated(&mut self);
    fn set_fraction(&mut self, fraction: f64);
    fn stats(&self) -> Stats;
}

/// No measured program filled the card: every refusal came from the limit.
const REFUSED_BY_LIMIT: &str = "the limit refused";

struct Memtrack {
    device: Arc<Simulated>,
    allocator: CachingAllocator,
}

impl Subject for Memtrack {
    fn new(program: &Program) -> Self {
        let device = Arc::new(Simulated::with_capacity(program.total_bytes()));
        device.script_addresses(program.segment_addresses());
        let allocator = CachingAllocator::with_config(device.clone(), program.config()).unwrap();
        Self { device, allocator }
    }

    fn allocate(&mut self, bytes: u64, stream: u64) -> Result<u64, String> {
        self.allocator.allocate_raw(bytes, Stream(stream)).map_err(|error| match error {
            AllocationError::OutOfMemory(error) if error.refused_by == Refusal::Limit => REFUSED_BY_LIMIT.to_owned(),
            error => error.to_string(),
        })
    }

    fn free(&mut self, address: u64) {
        self.allocator.free_raw(address).unwrap();
    }

    fn record_stream(&mut self, address: u64, stream: u64) {
        self.allocator.record_stream_raw(address, Stream(stream)).unwrap();
    }

    fn sleep(&mut self, stream: u64) {
        self.device.set_busy(Stream(stream));
    }

    fn synchronize(&mut self) {
        self.device.synchronize().unwrap();
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

    fn set_fraction(&mut self, fraction: f64) {
        self.allocator.set_memory_fraction(fraction).unwrap();
    }

    fn stats(&self) -> Stats {
        self.allocator.memory_stats().to_map()
    }
}

impl Subject for ReferenceAllocator {
    fn new(program: &Program) -> Self {
        Self::new(program.config(), program.total_bytes(), program.segment_addresses())
    }

    fn allocate(&mut self, bytes: u64, stream: u64) -> Result<u64, String> {
        self.allocate(bytes, stream).map_err(|refused| match refused {
            Refused::ByLimit => REFUSED_BY_LIMIT.to_owned(),
            Refused::ByDevice => "the device refused".to_owned(),
        })
    }

    fn free(&mut self, address: u64) {
        self.free(address);
    }

    fn record_stream(&mut self, address: u64, stream: u64) {
        self.record_stream(address, stream);
    }

    fn sleep(&mut self, stream: u64) {
        self.set_busy(stream);
    }

    fn synchronize(&mut self) {
        self.synchronize();
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

    fn set_fraction(&mut self, fraction: f64) {
        self.set_memory_fraction(fraction);
    }

    fn stats(&self) -> Stats {
        counter_names().into_iter().zip(self.counters().0).collect()
    }
}

/// Runs one step; `live` is what the program holds, by id.
fn run(
    subject: &mut impl Subject,
    step: &Value,
    streams: &HashMap<u64, u64>,
    live: &mut HashMap<u64, u64>,
) -> Result<(), String> {
    let op = &step["op"];
    let number = |at: usize| op[at].as_u64().unwrap();
    let stream = |at: usize| streams.get(&number(at)).copied().unwrap_or(number(at));
    match op[0].as_str().unwrap() {
        "alloc" => {
            let outcome = subject.allocate(number(2), stream(3));
            let expected = step.get("ptr").map(|address| address.as_u64().unwrap());
            assert_eq!(expected.is_none(), step.get("oom").is_some());
            match (outcome, expected) {
                (Ok(address), Some(expected)) if address == expected => {
                    live.insert(number(1), address);
                }
                (Err(reason), None) if reason == REFUSED_BY_LIMIT => {}
                (outcome, expected) => return Err(format!("{outcome:?}, PyTorch {expected:?}")),
            }
        }
        "free" => {
            if let Some(address) = live.remove(&number(1)) {
                subject.free(address);
            }
        }
        "record_stream" => subject.record_stream(live[&number(1)], stream(2)),
        "sleep" => subject.sleep(stream(1)),
        "sync" => subject.synchronize(),
        "empty_cache" => subject.empty_cache(),
        "reset_peak" => subject.reset_peak(),
        "reset_accumulated" => subject.reset_accumulated(),
        "set_fraction" => subject.set_fraction(op[1].as_f64().unwrap()),
        other => panic!("unknown step {other}"),
    }
    Ok(())
}

/// Runs one program; returns the number of steps, or the first that differs.
fn replay<S: Subject>(program: &Program) -> Result<usize, String> {
    let mut subject = S::new(program);
    if let Some(fraction) = program.fraction() {
        subject.set_fraction(fraction);
    }
    let (streams, mut live) = (program.stream_handles(), HashMap::new());
    let mut expected = stats_of(&program.0["initial_stats"]);
    compare(&subject.stats(), &expected).map_err(|difference| format!("before the first step: {difference}"))?;
    for (number, step) in program.steps().iter().enumerate() {
        let at = |difference| format!("step {number}, {}: {difference}", step["op"]);
        run(&mut subject, step, &streams, &mut live).map_err(at)?;
        expected.extend(stats_of(&step["changed"]));
        compare(&subject.stats(), &expected).map_err(at)?;
    }
    let last = stats_of(&program.0["final_stats"]);
    compare(&subject.stats(), &last).map_err(|difference| format!("at the end: {difference}"))?;
    Ok(program.steps().len())
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

/// Replays every file, a line for each; the names of those that differ.
fn replay_all<S: Subject>() -> Vec<String> {
    let files = program_files();
    assert_eq!(files.len(), PROGRAM_COUNT);
    let programs = files.iter().map(|file| Program::read(file));
    programs
        .filter_map(|program| match replay::<S>(&program) {
            Ok(step_count) => {
                println!("{}: {step_count} steps agree", program.name());
                None
            }
            Err(difference) => {
                println!("{}: {difference}", program.name());
                Some(program.name().to_owned())
            }
        })
        .collect()
}

#[test]
fn every_measured_program_gives_pytorchs_statistics_and_addresses() {
    assert_eq!(replay_all::<Memtrack>(), Vec::<String>::new(), "these programs differ");
}

/// The allocator that random programs are compared with is itself held to what was measured.
#[test]
fn the_reference_allocator_gives_the_same() {
    assert_eq!(replay_all::<ReferenceAllocator>(), Vec::<String>::new(), "these programs differ");
}

#[test]
fn a_wrong_address_statistic_or_outcome_is_noticed() {
    let path = program_files().into_iter().find(|path| path.ends_with("oom-simple.json.gz")).unwrap();
    let program = Program::read(&path);
    assert_eq!(replay::<Memtrack>(&program), Ok(4));
    let spoilt = |spoil: fn(&mut Value)| {
        let mut program = program.clone();
        spoil(&mut program.0);
        replay::<Memtrack>(&program).unwrap_err()
    };
    assert!(spoilt(|program| program["ops"][0]["ptr"] = 512.into()).starts_with("step 0"));
    assert!(spoilt(|program| program["ops"][0]["changed"]["num_ooms"] = 7.into()).contains("num_ooms"));
    assert!(spoilt(|program| program["limit_bytes"] = (1_u64 << 36).into()).contains("PyTorch None"));
    assert!(spoilt(|program| program["final_stats"]["active.all.peak"] = 9.into()).starts_with("at the end"));
}
