//! The cuda device, through cudarc as it is, on the mock driver.
#![cfg(target_os = "linux")]

use memtrack_tests::unused::{ReleaseUnused as _, UnmapUnused as _};
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, DriverError, result};
use memtrack::device::{
    Cuda, CudaUnavailable, Device, DeviceError, DeviceKind, Event, PhysicalMemory, Stream, VirtualMemory,
};
use memtrack_tests::device_list::{run_all, subjects};
use memtrack_tests::mock::{Live, Mock};

const MIB: u64 = 1 << 20;

#[test]
fn the_cuda_device_passes_every_check() {
    let mock = Rc::new(Mock::exclusive());
    let (device, mut controls) = subjects::cuda(Cuda::new(0).unwrap()).unwrap();
    let for_use = Rc::clone(&mock);
    controls.set_other_use = Some(Box::new(move |bytes| for_use.set_other_use(0, bytes)));

    let report = run_all(&device, &controls);

    assert_eq!(report.failed, Vec::<&str>::new());
    assert_eq!(report.skipped, ["a device without bytes says so"]);
    assert_eq!(mock.live_memory(), [], "with the device still there");
    drop((device, controls));
    assert_eq!((mock.live(Live::Events), mock.live(Live::Streams), mock.live(Live::Contexts)), (0, 0, 0));
}

#[test]
fn a_device_is_known_by_name_uuid_and_address() {
    let mock = Mock::exclusive();
    mock.set_device_count(2);
    let devices = [Cuda::new(0).unwrap(), Cuda::new(1).unwrap()];
    assert_eq!(devices.each_ref().map(Device::name), ["cuda:0", "cuda:1"]);
    assert_eq!(devices[1].kind(), DeviceKind::Cuda);
    assert_eq!(devices[1].model(), "Mock H200");
    assert_eq!(devices[1].uuid().unwrap().to_string(), "6d656d74-7261-636b-206d-6f636b200001");
    assert_eq!(devices[1].pci_address().unwrap().to_string(), "00000000:19:00.0");
    assert_eq!(devices[1].total_bytes(), 80 << 30);

    // Each on its own memory, whichever context the thread was last in.
    let address = devices[0].allocate(2 * MIB).unwrap();
    assert_eq!((mock.used_bytes(0), mock.used_bytes(1)), (2 * MIB, 0));
    assert_eq!(devices[1].memory().unwrap().free_bytes, 80 << 30);
    assert!(devices[1].release_unused(address, 2 * MIB).is_err());
    devices[0].release_unused(address, 2 * MIB).unwrap();

    for ordinal in [2, usize::MAX] {
        assert_eq!(Cuda::new(ordinal).unwrap_err(), CudaUnavailable::NoSuchDevice { ordinal, count: 2 });
    }
}

#[test]
fn a_driver_that_sees_no_device_or_fails_to_start_is_told_apart() {
    let mock = Mock::exclusive();
    mock.set_device_count(0);
    let error = Cuda::new(0).unwrap_err();
    assert!(matches!(&error, CudaUnavailable::NoDevice { call: "cuInit" | "cuDeviceGetCount", .. }), "{error:?}");
    assert!(error.to_string().contains("libcuda.so"), "{error}");

    mock.reset();
    mock.fail("cuInit", 0, 100);
    let text = Cuda::new(0).unwrap_err().to_string();
    assert!(text.contains("sees no GPU: cuInit said CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device"), "{text}");

    mock.fail("cuInit", 0, 803);
    let error = Cuda::new(0).unwrap_err();
    assert!(
        matches!(&error, CudaUnavailable::Driver(DeviceError::Driver { call: "cuInit", code: 803, .. })),
        "{error:?}"
    );
    Cuda::new(0).unwrap();
}

#[test]
fn an_error_left_on_the_context_is_neither_taken_for_an_answer_nor_lost() {
    let _mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let stale = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    device.context().record_err::<()>(Err(stale));

    let address = device.allocate(2 * MIB).unwrap();
    let event = device.record_event(Stream::DEFAULT).unwrap();
    assert!(device.query_event(&event).unwrap());
    device.release_event(event);
    device.release_unused(address, 2 * MIB).unwrap();
    device.memory().unwrap();

    assert_eq!(device.context().check_err(), Err(stale));
}

#[test]
fn what_the_tables_refuse_never_reaches_the_driver() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let address = device.allocate(4 * MIB).unwrap();
    mock.reset();

    device.allocate(0).unwrap_err();
    for (address, bytes) in [(address + 512, 512), (address, 2 * MIB), (0x1234, 1)] {
        device.release_unused(address, bytes).unwrap_err();
    }
    device.reserve(3).unwrap_err();
    device.create(0).unwrap_err();
    device.map(address, PhysicalMemory { handle: 1, bytes: 2 * MIB }).unwrap_err();
    device.unmap_unused(address, 2 * MIB).unwrap_err();
    device.unreserve(address, 4 * MIB).unwrap_err();
    device.release_physical(PhysicalMemory { handle: 1, bytes: 2 * MIB }).unwrap_err();
    device.record_event(Stream(3)).unwrap_err();

    assert_eq!(mock.called_functions(), Vec::<String>::new());
    device.release_unused(address, 4 * MIB).unwrap();
    assert_eq!(mock.calls("cuMemFree_v2"), 1);
}

