//! Who is led into the pool of a capture, and what the allocator does not do meanwhile.

use std::thread;

use memtrack::device::{Operation, Stream};
use memtrack::history::HistoryOptions;
use memtrack::units::MIB;
use memtrack::{AllocationError, PoolId, PoolOptions, Refusal};

use crate::common::*;

#[test]
fn the_streams_of_the_capture_are_led_into_the_pool_and_nobody_else() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let before = allocator.allocate_raw(MIB, STREAM).unwrap();
    let capture = pool.begin_capture(STREAM).unwrap();
    let early = allocator.allocate_raw(MIB, STREAM).unwrap();
    assert_eq!(pool_of(&allocator, early), PoolId::DEFAULT, "the stream is not captured yet");
    device.set_capture(STREAM, CAPTURE);
    device.set_capture(APART, Some(78));
    let not_joined = allocator.allocate_raw(MIB, JOINED).unwrap();
    device.set_capture(JOINED, CAPTURE);
    let segments = allocator.memory_stats().segment.all.current;
    let inside = [STREAM, JOINED].map(|stream| allocator.allocate_raw(MIB, stream).unwrap());
    assert_eq!(allocator.memory_stats().segment.all.current - segments, 2, "one for each stream");
    let outside = [Stream::DEFAULT, APART].map(|stream| allocator.allocate_raw(MIB, stream).unwrap());
    // As in PyTorch, streams are asked and not threads.
    let elsewhere = thread::scope(|scope| {
        let allocate = |stream| allocator.allocate_raw(MIB, stream).unwrap();
        scope.spawn(move || [allocate(STREAM), allocate(Stream(64))]).join().unwrap()
    });
    let pool_of = |address| pool_of(&allocator, address);
    assert_eq!(inside.map(pool_of), [pool.id(); 2]);
    assert_eq!(elsewhere.map(pool_of), [pool.id(), PoolId::DEFAULT]);
    for address in outside.into_iter().chain([before, not_joined]) {
        assert_eq!(pool_of(address), PoolId::DEFAULT);
    }
    end(&device);
    let late = allocator.allocate_raw(MIB, STREAM).unwrap();
    assert_eq!(pool_of(late), PoolId::DEFAULT, "the driver's capture has ended, though the guard lives");
    let graph = capture.end();
    assert_eq!(pool.use_count(), 2);
    drop(graph);
    assert_eq!(pool.use_count(), 1);
}

#[test]
fn of_two_captures_each_gets_its_own_and_the_last_route_wins() {
    let (device, allocator) = simulated(1 << 30);
    let pools = [(); 2].map(|()| allocator.create_pool(PoolOptions::default()));
    let _captures = [pools[0].begin_capture(STREAM).unwrap(), pools[1].begin_capture(APART).unwrap()];
    device.set_capture(STREAM, Some(1));
    device.set_capture(APART, Some(2));
    device.set_capture(JOINED, Some(2));
    let blocks = [STREAM, APART, JOINED].map(|stream| allocator.allocate_raw(512, stream).unwrap());
    assert_eq!(blocks.map(|block| pool_of(&allocator, block)), [0, 1, 1].map(|at: usize| pools[at].id()));
    let third = allocator.create_pool(PoolOptions::default());
    let _entered = third.enter().unwrap();
    let block = allocator.allocate_raw(512, STREAM).unwrap();
    assert_eq!(pool_of(&allocator, block), third.id(), "entered last");
    let by_another =
        thread::scope(|scope| scope.spawn(|| allocator.allocate_raw(512, STREAM).unwrap()).join().unwrap());
    assert_eq!(pool_of(&allocator, by_another), pools[0].id());
}

#[test]
fn uses_by_captured_streams_end_with_the_capture() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let capture = begin(&device, &pool);
    device.set_capture(JOINED, CAPTURE);
    let block = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    allocator.record_stream_raw(block, JOINED).unwrap();
    allocator.free_raw(block).unwrap();
    let stats = allocator.memory_stats();
    assert_eq!((stats.allocation.all.current, stats.active.all.current), (0, 1), "given back, and not free yet");
    let other = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    assert_ne!(other, block);
    // What the stream does now has nothing to do with the capture.
    device.set_busy(JOINED);
    forbid(&device, &FORBIDDEN);
    end(&device);
    let _graph = capture.end();
    assert_eq!(pending(&allocator), 1, "nobody has asked yet");
    let _poll = allocator.allocate_raw(512, Stream::DEFAULT).unwrap();
    assert_eq!(pending(&allocator), 0);
    assert_eq!(untouched(&device), FORBIDDEN[..4], "there was nothing to wait for");
}

