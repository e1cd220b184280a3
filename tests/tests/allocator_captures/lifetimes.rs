//! How long the memory of a graph stays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;

use memtrack::device::{Operation, Simulated, Stream};
use memtrack::units::MIB;
use memtrack::{Buffer, CachingAllocator, Capture, Config, MemoryPool, MemoryStats, PoolId, PoolOptions};

use crate::common::*;

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
