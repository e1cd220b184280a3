//! Graph captures on the simulated device: who is led into the pool, what waits for the end, and what nobody may touch before.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;

use memtrack::device::{Device, Fault, Operation, Simulated, Stream};
use memtrack::history::HistoryOptions;
use memtrack::units::MIB;
use memtrack::{
    AllocationError, Buffer, CachingAllocator, Capture, Config, MemoryPool, MemoryStats, PoolId, PoolOptions, Refusal,
};

/// Captured.
const STREAM: Stream = Stream(16);
/// Takes part in the capture where a test says so.
const JOINED: Stream = Stream(32);
/// Takes part in none.
const APART: Stream = Stream(48);

const CAPTURE: Option<u64> = Some(77);

fn with(config: &str, total_bytes: u64) -> (Arc<Simulated>, CachingAllocator) {
    let device = Arc::new(Simulated::with_capacity(total_bytes));
    let config = config.parse::<Config>().unwrap();
    (device.clone(), CachingAllocator::with_config(device, config).unwrap())
}

fn simulated(total_bytes: u64) -> (Arc<Simulated>, CachingAllocator) {
    with("", total_bytes)
}

/// Captures [`STREAM`] with a pool.
fn begin(device: &Simulated, pool: &MemoryPool) -> Capture {
    let capture = pool.begin_capture(STREAM).unwrap();
    device.set_capture(STREAM, CAPTURE);
    capture
}

/// No stream is captured any more.
fn end(device: &Simulated) {
    for stream in [STREAM, JOINED, APART] {
        device.set_capture(stream, None);
    }
}

/// The pool that the block at an address is of.
fn pool_of(allocator: &CachingAllocator, address: u64) -> PoolId {
    let segments = allocator.memory_snapshot();
    let segment =
        segments.iter().find(|segment| (segment.address..segment.address + segment.total_size).contains(&address));
    let (a, b) = segment.unwrap().segment_pool_id;
    PoolId(a, b)
}

fn pending(allocator: &CachingAllocator) -> i64 {
    let stats = allocator.memory_stats();
    stats.active.all.current - stats.allocation.all.current
}

/// What may not be done while a graph is captured.
const FORBIDDEN: [Operation; 5] = [
    Operation::RecordEvent,
    Operation::QueryEvent,
    Operation::WaitEvent,
    Operation::SynchronizeStream,
    Operation::Synchronize,
];

/// Lets the next call of each fail.
fn forbid(device: &Simulated, operations: &[Operation]) {
    for operation in operations {
        device.inject(Fault::Driver { operation: *operation, nth: 0 });
    }
}

/// The calls that were forbidden and not made since; they are allowed again.
fn untouched(device: &Simulated) -> Vec<Operation> {
    let mut untouched = Vec::new();
    let mut note = |operation, fails: bool| untouched.extend(fails.then_some(operation));
    note(Operation::RecordEvent, device.record_event(STREAM).is_err());
    let event = device.record_event(STREAM).unwrap();
    note(Operation::QueryEvent, device.query_event(&event).is_err());
    note(Operation::WaitEvent, device.wait_event(&event).is_err());
    note(Operation::SynchronizeStream, device.synchronize_stream(Stream(1)).is_err());
    device.clear_faults();
    untouched
}

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

/// Everything that holds something of an allocator, to be dropped in any order.
struct Parts {
    allocator: Option<CachingAllocator>,
    pool: Option<MemoryPool>,
    capture: Option<Capture>,
    graph: Option<memtrack::GraphMemory>,
    used: Option<Buffer<u8>>,
    plain: Option<Buffer<u8>>,
}

/// Every order of the numbers below `count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let longer = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, count - 1);
            order
        })
    };
    orders(count - 1).into_iter().flat_map(longer).collect()
}

