//! Expandable segments: what is mapped, when it goes back, and what happens when the device fails on the way.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::thread;

use memtrack::device::{Device, Fault, Operation, Simulated, Stream};
use memtrack::units::MIB;
use memtrack::{AllocationError, Buffer, CachingAllocator, Config, PoolOptions, Refusal};

const STREAM: Stream = Stream::DEFAULT;

fn on(device: &Arc<Simulated>, config: &str) -> CachingAllocator {
    CachingAllocator::with_config(device.clone(), config.parse::<Config>().unwrap()).unwrap()
}

fn simulated(total_bytes: u64) -> (Arc<Simulated>, CachingAllocator) {
    let device = Arc::new(Simulated::with_capacity(total_bytes));
    let allocator = on(&device, "expandable_segments:True");
    (device, allocator)
}

fn reserved_bytes(allocator: &CachingAllocator) -> u64 {
    allocator.memory_reserved() as u64
}

#[test]
fn pages_are_mapped_as_measured_on_pytorch() {
    let (device, allocator) = simulated(1 << 40);
    let mut expected_maps = 0;
    let mut allocate = |bytes, reserved, maps| {
        expected_maps += maps;
        let address = allocator.allocate_raw(bytes, STREAM).unwrap();
        let stats = allocator.memory_stats();
        assert_eq!(stats.reserved_bytes.all.current, reserved, "after {bytes}");
        assert_eq!(stats.num_device_alloc, expected_maps);
        assert_eq!((stats.segment.all.peak, stats.inactive_split.all.peak), (0, 0), "no segment, nothing split off");
        address
    };
    let blocks = [
        allocate(1000, 2_097_152, 1),
        allocate(MIB + 1, 23_068_672, 1),
        allocate(9 * MIB, 23_068_672, 0),
        allocate(10 * MIB, 44_040_192, 1),
        allocate(25 * MIB, 65_011_712, 1),
        allocate(MIB, 65_011_712, 0),
        allocate(MIB, 67_108_864, 1),
        allocate(22 * MIB, 88_080_384, 1),
    ];
    assert_eq!(allocator.memory_stats().allocated_bytes.all.current, 1024 + 1_049_088 + 68 * 1_048_576);
    for middle in [2, 3] {
        allocator.free_raw(blocks[middle]).unwrap();
    }
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.memory_stats().num_device_free, 0, "no whole page is free");
    for other in [0, 1, 4, 5, 6, 7] {
        allocator.free_raw(blocks[other]).unwrap();
    }
    allocator.empty_cache().unwrap();
    let stats = allocator.memory_stats();
    assert_eq!((stats.reserved_bytes.all.current, stats.num_device_free), (0, 2), "one call for each segment");
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn gaps_at_low_addresses_are_filled_first() {
    let (_, allocator) = simulated(1 << 40);
    let blocks = [20 * MIB; 4].map(|bytes| allocator.allocate_raw(bytes, STREAM).unwrap());
    allocator.free_raw(blocks[1]).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(reserved_bytes(&allocator), 60 * MIB);
    assert_eq!(allocator.allocate_raw(20 * MIB, STREAM).unwrap(), blocks[1]);
    assert_eq!(allocator.allocate_raw(20 * MIB, STREAM).unwrap(), blocks[3] + 20 * MIB);
}

#[test]
fn a_limit_counts_segments_and_may_be_passed_by_a_page() {
    let (device, allocator) = simulated(1 << 40);
    allocator.set_memory_fraction((130 * MIB) as f64 / device.total_bytes() as f64).unwrap();
    let _first = allocator.allocate_raw(120 * MIB, STREAM).unwrap();
    let _second = allocator.allocate_raw(10 * MIB, STREAM).unwrap();
    assert_eq!(reserved_bytes(&allocator), 140 * MIB, "as measured");
    let refused = allocator.allocate_raw(11 * MIB, STREAM).unwrap_err();
    assert!(matches!(refused, AllocationError::OutOfMemory(error) if error.refused_by == Refusal::Limit));
}

