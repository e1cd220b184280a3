//! Buffers lent to cudarc, on the mock driver: copies, slices, other streams, and what it costs the driver.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test whose mock refuses can only stop")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{
    CudaStream, DevicePtr as _, DevicePtrMut as _, DeviceSlice as _, DriverError, LaunchArgs, PushKernelArg, SyncOnDrop,
};
use memtrack::device::{Cuda, Device as _, DeviceError, Host, Stream};
use memtrack::{AllocationError, Buffer, CachingAllocator, CudaRef, CudaRefMut};
use memtrack_tests::mock::{Live, Mock};

fn on_mock() -> (Mock, Arc<Cuda>, CachingAllocator) {
    let mock = Mock::exclusive();
    let cuda = Arc::new(Cuda::new(0).unwrap_or_else(|error| panic!("{error}")));
    let allocator = CachingAllocator::new(cuda.clone());
    (mock, cuda, allocator)
}

fn registered_stream(cuda: &Cuda) -> (Arc<CudaStream>, Stream) {
    let stream = cuda.context().new_stream().unwrap();
    let handle = cuda.register_stream(&stream).unwrap();
    (stream, handle)
}

/// Whether all that a stream has been given is done.
fn is_done(cuda: &Cuda, stream: Stream) -> bool {
    let event = cuda.record_event(stream).unwrap();
    let is_done = cuda.query_event(&event).unwrap();
    cuda.release_event(event);
    is_done
}

/// Calls that take or give memory, or make or end events, since the mock was reset.
fn costly_calls(mock: &Mock) -> Vec<(String, u64)> {
    let costly = |name: &String| {
        ["cuMemAlloc", "cuMemFree", "cuEventCreate", "cuEventDestroy"].iter().any(|call| name.starts_with(call))
    };
    mock.called_functions().into_iter().filter(costly).map(|name| (name.clone(), mock.calls(&name))).collect()
}

#[test]
fn elements_go_to_the_device_and_back() {
    let (_mock, _cuda, allocator) = on_mock();
    let numbers: Vec<f32> = (0..1000).map(|number| number as f32).collect();
    let buffer = Buffer::from_slice(&allocator, &numbers).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), numbers);
    let copy = buffer.try_clone().unwrap();
    assert_eq!(copy.to_vec().unwrap(), numbers);
    let zeros = Buffer::<f32>::zeros(&allocator, 1000).unwrap();
    assert_eq!(zeros.to_vec().unwrap(), vec![0.0; 1000]);
    assert!(matches!(buffer.as_slice(), Err(AllocationError::NoAccess { .. })));
}

#[test]
fn cudarcs_copies_take_a_lent_buffer_and_cost_the_driver_nothing_more() {
    let (mock, cuda, allocator) = on_mock();
    let stream = cuda.default_stream();
    let mut buffer = Buffer::<u32>::zeros(&allocator, 256).unwrap();
    let before = costly_calls(&mock);

    let numbers: Vec<u32> = (0..256).collect();
    stream.memcpy_htod(&numbers, &mut buffer.cuda_mut().unwrap()).unwrap();
    assert_eq!(stream.clone_dtoh(&buffer.cuda().unwrap()).unwrap(), numbers);
    stream.memset_zeros(&mut buffer.cuda_mut().unwrap()).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), vec![0; 256]);

    assert_eq!(costly_calls(&mock), before);
    let lent = buffer.cuda().unwrap();
    assert_eq!((lent.len(), lent.stream().cu_stream()), (256, stream.cu_stream()));
}

#[test]
fn a_lent_slice_leaves_the_memory_with_the_buffer() {
    let (mock, cuda, allocator) = on_mock();
    let stream = cuda.default_stream();
    let mut buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let events = mock.live(Live::Events);
    {
        let mut lent = buffer.cuda_slice_mut().unwrap();
        stream.memcpy_htod(&[7_u32; 4], &mut lent.try_slice_mut(..4).unwrap()).unwrap();
        assert!(lent.try_slice_mut(..9).is_none());
        let (mut front, mut back) = lent.try_split_at_mut(6).unwrap();
        stream.memcpy_htod(&[1_u32], &mut front.slice_mut(5..)).unwrap();
        stream.memcpy_htod(&[2_u32, 3], &mut back).unwrap();
    }
    assert_eq!(mock.calls("cuEventCreate"), 3);
    assert_eq!(stream.clone_dtoh(buffer.cuda_slice().unwrap().as_slice()).unwrap(), [7, 7, 7, 7, 0, 1, 2, 3]);
    assert_eq!(mock.calls("cuMemFreeAsync") + mock.calls("cuMemFree_v2"), 0);
    assert_eq!(mock.live(Live::Events), events);
    assert_eq!(allocator.memory_stats().allocation.all.current, 1);
}

