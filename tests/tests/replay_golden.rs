//! Random programs recorded on PyTorch 2.11.0 on an H200, with settings at run time, pools and events by number: every
//! statistic, address and call to the device must agree. `fixtures/torch-2.11/golden/README.md` describes the files.

use memtrack_tests::conformance::golden::golden;
use memtrack_tests::conformance::memtrack::Memtrack;
use memtrack_tests::conformance::replay::replay_all;
use memtrack_tests::reference_allocator::ReferenceAllocator;

#[test]
fn memtrack_gives_pytorchs_answers() {
    assert_eq!(replay_all::<Memtrack>(golden()), (7, Vec::new()), "these recordings differ");
}

#[test]
fn the_reference_allocator_gives_pytorchs_answers() {
    assert_eq!(replay_all::<ReferenceAllocator>(golden()), (14, Vec::new()), "these recordings differ");
}
