//! What is done under `MEMTRACK_PRELOAD=cache`; some of it under `observe` too, to compare.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaStream, result, sys};
use libloading::os::unix::Library;
use memtrack::device::Stream;
use memtrack_tests::mock::Mock;

use crate::driver::{MIB, alloc, alloc_async, free, free_async, print_calls, stream_of};

pub(crate) fn run(name: &str) -> bool {
    match name {
        "training" => training(),
        "reuse" => reuse(),
        "foreign-free" => foreign_free(),
        "waiting-free" => waiting_free(),
        "per-thread" => per_thread(),
        "out-of-memory" => out_of_memory(),
        "unknown" => unknown(),
        "capture" => capture(),
        "capture-elsewhere" => capture_elsewhere(),
        "unseen-capture" => unseen_capture(),
        "second-context" => second_context(),
        "second-context-first" => second_context_first(),
        "free-on-other-device" => free_on_other_device(),
        "threads-and-streams" => threads_and_streams(),
        "compact-destroyed-stream" => compact_destroyed_stream(),
        "devices" => devices(),
        "destroyed-stream" => destroyed_stream(),
        "reset" => reset(),
        _ => return false,
    }
    true
}

fn begin() -> (Mock, Arc<CudaContext>) {
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    (mock, context)
}

fn handle(stream: &CudaStream) -> u64 {
    stream.cu_stream().addr() as u64
}

fn fill(address: u64, value: u8, bytes: usize, stream: u64) {
    // SAFETY: memory of this program's, and a stream that is alive.
    unsafe { result::memset_d8_async(address, value, bytes, stream_of(stream)) }.unwrap();
}

fn read(address: u64, bytes: usize, stream: u64) -> Vec<u8> {
    let mut read = vec![0; bytes];
    // SAFETY: likewise; waited for in the next line.
    unsafe { result::memcpy_dtoh_async(&mut read, address, stream_of(stream)) }.unwrap();
    // SAFETY: a stream that is alive.
    unsafe { result::stream::synchronize(stream_of(stream)) }.unwrap();
    read
}

/// Steps that allocate the same again; a sum over everything that was in the buffers.
fn training() {
    let (mock, context) = begin();
    let stream = context.new_stream().unwrap();
    let stream = handle(&stream);
    let weights = alloc(8 * MIB).unwrap();
    fill(weights, 3, 8 * MIB, 0);
    let mut sum = 0_u64;
    for step in 0..50_u8 {
        let mut activations = Vec::new();
        for layer in 0..8_u8 {
            let bytes = 100_000 * (usize::from(layer) + 1);
            let address = alloc_async(bytes, stream).unwrap();
            fill(address, step.wrapping_mul(7) ^ layer, bytes, stream);
            activations.push((address, bytes));
        }
        for (address, bytes) in activations.into_iter().rev() {
            sum += read(address, bytes, stream).into_iter().map(u64::from).sum::<u64>();
            assert_eq!(free_async(address, stream), 0);
        }
    }
    sum += read(weights, 8 * MIB, 0).into_iter().map(u64::from).sum::<u64>();
    println!("sum={sum}");
    print_calls(&mock);
    assert_eq!(free(weights), 0);
    std::mem::forget(context);
}

fn reuse() {
    let (mock, context) = begin();
    let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let (first, second) = (handle(&first), handle(&second));
    let address = alloc_async(MIB, first).unwrap();
    mock.hold_stream(0, Stream(first));
    assert_eq!(free_async(address, first), 0);
    // Behind the work of its stream, which is not done.
    let others = alloc_async(MIB, second).unwrap();
    let any = alloc(MIB).unwrap();
    assert!(others != address && any != address);
    assert_eq!(alloc_async(MIB, first), Ok(address));
    assert_eq!(alloc_async(0, first), Ok(0));
    mock.let_stream_go(0, Stream(first));
    let of_default = alloc_async(MIB, 0).unwrap();
    mock.hold_stream(0, Stream::DEFAULT);
    assert_eq!(free_async(of_default, 0), 0);
    assert_ne!(alloc(MIB), Ok(of_default), "cuMemAlloc gives what no stream has work on");
    // The default stream by its other name.
    assert_eq!(alloc_async(MIB, 1), Ok(of_default));
    mock.let_stream_go(0, Stream::DEFAULT);
    // No bytes: as the driver says.
    assert_eq!(alloc(0), Err(1));
    print_calls(&mock);
}