#[test]
fn a_loan_to_another_stream_is_ordered_at_both_ends() {
    let (mock, cuda, allocator) = on_mock();
    let other = cuda.context().new_stream().unwrap();
    let handle = cuda.register_stream(&other).unwrap();
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let waits = mock.calls("cuStreamWaitEvent");

    let lent = buffer.cuda_on(&other).unwrap();
    assert_eq!(lent.stream().cu_stream(), other.cu_stream());
    assert_eq!(mock.calls("cuStreamWaitEvent"), waits + 1, "the borrower waits for what was written before");

    mock.hold_stream(0, handle);
    drop(lent);
    assert_eq!(mock.calls("cuStreamWaitEvent"), waits + 2, "the buffer's stream waits for the borrower");
    let home = cuda.record_event(Stream::DEFAULT).unwrap();
    assert!(!cuda.query_event(&home).unwrap(), "later work of the buffer's stream comes after the borrower's");
    mock.let_stream_go(0, handle);
    cuda.wait_event(&home).unwrap();
    cuda.release_event(home);
}

#[test]
fn a_stream_that_asks_for_the_pointer_by_itself_is_ordered_too() {
    let (mock, cuda, allocator) = on_mock();
    let other = cuda.context().new_stream().unwrap();
    let handle = cuda.register_stream(&other).unwrap();
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let lent = buffer.cuda().unwrap();
    {
        let (pointer, _used_until) = lent.device_ptr(&other);
        assert_eq!(pointer, buffer.address());
        mock.hold_stream(0, handle);
    }
    drop(lent);
    let home = cuda.record_event(Stream::DEFAULT).unwrap();
    assert!(!cuda.query_event(&home).unwrap());
    mock.let_stream_go(0, handle);
    cuda.wait_event(&home).unwrap();
    cuda.release_event(home);
}

#[test]
fn every_use_of_a_loan_comes_after_its_earlier_uses_on_other_streams() {
    let (mock, cuda, allocator) = on_mock();
    let home = cuda.default_stream();
    let [(second, second_handle), (third, third_handle)] = [(); 2].map(|()| registered_stream(&cuda));
    let mut buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let mut lent = buffer.cuda_mut().unwrap();
    {
        let (_pointer, _used_until) = lent.device_ptr_mut(&second);
        mock.hold_stream(0, second_handle);
    }
    drop(lent.device_ptr(&third));
    assert!(!is_done(&cuda, third_handle), "a third stream comes after the second");
    drop(lent.device_ptr(home));
    assert!(!is_done(&cuda, Stream::DEFAULT), "the loan's own stream comes after the second");
    drop(lent);
    mock.let_stream_go(0, second_handle);
    assert!(is_done(&cuda, third_handle) && is_done(&cuda, Stream::DEFAULT));
}

#[test]
fn a_loan_filled_on_one_stream_is_read_whole_on_another() {
    let (mock, cuda, allocator) = on_mock();
    let (other, handle) = registered_stream(&cuda);
    // Not a buffer of the same stream, whose loan would order that stream too.
    let source = other.clone_htod(&[1_u32, 2, 3]).unwrap();
    let mut target = Buffer::<u32>::zeros(&allocator, 3).unwrap();
    let mut lent = target.cuda_mut().unwrap();
    mock.hold_stream(0, handle);
    other.memcpy_dtod(&source, &mut lent).unwrap();
    let read = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            mock.let_stream_go(0, handle);
        });
        cuda.default_stream().clone_dtoh(&lent).unwrap()
    });
    assert_eq!(read, [1, 2, 3]);
}

