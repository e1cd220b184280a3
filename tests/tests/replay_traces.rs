//! Training runs recorded on PyTorch 2.11.0 on an H200: every address, the whole history, the statistics at every phase mark
//! and at the end must agree. `fixtures/torch-2.11/traces/README.md` describes the files.

use memtrack_tests::conformance::memtrack::Memtrack;
use memtrack_tests::conformance::replay::replay_all;
use memtrack_tests::conformance::traces::traces;
use memtrack_tests::reference_allocator::ReferenceAllocator;

#[test]
fn memtrack_gives_pytorchs_answers() {
    assert_eq!(replay_all::<Memtrack>(traces()), (6, Vec::new()), "these runs differ");
}

#[test]
fn the_reference_allocator_gives_pytorchs_answers() {
    assert_eq!(replay_all::<ReferenceAllocator>(traces()), (12, Vec::new()), "these runs differ");
}
