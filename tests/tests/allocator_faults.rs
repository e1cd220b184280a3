//! A driver that fails otherwise than by being full: the error comes out, nothing is lost, nothing panics.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::{Device, DeviceError, Fault, Operation, Simulated, Stream};
use memtrack::{AllocationError, CachingAllocator, Config, PoolOptions, Refusal};
use memtrack_tests::listening::listen;

const MIB: u64 = 1 << 20;

fn simulated(mebibytes: u64) -> (Arc<Simulated>, CachingAllocator) {
    let device = Arc::new(Simulated::with_capacity(mebibytes * MIB));
    let allocator = CachingAllocator::new(device.clone());
    (device, allocator)
}

fn fail(device: &Simulated, operation: Operation, nth: u64) {
    device.inject(Fault::Driver { operation, nth });
}

fn assert_driver_failed<T: std::fmt::Debug>(outcome: Result<T, AllocationError>) {
    match outcome {
        Err(AllocationError::Device(DeviceError::Driver { code: 999, .. })) => {}
        outcome => panic!("{outcome:?}"),
    }
}

/// What the books and the device say must be the same, and all of it must be returnable.
fn assert_nothing_is_lost(device: &Simulated, allocator: CachingAllocator) {
    assert_eq!(device.used_bytes(), allocator.memory_reserved() as u64);
    allocator.empty_cache().unwrap();
    let stats = allocator.memory_stats();
    assert_eq!((stats.active.all.current, stats.inactive_split.all.current), (0, 0));
    assert_eq!((device.used_bytes(), stats.reserved_bytes.all.current, stats.segment.all.current), (0, 0, 0));
    drop(allocator);
    assert_eq!(device.segments(), []);
}

#[test]
fn a_failing_allocation_is_an_error_and_the_next_one_works() {
    let (device, allocator) = simulated(100);
    fail(&device, Operation::Allocate, 0);
    assert_driver_failed(allocator.allocate_raw(5, Stream::DEFAULT));
    let stats = allocator.memory_stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.allocation.all.allocated), (0, 0, 0));
    let address = allocator.allocate_raw(5, Stream::DEFAULT).unwrap();
    allocator.free_raw(address).unwrap();
    assert_nothing_is_lost(&device, allocator);
}

#[test]
fn a_device_that_is_full_once_is_asked_again() {
    let (device, allocator) = simulated(100);
    device.inject(Fault::OutOfMemory { operation: Operation::Allocate, nth: 0 });
    let address = allocator.allocate_raw(5, Stream::DEFAULT).unwrap();
    let stats = allocator.memory_stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.num_device_alloc), (1, 0, 1));
    device.inject(Fault::LargerThan { operation: Operation::Allocate, bytes: 30 * MIB });
    match allocator.allocate_raw(31 * MIB, Stream::DEFAULT) {
        Err(AllocationError::OutOfMemory(error)) => {
            assert_eq!((error.refused_by, error.segment_bytes), (Refusal::Device, 32 * MIB));
            assert_eq!(
                error.device_free_bytes,
                Some(98 * MIB),
                "a refusal although there is room: fragmentation there"
            );
        }
        outcome => panic!("{outcome:?}"),
    }
    device.clear_faults();
    allocator.free_raw(address).unwrap();
    assert_nothing_is_lost(&device, allocator);
}

#[test]
fn a_segment_that_cannot_be_released_stays_cached() {
    let (device, allocator) = simulated(100);
    for (bytes, stream) in [(12 * MIB, 0), (14 * MIB, 1), (600, 2)] {
        let address = allocator.allocate_raw(bytes, Stream(stream)).unwrap();
        allocator.free_raw(address).unwrap();
    }
    // The first is released, the second fails, the third is not reached.
    fail(&device, Operation::Release, 1);
    assert!(matches!(allocator.empty_cache(), Err(DeviceError::Driver { .. })));
    let stats = allocator.memory_stats();
    assert_eq!((stats.segment.all.current, stats.reserved_bytes.all.current), (2, 16 * MIB as i64));
    assert_eq!((stats.num_device_free, stats.num_sync_all_streams), (1, 1));
    assert_eq!(device.used_bytes(), 16 * MIB);
    let reused = allocator.allocate_raw(14 * MIB, Stream(1)).unwrap();
    assert_eq!(allocator.memory_stats().num_device_alloc, 3, "the block was still there");
    allocator.free_raw(reused).unwrap();
    assert_nothing_is_lost(&device, allocator);
}