/// A graph of one pool, captured, with one block freed inside, one in use that other streams use, and one plain.
fn captured(device: &Arc<Simulated>, config: &str, ended: bool) -> Parts {
    let config = config.parse::<Config>().unwrap();
    let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
    let pool = allocator.create_pool(PoolOptions::default());
    let capture = begin(device, &pool);
    drop(Buffer::<u8>::uninit_on(&allocator, STREAM, 30 << 20).unwrap());
    let buffer = || Buffer::<u8>::uninit_on(&allocator, STREAM, 1000).unwrap();
    let (used, plain) = (buffer(), buffer());
    device.set_capture(JOINED, CAPTURE);
    used.record_stream(JOINED).unwrap();
    used.record_stream(APART).unwrap();
    let mut parts = Parts {
        allocator: Some(allocator),
        pool: Some(pool),
        capture: Some(capture),
        graph: None,
        used: Some(used),
        plain: Some(plain),
    };
    if ended {
        end(device);
        parts.graph = parts.capture.take().map(Capture::end);
    }
    parts
}

#[test]
fn a_graphs_memory_stays_as_long_as_the_graph_and_no_longer_in_every_order() {
    for config in ["", "expandable_segments:True"] {
        for order in orders(5) {
            let device = Arc::new(Simulated::with_capacity(1 << 30));
            let mut parts = captured(&device, config, true);
            let bytes = device.used_bytes();
            for part in &order {
                match part {
                    0 => drop(parts.allocator.take()),
                    1 => drop(parts.pool.take()),
                    2 => drop(parts.graph.take()),
                    3 => drop(parts.used.take()),
                    _ => drop(parts.plain.take()),
                }
                if let Some(allocator) = &parts.allocator {
                    allocator.empty_cache().unwrap();
                }
                if parts.graph.is_some() || parts.pool.is_some() {
                    assert_eq!(device.used_bytes(), bytes, "{order:?} at {part}: released too early");
                }
            }
            assert_eq!((device.used_bytes(), Arc::strong_count(&device)), (0, 1), "{order:?}: something is left");
        }
    }
}

#[test]
fn a_capture_that_is_given_up_leaves_nothing_in_any_order() {
    for order in orders(5) {
        let device = Arc::new(Simulated::with_capacity(1 << 30));
        device.set_busy(APART);
        let mut parts = captured(&device, "", false);
        forbid(&device, &FORBIDDEN);
        for part in &order {
            match part {
                0 => drop(parts.allocator.take()),
                1 => drop(parts.pool.take()),
                2 => {
                    assert_eq!(untouched(&device), FORBIDDEN[..4], "{order:?}: in the midst of the capture");
                    end(&device);
                    drop(parts.capture.take());
                }
                3 => drop(parts.used.take()),
                _ => drop(parts.plain.take()),
            }
            if parts.capture.is_some() {
                assert!(device.used_bytes() >= 32 * MIB, "{order:?} at {part}");
            }
        }
        assert_eq!((device.used_bytes(), Arc::strong_count(&device)), (0, 1), "{order:?}: something is left");
    }
}

#[test]
fn an_allocator_that_goes_in_a_capture_waits_for_streams_when_it_ends() {
    for can_wait in [true, false] {
        let device = Arc::new(Simulated::with_capacity(1 << 30));
        device.set_busy(APART);
        let mut parts = captured(&device, "", false);
        parts.used = None;
        parts.allocator = None;
        end(&device);
        if !can_wait {
            // Nobody is left to be told: the block stays out of use, and its segment with it.
            forbid(&device, &[Operation::WaitEvent, Operation::SynchronizeStream, Operation::Synchronize]);
        }
        drop(parts.capture.take());
        parts.pool = None;
        parts.plain = None;
        assert_eq!((device.segments().len(), Arc::strong_count(&device)), (usize::from(!can_wait), 1));
    }
}

