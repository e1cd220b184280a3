//! Memory pools: who is led into them, what they keep, and when it goes back.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use memtrack::device::{Device, Simulated, Stream};
use memtrack::units::MIB;
use memtrack::{AllocationError, Buffer, CachingAllocator, Config, PoolOptions};

const STREAM: Stream = Stream::DEFAULT;
const SIDE: Stream = Stream(7);

fn on(device: &Arc<Simulated>, config: &str) -> CachingAllocator {
    CachingAllocator::with_config(device.clone(), config.parse::<Config>().unwrap()).unwrap()
}

fn simulated(total_bytes: u64) -> (Arc<Simulated>, CachingAllocator) {
    let device = Arc::new(Simulated::with_capacity(total_bytes));
    let allocator = on(&device, "");
    (device, allocator)
}

fn segment_count(allocator: &CachingAllocator) -> i64 {
    allocator.memory_stats().segment.all.current
}

#[test]
fn what_is_allocated_inside_comes_from_segments_of_the_pools_own() {
    let (_, allocator) = simulated(1 << 30);
    let outside = allocator.allocate_raw(1000, STREAM).unwrap();
    let pool = allocator.create_pool(PoolOptions::default());
    assert_eq!(pool.use_count(), 1);
    let inside = {
        let _guard = pool.enter().unwrap();
        assert_eq!(pool.use_count(), 2);
        [1000, 3 * MIB].map(|bytes| allocator.allocate_raw(bytes, STREAM).unwrap())
    };
    assert_eq!(pool.use_count(), 1);
    assert_eq!(segment_count(&allocator), 3);
    let stats = allocator.memory_stats();
    assert_eq!(stats.reserved_bytes.all.current as u64, 24 * MIB, "counted as any other memory");
    assert_eq!(stats.active.all.current, 3);
    let again = allocator.allocate_raw(1000, STREAM).unwrap();
    assert_eq!(again, outside + 1024, "after the guard the default pool serves");
    for address in inside.into_iter().chain([outside, again]) {
        allocator.free_raw(address).unwrap();
    }
    allocator.empty_cache().unwrap();
    assert_eq!(segment_count(&allocator), 2, "a pool in use keeps its cached segments");
    let (freed, synchronized) =
        (allocator.memory_stats().num_device_free, allocator.memory_stats().num_sync_all_streams);
    drop(pool);
    let stats = allocator.memory_stats();
    assert_eq!(stats.segment.all.current, 0, "and gives them back when it goes");
    assert_eq!(stats.num_device_free - freed, 2);
    assert_eq!(stats.num_sync_all_streams - synchronized, 1);
}

#[test]
fn what_outlives_its_pool_stays_valid_and_goes_back_with_a_later_empty_cache() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let guard = pool.enter().unwrap();
    let block = allocator.allocate_raw(MIB, STREAM).unwrap();
    drop(guard);
    drop(pool);
    assert_eq!(segment_count(&allocator), 1);
    allocator.empty_cache().unwrap();
    assert_eq!(segment_count(&allocator), 1, "in use");
    allocator.free_raw(block).unwrap();
    assert_eq!(segment_count(&allocator), 1, "cached");
    allocator.empty_cache().unwrap();
    assert_eq!(segment_count(&allocator), 0);
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn a_pool_dropped_inside_itself_goes_when_the_guard_has_gone() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let guard = pool.enter().unwrap();
    drop(pool);
    let block = allocator.allocate_raw(MIB, STREAM).unwrap();
    allocator.free_raw(block).unwrap();
    drop(guard);
    allocator.empty_cache().unwrap();
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn everything_goes_back_when_the_allocator_goes_first() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let guard = pool.enter().unwrap();
    let buffer = Buffer::<u8>::uninit(&allocator, 1000).unwrap();
    let raw = allocator.allocate_raw(5 * MIB, STREAM).unwrap();
    allocator.record_stream_raw(raw, SIDE).unwrap();
    drop(allocator);
    drop(buffer);
    drop(guard);
    drop(pool);
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn guards_nest_and_the_last_wins() {
    let (_, allocator) = simulated(1 << 30);
    let pools = [(); 2].map(|()| allocator.create_pool(PoolOptions::default()));
    assert!(pools[0].id() < pools[1].id());
    assert_eq!(pools[0].id().0, 0);
    let outer = pools[0].enter().unwrap();
    let a = allocator.allocate_raw(20 * MIB, STREAM).unwrap();
    let inner = pools[1].enter().unwrap();
    let b = allocator.allocate_raw(20 * MIB, STREAM).unwrap();
    allocator.free_raw(a).unwrap();
    let c = allocator.allocate_raw(20 * MIB, STREAM).unwrap();
    assert_ne!(a, c, "the freed block is the outer pool's");
    drop(outer);
    let d = allocator.allocate_raw(20 * MIB, STREAM).unwrap();
    assert_eq!(segment_count(&allocator), 4, "guards may end in any order");
    drop(inner);
    for block in [b, c, d] {
        allocator.free_raw(block).unwrap();
    }
}

