//! The class of mistakes looked for: one driver call fails somewhere in the middle, and the device panics, leaks, loses
//! count, or does not say which call it was. Every driver call the cuda device makes is made to fail once, each in turn.
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, reason = "a panic of the device's is what the test is there to find")]

use memtrack::device::{Cuda, Device, Stream, StreamOrderedMemory, VirtualMemory};
use memtrack_tests::mock::{Live, Mock};
use memtrack_tests::unused::{FreeUnused as _, ReleaseUnused as _, UnmapUnused as _};

const MIB: u64 = 1 << 20;
const UNKNOWN: u32 = 999;
const OUT_OF_MEMORY: u32 = 2;
const EXCHANGE: &str = "cuThreadExchangeStreamCaptureMode";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Uses everything the device has, and gives everything back unless a call fails.
fn exercise(device: &Cuda) -> Result<(), Failure> {
    device.memory()?;
    let first = device.allocate(2 * MIB)?;
    let second = device.allocate(3 * MIB)?;

    let event = device.record_event(Stream::DEFAULT)?;
    let used = device
        .query_event(&event)
        .and_then(|_| device.wait_event(&event))
        .and_then(|()| device.stream_wait_event(Stream::DEFAULT, &event));
    device.release_event(event);
    used?;

    let mut found = [0; 64];
    // SAFETY: the ranges lie in the two segments above.
    unsafe {
        device.write(first, &[1; 64], Stream::DEFAULT)?;
        device.copy(first, second, 64, Stream::DEFAULT)?;
        device.fill(second, 2, 32, Stream::DEFAULT)?;
        device.read(second, &mut found, Stream::DEFAULT)?;
    }
    assert_eq!((found[0], found[63]), (2, 1));

    let range = device.reserve(8 * MIB)?;
    let pieces = [device.create(2 * MIB)?, device.create(4 * MIB)?];
    device.map(range, pieces[0])?;
    device.map(range + 2 * MIB, pieces[1])?;
    device.unmap_unused(range, 6 * MIB)?;
    device.map(range + 4 * MIB, pieces[1])?;
    device.unmap_unused(range + 4 * MIB, 4 * MIB)?;
    device.map_pieces(range, &[pieces[1], pieces[0], pieces[0]])?;
    device.unmap_unused(range, 8 * MIB)?;
    for piece in pieces {
        device.release_physical(piece)?;
    }
    device.unreserve(range, 8 * MIB)?;

    device.capture_id(Stream::DEFAULT)?;
    let ordered = device.allocate_ordered(700, Stream::DEFAULT)?;
    let more = device.allocate_ordered(40 * MIB, Stream::DEFAULT)?;
    device.free_unused(ordered, Stream::DEFAULT)?;
    device.free_unused(more, Stream::DEFAULT)?;
    device.reset_ordered_high_marks()?;
    device.trim_ordered(0)?;
    assert_eq!(device.ordered_usage()?.reserved_high_bytes, 64 * MIB);

    device.synchronize_stream(Stream::DEFAULT)?;
    device.synchronize()?;
    device.release_unused(first, 2 * MIB)?;
    device.release_unused(second, 3 * MIB)?;
    Ok(())
}

/// Opens, uses and drops a device on a thread that has no context yet; also how often `function` was called before the
/// drop.
fn run(mock: &Mock, function: &str) -> (Result<(), Failure>, u64) {
    let open_use_and_drop = || match Cuda::new(0) {
        Ok(device) => {
            let outcome = exercise(&device);
            let calls = mock.calls(function);
            drop(device);
            (outcome, calls)
        }
        Err(error) => (Err(error.into()), mock.calls(function)),
    };
    std::thread::scope(|scope| scope.spawn(open_use_and_drop).join()).expect("no call's failure makes the device panic")
}

/// As errors name calls: without the version of their symbol.
fn plain(function: &str) -> &str {
    function.strip_suffix("_v2").unwrap_or(function)
}

