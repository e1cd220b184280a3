//! The device's memory as sampled during an epoch.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator};

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 30)))
}

#[test]
fn nothing_is_sampled_unless_asked_for() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    drop(memtrack::phase("forward"));
    assert_eq!(epoch.finish().unwrap().sampled, None);
    allocator.sample_at_phase_boundaries(true);
    allocator.sample_at_phase_boundaries(false);
    let epoch = memtrack::epoch(2);
    drop(memtrack::phase("forward"));
    assert_eq!(epoch.finish().unwrap().sampled, None);
}

#[test]
fn samples_at_boundaries_see_the_lowest_free_memory_and_stay_few() {
    let allocator = allocator();
    let _current = allocator.make_current();
    allocator.sample_at_phase_boundaries(true);
    let epoch = memtrack::epoch(1);
    let forward = memtrack::phase("forward");
    let kept = Buffer::<u8>::uninit(&allocator, 300 << 20).unwrap();
    drop(forward);
    drop(epoch);
    // Until a sample was due after the allocation: the one before may have been held up, and then the rest after it is long.
    let summary = (2..5000).find_map(|number| {
        let epoch = memtrack::epoch(number);
        let started = Instant::now();
        let mut boundaries = 0_u64;
        while started.elapsed() < Duration::from_millis(20) {
            drop(memtrack::phase("backward"));
            boundaries += 2;
        }
        let summary = epoch.finish().unwrap();
        let sampled = summary.sampled?;
        assert!(sampled.boundary_count * 10 < boundaries.max(11), "{sampled:?} of {boundaries}");
        Some(summary)
    });
    let summary = summary.expect("a sample within a hundred seconds");
    let sampled = summary.sampled.unwrap();
    assert_eq!((sampled.lowest_free_bytes, sampled.highest_used_bytes), (724 << 20, 300 << 20));
    assert_eq!((sampled.lowest_phase, sampled.background_count, sampled.failure_count), ("backward", 0, 0));
    let text = summary.to_string();
    assert!(text.contains("  sampled   lowest free 724.00 MiB in backward ("), "{text}");
    // Each epoch has its own.
    drop(kept);
    allocator.empty_cache().unwrap();
    allocator.sample_at_phase_boundaries(false);
    assert_eq!(allocator.epoch(2).finish().unwrap().sampled, None);
}

#[test]
fn phases_of_the_attribute_are_sampled_too() {
    #[memtrack::track_memory(phase = "attributed")]
    fn work() {}
    let allocator = allocator();
    let _current = allocator.make_current();
    allocator.sample_at_phase_boundaries(true);
    let epoch = memtrack::epoch(1);
    work();
    let sampled = epoch.finish().unwrap().sampled.unwrap();
    assert_eq!(sampled.lowest_phase, "attributed");
}

#[test]
fn a_background_sampler_samples_until_it_is_dropped() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let sampler = allocator.sample_in_background(Duration::ZERO).unwrap();
    let epoch = memtrack::epoch(1);
    let phase = memtrack::phase("forward");
    let kept = Buffer::<u8>::uninit(&allocator, 24 << 20).unwrap();
    let mut epochs = vec![epoch];
    let mut sampled = None;
    for number in 2.. {
        std::thread::sleep(Duration::from_millis(5));
        sampled = epochs.pop().unwrap().finish().unwrap().sampled;
        if sampled.is_some_and(|sampled| sampled.lowest_free_bytes == 1000 << 20) {
            break;
        }
        assert!(number < 5000, "no sample in half a minute");
        epochs.push(memtrack::epoch(number));
    }
    let sampled = sampled.unwrap();
    assert_eq!((sampled.lowest_phase, sampled.boundary_count), ("forward", 0));
    assert!(sampled.background_count > 0);
    drop((sampler, phase, kept));
    let epoch = memtrack::epoch(0);
    drop(epoch.finish());
    let epoch = memtrack::epoch(0);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(epoch.finish().unwrap().sampled, None, "its thread has ended");
}

/// Its thread does not keep what the last handle of the allocator gives back.
#[test]
fn a_sampler_may_outlive_the_allocator() {
    let device = Arc::new(Simulated::with_capacity(1 << 30));
    let allocator = CachingAllocator::new(Arc::clone(&device) as Arc<dyn memtrack::device::Device>);
    drop(Buffer::<u8>::uninit(&allocator, 2 << 20).unwrap());
    let sampler = allocator.sample_in_background(Duration::from_secs(3600)).unwrap();
    drop(allocator);
    use memtrack::device::Device as _;
    assert_eq!(device.memory().unwrap().free_bytes, 1 << 30, "the cache went back");
    let started = Instant::now();
    drop(sampler);
    assert!(started.elapsed() < Duration::from_secs(600), "it does not wait for its next sample");
}
