//! Random programs recorded on PyTorch 2.11.0 on an H200, with settings at run time, pools and events by number: every
//! statistic, address and call to the device must agree. `fixtures/torch-2.11/golden/README.md` describes the files.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack_tests::conformance::files::{fixture, read_gzipped};
use memtrack_tests::conformance::golden::{golden, recording};
use memtrack_tests::conformance::memtrack::Memtrack;
use memtrack_tests::conformance::recording::Names;
use memtrack_tests::conformance::replay::{replay, replay_all};
use memtrack_tests::reference_allocator::ReferenceAllocator;
use serde_json::Value;

#[test]
fn memtrack_gives_pytorchs_answers() {
    assert_eq!(replay_all::<Memtrack>(golden()), (14, Vec::new()), "these recordings differ");
}

#[test]
fn the_reference_allocator_gives_pytorchs_answers() {
    assert_eq!(replay_all::<ReferenceAllocator>(golden()), (14, Vec::new()), "these recordings differ");
}

#[test]
fn a_wrong_statistic_event_or_call_to_the_device_is_noticed() {
    let text = read_gzipped(&fixture("golden/events.json.gz"));
    let spoilt = |spoil: fn(&mut Vec<Value>)| {
        let mut file: Value = serde_json::from_str(&text).unwrap();
        spoil(file["ops"].as_array_mut().unwrap());
        replay::<ReferenceAllocator>(&recording(&file, &Names::default()))
    };
    assert!(spoilt(|_| {}).is_ok());
    assert!(spoilt(|ops| ops[1]["d"][0][1] = 9.into()).unwrap_err().starts_with("step 0"));
    assert!(spoilt(|ops| ops[1]["device"][0][2] = 9.into()).unwrap_err().contains("calls to the device"));
    let spoil = |ops: &mut Vec<Value>| {
        let completes = |op: &&mut Value| op.get("events_completed").is_some_and(|count| *count != 0);
        let op = ops.iter_mut().find(completes).unwrap();
        op["events_completed"] = 0.into();
    };
    assert!(spoilt(spoil).is_err());
}
