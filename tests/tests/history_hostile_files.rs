//! The bug class: a damaged or hostile file makes its reader panic, run code, or take memory and time out of all proportion.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::{Duration, Instant};

use memtrack::history::{PickleProblem, ReadError, ReadLimits, Snapshot};

fn read(bytes: &[u8]) -> Result<Snapshot, ReadError> {
    Snapshot::from_pickle(bytes, &ReadLimits::default())
}

fn problem(bytes: &[u8]) -> (usize, &'static str, PickleProblem) {
    match read(bytes) {
        Err(ReadError::Pickle { offset, opcode, problem }) => (offset, opcode, problem),
        other => panic!("{other:?}"),
    }
}

/// A whole pickle of a few hundred bytes with every part of a snapshot.
fn small() -> Vec<u8> {
    let json = br#"{"segments": [{"device": 0, "address": 4096, "total_size": 1024, "allocated_size": 512, "active_size": 512,
        "requested_size": 500, "stream": 3000000000, "segment_pool_id": [0, 1], "frames": [{"name": "f", "filename": "a.rs",
        "line": 3}], "blocks": [{"size": 512, "requested_size": 500, "state": "active_allocated"}, {"size": 512,
        "requested_size": 0, "state": "inactive"}]}], "device_traces": [[{"action": "alloc", "addr": 4096, "size": 500,
        "stream": 3000000000}, {"action": "oom", "device_free": 1, "size": 70000, "stream": 0}]],
        "allocator_settings": {"garbage_collection_threshold": 0.5, "expandable_segments": true},
        "external_annotations": [{"stage": "END", "name": "forward", "device": 0, "time_us": 123456789012}]}"#;
    let snapshot = Snapshot::from_json(json, &ReadLimits::default()).unwrap();
    snapshot.check_consistency().unwrap();
    let mut bytes = Vec::new();
    snapshot.write_pickle(&mut bytes).unwrap();
    bytes
}

#[test]
fn every_truncation_is_refused_where_the_file_ends() {
    let whole = small();
    read(&whole).unwrap();
    for length in 0..whole.len() {
        let (_, _, problem) = problem(&whole[..length]);
        assert!(matches!(problem, PickleProblem::Truncated { .. }), "{length}: {problem:?}");
    }
}

#[test]
fn every_corruption_of_a_byte_gives_a_value_or_an_error() {
    let mut bytes = small();
    let (mut values, mut errors) = (0, 0);
    for at in 0..bytes.len() {
        let original = bytes[at];
        for corrupted in 0..=255 {
            bytes[at] = corrupted;
            match read(&bytes) {
                Ok(snapshot) => {
                    values += 1;
                    // Whatever was read can be looked at and written; of each byte one is enough.
                    if corrupted == 255 - original {
                        let _ = (snapshot.check_consistency(), snapshot.usage_groups(), snapshot.replay(0));
                        snapshot.write_pickle(std::io::sink()).unwrap();
                    }
                }
                Err(error) => {
                    errors += 1;
                    assert!(error.to_string().len() < 2000);
                }
            }
        }
        bytes[at] = original;
    }
    assert!(values > 0 && errors > values, "{values} values, {errors} errors");
}

#[test]
fn what_would_import_or_call_is_refused_by_name() {
    // Python's classic: import a function and call it.
    assert_eq!(problem(b"\x80\x02cos\nsystem\n(S'ls'\ntR."), (2, "GLOBAL", PickleProblem::NotAllowed));
    assert_eq!(problem(b"\x80\x04\x8c\x02os\x8c\x06system\x93."), (14, "STACK_GLOBAL", PickleProblem::NotAllowed));
    assert_eq!(problem(b"\x80\x02}R."), (3, "REDUCE", PickleProblem::NotAllowed));
    assert_eq!(problem(b"\x80\x02\x82\x01."), (2, "EXT1", PickleProblem::NotAllowed));
    assert_eq!(problem(b"\x80\x02}Q."), (3, "BINPERSID", PickleProblem::NotAllowed));
    assert_eq!(problem(b"\x80\x02\xff."), (2, "unknown operation", PickleProblem::UnknownOperation { byte: 0xff }));
    assert_eq!(problem(b"\x80\x09."), (0, "PROTO", PickleProblem::Protocol { version: 9 }));
    let error = read(b"\x80\x02cos\nsystem\n.").unwrap_err().to_string();
    assert!(error.starts_with("the pickle is refused at byte 2, GLOBAL: snapshots hold data only"), "{error}");
}

#[test]
fn operations_without_their_values_are_refused() {
    assert_eq!(problem(b"."), (0, "STOP", PickleProblem::MissingValue));
    assert_eq!(problem(b"]a."), (1, "APPEND", PickleProblem::MissingValue));
    assert_eq!(problem(b"]e."), (1, "APPENDS", PickleProblem::MissingMark));
    assert_eq!(problem(b"(e."), (1, "APPENDS", PickleProblem::MissingValue));
    assert_eq!(problem(b"N(Ne."), (3, "APPENDS", PickleProblem::WrongTarget { found: "nothing" }));
    assert_eq!(problem(b"](\x86."), (2, "TUPLE2", PickleProblem::MissingValue));
    assert_eq!(problem(b"}(Nu."), (3, "SETITEMS", PickleProblem::MissingItem));
    assert_eq!(problem(b"(Nd."), (2, "DICT", PickleProblem::MissingItem));
    assert_eq!(problem(b"])Na."), (3, "APPEND", PickleProblem::WrongTarget { found: "a tuple" }));
    assert_eq!(problem(b"h\x07."), (0, "BINGET", PickleProblem::UnknownMemo { index: 7 }));
    assert_eq!(problem(b"\x94."), (0, "MEMOIZE", PickleProblem::MissingValue));
    let long = [b"\x8a\x09".as_slice(), &[1; 9], b"."].concat();
    assert_eq!(problem(&long), (0, "LONG1", PickleProblem::IntegerTooLarge { length: 9 }));
    let longer = [b"\x8a\xff".as_slice(), &[1; 255], b"."].concat();
    assert_eq!(problem(&longer), (0, "LONG1", PickleProblem::IntegerTooLarge { length: 255 }));
    assert!(matches!(read(b"\x80\x02K\x01."), Err(ReadError::Shape { .. })));
}

