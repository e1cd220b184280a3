//! Where PyTorch 2.11 is wrong or unsafe: the default is right, `torch_exact` gives PyTorch's numbers, and neither ever gives memory
//! away that is in use.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::{Device, Simulated, Stream};
use memtrack::units::MIB;
use memtrack::{AllocationError, CachingAllocator, Config, PoolOptions};

const STREAM: Stream = Stream::DEFAULT;
const SIDE: Stream = Stream(7);

fn simulated(torch_exact: bool) -> (Arc<Simulated>, CachingAllocator) {
    let device = Arc::new(Simulated::with_capacity(10 << 30));
    let mut config = Config::default();
    config.torch_exact = torch_exact;
    let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
    (device, allocator)
}

fn limit(device: &Simulated, allocator: &CachingAllocator, bytes: u64) {
    allocator.set_memory_fraction(bytes as f64 / device.total_bytes() as f64).unwrap();
}

/// 60 and 40 MiB in one segment of 100, the 60 pending, a limit of 110: 50 MiB fit once the other stream is done.
#[test]
fn an_out_of_memory_that_the_same_call_a_moment_later_would_not_meet() {
    for torch_exact in [false, true] {
        let (device, allocator) = simulated(torch_exact);
        limit(&device, &allocator, 110 * MIB);
        let whole = allocator.allocate_raw(100 * MIB, STREAM).unwrap();
        allocator.free_raw(whole).unwrap();
        let (pending, _kept) =
            (allocator.allocate_raw(60 * MIB, STREAM).unwrap(), allocator.allocate_raw(40 * MIB, STREAM).unwrap());
        device.set_busy(SIDE);
        allocator.record_stream_raw(pending, SIDE).unwrap();
        allocator.free_raw(pending).unwrap();
        let first = allocator.allocate_raw(50 * MIB, STREAM);
        let stats = allocator.memory_stats();
        assert_eq!((stats.num_alloc_retries, stats.num_sync_all_streams), (1, 1));
        assert_eq!(stats.num_ooms, i64::from(torch_exact));
        match first {
            Ok(address) => assert_eq!((address, torch_exact), (pending, false)),
            Err(error) => {
                assert!(torch_exact, "{error}");
                assert_eq!(allocator.allocate_raw(50 * MIB, STREAM).unwrap(), pending, "again, and it works");
            }
        }
    }
}

/// The split limit is lowered below a block that is a part of a segment in use.
#[test]
fn a_part_of_a_segment_in_use_is_never_given_back() {
    for torch_exact in [false, true] {
        let (device, allocator) = simulated(torch_exact);
        limit(&device, &allocator, 120 * MIB);
        let whole = allocator.allocate_raw(100 * MIB, STREAM).unwrap();
        allocator.free_raw(whole).unwrap();
        // The front stays in use; behind it 60 MiB are free.
        let front = allocator.allocate_raw(40 * MIB, STREAM).unwrap();
        assert_eq!(front, whole);
        allocator.apply_settings("max_split_size_mb:50").unwrap();
        let before = allocator.memory_stats();
        // No block of at least this size, and the limit refuses a segment: the free part is looked at.
        let outcome = allocator.allocate_raw(55 * MIB, Stream(1)).map(|_| ());
        assert!(matches!(outcome, Err(AllocationError::OutOfMemory(_))), "another stream's blocks are not looked at");
        allocator.reset_accumulated_memory_stats();
        let outcome = allocator.allocate_raw(81 * MIB, STREAM).map(|_| ());
        let stats = allocator.memory_stats();
        match outcome.unwrap_err() {
            AllocationError::OutOfMemory(_) => {
                assert!(!torch_exact);
                assert_eq!((stats.num_device_free, stats.num_ooms), (0, 1));
            }
            AllocationError::Device(error) => {
                assert!(torch_exact);
                assert!(error.to_string().contains("part of a segment that is in use"), "{error}");
                assert_eq!((stats.num_device_free, stats.num_ooms), (1, 0), "PyTorch counts it and stops");
            }
            other => panic!("{other}"),
        }
        assert_eq!(stats.reserved_bytes.all.current, before.reserved_bytes.all.current);
        assert_eq!(device.segments(), [(whole, 100 * MIB)]);
        allocator.free_raw(front).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.used_bytes(), 0, "nothing was lost");
    }
}

