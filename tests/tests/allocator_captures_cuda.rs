//! The allocator in graph captures by cudarc, on the mock driver, which breaks a capture as readily as a GPU's does.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstreamCaptureMode as Mode;
use memtrack::device::{Cuda, Device, Stream};
use memtrack::history::HistoryOptions;
use memtrack::{AllocationError, Buffer, CachingAllocator, Config, PoolOptions, track_memory};
use memtrack_tests::captured_stream::{capture, capture_in};
use memtrack_tests::mock::{Live, Mock};

const BYTES: usize = 1000;
const MODES: [Mode; 3] = [
    Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
];

/// A device with streams, known to it under these names.
fn cuda<const COUNT: usize>() -> (Arc<Cuda>, [Arc<CudaStream>; COUNT], [Stream; COUNT]) {
    let device = Arc::new(Cuda::new(0).unwrap());
    let streams = [(); COUNT].map(|()| device.context().new_stream().unwrap());
    let names = streams.each_ref().map(|stream| device.register_stream(stream).unwrap());
    (device, streams, names)
}

fn with(device: &Arc<Cuda>, config: &str) -> CachingAllocator {
    CachingAllocator::with_config(device.clone(), config.parse::<Config>().unwrap()).unwrap()
}

/// Frees a block that another stream uses.
fn use_on(allocator: &CachingAllocator, stream: Stream, other: Stream) {
    let block = allocator.allocate_raw(512, stream).unwrap();
    allocator.record_stream_raw(block, other).unwrap();
    allocator.free_raw(block).unwrap();
}

#[track_memory(phase = "captured")]
fn add_up(allocator: &CachingAllocator, stream: Stream, input: &Buffer<u8>) -> Result<Buffer<u8>, AllocationError> {
    let mut scratch = Buffer::zeros_on(allocator, stream, BYTES)?;
    scratch.copy_from(input)?;
    let mut output = Buffer::uninit_on(allocator, stream, BYTES)?;
    output.copy_from(&scratch)?;
    Ok(output)
}

#[test]
fn a_capture_in_each_mode_survives_all_that_the_allocator_does() {
    let mock = Mock::exclusive();
    // An expandable segment that runs out of memory has mapped all there is first.
    mock.set_capacity(0, 1 << 30);
    let (device, [stream, _, _], [name, side, apart]) = cuda();
    for mode in MODES {
        for config in ["", "expandable_segments:True", "graph_capture_record_stream_reuse:True", "torch_exact:True"] {
            let allocator = with(&device, config);
            allocator.record_memory_history(Some(&HistoryOptions::new()));
            memtrack::set_default(&allocator);
            let mut input = Buffer::<u8>::zeros_on(&allocator, name, BYTES).unwrap();
            // Events are outstanding when the capture begins.
            mock.hold_stream(0, apart);
            use_on(&allocator, Stream::DEFAULT, apart);
            use_on(&allocator, name, apart);
            let pool = allocator.create_pool(PoolOptions::default());
            let guard = pool.begin_capture(name).unwrap();
            let capturing = capture_in(&stream, mode).unwrap();
            let epoch = memtrack::epoch(1);
            let result = add_up(&allocator, name, &input).unwrap();
            let event = device.record_event(name).unwrap();
            device.stream_wait_event(side, &event).unwrap();
            device.release_event(event);
            use_on(&allocator, name, side);
            use_on(&allocator, side, apart);
            use_on(&allocator, Stream::DEFAULT, side);
            mock.let_stream_go(0, apart);
            thread::scope(|scope| {
                scope.spawn(|| use_on(&allocator, Stream::DEFAULT, apart)).join().unwrap();
            });
            assert!(allocator.allocate_raw(1 << 50, name).is_err(), "{mode:?}");
            allocator.empty_cache().unwrap();
            let _ = (allocator.memory_stats(), allocator.snapshot(), device.memory().unwrap());
            assert!(epoch.finish().unwrap().peak_bytes > 0);
            let graph = capturing.into_graph().unwrap_or_else(|error| panic!("{mode:?}, {config:?}: {error:?}"));
            let memory = guard.end();
            for seed in [3, 4] {
                input.copy_from_slice(&[seed; BYTES]).unwrap();
                graph.launch().unwrap();
                assert_eq!(result.to_vec().unwrap(), [seed; BYTES], "{mode:?}, {config:?}");
            }
            drop((graph, memory, pool, result, input));
            allocator.empty_cache().unwrap();
            assert_eq!((allocator.memory_reserved(), mock.live_memory()), (0, vec![]), "{mode:?}, {config:?}");
        }
    }
    assert_eq!(mock.live(Live::Graphs), 0);
}