#[test]
fn captures_on_several_threads_at_once() {
    const THREADS: u64 = 8;
    let (device, allocator) = simulated(64 << 30);
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (device, allocator, barrier) = (&device, &allocator, &barrier);
            scope.spawn(move || {
                let (stream, joined) = (Stream(1000 + number), Stream(2000 + number));
                for turn in 0..50 {
                    let pool = allocator.create_pool(PoolOptions::default());
                    let capture = pool.begin_capture(stream).unwrap();
                    let id = Some(1 + number * 1000 + turn);
                    device.set_capture(stream, id);
                    device.set_capture(joined, id);
                    let inside = [(stream, 1000), (joined, 3 * MIB), (stream, MIB)]
                        .map(|(stream, bytes)| allocator.allocate_raw(bytes, stream).unwrap());
                    let outside = allocator.allocate_raw(5000, Stream(3000 + number)).unwrap();
                    if turn % 10 == 0 {
                        barrier.wait();
                        assert_eq!(inside.map(|block| pool_of(allocator, block)), [pool.id(); 3]);
                        assert_eq!(pool_of(allocator, outside), PoolId::DEFAULT);
                    }
                    allocator.record_stream_raw(inside[0], joined).unwrap();
                    allocator.record_stream_raw(outside, stream).unwrap();
                    allocator.free_raw(inside[0]).unwrap();
                    allocator.free_raw(outside).unwrap();
                    device.set_capture(joined, None);
                    device.set_capture(stream, None);
                    let graph = capture.end();
                    drop(pool);
                    allocator.free_raw(inside[1]).unwrap();
                    drop(graph);
                    allocator.free_raw(inside[2]).unwrap();
                }
            });
        }
    });
    allocator.empty_cache().unwrap();
    let stats = allocator.memory_stats();
    assert_eq!((stats.active.all.current, stats.reserved_bytes.all.current, device.used_bytes()), (0, 0, 0));
}

#[test]
fn a_panic_through_a_capture_leaves_the_allocator_whole() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _capture = begin(&device, &pool);
        let buffer = Buffer::<u8>::uninit_on(&allocator, STREAM, 5 << 20).unwrap();
        buffer.record_stream(APART).unwrap();
        let _scratch = Buffer::<u8>::uninit_on(&allocator, STREAM, 100).unwrap();
        panic!("in the midst of a capture");
    }));
    assert!(outcome.is_err());
    end(&device);
    assert_eq!(pool.use_count(), 1);
    let _poll = Buffer::<u8>::uninit(&allocator, 1).unwrap();
    assert_eq!((pending(&allocator), allocator.memory_stats().allocation.all.current), (0, 1));
    let capture = begin(&device, &pool);
    let buffer = Buffer::<u8>::uninit_on(&allocator, STREAM, 5 << 20).unwrap();
    end(&device);
    drop((capture, buffer, pool));
    allocator.empty_cache().unwrap();
    assert_eq!(device.used_bytes(), 2 * MIB, "what is left is the default pool's");
}

/// `current` of segments, reserved bytes, active blocks and active bytes in one pool.
fn figures(stats: &MemoryStats, small: bool) -> [i64; 4] {
    [stats.segment, stats.reserved_bytes, stats.active, stats.active_bytes]
        .map(|statistic| if small { statistic.small_pool.current } else { statistic.large_pool.current })
}

