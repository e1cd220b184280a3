//! PyTorch's own snapshots are read in full, and what is written is read back the same and stays within what PyTorch's page
//! understands.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use memtrack::PoolKind;
use memtrack::history::{
    Annotation, BlockStatus, EntryAction, Frame, MemoryUsage, ReadError, ReadLimits, SettingValue, Snapshot, Stage,
    TraceAction, TraceEntry, WriteError,
};

const NAMES: [&str; 2] = ["default", "expandable"];

fn fixture(file: &str) -> Vec<u8> {
    let path = format!("{}/fixtures/torch-2.11/snapshots/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn torch_snapshot(name: &str) -> Snapshot {
    Snapshot::from_pickle(&fixture(&format!("{name}.pickle")), &ReadLimits::default()).unwrap()
}

fn pickled(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write_pickle(&mut bytes).unwrap();
    bytes
}

fn as_json(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write_json(&mut bytes).unwrap();
    bytes
}

#[test]
fn torch_s_sums_are_those_of_its_statistics() {
    for name in NAMES {
        let snapshot = torch_snapshot(name);
        let statistics: serde_json::Value = serde_json::from_slice(&fixture(&format!("{name}.json"))).unwrap();
        let check = |pool: &str, usage: MemoryUsage| {
            let current = |key: &str| statistics["stats"][format!("{key}.{pool}.current")].as_u64().unwrap();
            let counts = [
                ("segment", usage.segment_count),
                ("allocation", usage.allocation_count),
                ("reserved_bytes", usage.reserved_bytes),
                ("allocated_bytes", usage.allocated_bytes),
                ("active_bytes", usage.active_bytes),
                ("requested_bytes", usage.requested_bytes),
            ];
            for (key, found) in counts {
                // PyTorch's count of expandable segments is of address ranges, a snapshot's of mapped stretches.
                if key == "segment" && name == "expandable" {
                    continue;
                }
                assert_eq!(found, current(key), "{name} {key}.{pool}");
            }
            assert_eq!(usage.inactive_split_bytes, current("inactive_split_bytes"), "{name} {pool}");
        };
        check("all", snapshot.usage());
        check("small_pool", snapshot.usage_of(PoolKind::Small));
        check("large_pool", snapshot.usage_of(PoolKind::Large));
        let groups = snapshot.usage_groups();
        assert_eq!(groups.iter().map(|group| group.usage.reserved_bytes).sum::<u64>(), snapshot.usage().reserved_bytes);
        assert_eq!(groups.iter().map(|group| group.stream).collect::<std::collections::BTreeSet<_>>().len(), 2);

        let trace = &snapshot.device_traces[0];
        let count = |action| trace.iter().filter(|entry| entry.action == EntryAction::Known(action)).count() as u64;
        let accumulated = |key: &str| statistics["stats"][key].as_u64().unwrap();
        assert_eq!(count(TraceAction::Alloc), accumulated("allocation.all.allocated"));
        assert_eq!(count(TraceAction::FreeRequested), accumulated("allocation.all.freed"));
        assert_eq!(count(TraceAction::Oom), accumulated("num_ooms"));
    }
}

#[test]
fn torch_s_details_are_read() {
    let default = torch_snapshot("default");
    assert_eq!((default.segments.len(), default.device_traces.len(), default.device_traces[0].len()), (9, 1, 435));
    let first = &default.segments[0];
    assert_eq!((first.address, first.total_size, first.segment_pool_id), (140_524_652_593_152, 94_371_840, (0, 0)));
    assert_eq!(first.blocks[0].state, BlockStatus::ActiveAllocated);
    assert_eq!(first.frames[..], [Frame::new("<module>", "/home/users/training/torch_snapshots.py", 37)]);
    let entry = &default.device_traces[0][0];
    assert_eq!((entry.time_us, &*entry.compile_context, &*entry.user_metadata), (1_796_019_288_687_707, "N/A", ""));
    assert_eq!(entry.frames.as_ref().unwrap().len(), 5);
    let oom = default.device_traces[0].iter().find(|entry| entry.action == TraceAction::Oom.into()).unwrap();
    assert_eq!((oom.addr, oom.size), (148_374_683_648, 1 << 50));
    let start = &default.external_annotations[0];
    assert_eq!(*start, Annotation::new(Stage::Start, "forward", 0, 1_796_019_293_617_273));
    let settings = &default.allocator_settings;
    assert_eq!(settings.get("max_split_size"), Some(&SettingValue::Integer(-1)));
    assert_eq!(settings.get("garbage_collection_threshold"), Some(&SettingValue::Float(0.0)));
    assert_eq!(*settings, memtrack::history::AllocatorSettings::torch_defaults(""));
    let expandable = torch_snapshot("expandable");
    assert!(expandable.segments.iter().all(|segment| segment.is_expandable));
    let text = "expandable_segments:True".into();
    assert_eq!(expandable.allocator_settings.get("PYTORCH_CUDA_ALLOC_CONF"), Some(&SettingValue::Text(text)));
    assert!(expandable.history.is_empty());
}

#[test]
fn torch_s_traces_lead_to_its_segments() {
    for name in NAMES {
        torch_snapshot(name).check_consistency().unwrap();
    }
}

#[test]
fn both_forms_are_read_back_the_same() {
    for name in NAMES {
        let snapshot = torch_snapshot(name);
        let pickle = pickled(&snapshot);
        assert_eq!(Snapshot::from_bytes(&pickle, &ReadLimits::default()).unwrap(), snapshot);
        let json = as_json(&snapshot);
        assert_eq!(Snapshot::from_bytes(&json, &ReadLimits::default()).unwrap(), snapshot);
        // Strings and stacks are shared as Python shares them.
        let torch_len = fixture(&format!("{name}.pickle")).len();
        assert!(pickle.len() <= torch_len + torch_len / 20, "{} bytes, PyTorch's {torch_len}", pickle.len());
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&json).unwrap()["segments"][0]["device"], 0);
    }
}

