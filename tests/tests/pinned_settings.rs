//! What the settings of a pinned allocator do, on devices that need no driver.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrack::device::{
    self, Device, DeviceError, DeviceKind, DeviceMemory, Event, Fault, Host, Operation, Simulated, Stream,
};
use memtrack::pinned::{PinnedConfig, PinnedError};
use memtrack::{Buffer, CachingAllocator, PinnedAllocator, PinnedBuffer};

const KIB: u64 = 1 << 10;
const STREAM: Stream = Stream(7);

fn config(configure: impl FnOnce(&mut PinnedConfig)) -> PinnedConfig {
    let mut config = PinnedConfig::default();
    configure(&mut config);
    config
}

fn buffer(allocator: &PinnedAllocator, bytes: u64) -> PinnedBuffer<u8> {
    PinnedBuffer::uninit(allocator, bytes as usize).unwrap()
}

#[test]
fn settings_that_make_no_sense_are_refused_by_their_key() {
    let refused = |configure: fn(&mut PinnedConfig)| {
        let error = PinnedAllocator::with_config(Arc::new(Host::new()), config(configure)).unwrap_err();
        error.to_string()
    };
    for text in [
        refused(|config| config.register_threads = 0),
        refused(|config| config.register_threads = 3),
        refused(|config| config.register_threads = 256),
    ] {
        assert!(text.contains("pinned_num_register_threads") && text.contains("power of two from 1 to 128"), "{text}");
    }
    for text in [
        refused(|config| config.reserve_segment_bytes = Some(0)),
        refused(|config| config.reserve_segment_bytes = Some(u64::MAX)),
    ] {
        assert!(text.contains("pinned_reserve_segment_size_mb"), "{text}");
    }
    for threads in [1, 2, 64, 128] {
        config(|config| config.register_threads = threads).check().unwrap();
    }
}

#[test]
fn wherever_there_is_no_driver_pinned_memory_is_plain_memory() {
    let device = device::auto();
    let (allocator, pinned) = (CachingAllocator::new(Arc::clone(&device)), PinnedAllocator::new(device).unwrap());
    let source = PinnedBuffer::from_slice(&pinned, &[1.5_f64; 300]).unwrap();
    let mut target = PinnedBuffer::<f64>::zeros(&pinned, 300).unwrap();
    let mut between = Buffer::<f64>::uninit(&allocator, 300).unwrap();
    between.copy_from_pinned(&source).unwrap();
    between.copy_to_pinned(&mut target).unwrap();
    assert_eq!(target.as_slice().unwrap(), [1.5; 300]);
}

#[test]
fn a_simulated_device_has_pinned_bytes_and_no_others() {
    let device: Arc<dyn Device> = Arc::new(Simulated::new());
    let (allocator, pinned) = (CachingAllocator::new(Arc::clone(&device)), PinnedAllocator::new(device).unwrap());
    let source = PinnedBuffer::from_slice(&pinned, &[1_u8; 300]).unwrap();
    let mut target = Buffer::<u8>::uninit(&allocator, 300).unwrap();
    let error = target.copy_from_pinned(&source).unwrap_err();
    assert!(matches!(error, PinnedError::Device(DeviceError::NoBytes { .. })), "{error:?}");
    assert_eq!(source.as_slice().unwrap(), [1; 300]);
}

