//! `golden/*.json.gz`: random programs with settings at run time, pools, and events by number.

use serde_json::Value;

use super::files::{gzipped_files, read_gzipped};
use super::programs::action;
use super::recording::{Changes, Names, RecordedStep, Recording};
use super::reservations::Reservations;
use super::step::Step;
use super::subject::Setup;
use crate::reference_allocator::{Action, TraceEntry};

/// The one other stream of these programs: no handle of the files.
const SIDE: u64 = u64::MAX;

/// All of them, as recordings.
pub fn golden() -> impl Iterator<Item = Recording> {
    let names = Names::default();
    gzipped_files("golden", 14).into_iter().map(move |path| {
        let file: Value = serde_json::from_str(&read_gzipped(&path)).unwrap();
        recording(&file, &names)
    })
}

/// A file's content as a recording.
pub fn recording(file: &Value, names: &Names) -> Recording {
    let total_bytes = file["device_total_memory"].as_u64().unwrap();
    let keys: Vec<usize> =
        file["keys"].as_array().unwrap().iter().map(|key| names.place(key.as_str().unwrap())).collect();
    let streams: Vec<u64> = file["streams"].as_array().unwrap().iter().map(|handle| handle.as_u64().unwrap()).collect();
    assert!(!streams.contains(&SIDE));
    let ops = file["ops"].as_array().unwrap();
    assert_eq!(ops[0]["op"], "init");
    let mut reader = Reader { keys, streams, reservations: Reservations::new(total_bytes), addresses: Vec::new() };
    let initial = reader.changes(&ops[0]["d"]);
    let mut steps = Vec::new();
    for op in &ops[1..] {
        if let Some(count) = op.get("events_completed") {
            let count = count.as_u64().unwrap() as usize;
            steps.push(RecordedStep::bare(Step::CompleteEvents { count }));
        }
        steps.push(reader.step(op));
    }
    let fraction = file["memory_fraction"].as_f64().unwrap();
    Recording {
        name: file["name"].as_str().unwrap().to_owned(),
        setup: Setup {
            settings: file["initial_conf"].as_str().unwrap().to_owned(),
            total_bytes,
            addresses: reader.addresses,
            torch_exact: true,
        },
        preparation: vec![Step::Fraction { fraction }, Step::Busy { stream: SIDE }],
        initial,
        steps,
        last: None,
        trace: None,
        segments: None,
    }
}

struct Reader {
    keys: Vec<usize>,
    streams: Vec<u64>,
    reservations: Reservations,
    addresses: Vec<u64>,
}

impl Reader {
    fn changes(&self, deltas: &Value) -> Changes {
        let deltas = deltas.as_array().unwrap().iter();
        deltas.map(|delta| (self.keys[delta[0].as_u64().unwrap() as usize], delta[1].as_i64().unwrap())).collect()
    }

    /// The calls to the device. A new segment or address range lies where the step's block does.
    fn device(&mut self, op: &Value) -> Vec<TraceEntry> {
        let mut calls = Vec::new();
        for call in op.get("device").and_then(Value::as_array).into_iter().flatten() {
            let (action, address, bytes) =
                (action(call[0].as_str().unwrap()), call[1].as_u64().unwrap(), call[2].as_u64().unwrap());
            let is_new = match action {
                Action::SegmentAlloc => true,
                Action::SegmentMap => self.reservations.map(address, bytes),
                Action::SegmentUnmap => {
                    self.reservations.unmap(address, bytes);
                    false
                }
                _ => false,
            };
            if is_new {
                self.addresses.push(op["ptr"].as_u64().unwrap());
            }
            calls.push(TraceEntry { action, address, bytes, stream: 0 });
        }
        calls
    }

    fn step(&mut self, op: &Value) -> RecordedStep {
        let number = |key: &str| op[key].as_u64().unwrap();
        let flag = |key: &str| op.get(key).is_some_and(|value| value.as_bool().unwrap());
        let pool = || op["pool"][1].as_u64().unwrap();
        let kind = op["op"].as_str().unwrap();
        let step = match kind {
            "alloc" => {
                let stream = self.streams[number("stream") as usize];
                Some(Step::Allocate { id: number("id"), bytes: number("size"), stream, thread: 0 })
            }
            "free" => Some(Step::Free { id: number("id") }),
            "record_stream" => Some(Step::RecordStream { id: number("id"), stream: SIDE }),
            // The next allocation says how many events it found complete.
            "synchronize" => None,
            "empty_cache" => Some(Step::EmptyCache),
            "reset_peak" => Some(Step::ResetPeak),
            "reset_accumulated" => Some(Step::ResetAccumulated),
            "settings" => Some(Step::Settings { text: op["conf"].as_str().unwrap().to_owned() }),
            "pool_new" => {
                let (use_on_oom, no_split) = (flag("use_on_oom"), flag("no_split"));
                Some(Step::CreatePool { pool: pool(), use_on_oom, no_split })
            }
            "pool_begin" => Some(Step::EnterPool { pool: pool(), thread: 0 }),
            "pool_end" => Some(Step::LeavePool { pool: pool() }),
            "pool_delete" => Some(Step::DeletePool { pool: pool() }),
            other => panic!("unknown step {other}"),
        };
        let device = Some(self.device(op));
        let changes = Some(self.changes(&op["d"]));
        let address = (kind == "alloc").then(|| op["ptr"].as_u64());
        let mut text = op.clone();
        text.as_object_mut().unwrap().remove("d");
        RecordedStep { text: text.to_string(), step, address, changes, mark: Vec::new(), device }
    }
}