fn foreign_free() {
    let (mock, context) = begin();
    let (own, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let (own, other) = (handle(&own), handle(&other));
    for allocate in [&|| alloc_async(MIB, own).unwrap(), &|| alloc(MIB).unwrap()] as [&dyn Fn() -> u64; 2] {
        let address = allocate();
        mock.hold_stream(0, Stream(other));
        assert_eq!(free_async(address, other), 0);
        let meanwhile = allocate();
        assert_ne!(meanwhile, address, "given out before the work of the freeing stream was done");
        mock.let_stream_go(0, Stream(other));
        let afterwards = [allocate(), allocate(), allocate()];
        assert!(afterwards.contains(&address), "{address:x}: {afterwards:x?}");
    }
}

fn waiting_free() {
    let (mock, context) = begin();
    let stream = context.new_stream().unwrap();
    let stream = handle(&stream);
    for on_stream in [false, true] {
        let allocate = || if on_stream { alloc_async(MIB, stream) } else { alloc(MIB) };
        let address = allocate().unwrap();
        mock.hold_stream(0, Stream(stream));
        let is_let_go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                is_let_go.store(true, Ordering::SeqCst);
                mock.let_stream_go(0, Stream(stream));
            });
            assert_eq!(free(address), 0);
            assert!(is_let_go.load(Ordering::SeqCst), "cuMemFree came back before the context's work was done");
        });
        assert_eq!(allocate(), Ok(address));
    }
}

fn per_thread() {
    const PER_THREAD: u64 = 2;
    let (_mock, context) = begin();
    let first = alloc_async(MIB, PER_THREAD).unwrap();
    let kept = alloc_async(MIB, PER_THREAD).unwrap();
    assert_eq!(free_async(first, PER_THREAD), 0);
    let of_other = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            context.bind_to_thread().unwrap();
            let address = alloc_async(MIB, PER_THREAD).unwrap();
            assert_ne!(address, first, "the other thread's stream does not wait for this one's");
            assert_eq!(free_async(kept, PER_THREAD), 0);
            address
        });
        other.join().unwrap()
    });
    assert_eq!(alloc_async(MIB, PER_THREAD), Ok(first));
    // Of a thread that is gone.
    assert_eq!(free_async(of_other, PER_THREAD), 0);
    std::mem::forget(context);
}

fn out_of_memory() {
    let (mock, context) = begin();
    mock.set_capacity(0, (64 * MIB) as u64);
    let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let (first, second) = (handle(&first), handle(&second));
    let address = alloc_async(40 * MIB, first).unwrap();
    assert_eq!(free_async(address, first), 0);
    let again = alloc_async(40 * MIB, second).expect("what the first stream has cached is given back");
    assert_eq!(alloc_async(40 * MIB, first), Err(2));
    assert_eq!(alloc(usize::MAX), Err(2));
    assert_eq!(free_async(again, second), 0);
    assert!(alloc(40 * MIB).is_ok());
    print_calls(&mock);
    std::mem::forget(context);
}

/// Memory that the cache knows nothing of.
fn unknown() {
    type Alloc = unsafe extern "C" fn(*mut u64, usize) -> u32;
    let (mock, context) = begin();
    // SAFETY: the driver, which is open already.
    let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
    let mut address = 0;
    // SAFETY: the type of `cuda.h`, and a place for one address.
    assert_eq!(unsafe { (driver.get::<Alloc>(b"cuMemAlloc_v2\0").unwrap())(&raw mut address, MIB) }, 0);
    let served = alloc(MIB).unwrap();
    assert_eq!(free(address), 0);
    assert_ne!(free(address), 0, "a second time");
    assert_eq!(free(served), 0);
    assert_ne!(free(served), 0, "a second time");
    assert_ne!(free(0xdead_0000), 0);
    assert_ne!(free_async(0xdead_0000, 0), 0);
    let mut pooled = 0;
    // SAFETY: device 0 exists.
    let pool = unsafe { result::device::get_default_mem_pool(context.cu_device()) }.unwrap();
    // SAFETY: a place for one address, the device's pool and its default stream.
    let answer = unsafe { sys::cuMemAllocFromPoolAsync(&raw mut pooled, MIB, pool, stream_of(0)) };
    assert_eq!(answer as u32, 0);
    assert_eq!(free_async(pooled, 0), 0);
    print_calls(&mock);
}

fn capture() {
    let (mock, context) = begin();
    let stream = context.new_stream().unwrap();
    let stream = handle(&stream);
    let before = alloc_async(MIB, stream).unwrap();
    mock.set_capturing(0, Stream(stream), true);
    let asked = mock.calls("cuMemAllocAsync");
    let _ = alloc_async(MIB, stream);
    assert_eq!(mock.calls("cuMemAllocAsync"), asked + 1, "memory on a captured stream is the driver's affair");
    let freed = free_async(before, stream);
    assert_ne!(freed, 0);
    mock.set_capturing(0, Stream(stream), false);
    assert_eq!(free_async(before, stream), 0, "the block is still the program's");
    assert_eq!(alloc_async(MIB, stream), Ok(before));
}

