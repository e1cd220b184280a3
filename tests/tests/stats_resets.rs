//! What the two resets of the statistics change, and what they leave.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::{CachingAllocator, Config};

const MIB: u64 = 1 << 20;

/// An allocator with figures other than zero in every kind of counter: live, freed, oversize and refused blocks.
fn used_allocator() -> CachingAllocator {
    let config: Config = "max_split_size_mb:20".parse().unwrap();
    let allocator = CachingAllocator::with_config(Arc::new(Simulated::with_capacity(100 * MIB)), config).unwrap();
    let allocate = |bytes| allocator.allocate_raw(bytes, Stream::DEFAULT).unwrap();
    let (_kept, freed) = (allocate(2 * MIB), allocate(3 * MIB));
    let (_small, freed_small) = (allocate(1000), allocate(2000));
    let (_oversize, freed_oversize) = (allocate(22 * MIB), allocate(30 * MIB));
    for address in [freed, freed_small, freed_oversize] {
        allocator.free_raw(address).unwrap();
    }
    allocator.allocate_raw(80 * MIB, Stream::DEFAULT).unwrap_err();
    allocator
}

#[test]
fn r06_resetting_peaks_sets_them_to_the_live_values_and_touches_nothing_else() {
    let allocator = used_allocator();
    let before = allocator.memory_stats().to_map();
    allocator.reset_peak_memory_stats();
    let after = allocator.memory_stats().to_map();
    let mut lowered = 0;
    for (key, value) in &after {
        match key.strip_suffix(".peak") {
            Some(name) => {
                assert_eq!(*value, after[&format!("{name}.current")], "{key}");
                lowered += usize::from(*value < before[key]);
            }
            None => assert_eq!(*value, before[key], "{key}"),
        }
    }
    assert!(lowered > 10, "{lowered} peaks were above the live values");
    assert!(after["oversize_allocations.peak"] < before["oversize_allocations.peak"]);
    assert!(after["allocated_bytes.all.peak"] > 0);
}

#[test]
fn resetting_accumulated_counters_zeroes_them_and_the_five_counts_and_touches_nothing_else() {
    let allocator = used_allocator();
    let before = allocator.memory_stats().to_map();
    allocator.reset_accumulated_memory_stats();
    let after = allocator.memory_stats().to_map();
    let counts = ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"];
    for (key, value) in &after {
        let accumulated = key.ends_with(".allocated") || key.ends_with(".freed");
        if accumulated || counts.contains(&key.as_str()) {
            assert_eq!(*value, 0, "{key}");
        } else {
            assert_eq!(*value, before[key], "{key}");
        }
    }
    for key in counts {
        assert!(before[key] > 0, "{key}");
    }
    assert_eq!(after["max_split_size"], 20 * MIB as i64);
}

#[test]
fn after_a_reset_counting_goes_on_from_the_live_values() {
    let allocator = used_allocator();
    allocator.reset_peak_memory_stats();
    allocator.reset_accumulated_memory_stats();
    let live = allocator.memory_allocated();
    let address = allocator.allocate_raw(1000, Stream::DEFAULT).unwrap();
    allocator.free_raw(address).unwrap();
    let allocated = allocator.memory_stats().allocated_bytes.all;
    assert_eq!((allocated.current, allocated.peak), (live, live + 1024));
    assert_eq!((allocated.allocated, allocated.freed), (1024, 1024));
}