#[test]
fn a_loan_keeps_one_event_for_each_stream_and_none_for_its_own() {
    let (mock, cuda, allocator) = on_mock();
    let streams: Vec<_> = (0..6).map(|_| registered_stream(&cuda).0).collect();
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let before = mock.live(Live::Events);
    let lent = buffer.cuda().unwrap();
    for _ in 0..3 {
        drop(lent.device_ptr(cuda.default_stream()));
        assert_eq!(mock.live(Live::Events), before);
    }
    for _ in 0..3 {
        drop(lent.device_ptr(&streams[0]));
        assert_eq!(mock.live(Live::Events), before + 1);
    }
    // Beyond four streams the host waits, so that a loan stays small.
    let waits = mock.calls("cuStreamSynchronize");
    for stream in &streams {
        drop(lent.device_ptr(stream));
    }
    assert_eq!((mock.live(Live::Events), mock.calls("cuStreamSynchronize")), (before + 4, waits + 2));
    drop(lent);
    assert_eq!(mock.live(Live::Events), before);
}

#[test]
fn a_loan_is_refused_to_streams_of_other_contexts_and_to_the_per_thread_stream() {
    let (mock, cuda, allocator) = on_mock();
    mock.set_device_count(2);
    let elsewhere = Cuda::new(1).unwrap();
    let mut buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    // Default streams have the same handle in every context.
    let foreign = [elsewhere.default_stream().clone(), elsewhere.context().new_stream().unwrap()];
    let reasons = [("another context", foreign.to_vec()), ("new_stream", vec![cuda.context().per_thread_stream()])];
    for (reason, streams) in reasons {
        for stream in streams {
            for refused in [buffer.cuda_on(&stream).map(drop), buffer.cuda_mut_on(&stream).map(drop)] {
                let error = refused.unwrap_err();
                let is_typed = matches!(error, AllocationError::Device(DeviceError::InvalidStream { .. }));
                assert!(is_typed && error.to_string().contains(reason), "{error}");
            }
        }
    }
}

#[test]
fn another_devices_stream_that_asks_for_the_pointer_is_ordered() {
    let (mock, cuda, allocator) = on_mock();
    mock.set_device_count(2);
    let elsewhere = Cuda::new(1).unwrap();
    // Without a second stream cudarc would record no events there.
    let _second = elsewhere.context().new_stream().unwrap();
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    mock.hold_stream(0, Stream::DEFAULT);
    let lent = buffer.cuda().unwrap();
    {
        let (_pointer, _used_until) = lent.device_ptr(elsewhere.default_stream());
        assert!(!is_done(&elsewhere, Stream::DEFAULT), "it comes after what was written before");
    }
    mock.hold_stream(1, Stream::DEFAULT);
    drop(lent);
    mock.let_stream_go(0, Stream::DEFAULT);
    assert!(!is_done(&cuda, Stream::DEFAULT), "the buffer's stream comes after it");
    mock.let_stream_go(1, Stream::DEFAULT);
    assert!(is_done(&cuda, Stream::DEFAULT));
}

#[test]
fn a_per_thread_stream_that_asks_for_the_pointer_is_waited_for() {
    let (mock, cuda, allocator) = on_mock();
    let _second = cuda.context().new_stream().unwrap();
    let per_thread = cuda.context().per_thread_stream();
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let lent = buffer.cuda().unwrap();
    let waits = mock.calls("cuStreamSynchronize");
    let (_, used_until) = lent.device_ptr(&per_thread);
    assert!(matches!(used_until, SyncOnDrop::Sync(Some(_))));
    drop(used_until);
    assert_eq!(mock.calls("cuStreamSynchronize"), waits + 1);
}