/// `cuMemFree` while another stream is captured: waiting would break the capture.
fn capture_elsewhere() {
    let (_mock, context) = begin();
    let stream = context.new_stream().unwrap();
    let stream = stream_of(handle(&stream));
    let address = alloc(MIB).unwrap();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: a stream that is alive.
    unsafe { result::stream::begin_capture(stream, mode) }.unwrap();
    assert_eq!(free(address), 0);
    let other = alloc(MIB).unwrap();
    assert_ne!(other, address, "nobody has waited for its work");
    // SAFETY: likewise.
    unsafe { result::stream::end_capture(stream) }.expect("the capture is whole");
    assert_eq!(free(other), 0);
    let later = [alloc(MIB).unwrap(), alloc(MIB).unwrap()];
    assert!(later.contains(&address) && later.contains(&other), "{later:x?}");
}

/// The same where the capture was begun behind the library's back, and the driver refuses to wait.
fn unseen_capture() {
    let (mock, context) = begin();
    let stream = context.new_stream().unwrap();
    let address = alloc(MIB).unwrap();
    mock.set_capturing(0, Stream(handle(&stream)), true);
    assert_eq!(free(address), 0);
    assert_ne!(alloc(MIB), Ok(address), "nobody has waited for its work");
}

/// Makes a context beside the primary one current.
fn create_context() -> u64 {
    type Create = unsafe extern "C" fn(*mut u64, u32, i32) -> u32;
    // SAFETY: the driver, which is open already.
    let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
    let mut context = 0;
    // SAFETY: the type of `cuda.h`, and a place for one handle.
    assert_eq!(unsafe { (driver.get::<Create>(b"cuCtxCreate_v2\0").unwrap())(&raw mut context, 0, 0) }, 0);
    context
}

fn second_context() {
    let (mock, context) = begin();
    let in_primary = alloc(MIB).unwrap();
    let second = create_context();
    serves_itself(&mock);
    // From another context, and it stays current.
    assert_eq!(free(in_primary), 0);
    assert_eq!(result::ctx::get_current().unwrap().map(|context| context.addr() as u64), Some(second));
    context.bind_to_thread().unwrap();
    assert_eq!(alloc(MIB), Ok(in_primary));
}

/// In the order in which the cache has not seen the primary context yet.
fn second_context_first() {
    let (mock, context) = begin();
    create_context();
    serves_itself(&mock);
    context.bind_to_thread().unwrap();
    let address = alloc(MIB).unwrap();
    assert_eq!(free(address), 0);
    let before = mock.calls("cuMemAlloc_v2");
    assert_eq!(alloc(MIB), Ok(address));
    assert_eq!(mock.calls("cuMemAlloc_v2"), before);
}

/// The driver does, and is asked for each.
fn serves_itself(mock: &Mock) {
    let before = mock.calls("cuMemAlloc_v2");
    for _ in 0..3 {
        let address = alloc(MIB).unwrap();
        assert_eq!(free(address), 0);
    }
    assert_eq!(mock.calls("cuMemAlloc_v2"), before + 3, "the driver serves other contexts");
}

fn devices() {
    let mock = Mock::exclusive();
    mock.set_device_count(2);
    let contexts = [CudaContext::new(0).unwrap(), CudaContext::new(1).unwrap()];
    let first = contexts.each_ref().map(|context| {
        context.bind_to_thread().unwrap();
        alloc(MIB).unwrap()
    });
    // The second device is the current one for both.
    assert_eq!(first.map(free), [0, 0]);
    let again = contexts.each_ref().map(|context| {
        context.bind_to_thread().unwrap();
        alloc(MIB).unwrap()
    });
    assert_eq!(again, first);
    println!("used0={}", mock.used_bytes(0));
    println!("used1={}", mock.used_bytes(1));
    std::mem::forget(contexts);
}

fn destroyed_stream() {
    let (mock, context) = begin();
    let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let (name, other) = (handle(&stream), handle(&other));
    let (freed, kept) = (alloc_async(MIB, name).unwrap(), alloc_async(MIB, name).unwrap());
    assert_eq!(free_async(freed, name), 0);
    let before = mock.calls("cuStreamSynchronize");
    drop(stream);
    assert!(mock.calls("cuStreamSynchronize") > before, "its work is waited for");
    assert_eq!(free_async(kept, other), 0);
    let again = context.new_stream().unwrap();
    assert_eq!(handle(&again), name, "the mock gives handles out again");
    let addresses = [alloc_async(MIB, name).unwrap(), alloc_async(MIB, name).unwrap()];
    assert!(addresses.contains(&freed) && addresses.contains(&kept), "{addresses:x?}");
}

