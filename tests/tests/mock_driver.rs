//! The mock driver itself, through cudarc's own objects and by its error numbers: tests that lean on it are worth what it
//! is worth.
#![cfg(target_os = "linux")]

use memtrack_tests::unused::UnmapUnused as _;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUmemPool_attribute_enum as Attribute};
use cudarc::driver::{CudaContext, DriverError, result};
use memtrack_tests::mock::{Live, Mock};

const MIB: usize = 1 << 20;

fn code(answer: Result<(), DriverError>) -> u32 {
    answer.err().map_or(0, |error| error.0 as u32)
}

fn attribute(pool: sys::CUmemoryPool, attribute: Attribute) -> u64 {
    let mut value = 0_u64;
    // SAFETY: a live pool, and a place for the 64 bits of the attributes asked for here.
    let answer = unsafe { result::mem_pool::get_attribute(pool, attribute, (&raw mut value).cast()) };
    assert_eq!(answer, Ok(()), "{attribute:?}");
    value
}

#[test]
fn cudarcs_slices_streams_and_events_work_on_it() {
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    assert!(context.has_async_alloc());
    let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let numbers: Vec<u32> = (0..1000).collect();
    let slice = first.clone_htod(&numbers).unwrap();
    let copy = second.clone_dtod(&slice).unwrap();
    let mut zeroed = first.alloc_zeros::<u32>(1000).unwrap();
    assert_eq!(second.clone_dtoh(&copy).unwrap(), numbers);
    assert_eq!(first.clone_dtoh(&zeroed).unwrap(), vec![0; 1000]);
    first.memcpy_dtod(&copy, &mut zeroed).unwrap();
    assert_eq!(first.clone_dtoh(&zeroed).unwrap(), numbers);
    assert_eq!(mock.live(Live::PoolAllocations), 3);
    drop((slice, copy, zeroed));
    context.synchronize().unwrap();
    context.check_err().unwrap();
    drop((first, second, context));
    assert_eq!(mock.live_memory(), []);
    let left = [Live::Events, Live::Streams, Live::Contexts, Live::HostMemory].map(|kind| mock.live(kind));
    assert_eq!(left, [0; 4]);
}

