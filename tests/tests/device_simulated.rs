//! The simulated device passes the list of checks.

use memtrack_tests::device_list::{run_all, subjects};

#[test]
fn a_simulated_device_passes_every_check_that_applies() {
    let (device, controls) = subjects::simulated();
    let report = run_all(&device, &controls);
    assert_eq!(report.failed, Vec::<&str>::new());
    // 5 move bytes; then unknown streams, and a stream that waits for another.
    assert_eq!((report.held, report.skipped.len()), (23, 7), "{:?}", report.skipped);
}