#[test]
fn threads_that_record_and_query_events_break_no_capture_that_begins_meanwhile() {
    let _mock = Mock::exclusive();
    let (device, [stream, ..], [name, second, third, fourth]) = cuda::<4>();
    let allocator = with(&device, "");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (own, other) in [(second, third), (third, fourth), (fourth, second)] {
            let (allocator, is_over) = (&allocator, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Not too many that wait for the end of a capture.
                    let stats = allocator.memory_stats();
                    if stats.active.all.current - stats.allocation.all.current < 100 {
                        use_on(allocator, own, other);
                    }
                    allocator.empty_cache().unwrap();
                    allocator.free_raw(allocator.allocate_raw(512, own).unwrap()).unwrap();
                    drop(allocator.create_pool(PoolOptions::default()));
                }
            });
        }
        let captured = catch_unwind(AssertUnwindSafe(|| {
            let pool = allocator.create_pool(PoolOptions::default());
            for turn in 0..100 {
                let guard = pool.begin_capture(name).unwrap();
                let capturing = capture(&stream).unwrap();
                let buffer = Buffer::<u8>::zeros_on(&allocator, name, BYTES).unwrap();
                thread::yield_now();
                drop(buffer);
                capturing.end().unwrap_or_else(|error| panic!("broken in turn {turn}: {error:?}"));
                drop(guard.end());
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        captured.unwrap();
    });
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.memory_reserved(), 0);
}

#[test]
fn captures_of_several_threads_at_once_come_out_whole() {
    let mock = Mock::exclusive();
    let (device, streams, names) = cuda::<6>();
    let allocator = with(&device, "");
    thread::scope(|scope| {
        for (stream, name) in streams.iter().zip(names) {
            let allocator = &allocator;
            scope.spawn(move || {
                for turn in 0..30 {
                    let pool = allocator.create_pool(PoolOptions::default());
                    let mut input = Buffer::<u8>::uninit_on(allocator, name, BYTES).unwrap();
                    let guard = pool.begin_capture(name).unwrap();
                    let capturing = capture_in(stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
                    let result = add_up(allocator, name, &input).unwrap();
                    let graph = capturing.into_graph().unwrap();
                    let memory = guard.end();
                    input.copy_from_slice(&[turn; BYTES]).unwrap();
                    graph.launch().unwrap();
                    assert_eq!(result.to_vec().unwrap(), [turn; BYTES]);
                    drop((graph, memory));
                }
            });
        }
    });
    allocator.empty_cache().unwrap();
    assert_eq!((allocator.memory_reserved(), mock.live_memory(), mock.live(Live::Graphs)), (0, vec![], 0));
}

#[test]
fn a_panic_in_a_capture_leaves_an_allocator_that_can_capture_again() {
    let mock = Mock::exclusive();
    let (device, [stream, _], [name, side]) = cuda();
    let allocator = with(&device, "");
    let pool = allocator.create_pool(PoolOptions::default());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // Unwound in the wrong order: the stream is still captured when the guard has gone.
        let _capturing = capture(&stream).unwrap();
        let _guard = pool.begin_capture(name).unwrap();
        let buffer = Buffer::<u8>::zeros_on(&allocator, name, BYTES).unwrap();
        let event = device.record_event(name).unwrap();
        device.stream_wait_event(side, &event).unwrap();
        device.release_event(event);
        buffer.record_stream(side).unwrap();
        panic!("in the midst of a capture");
    }));
    assert!(outcome.is_err());
    let input = Buffer::<u8>::zeros_on(&allocator, name, BYTES).unwrap();
    let guard = pool.begin_capture(name).unwrap();
    let capturing = capture(&stream).unwrap();
    let result = add_up(&allocator, name, &input).unwrap();
    let graph = capturing.into_graph().unwrap();
    let memory = guard.end();
    graph.launch().unwrap();
    assert_eq!(result.to_vec().unwrap(), [0; BYTES]);
    drop((graph, memory, pool, result, input, allocator));
    assert_eq!((mock.live_memory(), mock.live(Live::Graphs)), (vec![], 0));
}