#[test]
fn a_raw_allocation_of_minus_one_byte() {
    let (_, allocator) = simulated(false);
    assert!(matches!(
        allocator.allocate_raw(u64::MAX, STREAM),
        Err(AllocationError::TooLarge { requested_bytes: u64::MAX })
    ));
    assert_eq!(
        allocator.memory_stats().to_map().values().filter(|value| **value != 0).count(),
        1,
        "only max_split_size"
    );

    let (device, allocator) = simulated(true);
    let nothing = allocator.allocate_raw(u64::MAX, STREAM).unwrap();
    let stats = allocator.memory_stats();
    assert_eq!((stats.allocation.all.current, stats.allocated_bytes.all.current), (1, 0));
    assert_eq!((stats.requested_bytes.all.current, stats.reserved_bytes.all.current as u64), (-1, 2 * MIB));
    let real = allocator.allocate_raw(1000, STREAM).unwrap();
    assert_eq!(real, nothing, "a block of no bytes is where the next one is");
    allocator.free_raw(real).unwrap();
    assert!(allocator.free_raw(nothing).is_err(), "and cannot be named any more");
    assert!(matches!(allocator.allocate_raw(1 << 63, STREAM), Err(AllocationError::OutOfMemory(_))));
    assert!(matches!(allocator.allocate_raw(u64::MAX - 511, STREAM), Err(AllocationError::OutOfMemory(_))));
    allocator.apply_settings("roundup_power2_divisions:4").unwrap();
    for size in [0xe000_0000_0000_0001, u64::MAX - 511, u64::MAX] {
        let nothing = allocator.allocate_raw(size, STREAM).unwrap();
        assert_eq!(allocator.memory_allocated(), 0, "{size:#x} rounds to nothing, too");
        allocator.free_raw(nothing).unwrap();
    }
    drop(allocator);
    assert_eq!(device.used_bytes(), 0);
}

/// PyTorch takes an entered pool for a graph capture: no event is asked and nothing given back, on any thread.
#[test]
fn an_entered_pool_does_not_stop_the_waiting_for_other_streams() {
    for torch_exact in [false, true] {
        let (device, allocator) = simulated(torch_exact);
        limit(&device, &allocator, 100 * MIB);
        let pool = allocator.create_pool(PoolOptions::default());
        let pending = allocator.allocate_raw(60 * MIB, STREAM).unwrap();
        device.set_busy(SIDE);
        allocator.record_stream_raw(pending, SIDE).unwrap();
        allocator.free_raw(pending).unwrap();
        let guard = pool.enter().unwrap();
        let inside = allocator.allocate_raw(60 * MIB, STREAM);
        assert_eq!(inside.is_err(), torch_exact);
        assert_eq!(allocator.memory_stats().num_alloc_retries, i64::from(!torch_exact));
        drop(guard);
        assert!(allocator.allocate_raw(30 * MIB, STREAM).is_ok());
    }
}

/// PyTorch forgets the streams that were recorded while a pool was entered, as if a capture had recorded them, and reuses the block
/// while they are at work.
#[test]
fn a_stream_recorded_while_a_pool_is_entered_is_waited_for() {
    for torch_exact in [false, true] {
        let (device, allocator) = simulated(torch_exact);
        let pool = allocator.create_pool(PoolOptions::default());
        device.set_busy(SIDE);
        let guard = pool.enter().unwrap();
        let block = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
        allocator.record_stream_raw(block, SIDE).unwrap();
        allocator.free_raw(block).unwrap();
        drop(guard);
        let event = device.record_event(SIDE).unwrap();
        assert!(!device.query_event(&event).unwrap());
        let _poll = allocator.allocate_raw(512, STREAM).unwrap();
        let pending = allocator.memory_stats().active.all.current - 1;
        assert_eq!(pending, i64::from(!torch_exact), "PyTorch's numbers say that it is free at once");
        assert_eq!(device.query_event(&event).unwrap(), torch_exact, "which is so only after a wait");
        device.release_event(event);
    }
}
