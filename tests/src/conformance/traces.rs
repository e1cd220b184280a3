//! `traces/*.txt.gz`: the allocator's events in training runs, with statistics at each phase mark.

use std::collections::HashMap;

use serde_json::Value;

use super::files::{gzipped_files, read_gzipped};
use super::programs::addresses;
use super::recording::{Names, RecordedStep, Recording};
use super::step::Step;
use super::subject::Setup;
use crate::reference_allocator::{Action, TraceEntry};

/// Stands for whichever other stream used a block: no handle of the files.
const SIDE: u64 = u64::MAX;

/// All of them, as recordings.
pub fn traces() -> impl Iterator<Item = Recording> {
    let names = Names::default();
    gzipped_files("traces", 12).into_iter().map(move |path| {
        let name = path.file_name().unwrap().to_string_lossy().trim_end_matches(".txt.gz").to_owned();
        recording(name, &read_gzipped(&path), &names)
    })
}

/// A file's content as a recording.
pub fn recording(name: String, text: &str, names: &Names) -> Recording {
    let comment = |key: &str| -> Value {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        serde_json::from_str(line).unwrap()
    };
    let (meta, marks) = (comment("# meta "), comment("# marks "));
    let total_bytes = meta["total_memory"].as_u64().unwrap();
    let mut reader = Reader::default();
    let mut marks = marks.as_array().unwrap().iter();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    for (at, line) in lines.iter().enumerate() {
        match line.split_once(' ').unwrap() {
            ("p", phase) => {
                let mark = marks.next().unwrap();
                assert_eq!(phase, format!("{} {}", mark[0], mark[1].as_str().unwrap()));
                reader.steps.push(RecordedStep {
                    text: (*line).to_owned(),
                    step: None,
                    address: None,
                    changes: None,
                    mark: names.changes(&mark[2]),
                    device: None,
                });
            }
            ("f", id) => {
                let completes_at_once = lines.get(at + 1).is_some_and(|next| next.strip_prefix("c ") == Some(id));
                reader.free(id.parse().unwrap(), completes_at_once);
            }
            ("c", id) => reader.complete(id.parse().unwrap()),
            (kind, rest) => {
                let numbers: Vec<u64> = rest.split(' ').map(|number| number.parse().unwrap()).collect();
                reader.other(kind, &numbers);
            }
        }
    }
    assert_eq!(marks.next(), None);
    Recording {
        name,
        setup: Setup {
            settings: meta["conf"].as_str().unwrap().to_owned(),
            total_bytes,
            addresses: addresses(&reader.trace, total_bytes),
            torch_exact: true,
        },
        preparation: vec![Step::Busy { stream: SIDE }],
        initial: vec![(names.place("max_split_size"), -1)],
        steps: reader.steps,
        last: Some(names.all(&comment("# final "))),
        trace: Some(reader.trace),
        segments: None,
    }
}

/// A block of which the file goes on to speak.
#[derive(Clone, Copy)]
struct Known {
    address: u64,
    bytes: u64,
    stream: u64,
    waits: bool,
}

#[derive(Default)]
struct Reader {
    steps: Vec<RecordedStep>,
    trace: Vec<TraceEntry>,
    known: HashMap<u64, Known>,
}

impl Reader {
    fn record(&mut self, action: Action, block: Known) {
        self.trace.push(TraceEntry { action, address: block.address, bytes: block.bytes, stream: block.stream });
    }

    fn free(&mut self, id: u64, completes_at_once: bool) {
        if !completes_at_once {
            self.steps.push(RecordedStep::bare(Step::RecordStream { id, stream: SIDE }));
            self.known.get_mut(&id).unwrap().waits = true;
        }
        self.steps.push(RecordedStep::bare(Step::Free { id }));
        self.record(Action::FreeRequested, self.known[&id]);
    }

    fn complete(&mut self, id: u64) {
        let block = self.known.remove(&id).unwrap();
        if block.waits {
            self.steps.push(RecordedStep::bare(Step::CompleteEvents { count: 1 }));
        }
        self.record(Action::FreeCompleted, block);
    }

    fn other(&mut self, kind: &str, numbers: &[u64]) {
        let (action, entry) = match (kind, numbers) {
            ("a", [id, bytes, stream, address]) => {
                let (id, bytes, stream, address) = (*id, *bytes, *stream, *address);
                let mut step = RecordedStep::bare(Step::Allocate { id, bytes, stream, thread: 0 });
                step.address = Some(Some(address));
                self.steps.push(step);
                let block = Known { address, bytes, stream, waits: false };
                self.known.insert(id, block);
                (Action::Alloc, block)
            }
            ("S", [address, bytes, stream]) => (Action::SegmentAlloc, segment(*address, *bytes, *stream)),
            ("M", [address, bytes, stream]) => (Action::SegmentMap, segment(*address, *bytes, *stream)),
            _ => panic!("an unknown line: {kind} {numbers:?}"),
        };
        self.record(action, entry);
    }
}

fn segment(address: u64, bytes: u64, stream: u64) -> Known {
    Known { address, bytes, stream, waits: false }
}