/// Every kind of value and the sizes at which its form changes.
fn unusual() -> Snapshot {
    let mut snapshot = torch_snapshot("default");
    let settings = &mut snapshot.allocator_settings;
    for value in [0, 255, 256, 65_535, 65_536, -1, -129, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN] {
        settings.set(&format!("number {value}"), value);
    }
    let table = (0..1200).map(|number| (Arc::from(format!("entry {number}")), SettingValue::Float(0.5)));
    settings.set("table", SettingValue::Table(table.collect()));
    settings.set("list", SettingValue::List(vec![SettingValue::None, true.into(), "quote \" \\ \n \u{1} é 𝄞".into()]));
    settings.set("long", &*"x".repeat(70_000));
    let stack: Arc<[Frame]> = (0..2000).map(|line| Frame::new("f", "file.rs", line)).collect();
    let trace = &mut snapshot.device_traces[0];
    for number in 0..2500 {
        let mut entry = TraceEntry::default();
        entry.action = TraceAction::Snapshot.into();
        entry.stream = memtrack::device::Stream(u64::MAX - number);
        entry.compile_context = "N/A".into();
        entry.user_metadata = format!("step {}", number % 400).into();
        entry.frames = (number % 500 == 0).then(|| stack.clone());
        trace.push(entry);
    }
    let mut newer = trace[0].clone();
    newer.action = EntryAction::Other("user_defined".into());
    trace.push(newer);
    snapshot
}

#[test]
fn unusual_values_survive_both_forms() {
    let snapshot = unusual();
    let pickle = pickled(&snapshot);
    assert!(pickle.len() < 300_000, "references to one stack and not many stacks: {} bytes", pickle.len());
    let read = Snapshot::from_pickle(&pickle, &ReadLimits::default()).unwrap();
    assert_eq!(read, snapshot);
    let stacks = read.device_traces[0].iter().filter_map(|entry| entry.frames.as_ref());
    let long: Vec<_> = stacks.filter(|frames| frames.len() == 2000).collect();
    assert!(long.len() == 5 && long.iter().all(|frames| Arc::ptr_eq(frames, long[0])));
    assert_eq!(Snapshot::from_json(&as_json(&snapshot), &ReadLimits::default()).unwrap(), snapshot);
    read.check_consistency().unwrap();
}

#[test]
fn a_number_that_json_lacks_is_refused() {
    let mut snapshot = Snapshot::default();
    snapshot.allocator_settings.set("share", f64::NAN);
    assert!(matches!(snapshot.write_json(Vec::new()), Err(WriteError::NotFinite { value }) if value.is_nan()));
    snapshot.write_pickle(Vec::new()).unwrap();
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(
        matches!(snapshot.write_pickle(Full), Err(WriteError::Io(error)) if error.kind() == std::io::ErrorKind::StorageFull)
    );
}