#[test]
fn a_release_that_fails_on_the_way_to_a_retry_fails_the_allocation_only() {
    let (device, allocator) = simulated(40);
    let cached = allocator.allocate_raw(30 * MIB, Stream::DEFAULT).unwrap();
    allocator.free_raw(cached).unwrap();
    fail(&device, Operation::Release, 0);
    assert_driver_failed(allocator.allocate_raw(34 * MIB, Stream(1)));
    assert_eq!(allocator.memory_stats().reserved_bytes.all.current, 30 * MIB as i64);
    let address = allocator.allocate_raw(34 * MIB, Stream(1)).unwrap();
    allocator.free_raw(address).unwrap();
    assert_nothing_is_lost(&device, allocator);
}

#[test]
fn failing_releases_of_the_collector_and_of_the_split_limit_lose_nothing() {
    for (text, fraction) in [("garbage_collection_threshold:0.2", 0.5), ("max_split_size_mb:20", 0.5)] {
        let device = Arc::new(Simulated::with_capacity(100 * MIB));
        let config: Config = text.parse().unwrap();
        let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
        allocator.set_memory_fraction(fraction).unwrap();
        let cached = allocator.allocate_raw(30 * MIB, Stream::DEFAULT).unwrap();
        allocator.free_raw(cached).unwrap();
        fail(&device, Operation::Release, 0);
        assert_driver_failed(allocator.allocate_raw(42 * MIB, Stream::DEFAULT));
        assert_eq!((device.used_bytes(), allocator.memory_stats().num_device_free), (30 * MIB, 0), "{text}");
        let address = allocator.allocate_raw(42 * MIB, Stream::DEFAULT).unwrap();
        allocator.free_raw(address).unwrap();
        assert_nothing_is_lost(&device, allocator);
    }
}

/// A block of stream 0 that busy stream 1 uses too, freed.
fn pending(device: &Simulated, allocator: &CachingAllocator) {
    let address = allocator.allocate_raw(5 * MIB, Stream::DEFAULT).unwrap();
    allocator.record_stream_raw(address, Stream(1)).unwrap();
    device.set_busy(Stream(1));
    allocator.free_raw(address).unwrap();
}

#[test]
fn an_event_that_cannot_be_recorded_is_replaced_by_a_wait() {
    let (device, allocator) = simulated(100);
    fail(&device, Operation::RecordEvent, 0);
    pending(&device, &allocator);
    assert_eq!(allocator.memory_stats().active.all.current, 0, "the stream was waited for");
    assert_nothing_is_lost(&device, allocator);
}

#[test]
fn an_event_that_cannot_be_queried_fails_the_allocation_and_stays_outstanding() {
    let (device, allocator) = simulated(100);
    pending(&device, &allocator);
    fail(&device, Operation::QueryEvent, 0);
    assert_driver_failed(allocator.allocate_raw(5 * MIB, Stream::DEFAULT));
    assert_eq!(allocator.memory_stats().active.all.current, 1);
    device.synchronize().unwrap();
    let address = allocator.allocate_raw(5 * MIB, Stream::DEFAULT).unwrap();
    assert_eq!(allocator.memory_stats().num_device_alloc, 1, "the block came back");
    allocator.free_raw(address).unwrap();
    assert_nothing_is_lost(&device, allocator);
}