#[test]
fn a_pools_counters_move_as_on_an_h200() {
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    let stream = context.default_stream();
    // SAFETY: device 0 exists.
    let pool = unsafe { result::device::get_default_mem_pool(context.cu_device()) }.unwrap();
    let read = || {
        [
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
        ]
        .map(|name| attribute(pool, name))
    };
    let mib = |number: usize| (number * MIB) as u64;
    assert_eq!(read(), [0; 4]);

    // SAFETY: each address here is freed once, on the stream it came from.
    let small = unsafe { result::malloc_async(stream.cu_stream(), 1000) }.unwrap();
    assert_eq!(read(), [1000, 1000, mib(32), mib(32)]);
    // SAFETY: as above.
    let large = unsafe { result::malloc_async(stream.cu_stream(), 40 * MIB) }.unwrap();
    assert_eq!(read(), [1000 + mib(40), 1000 + mib(40), mib(64), mib(64)]);
    assert_eq!(mock.used_bytes(0), mib(64));

    // Used falls at the call, reserved at the synchronisation.
    // SAFETY: as above.
    unsafe { result::free_async(large, stream.cu_stream()) }.unwrap();
    assert_eq!(read(), [1000, 1000 + mib(40), mib(64), mib(64)]);
    stream.synchronize().unwrap();
    assert_eq!(read(), [1000, 1000 + mib(40), mib(32), mib(64)]);

    // A refused attempt counts in the high mark, and does not stick.
    mock.set_capacity(0, mib(64));
    // SAFETY: as above; the answer is an error.
    assert_eq!(code(unsafe { result::malloc_async(stream.cu_stream(), 100 * MIB) }.map(drop)), 2);
    assert_eq!(read(), [1000, 1000 + mib(40), mib(32), mib(128)]);
    // SAFETY: no bytes: a null address, which may be freed.
    assert_eq!(unsafe { result::malloc_async(stream.cu_stream(), 0) }, Ok(0));

    // A reset sets the high marks to what is current.
    let mut zero = 0_u64;
    for name in [Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH] {
        // SAFETY: a live pool and 64 bits.
        unsafe { result::mem_pool::set_attribute(pool, name, (&raw mut zero).cast()) }.unwrap();
    }
    assert_eq!(read(), [1000, 1000, mib(32), mib(32)]);

    // A release threshold keeps memory over a synchronisation; trimming gives it back.
    let mut threshold = u64::MAX;
    let name = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: a live pool and 64 bits.
    unsafe { result::mem_pool::set_attribute(pool, name, (&raw mut threshold).cast()) }.unwrap();
    // SAFETY: as above.
    unsafe { result::free_async(small, stream.cu_stream()) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(read()[2], mib(32));
    // SAFETY: a live pool.
    unsafe { result::mem_pool::trim_to(pool, 0) }.unwrap();
    assert_eq!((read()[2], mock.used_bytes(0)), (0, 0));
}

#[test]
fn a_devices_pool_can_be_replaced() {
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    let stream = context.default_stream();
    // `CUmemPoolProps`: pinned, no handle types, on a device, number 0; the rest is zero.
    let mut properties = [0_u32; 32];
    (properties[0], properties[2]) = (1, 1);
    let mut own = std::ptr::null_mut();
    // SAFETY: a place for a handle, and properties as long as the driver's.
    unsafe { sys::cuMemPoolCreate(&raw mut own, properties.as_ptr().cast()) }.result().unwrap();
    // SAFETY: device 0 and a live pool.
    unsafe { result::device::set_mem_pool(context.cu_device(), own) }.unwrap();
    let slice = stream.alloc_zeros::<u8>(5000).unwrap();
    assert_eq!(attribute(own, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 5000);
    // SAFETY: device 0 exists.
    let default = unsafe { result::device::get_default_mem_pool(context.cu_device()) }.unwrap();
    assert_eq!(attribute(default, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    // A destroyed pool lives on until its last allocation goes.
    // SAFETY: a live pool, not used afterwards.
    unsafe { result::mem_pool::destroy(own) }.unwrap();
    assert!(mock.used_bytes(0) > 0);
    drop(slice);
    assert_eq!(mock.used_bytes(0), 0);
}

#[test]
fn misuse_gets_the_drivers_own_numbers() {
    let _mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    // On a thread that never had a context.
    let bare = std::thread::spawn(|| {
        // SAFETY: the answer is an error.
        code(unsafe { result::malloc_sync(100) }.map(drop))
    });
    assert_eq!(bare.join().unwrap(), 201, "no context");
    // SAFETY: the size is refused.
    assert_eq!(code(unsafe { result::malloc_sync(0) }.map(drop)), 1, "no bytes");
    // SAFETY: the address is freed below.
    let address = unsafe { result::malloc_sync(4 * MIB) }.unwrap();
    // SAFETY: the mock checks what it is given, here and below.
    assert_eq!(code(unsafe { result::free_sync(address + 512) }), 1, "inside a segment");
    // SAFETY: as above.
    let past_the_end = unsafe { sys::cuMemsetD8_v2(address + 4 * MIB as u64 - 1, 0, 2) };
    assert_eq!(code(past_the_end.result()), 1, "past the end");
    // SAFETY: as above.
    unsafe { result::free_sync(address) }.unwrap();
    // SAFETY: as above.
    assert_eq!(code(unsafe { result::free_sync(address) }), 1, "twice");
    // SAFETY: as above.
    assert_eq!(code(unsafe { sys::cuMemsetD8_v2(address, 0, 1) }.result()), 1, "after the free");
    // SAFETY: as above.
    assert_eq!(code(unsafe { sys::cuMemRelease(77) }.result()), 1, "no physical memory");
    // SAFETY: as above.
    assert_eq!(code(unsafe { result::event::query(std::ptr::without_provenance_mut(8)) }), 400, "no event");
    // SAFETY: as above.
    assert_eq!(code(unsafe { result::stream::synchronize(std::ptr::without_provenance_mut(8)) }), 400, "no stream");
    // SAFETY: as above.
    assert_eq!(code(result::device::get(9).map(drop)), 101, "no device");
    drop(context);
}

#[test]
fn memory_mapped_without_access_cannot_be_touched() {
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    let piece = 2 * MIB;
    let (mut range, mut handle) = (0, 0);
    // `CUmemAllocationProp`: pinned, no handle types, on a device, number 0; the rest is zero.
    let mut properties = [0_u32; 8];
    (properties[0], properties[2]) = (1, 1);
    // SAFETY: places for the answers, properties as long as the driver's; the mock checks the rest.
    let touch = unsafe {
        sys::cuMemAddressReserve(&raw mut range, piece, 0, 0, 0).result().unwrap();
        sys::cuMemCreate(&raw mut handle, piece, properties.as_ptr().cast(), 0).result().unwrap();
        let unmapped = code(sys::cuMemsetD8_v2(range, 0, 1).result());
        sys::cuMemMap(range, piece, 0, handle, 0).result().unwrap();
        (unmapped, code(sys::cuMemsetD8_v2(range, 0, 1).result()))
    };
    assert_eq!(touch, (1, 1), "before the mapping and before the access");
    assert_eq!((mock.live(Live::Mappings), mock.used_bytes(0)), (1, piece as u64));
    // SAFETY: as above.
    unsafe {
        assert_eq!(code(sys::cuMemAddressFree(range, piece).result()), 1, "still mapped");
        sys::cuMemUnmap(range, piece).result().unwrap();
        sys::cuMemRelease(handle).result().unwrap();
        sys::cuMemAddressFree(range, piece).result().unwrap();
    }
    assert_eq!((mock.live_memory(), mock.used_bytes(0)), (vec![], 0));
    drop(context);
}

#[test]
fn memory_unmapped_under_queued_work_breaks_the_context() {
    let mock = Mock::exclusive();
    let device = memtrack::device::Cuda::new(0).unwrap();
    let context = Arc::clone(device.context());
    let memory = memtrack::device::Device::virtual_memory(&device).unwrap();
    let bytes = memory.granularity_bytes();
    let range = memory.reserve(bytes).unwrap();
    let piece = memory.create(bytes).unwrap();
    memory.map(range, piece).unwrap();
    mock.hold_stream(0, memtrack::device::Stream::DEFAULT);
    // SAFETY: the range is mapped when the work is queued; that it is not when the work is done is the point.
    unsafe { memtrack::device::Device::fill(&device, range, 1, bytes, memtrack::device::Stream::DEFAULT) }.unwrap();
    memory.unmap_unused(range, bytes).unwrap();
    mock.let_stream_go(0, memtrack::device::Stream::DEFAULT);
    assert_eq!(code(context.synchronize()), 700);
    mock.break_context(0, 0);
}

#[test]
fn a_capture_forbids_by_its_mode_and_the_threads() {
    use sys::CUstreamCaptureMode as Mode;
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: the stream is alive; the mock checks the rest, here and below.
    let begin = |mode| code(unsafe { result::stream::begin_capture(stream.cu_stream(), mode) });
    let end = || {
        context.bind_to_thread().unwrap();
        let mut graph = std::ptr::null_mut();
        // SAFETY: as above; a place for a handle.
        let answer = code(unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph) }.result());
        if answer == 0 {
            // SAFETY: made in the line above.
            unsafe { result::graph::destroy(graph) }.unwrap();
        }
        answer
    };
    let allocate = || {
        context.bind_to_thread().unwrap();
        // SAFETY: freed at once.
        code(unsafe { result::malloc_sync(512) }.and_then(|address| unsafe { result::free_sync(address) }))
    };
    let elsewhere = |call: &(dyn Fn() -> u32 + Sync)| std::thread::scope(|scope| scope.spawn(call).join().unwrap());

    assert_eq!(end(), 401, "nothing to end");
    // SAFETY: as above.
    let of_default =
        unsafe { result::stream::begin_capture(std::ptr::null_mut(), Mode::CU_STREAM_CAPTURE_MODE_RELAXED) };
    assert_eq!(code(of_default), 900, "the default stream");
    for (mode, own, others) in [
        (Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, 900, 900),
        (Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 900, 0),
        (Mode::CU_STREAM_CAPTURE_MODE_RELAXED, 0, 0),
    ] {
        let ended = |answer| if answer == 0 { 0 } else { 901 };
        assert_eq!(begin(mode), 0, "{mode:?}");
        assert_eq!(begin(mode), 401, "{mode:?}, twice");
        assert_eq!((allocate(), end()), (own, ended(own)), "{mode:?}, by its own thread");
        assert_eq!(begin(mode), 0, "{mode:?}");
        assert_eq!((elsewhere(&allocate), end()), (others, ended(others)), "{mode:?}, by another");
        assert_eq!(begin(mode), 0, "{mode:?}");
        let by_another = elsewhere(&end);
        assert_eq!(by_another, if mode == Mode::CU_STREAM_CAPTURE_MODE_RELAXED { 0 } else { 908 }, "{mode:?}");
        assert_eq!(end(), if by_another == 0 { 401 } else { 0 }, "{mode:?}");
    }
    assert_eq!((mock.live(Live::Graphs), mock.live(Live::Segments)), (0, 0));
}

#[test]
fn a_graph_holds_what_was_captured_in_its_order() {
    use memtrack::device::{Cuda, Device as _, Stream};
    use memtrack_tests::captured_stream::capture;
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let streams = [(); 3].map(|()| device.context().new_stream().unwrap());
    let [first, second, third] = streams.each_ref().map(|stream| device.register_stream(stream).unwrap());
    let address = device.allocate(512).unwrap();
    let fill = |value, stream| {
        // SAFETY: the segment of the line above; its work is ordered by events, or waited for.
        unsafe { memtrack::device::Device::fill(&device, address, value, 512, stream) }.unwrap();
    };
    let read = || {
        let mut byte = [0];
        // SAFETY: likewise.
        unsafe { memtrack::device::Device::read(&device, address, &mut byte, first) }.unwrap();
        byte[0]
    };
    let wait = |stream: Stream, other: Stream| {
        let event = device.record_event(other).unwrap();
        let answer = device.stream_wait_event(stream, &event);
        device.release_event(event);
        answer
    };
    fill(9, first);
    device.synchronize().unwrap();

    let capturing = capture(&streams[0]).unwrap();
    fill(1, first);
    wait(second, first).unwrap();
    fill(2, second);
    wait(first, second).unwrap();
    fill(3, first);
    let graph = capturing.into_graph().unwrap();
    assert_eq!(read(), 9, "captured, not done");
    for value in [7, 8] {
        fill(value, first);
        graph.launch().unwrap();
        assert_eq!(read(), 3);
    }
    assert_eq!(mock.live(Live::Graphs), 2, "the graph, and what is launched of it");
    drop(graph);
    assert_eq!(mock.live(Live::Graphs), 0);

    let capturing = capture(&streams[0]).unwrap();
    fill(1, first);
    wait(second, first).unwrap();
    fill(2, second);
    assert_eq!(code(capturing.end()), 904, "work of the other stream is not joined");

    fill(4, third);
    let capturing = capture(&streams[0]).unwrap();
    wait(first, third).unwrap_err();
    assert_eq!(code(capturing.end()), 901, "a graph cannot wait for work that is not in it");
    assert_eq!(mock.live(Live::Graphs), 0);
    device.synchronize().unwrap();
    drop(device);
    assert_eq!(mock.live_memory(), []);
}