#[test]
fn registered_blocks_have_whole_pages_of_their_own_whatever_the_threads() {
    for threads in [1, 4, 128] {
        let device = Arc::new(Simulated::new());
        let config = config(|config| (config.use_host_register, config.register_threads) = (true, threads));
        let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
        let buffers = [1, 1, 4 * KIB, 300 * KIB, 4096 * KIB].map(|bytes| buffer(&allocator, bytes));
        let pages = device.pinned();
        assert_eq!(pages.len(), 5);
        assert!(pages.iter().all(|(address, bytes)| address.is_multiple_of(4 * KIB) && bytes.is_multiple_of(4 * KIB)));
        assert!(pages.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{pages:?}");
        assert!(buffers.iter().all(|buffer| buffer.as_slice().unwrap().iter().all(|byte| *byte == 0)));
        assert_eq!(allocator.host_memory_stats().allocated_bytes.current, (1 + 1 + (4 + 512 + 4096) * 1024) as i64);
        drop((buffers, allocator));
        assert_eq!(device.pinned(), []);
    }
}

#[test]
fn the_reserve_is_taken_once_cut_into_blocks_and_used_again() {
    let device = Arc::new(Simulated::new());
    let config = config(|config| config.reserve_segment_bytes = Some(64 * KIB));
    let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
    assert_eq!(device.pinned(), [], "not before it is needed");
    let first: Vec<_> = [KIB, 30 * KIB, 16 * KIB].map(|bytes| buffer(&allocator, bytes)).into();
    let (start, bytes) = device.pinned()[0];
    assert_eq!((device.pinned().len(), bytes), (1, 64 * KIB));
    let addresses: Vec<u64> = first.iter().map(PinnedBuffer::address).collect();
    assert_eq!(addresses, [start, start + 4 * KIB, start + 36 * KIB], "one behind the other, in pages");
    // 12 KiB are left: what does not fit comes from the device.
    let outside = buffer(&allocator, 16 * KIB);
    assert_eq!(device.pinned().len(), 2);
    let stats = allocator.host_memory_stats();
    assert_eq!((stats.allocations.current, stats.allocated_bytes.current), (2, 80 << 10));
    assert_eq!((stats.active_requests.current, stats.active_bytes.current), (4, 65 << 10));
    assert_eq!((stats.num_host_alloc, stats.host_alloc_time.count), (2, 2));

    drop((first, outside));
    allocator.empty_cache().unwrap();
    assert_eq!(device.pinned(), [(start, bytes)], "the segment stays");
    let stats = allocator.host_memory_stats();
    assert_eq!((stats.allocations.current, stats.allocated_bytes.current, stats.num_host_free), (1, 64 << 10, 1));
    let whole = buffer(&allocator, 64 * KIB);
    assert_eq!(whole.address(), start, "all of it can be used again");
    drop(allocator);
    assert_eq!(device.pinned(), [(start, bytes)], "a buffer is left in it");
    drop(whole);
    assert_eq!(device.pinned(), []);
}

#[test]
fn pytorchs_counting_takes_blocks_of_the_reserve_for_allocations() {
    let config = config(|config| (config.reserve_segment_bytes, config.torch_exact) = (Some(64 * KIB), true));
    let allocator = PinnedAllocator::with_config(Arc::new(Simulated::new()), config).unwrap();
    drop([KIB, 32 * KIB].map(|bytes| buffer(&allocator, bytes)));
    let stats = allocator.host_memory_stats();
    assert_eq!((stats.allocations.current, stats.allocated_bytes.current), (2, 33 << 10));
    assert_eq!((stats.num_host_alloc, stats.host_alloc_time.count), (2, 0));
    allocator.empty_cache().unwrap();
    let stats = allocator.host_memory_stats();
    assert_eq!((stats.allocations.current, stats.num_host_free, stats.host_free_time.count), (0, 2, 0));
}

#[test]
fn without_memory_for_the_reserve_there_is_none_and_blocks_come_from_the_device() {
    let device = Arc::new(Simulated::new());
    let config = config(|config| config.reserve_segment_bytes = Some(64 * KIB));
    let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
    device.inject(Fault::OutOfMemory { operation: Operation::AllocatePinned, nth: 0 });
    let first = buffer(&allocator, KIB);
    assert_eq!(device.pinned(), [(first.address(), KIB)]);
    let second = buffer(&allocator, 2 * KIB);
    assert_eq!(device.pinned().len(), 2, "{second:?}");

    // Another failure is told, and the reserve taken at the next request.
    let allocator = PinnedAllocator::with_config(device.clone(), allocator.config().clone()).unwrap();
    device.inject(Fault::Driver { operation: Operation::AllocatePinned, nth: 0 });
    PinnedBuffer::<u8>::uninit(&allocator, 1).unwrap_err();
    let third = buffer(&allocator, KIB);
    assert!(device.pinned().contains(&(third.address(), 64 * KIB)));
}

/// Waits until a condition holds; a test that waits for ten seconds has failed.
fn eventually(condition: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !condition() {
        if started.elapsed() > Duration::from_secs(10) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn a_thread_looks_after_streams_and_allocations_do_not() {
    let device = Arc::new(Simulated::new());
    let config = config(|config| config.use_background_thread = true);
    let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
    for _ in 0..3 {
        device.set_busy(STREAM);
        let used = buffer(&allocator, KIB);
        used.record_stream(STREAM).unwrap();
        let address = used.address();
        drop(used);
        assert_eq!(allocator.host_memory_stats().active_requests.current, 1);
        device.set_idle(STREAM);
        assert!(eventually(|| allocator.host_memory_stats().active_requests.current == 0), "nobody asked for it");
        assert_eq!(buffer(&allocator, KIB).address(), address);
    }
}

#[test]
fn a_thread_that_fails_to_look_leaves_it_to_allocations_which_are_told() {
    let device = Arc::new(Simulated::new());
    let config = config(|config| config.use_background_thread = true);
    let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
    let used = buffer(&allocator, KIB);
    let address = used.address();
    device.set_busy(STREAM);
    used.record_stream(STREAM).unwrap();
    device.inject(Fault::Driver { operation: Operation::QueryEvent, nth: 0 });
    drop(used);
    device.set_idle(STREAM);
    assert!(eventually(|| buffer(&allocator, KIB).address() == address), "an allocation looks by itself");
}

/// Threads of this process with this name.
#[cfg(target_os = "linux")]
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

#[cfg(target_os = "linux")]
#[test]
fn the_thread_ends_with_the_last_handle_and_keeps_nothing_alive() {
    // In a process of its own: other tests of this file have such threads too.
    if std::env::var_os("MEMTRACK_TEST_IS_CHILD").is_none() {
        let name = "the_thread_ends_with_the_last_handle_and_keeps_nothing_alive";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args([name, "--exact"]).env("MEMTRACK_TEST_IS_CHILD", "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let device = Arc::new(Simulated::new());
    let config = config(|config| config.use_background_thread = true);
    let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
    let other_handle = allocator.clone();
    let left = buffer(&allocator, KIB);
    let used = buffer(&allocator, KIB);
    device.set_busy(STREAM);
    used.record_stream(STREAM).unwrap();
    drop(used);
    drop(allocator);
    assert!(eventually(|| threads_named("memtrack-pinned") == 1), "while there is a handle");
    drop(other_handle);
    assert_eq!(threads_named("memtrack-pinned"), 0);
    assert_eq!(device.pinned(), [(left.address(), KIB)], "what waited was waited for");
    drop(left);
    assert_eq!(Arc::strong_count(&device), 1);
}

#[test]
fn an_allocator_on_a_device_without_pinned_memory_is_refused() {
    #[derive(Debug)]
    struct Without(Host);
    // SAFETY: a host device by another name, with less to offer.
    unsafe impl Device for Without {
        fn kind(&self) -> DeviceKind {
            DeviceKind::Host
        }
        fn name(&self) -> &str {
            "without"
        }
        fn model(&self) -> &str {
            self.0.model()
        }
        fn total_bytes(&self) -> u64 {
            self.0.total_bytes()
        }
        fn memory(&self) -> Result<DeviceMemory, DeviceError> {
            self.0.memory()
        }
        fn allocate(&self, bytes: u64) -> Result<u64, DeviceError> {
            self.0.allocate(bytes)
        }
        unsafe fn release(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
            // SAFETY: as promised by the caller.
            unsafe { self.0.release(address, bytes) }
        }
        fn record_event(&self, stream: Stream) -> Result<Event, DeviceError> {
            self.0.record_event(stream)
        }
        fn query_event(&self, event: &Event) -> Result<bool, DeviceError> {
            self.0.query_event(event)
        }
        fn wait_event(&self, event: &Event) -> Result<(), DeviceError> {
            self.0.wait_event(event)
        }
        fn release_event(&self, event: Event) {
            self.0.release_event(event);
        }
        fn stream_wait_event(&self, stream: Stream, event: &Event) -> Result<(), DeviceError> {
            self.0.stream_wait_event(stream, event)
        }
        fn synchronize_stream(&self, stream: Stream) -> Result<(), DeviceError> {
            self.0.synchronize_stream(stream)
        }
        fn synchronize(&self) -> Result<(), DeviceError> {
            self.0.synchronize()
        }
        unsafe fn write(&self, address: u64, source: &[u8], stream: Stream) -> Result<(), DeviceError> {
            // SAFETY: as promised by the caller.
            unsafe { self.0.write(address, source, stream) }
        }
        unsafe fn read(&self, address: u64, target: &mut [u8], stream: Stream) -> Result<(), DeviceError> {
            // SAFETY: as promised by the caller.
            unsafe { self.0.read(address, target, stream) }
        }
        unsafe fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
            // SAFETY: as promised by the caller.
            unsafe { self.0.copy(source, target, bytes, stream) }
        }
        unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
            // SAFETY: as promised by the caller.
            unsafe { self.0.fill(address, value, bytes, stream) }
        }
        fn as_any(&self) -> &dyn Any {
            self
        }
    }
    let error = PinnedAllocator::new(Arc::new(Without(Host::new()))).unwrap_err();
    assert_eq!(error, PinnedError::NotOffered { device: "without".to_owned() });
}