#[test]
fn an_event_that_cannot_be_waited_for_stays_outstanding_with_those_behind_it() {
    let (device, allocator) = simulated(100);
    for _ in 0..3 {
        pending(&device, &allocator);
    }
    fail(&device, Operation::WaitEvent, 1);
    assert!(matches!(allocator.empty_cache(), Err(DeviceError::Driver { .. })));
    let stats = allocator.memory_stats();
    assert_eq!((stats.active.all.current, stats.num_device_free), (2, 0), "one was waited for");
    // What is freed later, on any stream, does not get lost among those that are left.
    let address = allocator.allocate_raw(MIB, Stream(6)).unwrap();
    allocator.record_stream_raw(address, Stream::DEFAULT).unwrap();
    device.set_busy(Stream::DEFAULT);
    allocator.free_raw(address).unwrap();
    assert_eq!(allocator.memory_stats().active.all.current, 3);
    device.synchronize().unwrap();
    let address = allocator.allocate_raw(1, Stream(6)).unwrap();
    assert_eq!(allocator.memory_stats().active.all.current, 1);
    allocator.free_raw(address).unwrap();
    assert_nothing_is_lost(&device, allocator);
}

#[test]
fn a_wait_that_fails_on_the_way_to_a_retry_fails_the_allocation_only() {
    let (device, allocator) = simulated(30);
    pending(&device, &allocator);
    fail(&device, Operation::WaitEvent, 0);
    assert_driver_failed(allocator.allocate_raw(24 * MIB, Stream::DEFAULT));
    let stats = allocator.memory_stats();
    assert_eq!((stats.active.all.current, stats.num_alloc_retries, stats.num_ooms), (1, 0, 0));
    let address = allocator.allocate_raw(24 * MIB, Stream::DEFAULT).unwrap();
    allocator.free_raw(address).unwrap();
    assert_nothing_is_lost(&device, allocator);
}

#[test]
fn failures_while_the_last_handle_goes_do_not_panic() {
    for operation in [Operation::WaitEvent, Operation::Release, Operation::RecordEvent] {
        let (device, allocator) = simulated(100);
        let address = allocator.allocate_raw(3 * MIB, Stream(2)).unwrap();
        allocator.record_stream_raw(address, Stream(1)).unwrap();
        pending(&device, &allocator);
        fail(&device, operation, 0);
        drop(allocator);
        // A failed release is tried once more, and for an event that cannot be waited for its stream is.
        assert_eq!(device.used_bytes(), 0, "{operation:?}");
    }
}

#[test]
fn only_memory_that_nobody_can_wait_for_stays_away_when_the_last_handle_goes_and_a_warning_says_so() {
    let (device, allocator) = simulated(300);
    for stream in 1..4 {
        let address = allocator.allocate_raw(30 * MIB, Stream(stream)).unwrap();
        device.set_busy(Stream(stream + 10));
        allocator.record_stream_raw(address, Stream(stream + 10)).unwrap();
        allocator.free_raw(address).unwrap();
    }
    // The first wait of each kind fails, so one block is lost; the other two are waited for.
    for (operation, nth) in [
        (Operation::WaitEvent, 0),
        (Operation::WaitEvent, 1),
        (Operation::SynchronizeStream, 0),
        (Operation::Synchronize, 0),
    ] {
        fail(&device, operation, nth);
    }
    let said = listen(|| (), || drop(allocator));
    assert_eq!(device.used_bytes(), 30 * MIB);
    assert_eq!(said.iter().filter(|said| said.level == tracing::Level::ERROR).count(), 1, "{said:?}");
}

/// Whoever is told that a block is lost may use the allocator, and may panic.
#[test]
fn a_subscriber_may_use_the_allocator_when_a_block_is_lost_and_may_panic() {
    for (empties, panics) in [(true, false), (false, false), (true, true), (false, true)] {
        let (device, allocator) = simulated(300);
        let pool = allocator.create_pool(PoolOptions::default());
        let capture = pool.begin_capture(Stream(1)).unwrap();
        for stream in [2, 3] {
            let address = allocator.allocate_raw(3 * MIB, Stream(0)).unwrap();
            allocator.record_stream_raw(address, Stream(stream)).unwrap();
            allocator.free_raw(address).unwrap();
        }
        drop(capture);
        for operation in [Operation::RecordEvent, Operation::SynchronizeStream, Operation::Synchronize] {
            fail(&device, operation, 0);
        }
        let told = allocator.clone();
        let on_event = move || {
            told.config();
            told.memory_snapshot();
            assert!(!panics, "a subscriber's own mistake");
        };
        let started = std::time::Instant::now();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            listen(on_event, || {
                if empties {
                    let _ = allocator.empty_cache();
                } else {
                    let _ = allocator.allocate_raw(512, Stream(0));
                }
            })
        }));
        assert_eq!(outcome.is_err(), panics);
        device.clear_faults();
        allocator.empty_cache().unwrap();
        allocator.empty_cache().unwrap();
        assert!(started.elapsed() < std::time::Duration::from_secs(5), "nobody waits for what will never come");
        drop(pool);
    }
}