#[test]
fn an_error_left_on_the_context_disturbs_no_order_and_is_not_lost() {
    let (mock, cuda, allocator) = on_mock();
    let (other, handle) = registered_stream(&cuda);
    let (third, third_handle) = registered_stream(&cuda);
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let stale = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    mock.hold_stream(0, handle);
    cuda.context().record_err::<()>(Err(stale));
    let lent = buffer.cuda_on(&other).unwrap();
    drop(lent.device_ptr(&third));
    assert!(!is_done(&cuda, third_handle));
    mock.let_stream_go(0, handle);
    drop(lent);
    mock.hold_stream(0, handle);
    drop(buffer.cuda_on(&other).unwrap());
    assert!(!is_done(&cuda, Stream::DEFAULT));
    assert_eq!(cuda.context().check_err(), Err(stale));
    mock.let_stream_go(0, handle);
}

#[test]
fn where_the_driver_orders_no_streams_the_host_waits() {
    let (mock, cuda, allocator) = on_mock();
    let (other, _) = registered_stream(&cuda);
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let lent = buffer.cuda().unwrap();
    let waits = mock.calls("cuStreamSynchronize");
    mock.fail("cuStreamWaitEvent", 0, 719);
    drop(lent.device_ptr(&other));
    assert_eq!(mock.calls("cuStreamSynchronize"), waits + 1, "for the loan's stream");
    mock.fail("cuStreamWaitEvent", 0, 719);
    drop(lent.device_ptr(cuda.default_stream()));
    assert_eq!(mock.calls("cuEventSynchronize"), 1, "for the other stream's use");
    drop(lent);
    let lent = buffer.cuda_on(&other).unwrap();
    mock.fail("cuStreamWaitEvent", 0, 719);
    drop(lent);
    assert_eq!(mock.calls("cuStreamSynchronize"), waits + 2, "for the borrower");
    assert_eq!(mock.pending_failures(), 0);
}

#[test]
fn a_forgotten_loan_that_was_announced_keeps_the_memory_out_of_use() {
    let (mock, cuda, allocator) = on_mock();
    let (other, handle) = registered_stream(&cuda);
    let mut buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let address = buffer.address();
    mock.hold_stream(0, handle);
    buffer.record_stream(handle).unwrap();
    std::mem::forget(buffer.cuda_mut_on(&other).unwrap());
    drop(buffer);
    assert_ne!(Buffer::<u32>::uninit(&allocator, 8).unwrap().address(), address);
    mock.let_stream_go(0, handle);
    assert_eq!(Buffer::<u32>::uninit(&allocator, 8).unwrap().address(), address);
}

#[test]
fn a_copy_between_streams_comes_after_the_source_and_before_its_later_use() {
    let (mock, cuda, allocator) = on_mock();
    let other = cuda.context().new_stream().unwrap();
    let handle = cuda.register_stream(&other).unwrap();
    let source = Buffer::from_slice(&allocator, &[1_u32, 2, 3]).unwrap();
    let mut target = Buffer::<u32>::zeros_on(&allocator, handle, 3).unwrap();
    mock.hold_stream(0, handle);
    target.copy_from(&source).unwrap();
    let home = cuda.record_event(Stream::DEFAULT).unwrap();
    assert!(!cuda.query_event(&home).unwrap(), "what the source's stream does next comes after the copy");
    mock.let_stream_go(0, handle);
    cuda.wait_event(&home).unwrap();
    cuda.release_event(home);
    assert_eq!(target.to_vec().unwrap(), [1, 2, 3]);

    mock.fail("cuStreamWaitEvent", 1, 719);
    assert!(target.copy_from(&source).is_err(), "the order behind the copy fails");
    drop(source);
    assert_eq!(allocator.memory_stats().active.all.current, 2, "so the source's free waits for the other stream");
    assert_eq!(mock.pending_failures(), 0);
}

#[test]
fn memory_another_stream_still_uses_is_not_handed_out_again() {
    let (mock, cuda, allocator) = on_mock();
    let other = cuda.context().new_stream().unwrap();
    let handle = cuda.register_stream(&other).unwrap();
    mock.hold_stream(0, handle);
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let address = buffer.address();
    buffer.record_stream(handle).unwrap();
    drop(buffer);
    let stats = allocator.memory_stats();
    assert_eq!((stats.allocation.all.current, stats.active.all.current), (0, 1));
    assert_ne!(Buffer::<u32>::uninit(&allocator, 8).unwrap().address(), address);
    mock.let_stream_go(0, handle);
    assert_eq!(Buffer::<u32>::uninit(&allocator, 8).unwrap().address(), address);
}