#[test]
fn real_uses_are_waited_for_after_the_capture() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    device.set_busy(JOINED);
    device.set_busy(APART);
    let worked_before = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    allocator.record_stream_raw(worked_before, JOINED).unwrap();
    let capture = begin(&device, &pool);
    let worked_beside = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    allocator.record_stream_raw(worked_beside, APART).unwrap();
    // The stream joins the capture, and uses both there too: what it was given before is still to be waited for.
    device.set_capture(JOINED, CAPTURE);
    allocator.record_stream_raw(worked_before, JOINED).unwrap();
    allocator.record_stream_raw(worked_beside, JOINED).unwrap();
    forbid(&device, &FORBIDDEN);
    allocator.free_raw(worked_before).unwrap();
    allocator.free_raw(worked_beside).unwrap();
    let _block = allocator.allocate_raw(512, STREAM).unwrap();
    assert_eq!(untouched(&device), FORBIDDEN[..4]);
    end(&device);
    let _graph = capture.end();
    let poll = || assert!(allocator.allocate_raw(512, Stream::DEFAULT).is_ok());
    poll();
    assert_eq!(pending(&allocator), 2);
    device.set_idle(JOINED);
    poll();
    assert_eq!(pending(&allocator), 1);
    device.set_idle(APART);
    poll();
    assert_eq!(pending(&allocator), 0);
}

#[test]
fn streams_that_go_on_being_captured_are_not_asked_for_events() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let capture = begin(&device, &pool);
    let block = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    allocator.record_stream_raw(block, APART).unwrap();
    allocator.free_raw(block).unwrap();
    // Dropped too early, as by a panic, and the stream is captured by somebody else: its event would stand in a graph.
    device.set_capture(APART, Some(99));
    drop(capture);
    forbid(&device, &[Operation::RecordEvent]);
    let _poll = allocator.allocate_raw(512, Stream::DEFAULT).unwrap();
    assert_eq!((pending(&allocator), untouched(&device)), (1, vec![Operation::RecordEvent]));
    end(&device);
    let _poll = allocator.allocate_raw(512, Stream::DEFAULT).unwrap();
    assert_eq!(pending(&allocator), 0);
}

#[test]
fn nothing_is_recorded_queried_waited_for_or_synchronized_in_a_capture() {
    for config in ["", "expandable_segments:True", "torch_exact:True"] {
        let (device, allocator) = with(config, 200 * MIB);
        allocator.record_memory_history(Some(&HistoryOptions::new()));
        // Outstanding before: events of the default pools and of another pool's blocks.
        let pools = [(); 2].map(|()| allocator.create_pool(PoolOptions::default()));
        device.set_busy(APART);
        let use_apart = || {
            let block = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
            allocator.record_stream_raw(block, APART).unwrap();
            allocator.free_raw(block).unwrap();
        };
        use_apart();
        let [pool, other] = pools;
        allocator.free_raw(allocator.allocate_raw(30 * MIB, Stream::DEFAULT).unwrap()).unwrap();
        if config.is_empty() {
            let _entered = other.enter().unwrap();
            use_apart();
        }
        let outstanding = pending(&allocator);
        let synchronized = allocator.memory_stats().num_sync_all_streams;
        let capture = begin(&device, &pool);
        forbid(&device, &FORBIDDEN);
        use_apart();
        device.set_idle(APART);
        thread::scope(|scope| scope.spawn(use_apart).join().unwrap());
        allocator.free_raw(allocator.allocate_raw(MIB, Stream(5)).unwrap()).unwrap();
        allocator.empty_cache().unwrap();
        drop(other);
        assert!(allocator.allocate_raw(300 * MIB, STREAM).is_err());
        assert!(allocator.allocate_raw(300 * MIB, Stream::DEFAULT).is_err(), "on no stream of the device");
        let _ = (allocator.memory_stats(), allocator.snapshot(), allocator.device().memory().unwrap());
        allocator.apply_settings("garbage_collection_threshold:0.5").unwrap();
        assert_eq!(pending(&allocator), outstanding + 2, "{config:?}");
        assert_eq!(allocator.memory_stats().num_sync_all_streams, synchronized, "{config:?}");
        assert_eq!(untouched(&device), FORBIDDEN[..4], "{config:?}");
        end(&device);
        drop(capture.end());
        drop(pool);
        allocator.empty_cache().unwrap();
        assert_eq!((pending(&allocator), device.used_bytes()), (0, 0), "{config:?}");
    }
}

