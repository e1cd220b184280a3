//! Programs measured on PyTorch 2.11.0 on an H200, replayed step by step: every statistic, every address, the history and
//! the segments at the end must agree.
//!
//! After waiting for other streams memtrack looks into the pool once more where PyTorch gives up; none of these programs
//! comes to that point with a block to find, so there is no exception. The files and their format are described in
//! `fixtures/torch-2.11/programs/README.md`.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack_tests::conformance::files::fixture;
use memtrack_tests::conformance::memtrack::Memtrack;
use memtrack_tests::conformance::programs::{program, programs, read_program};
use memtrack_tests::conformance::recording::Names;
use memtrack_tests::conformance::replay::{replay, replay_all};
use memtrack_tests::reference_allocator::ReferenceAllocator;
use serde_json::Value;

#[test]
fn every_measured_program_gives_pytorchs_statistics_and_addresses() {
    assert_eq!(replay_all::<Memtrack>(programs()), (55, Vec::new()), "these programs differ");
}

/// The allocator that random programs are compared with is itself held to what was measured.
#[test]
fn the_reference_allocator_gives_the_same() {
    assert_eq!(replay_all::<ReferenceAllocator>(programs()), (55, Vec::new()), "these programs differ");
}

#[test]
fn a_wrong_address_statistic_or_outcome_is_noticed() {
    let names = Names::default();
    let read = |name: &str| read_program(&fixture("programs").join(name));
    let simple = "oom-simple.json.gz";
    assert_eq!(replay::<Memtrack>(&program(&read(simple), &names)), Ok(4));
    let spoilt = |spoil: fn(&mut Value)| {
        let mut file = read(simple);
        spoil(&mut file);
        replay::<Memtrack>(&program(&file, &names)).unwrap_err()
    };
    assert!(spoilt(|file| file["ops"][0]["ptr"] = 512.into()).starts_with("step 0"));
    assert!(spoilt(|file| file["ops"][0]["changed"]["num_ooms"] = 7.into()).contains("num_ooms"));
    assert!(spoilt(|file| file["limit_bytes"] = (1_u64 << 36).into()).contains("PyTorch Some(None)"));
    assert!(spoilt(|file| file["final_stats"]["active.all.peak"] = 9.into()).starts_with("at the end"));

    let retry = "expandable-oom-retry.json.gz";
    assert_eq!(replay::<ReferenceAllocator>(&program(&read(retry), &names)), Ok(8));
    let spoilt = |spoil: fn(&mut Value)| {
        let mut file = read(retry);
        spoil(&mut file);
        replay::<ReferenceAllocator>(&program(&file, &names)).unwrap_err()
    };
    assert!(spoilt(|file| file["trace"][1][2] = 7.into()).starts_with("history"));
    assert!(spoilt(|file| file["final_segments"][0]["is_expandable"] = false.into()).starts_with("segments"));
}
