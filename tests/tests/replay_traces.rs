//! Training runs recorded on PyTorch 2.11.0 on an H200: every address, the whole history, the statistics at every phase mark
//! and at the end must agree. `fixtures/torch-2.11/traces/README.md` describes the files.

use memtrack_tests::conformance::files::{fixture, read_gzipped};
use memtrack_tests::conformance::memtrack::Memtrack;
use memtrack_tests::conformance::recording::Names;
use memtrack_tests::conformance::replay::{replay, replay_all};
use memtrack_tests::conformance::traces::{recording, traces};
use memtrack_tests::reference_allocator::ReferenceAllocator;

#[test]
fn memtrack_gives_pytorchs_answers() {
    assert_eq!(replay_all::<Memtrack>(traces()), (12, Vec::new()), "these runs differ");
}

#[test]
fn the_reference_allocator_gives_pytorchs_answers() {
    assert_eq!(replay_all::<ReferenceAllocator>(traces()), (12, Vec::new()), "these runs differ");
}

#[test]
fn a_wrong_address_mark_or_completion_is_noticed() {
    let text = read_gzipped(&fixture("traces/prefetch_streams.default.txt.gz"));
    let run = |text: &str| replay::<ReferenceAllocator>(&recording(String::new(), text, &Names::default()));
    assert!(run(&text).is_ok());
    let mark = text.replacen("\"active.all.current\": 1", "\"active.all.current\": 2", 1);
    assert!(run(&mark).is_err());
    // One of the two blocks that a copy on another stream still used.
    let late = "f 123\nf 122\np 0 data\nc 123\nc 122\n";
    assert!(text.contains(late));
    assert!(run(&text.replacen(late, "f 123\nf 122\np 0 data\nc 122\nc 123\n", 1)).is_err());
    let line = text.lines().find(|line| line.starts_with("a 7 ")).map(|line| format!("{line}8"));
    let line = line.unwrap_or_default();
    assert!(run(&text.replacen(line.trim_end_matches('8'), &line, 1)).is_err());
}
