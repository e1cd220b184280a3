//! `programs/*.json.gz`: statistics and addresses step by step, the history, the segments at the end.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::files::{gzipped_files, read_gzipped};
use super::recording::{Names, RecordedStep, Recording};
use super::reservations::Reservations;
use super::step::Step;
use super::subject::Setup;
use crate::reference_allocator::{Action, Activity, BlockState, Kind, SegmentState, TraceEntry};

/// All of them, as recordings.
pub fn programs() -> impl Iterator<Item = Recording> {
    let names = Names::default();
    gzipped_files("programs", 55).into_iter().map(move |path| program(&read_program(&path), &names))
}

/// One file's content.
pub fn read_program(path: &Path) -> Value {
    serde_json::from_str(&read_gzipped(path)).unwrap()
}

/// A file's content as a recording.
pub fn program(file: &Value, names: &Names) -> Recording {
    let number = |key: &str| file[key].as_u64().unwrap();
    let total_bytes = number("total_memory");
    let trace: Vec<TraceEntry> = file["trace"].as_array().unwrap().iter().map(entry).collect();
    let streams = stream_handles(file, &trace);
    let fraction = file.get("limit_bytes").map(|bytes| bytes.as_f64().unwrap() / total_bytes as f64);
    Recording {
        name: file["name"].as_str().unwrap().to_owned(),
        setup: Setup {
            settings: file["config"].as_str().unwrap().to_owned(),
            total_bytes,
            addresses: addresses(&trace, total_bytes),
            torch_exact: true,
        },
        preparation: fraction.map(|fraction| Step::Fraction { fraction }).into_iter().collect(),
        initial: names.all(&file["initial_stats"]),
        steps: file["ops"].as_array().unwrap().iter().map(|op| step(op, &streams, names)).collect(),
        last: Some(names.all(&file["final_stats"])),
        trace: Some(trace),
        segments: Some(file["final_segments"].as_array().unwrap().iter().map(segment).collect()),
    }
}

/// The action of that name.
pub fn action(name: &str) -> Action {
    match name {
        "alloc" => Action::Alloc,
        "free_requested" => Action::FreeRequested,
        "free_completed" => Action::FreeCompleted,
        "segment_alloc" => Action::SegmentAlloc,
        "segment_free" => Action::SegmentFree,
        "segment_map" => Action::SegmentMap,
        "segment_unmap" => Action::SegmentUnmap,
        "oom" => Action::Oom,
        other => panic!("unknown action {other}"),
    }
}

fn entry(value: &Value) -> TraceEntry {
    let number = |at: usize| value[at].as_u64().unwrap();
    TraceEntry { action: action(value[0].as_str().unwrap()), address: number(1), bytes: number(2), stream: number(3) }
}

/// Where new segments and address ranges came to lie.
pub fn addresses(trace: &[TraceEntry], total_bytes: u64) -> Vec<u64> {
    let mut reservations = Reservations::new(total_bytes);
    let mut addresses = Vec::new();
    for entry in trace {
        match entry.action {
            Action::SegmentAlloc => addresses.push(entry.address),
            Action::SegmentMap if reservations.map(entry.address, entry.bytes) => addresses.push(entry.address),
            Action::SegmentUnmap => reservations.unmap(entry.address, entry.bytes),
            _ => {}
        }
    }
    addresses
}

/// Stream numbers to the handles that PyTorch orders its pools by: the n-th allocation that succeeded is the n-th of the
/// history, which has the handle.
fn stream_handles(file: &Value, trace: &[TraceEntry]) -> HashMap<u64, u64> {
    let served = file["ops"].as_array().unwrap().iter().filter(|step| step.get("ptr").is_some());
    let pairs = served.zip(trace.iter().filter(|entry| entry.action == Action::Alloc));
    pairs.map(|(step, entry)| (step["op"][3].as_u64().unwrap(), entry.stream)).collect()
}

/// One entry of `ops`.
pub fn step(value: &Value, streams: &HashMap<u64, u64>, names: &Names) -> RecordedStep {
    let op = &value["op"];
    let number = |at: usize| op[at].as_u64().unwrap();
    let stream = |at: usize| streams.get(&number(at)).copied().unwrap_or(number(at));
    let step = match op[0].as_str().unwrap() {
        "alloc" => Step::Allocate { id: number(1), bytes: number(2), stream: stream(3), thread: 0 },
        "free" => Step::Free { id: number(1) },
        "record_stream" => Step::RecordStream { id: number(1), stream: stream(2) },
        "sleep" => Step::Busy { stream: stream(1) },
        "sync" => Step::Synchronize,
        "empty_cache" => Step::EmptyCache,
        "reset_peak" => Step::ResetPeak,
        "reset_accumulated" => Step::ResetAccumulated,
        "set_fraction" => Step::Fraction { fraction: op[1].as_f64().unwrap() },
        other => panic!("unknown step {other}"),
    };
    let address = match (value.get("ptr"), value.get("oom")) {
        (Some(address), None) => Some(Some(address.as_u64().unwrap())),
        (None, Some(_)) => Some(None),
        (None, None) => None,
        (Some(_), Some(_)) => panic!("an address and out of memory at once: {op}"),
    };
    let changes = Some(names.changes(&value["changed"]));
    RecordedStep { text: op.to_string(), step: Some(step), address, changes, mark: Vec::new(), device: None }
}

fn segment(value: &Value) -> SegmentState {
    let number = |key: &str| value[key].as_u64().unwrap();
    let blocks: Vec<BlockState> = value["blocks"].as_array().unwrap().iter().map(block).collect();
    let sum = |of: &dyn Fn(&BlockState) -> Option<u64>| blocks.iter().filter_map(of).sum::<u64>();
    assert_eq!(number("total_size"), sum(&|block| Some(block.size)));
    assert_eq!(number("allocated_size"), sum(&|block| (block.activity == Activity::Allocated).then_some(block.size)));
    let active = |block: &BlockState| block.activity != Activity::Inactive;
    assert_eq!(number("active_size"), sum(&|block| active(block).then_some(block.size)));
    assert_eq!(number("requested_size"), sum(&|block| active(block).then_some(block.requested)));
    let pool = &value["segment_pool_id"];
    SegmentState {
        address: number("address"),
        stream: number("stream"),
        kind: if value["segment_type"] == "small" { Kind::Small } else { Kind::Large },
        pool: (pool[0].as_u64().unwrap(), pool[1].as_u64().unwrap()),
        expandable: value["is_expandable"].as_bool().unwrap(),
        blocks,
    }
}

fn block(value: &Value) -> BlockState {
    let number = |key: &str| value[key].as_u64().unwrap();
    let activity = match value["state"].as_str().unwrap() {
        "active_allocated" => Activity::Allocated,
        "active_pending_free" => Activity::Pending,
        "inactive" => Activity::Inactive,
        other => panic!("unknown state {other}"),
    };
    BlockState { address: number("address"), size: number("size"), requested: number("requested_size"), activity }
}