#[test]
fn a_request_too_large_for_the_driver_is_out_of_memory() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    mock.fail_above(8 * MIB);
    let error = device.allocate(10 * MIB).unwrap_err();
    assert_eq!(error, DeviceError::OutOfMemory { device: "cuda:0".to_owned(), requested_bytes: 10 * MIB });
    assert!(device.create(10 * MIB).unwrap_err().is_out_of_memory());
    let address = device.allocate(8 * MIB).unwrap();
    device.release_unused(address, 8 * MIB).unwrap();
}

#[test]
fn recording_an_event_makes_none_once_the_pool_is_warm() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    for _ in 0..1000 {
        let events = [0, 1, 2].map(|_| device.record_event(Stream::DEFAULT).unwrap());
        for event in events {
            device.release_event(event);
        }
    }
    assert_eq!(mock.calls("cuEventCreate"), 3);
    assert_eq!(mock.calls("cuEventRecord"), 3000);
    drop(device);
    assert_eq!((mock.calls("cuEventDestroy_v2"), mock.live(Live::Events)), (3, 0));
}

#[test]
fn an_event_of_another_device_or_made_by_hand_is_refused() {
    // SAFETY: made against the rule, to see that the tables hold all the same; every event here is this test's own.
    let by_hand = |raw| unsafe { Event::from_raw(raw) };
    let _mock = Mock::exclusive();
    let (device, other) = (Cuda::new(0).unwrap(), Cuda::new(0).unwrap());
    let event = device.record_event(Stream::DEFAULT).unwrap();
    for wrong in [other.record_event(Stream::DEFAULT).unwrap(), by_hand(0), by_hand(event.raw() + 1)] {
        for answer in [
            device.query_event(&wrong).map(drop),
            device.wait_event(&wrong),
            device.stream_wait_event(Stream::DEFAULT, &wrong),
        ] {
            assert!(matches!(answer, Err(DeviceError::Driver { code: 400, .. })), "{answer:?}");
        }
        device.release_event(wrong);
    }
    // A copy made by hand names nothing once the event is released, and releasing it again does not lend it to two.
    let copy = by_hand(event.raw());
    device.release_event(event);
    assert!(matches!(device.query_event(&copy), Err(DeviceError::Driver { code: 400, .. })));
    device.release_event(copy);
    let pair = [0, 1].map(|_| device.record_event(Stream::DEFAULT).unwrap());
    assert_ne!(pair[0], pair[1]);
}

#[test]
fn a_registered_streams_handle_is_never_given_to_another_stream() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();

    // What happens without registering: the next stream gets the handle of the last.
    let handle = device.context().new_stream().unwrap().cu_stream();
    assert_eq!(device.context().new_stream().unwrap().cu_stream(), handle);

    let stream = device.context().new_stream().unwrap();
    let registered = device.register_stream(&stream).unwrap();
    assert_eq!(device.register_stream(&stream), Ok(registered));
    assert_eq!(device.cuda_stream(registered), Some(Arc::clone(&stream)));
    drop(stream);
    let next = device.context().new_stream().unwrap();
    assert_ne!(device.register_stream(&next).unwrap(), registered);
    device.synchronize_stream(registered).unwrap();
    drop((next, device));
    assert_eq!(mock.live(Live::Streams), 0);
}

#[test]
fn streams_that_cannot_be_kept_by_handle_are_refused_with_what_to_do() {
    let mock = Mock::exclusive();
    mock.set_device_count(2);
    let device = Cuda::new(0).unwrap();

    let per_thread = device.register_stream(&device.context().per_thread_stream()).unwrap_err().to_string();
    assert!(
        per_thread.contains("different stream on each thread") && per_thread.contains("new_stream"),
        "{per_thread}"
    );
    let per_thread = device.record_event(Stream(2)).unwrap_err().to_string();
    assert!(per_thread.contains("different stream on each thread"), "{per_thread}");
    let unknown = device.record_event(Stream(0xabcd)).unwrap_err().to_string();
    assert!(unknown.contains("register_stream") && unknown.contains("0xabcd"), "{unknown}");
    assert_eq!(device.cuda_stream(Stream(0xabcd)), None);

    let elsewhere = CudaContext::new(1).unwrap().new_stream().unwrap();
    let foreign = device.register_stream(&elsewhere).unwrap_err().to_string();
    assert!(foreign.contains("another context"), "{foreign}");
    // The same context by another handle of cudarc's is the same context.
    let same = CudaContext::new(0).unwrap().new_stream().unwrap();
    device.register_stream(&same).unwrap();
}