#[test]
fn a_call_that_fails_is_named_and_leaves_nothing_behind() {
    let mock = Mock::exclusive();
    run(&mock, "").0.unwrap();
    let functions: Vec<_> = mock.called_functions().into_iter().map(|name| (mock.calls(&name), name)).collect();
    assert!(functions.len() >= 30, "{functions:?}");

    // A thread whose capture mode cannot be set back has nobody to tell: the call in between has its answer.
    let is_setting_back = |function: &str, skip: u64| function == EXCHANGE && skip % 2 == 1;
    let mut tried = 0;
    for (total, function) in functions {
        mock.reset();
        let (_, before_drop) = run(&mock, &function);
        for skip in (0..total).filter(|skip| !is_setting_back(&function, *skip)) {
            mock.reset();
            mock.fail(&function, skip, UNKNOWN);
            let pools_before = mock.live(Live::Pools);
            let (outcome, _) = run(&mock, &function);
            let context = format!("{function}, call {skip} of {total}");

            assert_eq!(mock.pending_failures(), 0, "{context}: never came");
            assert_eq!(mock.live_memory(), [], "{context}");
            // A pool is destroyed in the drop, where nobody tries again.
            assert!(mock.live(Live::Pools) == pools_before || skip >= before_drop, "{context}: the pool");
            match outcome {
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(plain(&function)) || text.contains("CudaContext::new"), "{context}: {text}");
                    assert!(text.contains("CUDA_ERROR_UNKNOWN (999)"), "{context}: {text}");
                }
                // Only what fails within the drop has nobody to tell.
                Ok(()) => assert!(skip >= before_drop, "{context}: went unnoticed"),
            }
            tried += 1;
        }
    }
    assert!(tried >= 90, "only {tried} calls");
}

#[test]
fn out_of_memory_is_told_apart_wherever_memory_is_taken() {
    let mock = Mock::exclusive();
    for function in ["cuMemAlloc_v2", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAllocFromPoolAsync"] {
        for skip in 0..2 {
            mock.reset();
            mock.fail(function, skip, OUT_OF_MEMORY);
            let error = run(&mock, function).0.unwrap_err();
            let error = error.downcast::<memtrack::device::DeviceError>().unwrap();
            assert!(error.is_out_of_memory(), "{function}, call {skip}: {error}");
            assert_eq!(mock.live_memory(), [], "{function}, call {skip}");
        }
    }
}

#[test]
fn a_mapping_that_can_neither_be_used_nor_undone_stays_in_the_books() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let range = device.reserve(4 * MIB).unwrap();
    let piece = device.create(2 * MIB).unwrap();
    mock.fail("cuMemSetAccess", 0, UNKNOWN);
    mock.fail("cuMemUnmap", 0, UNKNOWN);
    let error = device.map(range, piece).unwrap_err().to_string();
    assert!(error.contains("cuMemSetAccess"), "{error}");

    device.map(range, piece).unwrap_err();
    device.unreserve(range, 4 * MIB).unwrap_err();
    device.unmap_unused(range, 2 * MIB).unwrap();
    device.map(range, piece).unwrap();
    drop(device);
    assert_eq!(mock.live_memory(), []);
}

#[test]
fn several_pieces_are_given_access_in_one_call_and_are_mapped_all_or_none() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let range = device.reserve(20 * MIB).unwrap();
    let pieces: Vec<_> = (0..10).map(|_| device.create(2 * MIB).unwrap()).collect();
    device.map_pieces(range, &pieces).unwrap();
    assert_eq!((mock.calls("cuMemMap"), mock.calls("cuMemSetAccess")), (10, 1));
    device.unmap_unused(range, 20 * MIB).unwrap();
    let failures = (0..10).map(|skip| ("cuMemMap", skip)).chain([("cuMemSetAccess", 0)]);
    for (function, skip) in failures {
        mock.fail(function, skip, OUT_OF_MEMORY);
        assert!(device.map_pieces(range, &pieces).unwrap_err().is_out_of_memory(), "{function}, call {skip}");
        assert_eq!(mock.live(Live::Mappings), 0, "{function}, call {skip}");
    }
    // What cannot be unmapped again stays in the books, and can be later.
    mock.fail("cuMemMap", 3, UNKNOWN);
    mock.fail("cuMemUnmap", 1, UNKNOWN);
    device.map_pieces(range, &pieces).unwrap_err();
    assert_eq!(mock.live(Live::Mappings), 1);
    device.map_pieces(range, &pieces).unwrap_err();
    device.unmap_unused(range + 2 * MIB, 2 * MIB).unwrap();
    device.map_pieces(range, &pieces).unwrap();
    drop(device);
    assert_eq!(mock.live_memory(), []);
}

#[test]
fn a_segment_whose_release_fails_can_be_released_again() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let address = device.allocate(2 * MIB).unwrap();
    mock.fail("cuMemFree_v2", 0, UNKNOWN);
    device.release_unused(address, 2 * MIB).unwrap_err();
    device.release_unused(address, 2 * MIB).unwrap();
    assert_eq!(mock.live_memory(), []);
}

#[test]
fn an_event_whose_recording_fails_is_used_for_the_next() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    for _ in 0..3 {
        mock.fail("cuEventRecord", 0, UNKNOWN);
        device.record_event(Stream::DEFAULT).unwrap_err();
    }
    let event = device.record_event(Stream::DEFAULT).unwrap();
    assert_eq!(mock.calls("cuEventCreate"), 1);
    device.release_event(event);
}
