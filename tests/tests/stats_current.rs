//! PyTorch's functions by name act on the current allocator, and say so when there is none.
//!
//! One test: the default allocator is the process's.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::{
    AllocationError, Backend, CachingAllocator, CurrentAllocatorError, MemoryStats, clear_default, empty_cache,
    get_allocator_backend, get_per_process_memory_fraction, list_gpu_processes, max_memory_allocated,
    max_memory_reserved, mem_get_info, memory_allocated, memory_reserved, memory_stats, memory_summary,
    reset_accumulated_memory_stats, reset_peak_memory_stats, set_default, set_per_process_memory_fraction,
};

const MIB: i64 = 1 << 20;

fn without_an_allocator_figures_are_zero_and_acts_are_errors() {
    let none = "no allocator is current; call memtrack::set_default(&allocator) once, or make_current() on this thread";
    assert_eq!((memory_allocated(), max_memory_allocated(), memory_reserved(), max_memory_reserved()), (0, 0, 0, 0));
    assert_eq!(memory_stats(), MemoryStats::default());
    assert_eq!(memory_summary(false), format!("{none}\n"));
    assert_eq!(list_gpu_processes(), none);
    assert_eq!(empty_cache(), Ok(()));
    reset_peak_memory_stats();
    reset_accumulated_memory_stats();
    assert_eq!(mem_get_info(), Err(CurrentAllocatorError::NoneCurrent));
    assert_eq!(set_per_process_memory_fraction(0.5).unwrap_err().to_string(), none);
    assert_eq!(get_per_process_memory_fraction(), 1.0);
    assert_eq!(get_allocator_backend().to_string(), "native");
}

fn with_one_they_are_its_methods() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(150_109_880_320)));
    set_default(&allocator);
    let allocate = |bytes| allocator.allocate_raw(bytes, Stream::DEFAULT).unwrap();
    let (kept, freed) = (allocate(2 << 20), allocate(30 << 20));
    allocator.free_raw(freed).unwrap();
    assert_eq!((memory_allocated(), max_memory_allocated()), (2 * MIB, 32 * MIB));
    assert_eq!((memory_reserved(), max_memory_reserved()), (50 * MIB, 50 * MIB));
    assert_eq!(memory_stats(), allocator.memory_stats());
    assert_eq!(memory_summary(true), allocator.memory_summary(true));
    assert_eq!(mem_get_info().unwrap(), allocator.device().memory().unwrap());
    empty_cache().unwrap();
    assert_eq!((memory_reserved(), max_memory_reserved()), (20 * MIB, 50 * MIB));
    reset_peak_memory_stats();
    reset_accumulated_memory_stats();
    assert_eq!((max_memory_allocated(), max_memory_reserved()), (2 * MIB, 20 * MIB));
    assert_eq!(memory_stats().allocated_bytes.all.allocated, 0);
    // As measured on a card of these bytes.
    set_per_process_memory_fraction(0.001).unwrap();
    assert_eq!(allocator.limit_bytes(), Some(150_109_880));
    assert_eq!(get_per_process_memory_fraction(), 0.000_999_999_997_868_228_3);
    assert_eq!(allocator.get_per_process_memory_fraction(), get_per_process_memory_fraction());
    for fraction in [-0.1, 1.1, f64::NAN] {
        let error = set_per_process_memory_fraction(fraction).unwrap_err();
        assert!(matches!(error, CurrentAllocatorError::Allocation(AllocationError::InvalidFraction { .. })));
    }
    set_per_process_memory_fraction(1.0).unwrap();
    assert_eq!(get_per_process_memory_fraction(), 1.0);
    let list = list_gpu_processes();
    let why = "GPU:simulated\nno list of processes: simulated is a simulated device, which no GPU driver knows";
    assert_eq!(list, why);
    assert_eq!(get_allocator_backend(), Backend::Native);
    allocator.free_raw(kept).unwrap();
    clear_default();
}

#[test]
fn pytorchs_functions_act_on_the_current_allocator() {
    without_an_allocator_figures_are_zero_and_acts_are_errors();
    with_one_they_are_its_methods();
    assert_eq!(memory_reserved(), 0, "the default was taken away again");
}