#[test]
fn a_pool_is_entered_once_at_a_time() {
    let (_, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let guard = pool.enter().unwrap();
    let refused = |error| matches!(error, AllocationError::PoolInUse { pool: id } if id == pool.id());
    assert!(refused(pool.enter().unwrap_err()));
    assert!(refused(pool.begin_capture(STREAM).unwrap_err()));
    assert!(thread::scope(|scope| scope.spawn(|| pool.enter().is_err()).join().unwrap()), "whatever the thread");
    assert_eq!(pool.use_count(), 2, "a refusal uses nothing");
    drop(guard);
    drop(pool.enter().unwrap());
}

#[test]
fn other_threads_are_not_led_into_it() {
    let (_, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let first = allocator.allocate_raw(512, STREAM).unwrap();
    let _guard = pool.enter().unwrap();
    let other = allocator.clone();
    let address = thread::spawn(move || other.allocate_raw(512, STREAM).unwrap()).join().unwrap();
    assert_eq!(address, first + 512);
    assert_eq!(segment_count(&allocator), 1);
    let inside = allocator.allocate_raw(512, STREAM).unwrap();
    assert_eq!(segment_count(&allocator), 2);
    for address in [first, address, inside] {
        allocator.free_raw(address).unwrap();
    }
}

#[test]
fn empty_cache_inside_leaves_the_default_pools_alone() {
    let (_, allocator) = simulated(1 << 30);
    let block = allocator.allocate_raw(512, STREAM).unwrap();
    allocator.free_raw(block).unwrap();
    let pool = allocator.create_pool(PoolOptions::default());
    {
        let _guard = pool.enter().unwrap();
        allocator.empty_cache().unwrap();
    }
    let stats = allocator.memory_stats();
    assert_eq!((stats.segment.all.current, stats.num_sync_all_streams), (1, 0));
    allocator.empty_cache().unwrap();
    assert_eq!(segment_count(&allocator), 0);
}

#[test]
fn without_splitting_each_block_is_a_segment() {
    let (_, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default().no_split(true));
    let _guard = pool.enter().unwrap();
    let blocks = [4 * MIB; 3].map(|bytes| allocator.allocate_raw(bytes, STREAM).unwrap());
    let stats = allocator.memory_stats();
    assert_eq!(stats.segment.all.current, 3);
    assert_eq!(stats.allocated_bytes.all.current as u64, 60 * MIB, "the whole segments");
    assert_eq!(stats.requested_bytes.all.current as u64, 12 * MIB);
    assert_eq!(stats.inactive_split.all.peak, 0);
    allocator.free_raw(blocks[1]).unwrap();
    assert_eq!(allocator.allocate_raw(19 * MIB, STREAM).unwrap(), blocks[1]);
}

#[test]
fn a_pool_for_emergencies_serves_a_request_that_finds_no_other_memory() {
    for (helps, served) in [(true, true), (false, false)] {
        let (_, allocator) = simulated(90 * MIB);
        let pool = allocator.create_pool(PoolOptions::default().use_on_oom(helps));
        let kept = {
            let _guard = pool.enter().unwrap();
            allocator.allocate_raw(40 * MIB, STREAM).unwrap()
        };
        allocator.free_raw(kept).unwrap();
        let _held = allocator.allocate_raw(40 * MIB, STREAM).unwrap();
        let third = allocator.allocate_raw(40 * MIB, STREAM);
        assert_eq!(third.ok(), served.then_some(kept));
        assert_eq!(allocator.memory_stats().num_ooms, i64::from(!served));
        if served {
            assert_eq!(allocator.memory_stats().num_alloc_retries, 0, "before anything is given back");
            allocator.free_raw(kept).unwrap();
            drop(pool);
            assert!(allocator.allocate_raw(40 * MIB, Stream(3)).is_ok(), "a pool that has gone gave its memory back");
        }
    }
}

#[test]
fn a_block_of_a_pool_that_another_stream_uses_is_waited_for_when_the_pool_goes() {
    let (device, allocator) = simulated(1 << 30);
    device.set_busy(SIDE);
    let pool = allocator.create_pool(PoolOptions::default());
    let guard = pool.enter().unwrap();
    let block = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    allocator.record_stream_raw(block, SIDE).unwrap();
    allocator.free_raw(block).unwrap();
    assert_eq!(allocator.memory_stats().active.all.current, 1, "pending");
    drop(guard);
    drop(pool);
    let stats = allocator.memory_stats();
    assert_eq!((stats.active.all.current, stats.segment.all.current), (0, 0));
}

#[test]
fn pools_come_and_go_on_many_threads() {
    let (device, allocator) = simulated(8 << 30);
    thread::scope(|scope| {
        for number in 0..8_u64 {
            let allocator = &allocator;
            scope.spawn(move || {
                for turn in 0..200 {
                    let pool = allocator.create_pool(PoolOptions::default().no_split(turn % 3 == 0));
                    let guard = pool.enter().unwrap();
                    let blocks = [1000, MIB + number, 3 * MIB]
                        .map(|bytes| allocator.allocate_raw(bytes, Stream(turn % 3)).unwrap());
                    allocator.record_stream_raw(blocks[0], Stream(99)).unwrap();
                    allocator.free_raw(blocks[0]).unwrap();
                    drop(guard);
                    allocator.free_raw(blocks[1]).unwrap();
                    if turn % 2 == 0 {
                        allocator.empty_cache().unwrap();
                    }
                    drop(pool);
                    allocator.free_raw(blocks[2]).unwrap();
                }
            });
        }
    });
    allocator.empty_cache().unwrap();
    let stats = allocator.memory_stats();
    assert_eq!(stats.active.all.current, 0);
    assert_eq!((stats.reserved_bytes.all.current, device.used_bytes()), (0, 0));
}

#[test]
fn pools_and_captures_may_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<memtrack::MemoryPool>();
    is_send::<memtrack::Capture>();
    is_send::<memtrack::GraphMemory>();
}

#[test]
fn expandable_segments_serve_pools_as_well() {
    let device = Arc::new(Simulated::with_capacity(1 << 30));
    let allocator = on(&device, "expandable_segments:True");
    let pool = allocator.create_pool(PoolOptions::default());
    let (sender, receiver) = channel();
    {
        let _guard = pool.enter().unwrap();
        for bytes in [1000, 30 * MIB, 7 * MIB] {
            sender.send(allocator.allocate_raw(bytes, STREAM).unwrap()).unwrap();
        }
    }
    let stats = allocator.memory_stats();
    assert_eq!((stats.segment.all.current, stats.reserved_bytes.all.current as u64), (0, 42 * MIB));
    for address in receiver.try_iter() {
        allocator.free_raw(address).unwrap();
    }
    drop(pool);
    assert_eq!(device.used_bytes(), 0);
    device.synchronize().unwrap();
}
