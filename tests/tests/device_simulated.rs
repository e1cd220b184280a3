//! The simulated device passes the list of checks, and takes no script that no device could follow.

use std::time::{Duration, Instant};

use memtrack::device::{Device as _, DeviceError, Simulated, Stream, VirtualMemory as _};
use memtrack_tests::device_list::{run_all, subjects};
use memtrack_tests::unused::{ReleaseUnused as _, UnmapUnused as _};

const MIB: u64 = 1 << 20;
const ALL: u64 = u64::MAX;

#[test]
fn a_simulated_device_passes_every_check_that_applies() {
    let (device, controls) = subjects::simulated();
    let report = run_all(&device, &controls);
    assert_eq!(report.failed, Vec::<&str>::new());
    // 9 move bytes; then unknown streams, twice, and a stream that waits for another.
    assert_eq!((report.held, report.skipped.len()), (47, 13), "{:?}", report.skipped);
}

#[test]
fn a_range_beyond_the_address_space_is_refused() {
    let device = Simulated::with_capacity(ALL);
    for _ in 0..2 {
        assert!(matches!(device.allocate(ALL), Err(DeviceError::InvalidSize { bytes: ALL, .. })));
        let bytes = ALL - ALL % (2 * MIB);
        assert!(matches!(device.reserve(bytes), Err(DeviceError::InvalidSize { bytes: found, .. }) if found == bytes));
    }
    assert_eq!(device.used_bytes(), 0);
    // A range that ends where no gap fits behind it is the last.
    let first = device.allocate(1).unwrap();
    device.allocate(ALL - first - 4 * MIB).unwrap();
    assert!(matches!(device.allocate(MIB), Err(DeviceError::InvalidSize { .. })));
    device.release_unused(first, 1).unwrap();
}

#[test]
fn mapping_and_unmapping_at_the_end_of_the_address_space_is_refused() {
    let device = Simulated::new();
    let range = device.reserve(4 * MIB).unwrap();
    let piece = device.create(2 * MIB).unwrap();
    device.map(range, piece).unwrap();
    let top = ALL - ALL % (2 * MIB);
    for address in [top, ALL] {
        assert!(
            matches!(device.map(address, piece), Err(DeviceError::InvalidAddress { address: at, .. }) if at == address)
        );
    }
    for (address, bytes) in [(top, 2 * MIB), (ALL, ALL), (range, ALL)] {
        let refused = device.unmap_unused(address, bytes);
        assert!(
            matches!(refused, Err(DeviceError::InvalidAddress { address: at, .. }) if at == address),
            "{refused:?}"
        );
    }
    device.unmap_unused(range, 2 * MIB).unwrap();
    device.unreserve(range, 4 * MIB).unwrap();
}

#[test]
fn a_scripted_address_that_does_not_do_is_refused_and_used_up() {
    let device = Simulated::new();
    let base = 1 << 40;
    let segment = |address| {
        device.script_addresses([address]);
        device.allocate(2 * MIB)
    };
    assert_eq!(segment(base), Ok(base));
    for (address, reason) in [
        (0, "address 0"),
        (base + 4 * MIB + 256, "multiple of 512"),
        (base, "overlaps"),
        (base + MIB, "overlaps"),
        (base - 512, "overlaps"),
        (ALL - 511, "end of the address space"),
    ] {
        let error = segment(address).unwrap_err();
        let is_typed = matches!(&error, DeviceError::InvalidAddress { address: at, .. } if *at == address);
        assert!(is_typed && error.to_string().contains(reason), "{error}");
    }
    assert_eq!(device.used_bytes(), 2 * MIB);
    // Beside a live segment, and where one was, there is room.
    assert_eq!(segment(base + 2 * MIB), Ok(base + 2 * MIB));
    device.release_unused(base, 2 * MIB).unwrap();
    assert_eq!(segment(base), Ok(base));

    device.script_addresses([base + 8 * MIB + 512, base + 2 * MIB, base + 8 * MIB]);
    assert!(device.reserve(2 * MIB).unwrap_err().to_string().contains("granularity"));
    assert!(device.reserve(2 * MIB).unwrap_err().to_string().contains("overlaps"));
    assert_eq!(device.reserve(2 * MIB), Ok(base + 8 * MIB));
}

#[test]
fn generated_addresses_go_around_scripted_ones() {
    let device = Simulated::new();
    let first = device.allocate(2 * MIB).unwrap();
    device.script_addresses([first + 5 * MIB]);
    let scripted = device.allocate(2 * MIB).unwrap();
    let next = device.allocate(2 * MIB).unwrap();
    assert!(next >= scripted + 2 * MIB, "{next:#x} overlaps {scripted:#x}");
}

#[test]
fn a_reservation_is_a_multiple_of_any_granularity() {
    let device = Simulated::builder().granularity_bytes(Some(6 * MIB)).build();
    device.allocate(512).unwrap();
    assert!(device.reserve(6 * MIB).unwrap().is_multiple_of(6 * MIB));
}

#[test]
fn asking_about_an_event_does_not_walk_all_that_are_pending() {
    const COUNT: u64 = 40_000;
    let device = Simulated::new();
    let events: Vec<_> = (1..=COUNT)
        .map(|stream| {
            device.set_busy(Stream(stream));
            device.record_event(Stream(stream)).unwrap()
        })
        .collect();
    let started = Instant::now();
    for event in &events {
        assert!(!device.query_event(event).unwrap());
    }
    for event in &events {
        device.wait_event(event).unwrap();
        assert!(device.query_event(event).unwrap());
    }
    // A walk over all of them each time takes minutes.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn waiting_for_an_event_completes_those_before_it_on_its_stream_only() {
    let device = Simulated::new();
    let (one, other) = (Stream(1), Stream(2));
    device.set_busy(one);
    device.set_busy(other);
    let events = [one, other, one, one].map(|stream| device.record_event(stream).unwrap());
    let done = || events.each_ref().map(|event| device.query_event(event).unwrap());
    device.wait_event(&events[2]).unwrap();
    assert_eq!(done(), [true, false, true, false]);
    device.complete_oldest_events(1);
    assert_eq!(done(), [true, true, true, false]);
    device.set_idle(one);
    assert_eq!(done(), [true; 4]);
}