#[test]
fn a_broken_driver_refuses_the_loan_and_nothing_panics() {
    let (mock, cuda, allocator) = on_mock();
    let other = cuda.context().new_stream().unwrap();
    let mut buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    mock.fail("cuEventCreate", 0, 719);
    assert!(matches!(buffer.cuda_slice_mut(), Err(AllocationError::Device(_))));
    mock.fail("cuStreamWaitEvent", 0, 719);
    assert!(matches!(buffer.cuda_on(&other), Err(AllocationError::Device(_))));
    assert_eq!(mock.pending_failures(), 0);
    assert_eq!(buffer.to_vec().unwrap(), vec![0; 8]);
}

#[test]
fn an_unknown_stream_and_another_devices_memory_are_refused() {
    let (_mock, _cuda, allocator) = on_mock();
    assert!(matches!(Buffer::<u32>::uninit_on(&allocator, Stream(77), 8), Err(AllocationError::Device(_))));
    let mut buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let on_host = CachingAllocator::new(Arc::new(Host::new()));
    let elsewhere = Buffer::<u32>::zeros(&on_host, 8).unwrap();
    assert!(matches!(buffer.copy_from(&elsewhere), Err(AllocationError::NoAccess { .. })));
    assert!(matches!(elsewhere.cuda(), Err(AllocationError::NoAccess { .. })));
}

#[test]
fn everything_goes_back_to_the_driver_in_any_order_of_drops() {
    let (mock, cuda, allocator) = on_mock();
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let large = Buffer::<u8>::zeros(&allocator, 30 << 20).unwrap();
    drop((cuda, allocator));
    drop(large);
    assert_eq!(buffer.to_vec().unwrap(), vec![0; 8]);
    drop(buffer);
    assert_eq!(mock.live_memory(), []);
    assert_eq!(mock.used_bytes(0), 0);
}

/// Compiles only if lent buffers are kernel arguments, read and written.
#[expect(dead_code, reason = "the mock driver has no kernels to launch; the training example launches them on a GPU")]
fn lent_buffers_are_kernel_arguments<'a>(
    launch: &mut LaunchArgs<'a>,
    input: &'a CudaRef<'_, f32>,
    output: &'a mut CudaRefMut<'_, f32>,
) {
    launch.arg(input).arg(output);
}

/// With an error on the context, cudarc neither records the end of a use nor waits for it.
#[test]
fn loans_that_end_while_an_error_is_on_the_context_wait_for_their_uses() {
    let stale = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    for is_slice in [false, true] {
        let (mock, cuda, allocator) = on_mock();
        let (third, handle) = registered_stream(&cuda);
        let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let end_loan: Box<dyn FnOnce()> = if is_slice {
                let lent = buffer.cuda_slice().unwrap();
                mock.hold_stream(0, handle);
                drop(lent.as_slice().device_ptr(&third));
                cuda.context().record_err::<()>(Err(stale));
                Box::new(|| drop(lent))
            } else {
                let lent = buffer.cuda().unwrap();
                let (_, until) = lent.device_ptr(&third);
                mock.hold_stream(0, handle);
                cuda.context().record_err::<()>(Err(stale));
                drop(until);
                Box::new(|| drop(lent))
            };
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                is_over.store(true, Ordering::SeqCst);
                mock.let_stream_go(0, handle);
            });
            end_loan();
            let waited = is_over.load(Ordering::SeqCst) || !is_done(&cuda, Stream::DEFAULT);
            assert!(waited, "slice {is_slice}: the buffer's stream is not behind the use");
        });
        assert_eq!(cuda.context().check_err(), Err(stale), "slice {is_slice}: the error is still its owner's");
    }
}

#[test]
fn a_slice_is_lent_whatever_error_others_left_on_the_context() {
    let (_mock, cuda, allocator) = on_mock();
    let buffer = Buffer::<u32>::zeros(&allocator, 8).unwrap();
    let stale = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    cuda.context().record_err::<()>(Err(stale));
    drop(buffer.cuda_slice().unwrap());
    assert_eq!(cuda.context().check_err(), Err(stale));
}
