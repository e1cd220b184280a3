//! Graph captures on the mock driver, which breaks a capture as readily as a GPU's does: what a stream says about them, and
//! that no memory call gets in their way, whether it succeeds or fails.
#![cfg(target_os = "linux")]

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUstreamCaptureMode as Mode};
use memtrack::device::{Cuda, Device, DeviceError, Stream, StreamOrderedMemory, VirtualMemory};
use memtrack_tests::captured_stream::capture;
use memtrack_tests::mock::{Live, Mock};
use memtrack_tests::unused::{FreeUnused as _, ReleaseUnused as _, UnmapUnused as _};

const MIB: u64 = 1 << 20;
const OUT_OF_MEMORY: u32 = 2;
const UNKNOWN: u32 = 999;
const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
const STREAM_CAPTURE_INVALIDATED: u32 = 901;

/// Sets this thread's capture mode; the one before.
fn exchange(mut mode: Mode) -> Mode {
    // SAFETY: a place for one mode, which holds one.
    let answer = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    assert_eq!(answer, sys::CUresult::CUDA_SUCCESS);
    mode
}

/// What this thread's capture mode is.
fn mode() -> Mode {
    let mode = exchange(Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    exchange(mode);
    mode
}

#[test]
fn calls_forbidden_during_a_capture_break_it() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let stream = device.context().new_stream().unwrap();
    let name = device.register_stream(&stream).unwrap();
    let event = device.record_event(Stream::DEFAULT).unwrap();
    type Call<'a> = &'a dyn Fn() -> Result<(), u32>;
    let code = |error: DeviceError| match error {
        DeviceError::Driver { code, .. } => code,
        other => panic!("{other}"),
    };
    // SAFETY: the answer is an error.
    let allocate = || unsafe { result::malloc_sync(512) }.map(drop).map_err(|error| error.0 as u32);
    let synchronize_stream = || device.synchronize_stream(name).map_err(code);
    let synchronize = || device.synchronize().map_err(code);
    let query = || device.query_event(&event).map(drop).map_err(code);
    let calls: [Call<'_>; 4] = [&allocate, &synchronize_stream, &synchronize, &query];
    for (index, call) in calls.into_iter().enumerate() {
        let capturing = capture(&stream).unwrap();
        assert!(device.capture_id(name).unwrap().is_some());
        assert_eq!(call(), Err(STREAM_CAPTURE_UNSUPPORTED), "call {index}");
        // As in PyTorch, a broken capture is none; memory is not taken in its order, though.
        assert_eq!(device.capture_id(name), Ok(None), "call {index}");
        let error = device.allocate_ordered(512, name).unwrap_err();
        assert!(matches!(error, DeviceError::InvalidStream { stream, .. } if stream == name), "{error}");
        assert!(error.to_string().contains("end the capture first"), "{error}");
        assert_eq!(capturing.end().unwrap_err().0 as u32, STREAM_CAPTURE_INVALIDATED, "call {index}");
        // Nothing sticks.
        assert_eq!(call(), Ok(()), "call {index}");
    }
    assert_eq!(mock.live(Live::Graphs), 0);
    device.release_event(event);
    device.synchronize().unwrap();
}

#[test]
fn streams_that_wait_for_a_captured_one_take_part_in_its_capture() {
    let _mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let streams = [0, 1, 2].map(|_| device.context().new_stream().unwrap());
    let [first, second, apart] = streams.each_ref().map(|stream| device.register_stream(stream).unwrap());
    let capturing = capture(&streams[0]).unwrap();
    let event = device.record_event(first).unwrap();
    device.stream_wait_event(second, &event).unwrap();
    device.release_event(event);
    let id = device.capture_id(first).unwrap();
    assert!(id.is_some());
    assert_eq!([first, second, apart].map(|stream| device.capture_id(stream).unwrap()), [id, id, None]);
    capturing.end().unwrap();
    assert_eq!([first, second, apart].map(|stream| device.capture_id(stream).unwrap()), [None; 3]);
}

#[test]
fn the_default_stream_beside_a_captured_one_gets_a_clear_answer() {
    let _mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    device.context().bind_to_thread().unwrap();
    // One that synchronizes with the default stream, as cudarc's own do not.
    let stream = result::stream::create(result::stream::StreamKind::Default).unwrap();
    // SAFETY: the stream lives until the end of the test.
    let begin = || unsafe { result::stream::begin_capture(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL) }.unwrap();
    begin();
    // Asking is allowed, and allocating too.
    assert_eq!(device.capture_id(Stream::DEFAULT), Ok(None));
    let address = device.allocate(2 * MIB).unwrap();
    device.release_unused(address, 2 * MIB).unwrap();
    // Taking memory in its order would break the capture, so the driver is not even asked.
    let error = device.allocate_ordered(512, Stream::DEFAULT).unwrap_err();
    assert!(matches!(error, DeviceError::InvalidStream { stream: Stream::DEFAULT, .. }), "{error}");
    assert!(error.to_string().contains("new_stream"), "{error}");
    // SAFETY: as above.
    let graph = unsafe { result::stream::end_capture(stream) }.unwrap();
    // SAFETY: made in the line above.
    unsafe { result::graph::destroy(graph) }.unwrap();
    let address = device.allocate_ordered(512, Stream::DEFAULT).unwrap();
    device.free_unused(address, Stream::DEFAULT).unwrap();
    // SAFETY: not used any more.
    unsafe { result::stream::destroy(stream) }.unwrap();
}

#[test]
fn a_threads_capture_mode_is_as_before_after_every_memory_call() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    device.context().bind_to_thread().unwrap();
    for before in [
        Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ] {
        let own = exchange(before);
        let address = device.allocate(2 * MIB).unwrap();
        device.release_unused(address, 2 * MIB).unwrap();
        assert_eq!(mode(), before);
        for function in [
            "cuMemAlloc_v2",
            "cuMemFree_v2",
            "cuMemAddressReserve",
            "cuMemCreate",
            "cuMemMap",
            "cuMemSetAccess",
            "cuMemUnmap",
            "cuMemRelease",
            "cuMemAddressFree",
            "cuMemPoolTrimTo",
        ] {
            for code in [OUT_OF_MEMORY, UNKNOWN] {
                mock.fail(function, 0, code);
                let outcome = every_memory_call(&device);
                assert_eq!((mock.pending_failures(), mode()), (0, before), "{function}: {outcome:?}");
                assert!(outcome.is_err(), "{function}, code {code}");
            }
        }
        exchange(own);
    }
    drop(device);
    assert_eq!(mock.live_memory(), []);
}

fn every_memory_call(device: &Cuda) -> Result<(), DeviceError> {
    let address = device.allocate(2 * MIB)?;
    device.release_unused(address, 2 * MIB)?;
    let range = device.reserve(4 * MIB)?;
    let piece = device.create(2 * MIB)?;
    device.map_pieces(range, &[piece, piece])?;
    device.unmap_unused(range, 4 * MIB)?;
    device.release_physical(piece)?;
    device.unreserve(range, 4 * MIB)?;
    device.trim_ordered(0)
}

#[test]
fn a_capture_outlives_memory_calls_that_fail() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let stream = device.context().new_stream().unwrap();
    let name = device.register_stream(&stream).unwrap();
    let capturing = capture(&stream).unwrap();
    for function in ["cuMemAlloc_v2", "cuMemFree_v2", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"] {
        mock.fail(function, 0, OUT_OF_MEMORY);
        every_memory_call(&device).unwrap_err();
    }
    every_memory_call(&device).unwrap();
    assert!(device.capture_id(name).unwrap().is_some());
    capturing.end().unwrap();
}