#[test]
fn bad_sizes_addresses_and_fractions_are_refused_and_change_nothing() {
    let (device, allocator) = simulated(100);
    let before = allocator.memory_stats();
    for bytes in [1 << 60, u64::MAX] {
        let refused = allocator.allocate_raw(bytes, Stream::DEFAULT);
        assert_eq!(refused, Err(AllocationError::TooLarge { requested_bytes: bytes }));
    }
    assert!(matches!(allocator.allocate_raw((1 << 60) - 1, Stream::DEFAULT), Err(AllocationError::OutOfMemory(_))));
    assert_eq!(allocator.free_raw(0x1000), Err(AllocationError::InvalidPointer { address: 0x1000 }));
    assert_eq!(
        allocator.record_stream_raw(0x1000, Stream(1)),
        Err(AllocationError::InvalidPointer { address: 0x1000 })
    );
    for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert!(matches!(allocator.set_memory_fraction(fraction), Err(AllocationError::InvalidFraction { .. })));
    }
    assert_eq!(allocator.limit_bytes(), None);
    assert_eq!((allocator.allocate_raw(0, Stream::DEFAULT), allocator.free_raw(0)), (Ok(0), Ok(())));
    let after = allocator.memory_stats();
    assert_eq!((after.num_alloc_retries, after.num_ooms, after.num_sync_all_streams), (1, 1, 1));
    assert_eq!((after.allocation, after.reserved_bytes), (before.allocation, before.reserved_bytes));
    let address = allocator.allocate_raw(700, Stream::DEFAULT).unwrap();
    allocator.free_raw(address).unwrap();
    assert!(allocator.free_raw(address).is_err(), "freed twice");
    assert_nothing_is_lost(&device, allocator);
}

/// Settings by value are checked as text is: below 10 MiB a block could be larger than its segment.
#[test]
fn no_setting_makes_a_segment_smaller_than_its_block() {
    for large_segment_size_bytes in [0, 1, 700, 10 * MIB] {
        let mut config = Config::default();
        config.large_segment_size_bytes = large_segment_size_bytes;
        let refused = CachingAllocator::with_config(Arc::new(Simulated::new()), config).unwrap_err();
        assert_eq!(refused.key, "large_segment_size_mb");
    }
    for large_segment_size_bytes in [10 * MIB + 1, 11 * MIB, 20 * MIB - 700] {
        let device = Arc::new(Simulated::with_capacity(100 * MIB));
        let mut config = Config::default();
        config.large_segment_size_bytes = large_segment_size_bytes;
        let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
        let mut addresses: Vec<u64> =
            (0..4).map(|_| allocator.allocate_raw(5 * MIB, Stream::DEFAULT).unwrap()).collect();
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 5 * MIB), "{large_segment_size_bytes}: overlap");
        assert_eq!(device.used_bytes(), allocator.memory_reserved() as u64);
        for (start, bytes) in device.segments() {
            let inside = addresses.iter().filter(|address| (start..start + bytes).contains(address)).count() as u64;
            assert!(
                inside * 5 * MIB <= bytes,
                "{large_segment_size_bytes}: a segment of {bytes} holds {inside} blocks"
            );
        }
        addresses.into_iter().for_each(|address| allocator.free_raw(address).unwrap());
        assert_nothing_is_lost(&device, allocator);
    }
}