/// The table of PyTorch's `test_graph_memory_stats_and_use_result_after_destroy_graph`: a chain of copies and additions, of which
/// three buffers live at a time.
#[test]
fn a_captured_chain_takes_the_segments_that_it_takes_in_pytorch() {
    let twelve = 12 * MIB;
    let cases = [
        (512, 1, 2 * MIB, 2 * MIB),
        (MIB, 2, 4 * MIB, 2 * MIB),
        (MIB + 512, 1, 20 * MIB, 20 * MIB),
        (10 * MIB - 512, 2, 40 * MIB, 20 * MIB),
        (10 * MIB + 512, 3, 3 * twelve, twelve),
    ];
    for (bytes, segments, reserved_bytes, left_bytes) in cases {
        let (device, allocator) = simulated(1 << 30);
        let small = bytes <= MIB;
        let allocate = || allocator.allocate_raw(bytes, STREAM).unwrap();
        let input = allocate();
        let before = figures(&allocator.memory_stats(), small);
        let since = || {
            let now = figures(&allocator.memory_stats(), small);
            [0, 1, 2, 3].map(|at| now[at] - before[at])
        };
        let pool = allocator.create_pool(PoolOptions::default());
        let capture = begin(&device, &pool);
        let mut result = allocate();
        for _ in 0..5 {
            let (copy, sum) = (allocate(), allocate());
            allocator.free_raw(copy).unwrap();
            allocator.free_raw(result).unwrap();
            result = sum;
        }
        end(&device);
        let graph = capture.end();
        drop(pool);
        for _ in 0..2 {
            assert_eq!(since(), [segments, reserved_bytes as i64, 1, bytes as i64], "{bytes} bytes");
            allocator.empty_cache().unwrap();
        }
        drop(graph);
        allocator.empty_cache().unwrap();
        assert_eq!(since(), [1, left_bytes as i64, 1, bytes as i64], "{bytes} bytes, without the graph");
        allocator.free_raw(result).unwrap();
        allocator.free_raw(input).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.used_bytes(), 0);
    }
}

const REUSE: &str = "graph_capture_record_stream_reuse:True";

/// A block on [`STREAM`] with work there, that these streams use too.
fn used_on(device: &Simulated, allocator: &CachingAllocator, streams: &[Stream]) -> u64 {
    let block = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    device.capture_work(STREAM);
    for stream in streams {
        device.join_capture(*stream, STREAM);
        allocator.record_stream_raw(block, *stream).unwrap();
        device.capture_work(*stream);
    }
    block
}

/// Where a request of the same size goes; given back at once.
fn next(allocator: &CachingAllocator) -> u64 {
    let block = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    allocator.free_raw(block).unwrap();
    block
}

#[test]
fn a_block_is_reused_in_the_capture_once_its_stream_has_joined_the_other() {
    for (config, reuses) in [(REUSE, true), ("", false)] {
        let (device, allocator) = with(config, 1 << 30);
        let pool = allocator.create_pool(PoolOptions::default());
        let capture = begin(&device, &pool);
        let block = used_on(&device, &allocator, &[JOINED]);
        allocator.free_raw(block).unwrap();
        forbid(&device, &FORBIDDEN);
        assert_ne!(next(&allocator), block, "before the join");
        device.capture_work(STREAM);
        assert_ne!(next(&allocator), block, "work of its own is no join");
        assert_eq!(pending(&allocator), 1);
        device.join_capture(STREAM, JOINED);
        assert_eq!(next(&allocator) == block, reuses, "after the join, {config:?}");
        assert_eq!(pending(&allocator), i64::from(!reuses));
        assert_eq!(untouched(&device), FORBIDDEN[..4]);
        end(&device);
        drop(capture.end());
        drop(pool);
        allocator.empty_cache().unwrap();
        assert_eq!((pending(&allocator), device.used_bytes()), (0, 0));
    }
}