/// The operations of a pickle with their arguments' length, as PyTorch's page knows them, and the most values that one of
/// them adds.
fn operations(pickle: &[u8]) -> (BTreeMap<u8, usize>, usize) {
    let (mut counts, mut height, mut marks, mut most, mut at) = (BTreeMap::new(), 0_usize, Vec::new(), 0, 0);
    while at < pickle.len() {
        let (operation, rest) = (pickle[at], &pickle[at + 1..]);
        *counts.entry(operation).or_default() += 1;
        let argument = match operation {
            0x80 | b'K' | b'h' => 1,
            b'M' => 2,
            b'J' | b'j' => 4,
            b'G' => 8,
            0x8a => {
                assert!(rest[0] <= 9);
                1 + usize::from(rest[0])
            }
            0x8c => 1 + usize::from(rest[0]),
            b'X' => 4 + u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize,
            _ => 0,
        };
        match operation {
            b'(' => marks.push(height),
            b'e' | b'u' => {
                let mark = marks.pop().unwrap();
                most = most.max(height - mark);
                height = mark;
            }
            0x86 => height -= 1,
            b'K' | b'M' | b'J' | b'G' | 0x8a | 0x8c | b'X' | b'h' | b'j' | b'N' | b']' | b'}' | 0x88 | 0x89 => {
                height += 1
            }
            0x80 | 0x94 | b'.' => {}
            other => panic!("operation {other:#04x}"),
        }
        at += 1 + argument;
    }
    assert_eq!((height, at), (1, pickle.len()));
    (counts, most)
}

#[test]
fn pickles_stay_within_what_the_page_understands() {
    for snapshot in [torch_snapshot("default"), torch_snapshot("expandable"), unusual()] {
        let pickle = pickled(&snapshot);
        assert_eq!((pickle[0], pickle[1], pickle[pickle.len() - 1]), (0x80, 4, b'.'));
        let (counts, most) = operations(&pickle);
        assert!(most <= 1000, "one operation adds {most} values");
        assert_eq!(counts[&0x86], snapshot.segments.len(), "pool ids are tuples");
    }
}

#[test]
fn keys_may_be_unknown_or_missing_and_types_may_not_be_wrong() {
    let read = |json: &str| Snapshot::from_json(json.as_bytes(), &ReadLimits::default());
    let old = r#"{"segments": [{"address": 4096, "total_size": 1024, "tomorrow": [1, {"a": null}],
        "blocks": [{"size": 512, "state": "active_awaiting_free"}, {"size": 512, "state": "inactive"}]}], "more": 1}"#;
    let snapshot = read(old).unwrap();
    let blocks = &snapshot.segments[0].blocks;
    assert_eq!(blocks.iter().map(|block| block.address).collect::<Vec<_>>(), [4096, 4608]);
    assert_eq!((blocks[0].state, blocks[0].requested_size), (BlockStatus::ActivePendingFree, 512));
    let refused = |json: &str, expected: &str| {
        let error = read(json).unwrap_err();
        assert!(matches!(error, ReadError::Shape { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    refused("[]", "the whole should be a dict and is a list");
    refused("{}", "the whole should be a dict with `segments`");
    refused(r#"{"segments": 1}"#, "segments should be a list and is an integer");
    let segment = |text: &str| format!(r#"{{"segments": [{{"address": 1, "total_size": 2, "blocks": [], {text}}}]}}"#);
    refused(&segment(r#""stream": -1"#), "segments[0].stream should be an integer in range and is -1");
    refused(&segment(r#""segment_pool_id": [1]"#), "segments[0].segment_pool_id should be two integers");
    refused(
        &segment(r#""segment_type": "huge""#),
        "segments[0].segment_type should be `small` or `large` and is `huge`",
    );
    refused(&segment(r#""frames": [{"name": 1}]"#), "segments[0].frames[0].name should be a text and is an integer");
    refused(&segment(r#""blocks": [{"size": 1}]"#), "segments[0].blocks[0].state should be there and is missing");
    refused(r#"{"segments": [], "device_traces": [[{"action": "alloc", "size": "1"}]]}"#, "device_traces[0][0].size");
    refused(r#"{"segments": [], "allocator_settings": {"max_split_size": true}}"#, "allocator_settings.max_split_size");
    refused(r#"{"segments": [], "external_annotations": [{"stage": "MIDDLE"}]}"#, "external_annotations[0].stage");
    refused(r#"{"segments": [], "memtrack_history": [{"history": "on"}]}"#, "memtrack_history[0].history");
}

#[test]
fn files_are_read_up_to_a_size() {
    let path = format!("{}/fixtures/torch-2.11/snapshots/default.pickle", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(Snapshot::read_file(&path, &ReadLimits::default()).unwrap(), torch_snapshot("default"));
    let mut limits = ReadLimits::default();
    limits.file_bytes = 30_000;
    assert!(matches!(Snapshot::read_file(&path, &limits), Err(ReadError::TooLarge { limit_bytes: 30_000 })));
    assert!(matches!(Snapshot::read_file("/nowhere/at/all", &limits), Err(ReadError::Io(_))));
}