#[test]
fn the_default_stream_is_known_by_both_its_handles() {
    let _mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    assert_eq!(device.register_stream(device.default_stream()), Ok(Stream::DEFAULT));
    assert_eq!(device.cuda_stream(Stream::DEFAULT).as_ref(), Some(device.default_stream()));
    // SAFETY: 1 is the driver's own name for the default stream, which lives as long as the context.
    let legacy = unsafe { device.context().wrap_borrowed_stream(std::ptr::without_provenance_mut(1)) };
    assert_eq!(device.register_stream(&legacy), Ok(Stream::DEFAULT));
}

#[test]
fn a_busy_stream_leaves_its_events_unready() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    mock.hold_stream(0, Stream::DEFAULT);
    let event = device.record_event(Stream::DEFAULT).unwrap();
    assert!(!device.query_event(&event).unwrap());
    mock.let_stream_go(0, Stream::DEFAULT);
    assert!(device.query_event(&event).unwrap());
    device.release_event(event);
}

#[test]
fn copies_are_done_with_the_host_bytes_when_they_return_pinned_or_not() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let address = device.allocate(2 * MIB).unwrap();
    // SAFETY: freed below; the memory is the system's, zeroed.
    let pinned = unsafe { result::malloc_host(1024, 0) }.unwrap();
    // SAFETY: 1024 bytes that nobody else has.
    let pinned_bytes = unsafe { std::slice::from_raw_parts_mut(pinned.cast::<u8>(), 1024) };
    let mut pageable_bytes = vec![0; 1024];
    for bytes in [pinned_bytes, &mut pageable_bytes[..]] {
        for is_write in [true, false] {
            mock.hold_stream(0, Stream::DEFAULT);
            std::thread::scope(|scope| {
                let copying = scope.spawn(|| {
                    bytes.fill(if is_write { 7 } else { 0 });
                    // SAFETY: the range lies in the segment above.
                    unsafe {
                        if is_write {
                            device.write(address, bytes, Stream::DEFAULT)
                        } else {
                            device.read(address, bytes, Stream::DEFAULT)
                        }
                    }
                    .unwrap();
                    assert!(bytes.iter().all(|&byte| byte == 7));
                });
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(!copying.is_finished(), "write: {is_write}, while the stream has not come to it");
                mock.let_stream_go(0, Stream::DEFAULT);
                copying.join().unwrap();
            });
        }
    }
    device.release_unused(address, 2 * MIB).unwrap();
    // SAFETY: from above, not used any more.
    unsafe { result::free_host(pinned) }.unwrap();
    assert_eq!(mock.live(Live::HostMemory), 0);
}

#[test]
fn a_device_without_virtual_memory_has_none() {
    let mock = Mock::exclusive();
    mock.set_virtual_memory(false);
    let device = Cuda::new(0).unwrap();
    assert!(Device::virtual_memory(&device).is_none());
    assert!(matches!(device.reserve(2 * MIB), Err(DeviceError::Driver { code: 801, .. })));
    let address = device.allocate(2 * MIB).unwrap();
    device.release_unused(address, 2 * MIB).unwrap();
}

#[test]
fn dropping_the_device_gives_back_what_is_still_alive() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    device.allocate(2 * MIB).unwrap();
    let range = device.reserve(8 * MIB).unwrap();
    let pieces = [device.create(2 * MIB).unwrap(), device.create(4 * MIB).unwrap()];
    device.map(range, pieces[0]).unwrap();
    device.map(range + 4 * MIB, pieces[1]).unwrap();
    device.release_physical(pieces[1]).unwrap();
    let _event = device.record_event(Stream::DEFAULT).unwrap();
    assert_eq!(mock.used_bytes(0), 8 * MIB);

    drop(device);

    assert_eq!((mock.live_memory(), mock.live(Live::Events), mock.used_bytes(0)), (vec![], 0, 0));
}

#[test]
fn dropping_the_device_on_a_broken_context_leaves_memory_to_the_driver() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let context = Arc::clone(device.context());
    let address = device.allocate(2 * MIB).unwrap();
    mock.break_context(0, 719);
    assert!(matches!(device.synchronize(), Err(DeviceError::Driver { code: 719, call: "cuCtxSynchronize", .. })));
    let error = device.release_unused(address, 2 * MIB).unwrap_err();
    assert!(error.to_string().contains("cuMemFree failed on cuda:0: CUDA_ERROR_LAUNCH_FAILED (719)"), "{error}");

    drop(device);

    assert_eq!(mock.live(Live::Segments), 1);
    mock.break_context(0, 0);
    // SAFETY: the segment above, which its device left behind.
    unsafe { result::free_sync(address) }.unwrap();
    drop(context);
}