fn reset() {
    type Reset = unsafe extern "C" fn(i32) -> u32;
    let (mock, context) = begin();
    alloc(MIB).unwrap();
    // SAFETY: whoever stands before the driver.
    let driver = unsafe { Library::new("libcuda.so") }.unwrap();
    // SAFETY: the type of `cuda.h`.
    assert_eq!(unsafe { (driver.get::<Reset>(b"cuDevicePrimaryCtxReset_v2\0").unwrap())(0) }, 0);
    let before = mock.calls("cuMemAlloc_v2");
    let address = alloc(MIB).unwrap();
    assert_eq!(mock.calls("cuMemAlloc_v2"), before + 1, "nothing is served from memory that is gone");
    assert_eq!(free(address), 0);
    std::mem::forget(context);
}

/// Threads that write a pattern of their own into what they are given, on streams of their own, and free on others' too: whoever is
/// given memory that another still has finds another's pattern.
fn threads_and_streams() {
    const THREADS: u8 = 4;
    let (mock, context) = begin();
    mock.set_capacity(0, (256 * MIB) as u64);
    let streams: Vec<Arc<CudaStream>> = (0..THREADS).map(|_| context.new_stream().unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (context, streams) = (&context, &streams);
            scope.spawn(move || {
                context.bind_to_thread().unwrap();
                let own = handle(&streams[usize::from(thread)]);
                let other = handle(&streams[usize::from((thread + 1) % THREADS)]);
                let mut held = Vec::new();
                for round in 0..200_usize {
                    let bytes = 512 + (round * 7919 + usize::from(thread) * 104_729) % 300_000;
                    let stream = if round % 5 == 0 { 2 } else { own };
                    let address = if round % 3 == 0 { alloc(bytes) } else { alloc_async(bytes, stream) }.unwrap();
                    fill(address, thread, bytes, stream);
                    held.push((address, bytes, stream));
                    if round % 2 == 0 {
                        let (address, bytes, stream) = held.swap_remove(round % held.len());
                        let read = read(address, bytes, stream);
                        assert!(read.iter().all(|byte| *byte == thread), "thread {thread}, round {round}");
                        let answer = match round % 3 {
                            0 => free(address),
                            1 => free_async(address, stream),
                            _ => free_async(address, other),
                        };
                        assert_eq!(answer, 0);
                    }
                }
                for (address, bytes, stream) in held {
                    assert!(read(address, bytes, stream).iter().all(|byte| *byte == thread));
                    assert_eq!(free(address), 0);
                }
            });
        }
    });
    println!("left={}", mock.calls("cuMemAllocAsync"));
    std::mem::forget(context);
}

/// Pages of a stream that is gone become another's.
fn compact_destroyed_stream() {
    let (mock, context) = begin();
    mock.set_capacity(0, (64 * MIB) as u64);
    let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let (name, other) = (handle(&stream), handle(&other));
    let address = alloc_async(40 * MIB, name).unwrap();
    assert_eq!(free_async(address, name), 0);
    drop(stream);
    assert!(alloc_async(40 * MIB, other).is_ok());
    std::mem::forget(context);
}

/// Work of another device's stream can be on the memory too.
fn free_on_other_device() {
    let mock = Mock::exclusive();
    mock.set_device_count(2);
    let (first, second) = (CudaContext::new(0).unwrap(), CudaContext::new(1).unwrap());
    let stream = second.new_stream().unwrap();
    let stream = handle(&stream);
    for (current, freed_on) in [(&first, Some(stream)), (&second, Some(0)), (&second, None)] {
        first.bind_to_thread().unwrap();
        let address = alloc(MIB).unwrap();
        current.bind_to_thread().unwrap();
        let held = if freed_on == Some(0) { 0 } else { stream };
        mock.hold_stream(1, Stream(held));
        let is_let_go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                is_let_go.store(true, Ordering::SeqCst);
                mock.let_stream_go(1, Stream(held));
            });
            let freed = freed_on.map_or_else(|| free(address), |on| free_async(address, on));
            assert_eq!(freed, 0);
            assert!(is_let_go.load(Ordering::SeqCst), "the free came back before the other device's work was done");
        });
        first.bind_to_thread().unwrap();
        assert_eq!(alloc(MIB), Ok(address));
        assert_eq!(free(address), 0);
    }
    std::mem::forget((first, second));
}
