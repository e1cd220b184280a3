//! The driver's memory pools as a source: real cudarc on the mock driver, in a program without an allocator of memtrack's.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test whose mock refuses can only stop")]

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, result, sys};
use memtrack::device::DeviceError;
use memtrack::scope::Outcome;
use memtrack::source::{CudaPoolSource, PeakKind, SourceError, register_source};
use memtrack::track_memory;
use memtrack_tests::mock::Mock;
use memtrack_tests::sources::turn;
use memtrack_tests::spans::Spans;

const MIB: usize = 1 << 20;

#[track_memory(phase = "forward")]
fn forward(stream: &Arc<CudaStream>) -> CudaSlice<u8> {
    let activations = layer(stream);
    // A temporary of 10 MiB, gone when the function returns.
    drop(stream.alloc_zeros::<u8>(10 * MIB).unwrap());
    activations
}

#[track_memory]
fn layer(stream: &Arc<CudaStream>) -> CudaSlice<u8> {
    drop(stream.alloc_zeros::<u8>(30 * MIB).unwrap());
    stream.alloc_zeros::<u8>(3 * MIB).unwrap()
}

#[track_memory(phase = "backward")]
fn backward(activations: CudaSlice<u8>) {
    drop(activations);
}

fn mebibytes(count: i64) -> i64 {
    count << 20
}

#[test]
fn records_of_a_program_that_allocates_by_cudarc_equal_what_it_did() {
    let _turn = turn();
    let _mock = Mock::exclusive();
    let (spans, _installed) = Spans::install();
    let _registered = register_source(Arc::new(CudaPoolSource::current(0).unwrap())).unwrap();
    let stream = CudaContext::new(0).unwrap().default_stream();
    let weights = stream.alloc_zeros::<f32>(MIB).unwrap();
    let epoch = memtrack::epoch(1);
    for number in 0..2 {
        let _step = memtrack::step(number);
        let activations = forward(&stream);
        backward(activations);
    }
    let summary = epoch.finish().unwrap();
    drop(weights);
    let all = spans.all();
    let figures: Vec<_> = all
        .iter()
        .map(|span| (span.name, span.number("mem.before"), span.number("mem.after"), span.number("mem.peak")))
        .collect();
    let step = [
        ("forward", mebibytes(4), mebibytes(7), mebibytes(34)),
        ("layer", mebibytes(4), mebibytes(7), mebibytes(34)),
        ("backward", mebibytes(7), mebibytes(4), mebibytes(7)),
    ];
    assert_eq!(figures, [step, step].concat());
    assert!(all.iter().all(|span| span.text("mem.device") == "cuda:0 pool"));
    let source = &summary.sources[0];
    assert_eq!((source.epoch.before_bytes, source.epoch.after_bytes), (Some(mebibytes(4)), Some(mebibytes(4))));
    assert_eq!((source.epoch.peak_bytes, source.epoch.peak_kind), (Some(mebibytes(34)), PeakKind::Exact));
    assert_eq!(source.epoch.reserved_peak_bytes, Some(mebibytes(64)));
    let phases: Vec<_> = source
        .phases
        .iter()
        .map(|phase| (phase.name, phase.entered_count, phase.net_bytes, phase.peak_bytes))
        .collect();
    assert_eq!(
        phases,
        [
            ("forward", 2, Some(mebibytes(6)), Some(mebibytes(34))),
            ("backward", 2, Some(mebibytes(-6)), Some(mebibytes(7))),
        ]
    );
}

#[test]
fn a_driver_that_refuses_leaves_figures_out_and_the_program_alone() {
    let _turn = turn();
    let mock = Mock::exclusive();
    let _registered = register_source(Arc::new(CudaPoolSource::default_pool(0).unwrap())).unwrap();
    let outer = memtrack::scope("outer").unwrap();
    let stream = CudaContext::new(0).unwrap().default_stream();
    drop(stream.alloc_zeros::<u8>(MIB).unwrap());
    mock.fail("cuMemPoolGetAttribute", 0, 999);
    let blind = memtrack::scope("blind").unwrap();
    drop(stream.alloc_zeros::<u8>(1).unwrap());
    let blind = blind.close(Outcome::Ok).sources.remove(0);
    let outer = outer.close(Outcome::Ok).sources.remove(0);
    assert!(
        matches!(&blind.failure, Some(SourceError::Device(DeviceError::Driver { call: "cuMemPoolGetAttribute", .. }))),
        "{blind:?}"
    );
    assert_eq!((outer.peak_bytes, &*outer.name, outer.device), (Some(mebibytes(1)), "cuda:0 default pool", Some(0)));
}

#[test]
fn somebody_who_resets_the_mark_of_the_pool_is_noticed() {
    let _turn = turn();
    let _mock = Mock::exclusive();
    let _registered = register_source(Arc::new(CudaPoolSource::current(0).unwrap())).unwrap();
    let stream = CudaContext::new(0).unwrap().default_stream();
    let weights = stream.alloc_zeros::<u8>(MIB).unwrap();
    let scope = memtrack::scope("work").unwrap();
    drop(weights);
    let pool = default_pool();
    let mut zero = 0_u64;
    let high = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    // SAFETY: the device's pool, and a number of 64 bits for an attribute of as many.
    unsafe { result::mem_pool::set_attribute(pool, high, (&raw mut zero).cast()) }.unwrap();
    let source = scope.close(Outcome::Ok).sources.remove(0);
    assert_eq!((source.peak_kind, source.after_bytes), (PeakKind::ResetElsewhere, Some(0)));
}