#[test]
fn what_was_mapped_before_a_refusal_stays_and_serves_smaller_requests() {
    let (device, allocator) = simulated(50 * MIB);
    let kept = allocator.allocate_raw(15 * MIB, STREAM).unwrap();
    let refused = allocator.allocate_raw(70 * MIB, STREAM).unwrap_err();
    assert!(matches!(refused, AllocationError::OutOfMemory(error) if error.refused_by == Refusal::Device));
    assert_eq!(device.used_bytes(), 20 * MIB, "the pages of the failed step went back");
    assert_eq!(allocator.allocate_raw(25 * MIB, STREAM).unwrap(), kept + 15 * MIB, "it grows in place");
    assert_eq!(reserved_bytes(&allocator), 40 * MIB);
}

#[test]
fn a_failure_of_any_call_is_an_error_and_loses_nothing() {
    for operation in [
        Operation::Reserve,
        Operation::Create,
        Operation::Map,
        Operation::Unmap,
        Operation::ReleasePhysical,
        Operation::SynchronizeStream,
    ] {
        for failing_call in 0..9 {
            let (device, allocator) = simulated(1 << 30);
            device.inject(Fault::Driver { operation, nth: failing_call });
            let mut held = Vec::new();
            let mut failures = 0;
            for bytes in [1000, 50 * MIB, 30 * MIB, 5 * MIB, 1000, 100 * MIB] {
                match allocator.allocate_raw(bytes, STREAM) {
                    Ok(address) => held.push(address),
                    Err(error) => {
                        assert!(
                            matches!(error, AllocationError::Device(_) | AllocationError::OutOfMemory(_)),
                            "{error}"
                        );
                        failures += 1;
                    }
                }
                assert_eq!(reserved_bytes(&allocator), device.used_bytes(), "the books agree with the device");
            }
            for address in held {
                allocator.free_raw(address).unwrap();
            }
            failures += usize::from(allocator.empty_cache().is_err());
            assert!(failures <= 1, "{operation:?}: {failures}");
            if operation != Operation::ReleasePhysical {
                assert_eq!(
                    reserved_bytes(&allocator),
                    device.used_bytes(),
                    "{operation:?} {failing_call}, on the way back"
                );
            }
            allocator.snapshot().check_consistency().unwrap();
            device.clear_faults();
            let again = allocator.allocate_raw(100 * MIB, STREAM).unwrap();
            allocator.free_raw(again).unwrap();
            allocator.empty_cache().unwrap();
            assert_eq!((reserved_bytes(&allocator), device.used_bytes()), (0, 0), "{operation:?} {failing_call}");
            drop(allocator);
        }
    }
}

/// What was mapped for a request before its refusal is more than was given back.
#[test]
fn a_refusal_half_way_through_a_request_is_an_out_of_memory() {
    let (_, allocator) = simulated(50 * MIB);
    let [first, second] = [20 * MIB; 2].map(|bytes| allocator.allocate_raw(bytes, STREAM).unwrap());
    allocator.free_raw(first).unwrap();
    allocator.empty_cache().unwrap();
    allocator.free_raw(second).unwrap();
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = pool.begin_capture(Stream(9)).unwrap();
    let AllocationError::OutOfMemory(error) = allocator.allocate_raw(60 * MIB, STREAM).unwrap_err() else {
        panic!("not an out of memory")
    };
    assert_eq!((error.returned_bytes, error.refused_by), (0, Refusal::Device));
}

#[test]
fn a_device_without_virtual_memory_gets_plain_segments() {
    let device = Arc::new(Simulated::builder().granularity_bytes(None).build());
    let allocator = on(&device, "expandable_segments:True");
    let _block = allocator.allocate_raw(5 * MIB, STREAM).unwrap();
    assert_eq!(device.segments().len(), 1);
    let device = Arc::new(Simulated::builder().granularity_bytes(Some(3 * MIB)).build());
    let allocator = on(&device, "expandable_segments:True");
    let _block = allocator.allocate_raw(5 * MIB, STREAM).unwrap();
    assert_eq!(device.segments().len(), 1, "a granularity that does not divide the pages");
}