#[test]
fn of_four_streams_all_must_have_been_joined() {
    let (device, allocator) = with(REUSE, 1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let streams = [32, 64, 96].map(Stream);
    let block = used_on(&device, &allocator, &streams);
    allocator.free_raw(block).unwrap();
    for stream in streams {
        assert_ne!(next(&allocator), block, "{stream} is not joined");
        // Work after the free is no use of the block, and need not be joined.
        device.join_capture(STREAM, stream);
        device.capture_work(stream);
        device.capture_work(STREAM);
    }
    assert_eq!(next(&allocator), block);
    // Again in the same capture, by way of another stream.
    let block = used_on(&device, &allocator, &streams);
    device.join_capture(streams[1], streams[0]);
    device.join_capture(streams[2], streams[1]);
    device.capture_work(streams[2]);
    allocator.free_raw(block).unwrap();
    assert_ne!(next(&allocator), block);
    device.join_capture(STREAM, streams[2]);
    assert_eq!(next(&allocator), block);
}

#[test]
fn a_block_is_reused_on_its_own_stream_alone() {
    let (device, allocator) = with(REUSE, 1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let block = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(block).unwrap();
    device.join_capture(JOINED, STREAM);
    let elsewhere = allocator.allocate_raw(4 * MIB, JOINED).unwrap();
    assert_eq!((elsewhere == block, pending(&allocator)), (false, 1));
    device.join_capture(STREAM, JOINED);
    assert_eq!(next(&allocator), block);
}

#[test]
fn what_the_graph_does_not_order_waits_for_the_end_of_the_capture() {
    type Prepare = fn(&Simulated, &CachingAllocator, u64);
    let cases: [(&str, Prepare); 5] = [
        ("a stream outside of the capture", |_, allocator, block| {
            allocator.record_stream_raw(block, APART).unwrap();
        }),
        ("work given to the stream before it was captured", |device, allocator, block| {
            allocator.record_stream_raw(block, APART).unwrap();
            device.join_capture(APART, STREAM);
            device.capture_work(APART);
            device.join_capture(STREAM, APART);
        }),
        ("a stream of another capture", |device, allocator, block| {
            device.set_capture(APART, Some(5));
            device.capture_work(APART);
            allocator.record_stream_raw(block, APART).unwrap();
        }),
        ("a stream that has left the capture", |device, allocator, block| {
            device.join_capture(APART, STREAM);
            allocator.record_stream_raw(block, APART).unwrap();
            device.set_capture(APART, None);
        }),
        ("a graph that cannot be looked into", |device, _, _| forbid(device, &[Operation::CapturePoint])),
    ];
    for (case, prepare) in cases {
        let (device, allocator) = with(REUSE, 1 << 30);
        let pool = allocator.create_pool(PoolOptions::default());
        let capture = begin(&device, &pool);
        let block = used_on(&device, &allocator, &[JOINED]);
        prepare(&device, &allocator, block);
        allocator.free_raw(block).unwrap();
        device.join_capture(STREAM, JOINED);
        device.capture_work(STREAM);
        assert_ne!(next(&allocator), block, "{case}");
        end(&device);
        drop(capture);
        let capture = begin(&device, &pool);
        let again = next(&allocator);
        assert_eq!((again == block, pending(&allocator)), (false, 1), "{case}: captured again before anybody asked");
        end(&device);
        drop(capture);
        assert!(allocator.allocate_raw(512, Stream::DEFAULT).is_ok());
        assert_eq!(pending(&allocator), 0, "{case}");
    }
}

#[test]
fn what_was_known_of_another_capture_or_another_place_in_it_counts_no_more() {
    let (device, allocator) = with(REUSE, 1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let block = used_on(&device, &allocator, &[JOINED]);
    let other = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(block).unwrap();
    device.join_capture(STREAM, JOINED);
    assert_eq!(next(&allocator), block, "all of this is known to come before the stream's next work");
    // The stream begins again, as if its capture's dependencies had been replaced: nothing does any more.
    allocator.free_raw(other).unwrap();
    device.set_capture(STREAM, None);
    device.set_capture(STREAM, CAPTURE);
    let held = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    assert_eq!((held, pending(&allocator)), (block, 1), "the other block waits");
    device.join_capture(STREAM, JOINED);
    assert_eq!(next(&allocator), other);
}

#[test]
fn an_error_of_the_graph_makes_no_allocation_fail() {
    let (device, allocator) = with(REUSE, 1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let block = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(block).unwrap();
    device.join_capture(STREAM, JOINED);
    forbid(&device, &[Operation::CapturePoint]);
    assert_ne!(next(&allocator), block);
    assert_eq!(next(&allocator), block, "asked again");
}

#[test]
fn the_setting_can_be_changed_at_run_time() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let early = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(early).unwrap();
    allocator.apply_settings(REUSE).unwrap();
    let late = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(late).unwrap();
    device.join_capture(STREAM, JOINED);
    assert_eq!((next(&allocator), pending(&allocator)), (late, 1), "nothing was noted when the first was freed");
}