#[test]
fn expandable_memory_is_not_unmapped_in_a_capture() {
    let (device, allocator) = with("expandable_segments:True", 1 << 30);
    let pools = [(); 2].map(|()| allocator.create_pool(PoolOptions::default()));
    let inside = {
        let _entered = pools[0].enter().unwrap();
        allocator.allocate_raw(30 * MIB, STREAM).unwrap()
    };
    let [unused, pool] = pools;
    drop(unused);
    allocator.free_raw(inside).unwrap();
    let capture = begin(&device, &pool);
    forbid(&device, &FORBIDDEN);
    // The first pool is nobody's any more, but unmapping synchronizes its stream.
    allocator.empty_cache().unwrap();
    assert_eq!((device.used_bytes(), untouched(&device)), (40 * MIB, FORBIDDEN[..4].to_vec()));
    end(&device);
    drop(capture);
    allocator.empty_cache().unwrap();
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn a_pool_whose_allocator_has_gone_begins_nothing() {
    let (_, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    drop(allocator);
    assert!(matches!(pool.begin_capture(STREAM).unwrap_err(), AllocationError::AllocatorDropped));
    assert!(matches!(pool.enter().unwrap_err(), AllocationError::AllocatorDropped));
    assert_eq!(pool.use_count(), 1);
}

#[test]
fn an_impossible_request_in_a_capture_is_an_out_of_memory() {
    let (device, allocator) = simulated(100 * MIB);
    let cached = allocator.allocate_raw(60 * MIB, Stream::DEFAULT).unwrap();
    allocator.free_raw(cached).unwrap();
    let pool = allocator.create_pool(PoolOptions::default());
    let capture = begin(&device, &pool);
    // The cache could be given back, but only after waiting.
    for bytes in [50 * MIB, 1 << 50] {
        let error = allocator.allocate_raw(bytes, STREAM).unwrap_err();
        let AllocationError::OutOfMemory(error) = error else { panic!("{error}") };
        assert_eq!((error.refused_by, error.returned_bytes), (Refusal::Device, 0));
    }
    let stats = allocator.memory_stats();
    assert_eq!((stats.num_ooms, stats.num_alloc_retries, stats.num_sync_all_streams), (2, 0, 0));
    let block = allocator.allocate_raw(20 * MIB, STREAM).unwrap();
    assert_eq!(pool_of(&allocator, block), pool.id(), "the capture goes on");
    end(&device);
    let _graph = capture.end();
    assert!(allocator.allocate_raw(50 * MIB, STREAM).is_ok());
    assert_eq!(allocator.memory_stats().num_alloc_retries, 1);
}

#[test]
fn memory_of_a_graph_serves_nobody_who_is_out_of_memory() {
    let (device, allocator) = simulated(60 * MIB);
    let pool = allocator.create_pool(PoolOptions::default().use_on_oom(true));
    let capture = begin(&device, &pool);
    let block = allocator.allocate_raw(40 * MIB, STREAM).unwrap();
    allocator.free_raw(block).unwrap();
    end(&device);
    let graph = capture.end();
    assert!(allocator.allocate_raw(40 * MIB, STREAM).is_err(), "each launch of the graph writes to it");
    drop(graph);
    assert_eq!(allocator.allocate_raw(40 * MIB, STREAM).unwrap(), block);
}

#[test]
fn oversize_memory_of_a_graph_is_not_given_back_for_a_second_capture() {
    for config in ["max_split_size_mb:25", "max_split_size_mb:25,torch_exact:True"] {
        let (device, allocator) = with(config, 110 * MIB);
        let pool = allocator.create_pool(PoolOptions::default());
        let capture = begin(&device, &pool);
        let block = allocator.allocate_raw(60 * MIB, STREAM).unwrap();
        allocator.free_raw(block).unwrap();
        end(&device);
        let _first = capture.end();
        let second = begin(&device, &pool);
        assert!(allocator.allocate_raw(90 * MIB, STREAM).is_err(), "{config}");
        assert_eq!(device.segments(), [(block, 60 * MIB)], "{config}: the first graph uses it");
        end(&device);
        drop(second);
    }
}