#[test]
fn no_length_is_believed() {
    let truncated = |needed_bytes, left_bytes| PickleProblem::Truncated { needed_bytes, left_bytes };
    assert_eq!(problem(b"X\xff\xff\xff\xffabc"), (0, "BINUNICODE", truncated(u64::from(u32::MAX), 3)));
    assert_eq!(problem(b"\x8c\xffabc"), (0, "SHORT_BINUNICODE", truncated(255, 3)));
    // A frame's length is a hint, whatever it says.
    assert!(matches!(read(b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN."), Err(ReadError::Shape { .. })));
    // The highest index of all takes no more room than any other.
    assert!(matches!(read(b"Nr\xff\xff\xff\xffj\xff\xff\xff\xff."), Err(ReadError::Shape { .. })));
}

#[test]
fn depth_and_count_have_limits() {
    let limits = ReadLimits::default();
    let marks = vec![b'('; 5_000_000];
    assert_eq!(problem(&marks), (limits.depth, "MARK", PickleProblem::TooDeep { limit: limits.depth }));
    // Lists inside each other without marks: as deep as the file is long, and dropped without recursion.
    let lists = [vec![b']'; 1_000_000], vec![b'a'; 999_999], b".".to_vec()].concat();
    assert!(matches!(read(&lists), Err(ReadError::Shape { .. })));
    let mut few = ReadLimits::default();
    few.operations = 1000;
    let error = Snapshot::from_pickle(&vec![b'N'; 2000], &few).unwrap_err();
    let limit = PickleProblem::TooManyOperations { limit: 1000 };
    assert!(matches!(error, ReadError::Pickle { offset: 1000, opcode: "NONE", problem } if problem == limit));
    Snapshot::from_pickle(&small(), &few).unwrap();
}

/// A list of `width` references to the value on top.
fn repeat(pickle: &mut Vec<u8>, memo: u8, width: usize) {
    pickle.extend([b'q', memo]);
    pickle.extend(b"](");
    (0..width).for_each(|_| pickle.extend([b'h', memo]));
    pickle.push(b'e');
}

#[test]
fn references_do_not_multiply() {
    let start = Instant::now();
    // Ten levels of a thousand references each: 10^30 values if written out.
    let mut bomb = b"\x80\x02N".to_vec();
    (0..10).for_each(|level| repeat(&mut bomb, level, 1000));
    bomb.push(b'.');
    assert!(matches!(read(&bomb), Err(ReadError::Shape { .. })));

    // The same where a snapshot would have it: one trace of 30,000 events, 30,000 times.
    let mut bomb = b"\x80\x02}X\x06\x00\x00\x00actionX\x05\x00\x00\x00allocs".to_vec();
    repeat(&mut bomb, 0, 30_000);
    repeat(&mut bomb, 1, 30_000);
    bomb.extend(b"q\x02}X\x08\x00\x00\x00segments]sX\x0d\x00\x00\x00device_tracesh\x02s.");
    assert!(bomb.len() < 200_000);
    let mut limits = ReadLimits::default();
    limits.operations = 1 << 20;
    let error = Snapshot::from_pickle(&bomb, &limits).unwrap_err();
    assert!(matches!(error, ReadError::Expands { limit } if limit == 1 << 20), "{error}");

    // A list that holds itself, as frames and as a setting.
    let own = b"\x80\x02}X\x08\x00\x00\x00segments]q\x00h\x00as.";
    assert!(matches!(read(own), Err(ReadError::Shape { .. })));
    let own =
        b"\x80\x02}X\x08\x00\x00\x00segments]sX\x12\x00\x00\x00allocator_settings}q\x00X\x01\x00\x00\x00ah\x00ss.";
    let error = read(own).unwrap_err().to_string();
    assert!(error.contains("should be a setting of few levels"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn json_has_the_same_limits() {
    let read = |text: &str| Snapshot::from_json(text.as_bytes(), &ReadLimits::default());
    assert!(matches!(read(&"[".repeat(1_000_000)), Err(ReadError::Json { .. })));
    let error = read(&format!("{}{}", "[".repeat(101), "]".repeat(101))).unwrap_err().to_string();
    assert!(error.contains("ReadLimits::depth"), "{error}");
    assert!(matches!(read("{\"segments\": []} x"), Err(ReadError::Json { .. })));
    assert!(matches!(read("{\"segments\": [1e999]}"), Err(ReadError::Json { .. })));
    let mut few = ReadLimits::default();
    few.operations = 100;
    let many = format!("{{\"segments\": [{}1]}}", "1,".repeat(200));
    let error = Snapshot::from_json(many.as_bytes(), &few).unwrap_err().to_string();
    assert!(error.contains("ReadLimits::operations"), "{error}");
}