#[test]
fn the_compact_policy_grows_segments_whatever_the_setting_says() {
    let device = Arc::new(Simulated::new());
    let allocator = on(&device, "policy:compact");
    allocator.apply_settings("expandable_segments:False").unwrap();
    let _block = allocator.allocate_raw(25 * MIB, STREAM).unwrap();
    let stats = allocator.memory_stats();
    assert_eq!((stats.segment.all.current, stats.reserved_bytes.all.current as u64), (0, 26 * MIB), "pages of 2 MiB");
}

/// PyTorch's `test_max_split_expandable`: both kinds of blocks in one pool, and a limit.
#[test]
fn blocks_of_both_kinds_go_back_when_memory_runs_short() {
    let (device, allocator) = simulated(1 << 30);
    allocator.set_memory_fraction((120 * MIB) as f64 / device.total_bytes() as f64).unwrap();
    let blocks = [false, true, false].map(|expandable| {
        let expandable = if expandable { "True" } else { "False" };
        allocator.apply_settings(&format!("expandable_segments:{expandable},max_split_size_mb:40")).unwrap();
        allocator.allocate_raw(40 * MIB, STREAM).unwrap()
    });
    assert!(allocator.allocate_raw(40 * MIB, STREAM).is_err());
    for block in blocks {
        allocator.free_raw(block).unwrap();
    }
    let whole = allocator.allocate_raw(120 * MIB, STREAM).unwrap();
    allocator.free_raw(whole).unwrap();
}

/// PyTorch's `test_garbage_collect_expandable`.
#[test]
fn the_garbage_collector_leaves_expandable_memory_alone() {
    let (device, allocator) = simulated(1 << 30);
    allocator.set_memory_fraction((120 * MIB) as f64 / device.total_bytes() as f64).unwrap();
    for expandable in ["True", "False"] {
        allocator
            .apply_settings(&format!("expandable_segments:{expandable},garbage_collection_threshold:0.5"))
            .unwrap();
        let block = allocator.allocate_raw(40 * MIB, STREAM).unwrap();
        allocator.free_raw(block).unwrap();
    }
    let _third = allocator.allocate_raw(60 * MIB, STREAM).unwrap();
    let stats = allocator.memory_stats();
    assert_eq!((stats.num_device_free, stats.num_alloc_retries), (1, 0), "the plain segment alone was collected");
}

#[test]
fn threads_grow_and_shrink_segments_of_their_own() {
    let (device, allocator) = simulated(8 << 30);
    thread::scope(|scope| {
        for number in 0..6_u64 {
            let allocator = &allocator;
            scope.spawn(move || {
                for turn in 0..300_u64 {
                    let stream = Stream(number % 4);
                    let held: Vec<u64> = [1000, (turn % 37) * MIB + 1, 3 * MIB]
                        .map(|bytes| allocator.allocate_raw(bytes, stream).unwrap())
                        .into();
                    allocator.record_stream_raw(held[1], Stream(50)).unwrap();
                    held.into_iter().for_each(|address| allocator.free_raw(address).unwrap());
                    if turn % 50 == number {
                        allocator.empty_cache().unwrap();
                    }
                }
            });
        }
    });
    allocator.empty_cache().unwrap();
    assert_eq!((reserved_bytes(&allocator), device.used_bytes()), (0, 0));
}

#[test]
fn what_is_cached_goes_back_with_the_last_buffer() {
    let (device, allocator) = simulated(1 << 30);
    let buffer = Buffer::<u8>::uninit(&allocator, 30 << 20).unwrap();
    drop(allocator);
    assert_eq!(device.used_bytes(), 40 * MIB);
    drop(buffer);
    assert_eq!(device.used_bytes(), 0);
}