/// The device whose context is current on this thread.
fn current_device() -> Option<i32> {
    let mut device = -1;
    // SAFETY: a place for one number.
    unsafe { sys::cuCtxGetDevice(&raw mut device) }.result().ok().map(|()| device)
}

#[test]
fn the_context_that_is_current_stays_so() {
    let _turn = turn();
    let mock = Mock::exclusive();
    mock.set_device_count(2);
    let other = CudaContext::new(1).unwrap();
    other.bind_to_thread().unwrap();
    let source = CudaPoolSource::current(0).unwrap();
    assert_eq!(current_device(), Some(1), "opening");
    let _registered = register_source(Arc::new(source)).unwrap();
    assert_eq!(current_device(), Some(1), "registering");
    let opened = memtrack::scope("work").unwrap();
    assert_eq!(current_device(), Some(1), "a scope's beginning");
    assert!(opened.close(Outcome::Ok).sources[0].failure.is_none());
    assert_eq!(current_device(), Some(1), "its end");
    let without = std::thread::spawn(|| {
        let record = memtrack::scope("elsewhere").unwrap().close(Outcome::Ok);
        (record.sources[0].failure.clone(), current_device())
    });
    assert_eq!(without.join().unwrap(), (None, None), "a thread without any");
}

#[test]
fn two_sources_of_one_pool_each_have_its_peaks() {
    let _turn = turn();
    let _mock = Mock::exclusive();
    let _current = register_source(Arc::new(CudaPoolSource::current(0).unwrap())).unwrap();
    let _default = register_source(Arc::new(CudaPoolSource::default_pool(0).unwrap())).unwrap();
    let stream = CudaContext::new(0).unwrap().default_stream();
    let opened = memtrack::scope("work").unwrap();
    drop(stream.alloc_zeros::<u8>(100 * MIB).unwrap());
    let record = opened.close(Outcome::Ok);
    let told: Vec<_> = record.sources.iter().map(|source| (source.peak_bytes, source.peak_kind)).collect();
    assert_eq!(told, [(Some(mebibytes(100)), PeakKind::Exact); 2]);
}

fn default_pool() -> sys::CUmemoryPool {
    let device = result::device::get(0).unwrap();
    // SAFETY: a device that the driver gave.
    unsafe { result::device::get_default_mem_pool(device) }.unwrap()
}

#[test]
fn a_current_pool_that_is_replaced_ends_open_figures_and_is_measured_from_then_on() {
    let _turn = turn();
    let _mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    let registered = register_source(Arc::new(CudaPoolSource::current(0).unwrap())).unwrap();
    let stream = context.default_stream();
    let outer = memtrack::scope("outer").unwrap();
    let own = own_pool();
    // SAFETY: a live pool of this device.
    unsafe { result::device::set_mem_pool(context.cu_device(), own) }.unwrap();
    let inner = memtrack::scope("inner").unwrap();
    let slice = stream.alloc_zeros::<u8>(MIB).unwrap();
    let inner = inner.close(Outcome::Ok).sources.remove(0);
    let outer = outer.close(Outcome::Ok).sources.remove(0);
    assert_eq!((inner.delta_bytes(), &inner.failure), (Some(mebibytes(1)), &None));
    assert_eq!(outer.failure, Some(SourceError::PoolReplaced { device: "cuda:0".to_owned() }));
    drop(registered);
    // By its handle it is the same.
    // SAFETY: the pool lives to the end of this test.
    let source = unsafe { CudaPoolSource::from_handle(0, own as u64) }.unwrap().with_name("own");
    let registered = register_source(Arc::new(source)).unwrap();
    let record = memtrack::scope("by handle").unwrap().close(Outcome::Ok);
    assert_eq!((record.device.as_str(), record.before_bytes), ("own", mebibytes(1)));
    drop(slice);
    // SAFETY: a live pool of this device's, and then one that nothing is left in.
    unsafe { result::device::set_mem_pool(context.cu_device(), default_pool()) }.unwrap();
    drop(registered);
    // SAFETY: as above; the source that read it is gone.
    unsafe { result::mem_pool::destroy(own) }.unwrap();
}

/// A pool of the program's own.
fn own_pool() -> sys::CUmemoryPool {
    // SAFETY: numbers and a null pointer.
    let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let mut pool = std::ptr::null_mut();
    // SAFETY: a place for one handle, and properties of device 0.
    unsafe { sys::cuMemPoolCreate(&raw mut pool, &raw const properties) }.result().unwrap();
    pool
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let _turn = turn();
    let _mock = Mock::exclusive();
    let error = CudaPoolSource::current(7).unwrap_err();
    assert!(matches!(error, SourceError::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("cuda:7"), "{error}");
}
