//! What the allocator asks of its device: nothing on the cached path, and every event back.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memtrack::device::{Device, DeviceError, DeviceKind, DeviceMemory, Event, Simulated, Stream};
use memtrack::{Buffer, CachingAllocator};

const MIB: u64 = 1 << 20;

/// A simulated device that counts.
#[derive(Debug, Default)]
struct Counting {
    device: Simulated,
    segment_calls: AtomicU64,
    recorded: AtomicU64,
    released: AtomicU64,
    queried: AtomicU64,
}

impl Counting {
    fn new() -> (Arc<Self>, CachingAllocator) {
        let device = Arc::new(Self { device: Simulated::with_capacity(100 * MIB), ..Self::default() });
        let allocator = CachingAllocator::new(device.clone());
        (device, allocator)
    }

    /// Calls for segments, events recorded, events released, events asked about.
    fn calls(&self) -> [u64; 4] {
        [&self.segment_calls, &self.recorded, &self.released, &self.queried].map(|count| count.load(Ordering::Relaxed))
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every call goes to the simulated device, which keeps the promises.
unsafe impl Device for Counting {
    fn kind(&self) -> DeviceKind {
        self.device.kind()
    }

    fn name(&self) -> &str {
        self.device.name()
    }

    fn model(&self) -> &str {
        self.device.model()
    }

    fn total_bytes(&self) -> u64 {
        self.device.total_bytes()
    }

    fn memory(&self) -> Result<DeviceMemory, DeviceError> {
        self.device.memory()
    }

    fn allocate(&self, bytes: u64) -> Result<u64, DeviceError> {
        count(&self.segment_calls);
        self.device.allocate(bytes)
    }

    unsafe fn release(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        count(&self.segment_calls);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.release(address, bytes) }
    }

    fn record_event(&self, stream: Stream) -> Result<Event, DeviceError> {
        count(&self.recorded);
        self.device.record_event(stream)
    }

    fn query_event(&self, event: &Event) -> Result<bool, DeviceError> {
        count(&self.queried);
        self.device.query_event(event)
    }

    fn wait_event(&self, event: &Event) -> Result<(), DeviceError> {
        self.device.wait_event(event)
    }

    fn release_event(&self, event: Event) {
        count(&self.released);
        self.device.release_event(event);
    }

    fn stream_wait_event(&self, stream: Stream, event: &Event) -> Result<(), DeviceError> {
        self.device.stream_wait_event(stream, event)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<(), DeviceError> {
        self.device.synchronize_stream(stream)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.device.synchronize()
    }

    unsafe fn write(&self, address: u64, source: &[u8], stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.write(address, source, stream) }
    }

    unsafe fn read(&self, address: u64, target: &mut [u8], stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.read(address, target, stream) }
    }

    unsafe fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.copy(source, target, bytes, stream) }
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.fill(address, value, bytes, stream) }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn a_cached_allocation_and_its_free_ask_nothing_of_the_device() {
    let (device, allocator) = Counting::new();
    drop(Buffer::<u8>::uninit(&allocator, 3000).unwrap());
    let calls = device.calls();
    assert_eq!(calls, [1, 0, 0, 0]);
    for _ in 0..100 {
        drop(Buffer::<u8>::uninit(&allocator, 2800).unwrap());
    }
    assert_eq!(device.calls(), calls);
}

#[test]
fn every_event_is_given_back_however_its_wait_ends() {
    let (device, allocator) = Counting::new();
    let used_elsewhere = |mebibytes: u64| {
        let address = allocator.allocate_raw(mebibytes * MIB, Stream::DEFAULT).unwrap();
        for stream in [1, 2] {
            device.device.set_busy(Stream(stream));
            allocator.record_stream_raw(address, Stream(stream)).unwrap();
        }
        allocator.free_raw(address).unwrap();
    };
    let events = || [device.calls()[1], device.calls()[2]];
    used_elsewhere(5);
    assert_eq!(events(), [2, 0]);
    // Found done by the next allocation.
    device.device.synchronize().unwrap();
    used_elsewhere(5);
    assert_eq!(events(), [4, 2]);
    // Waited for by emptying the cache.
    allocator.empty_cache().unwrap();
    assert_eq!(events(), [4, 4]);
    // Waited for on the way to a retry.
    used_elsewhere(60);
    let address = allocator.allocate_raw(80 * MIB, Stream::DEFAULT).unwrap();
    assert_eq!(events(), [6, 6]);
    allocator.free_raw(address).unwrap();
    // Waited for when the last handle goes, and by a buffer that goes after it.
    used_elsewhere(5);
    let late = Buffer::<u8>::uninit(&allocator, 10).unwrap();
    late.record_stream(Stream(1)).unwrap();
    let recorded = device.calls()[1];
    drop(allocator);
    assert_eq!(events(), [recorded, recorded]);
    drop(late);
    assert_eq!(events(), [recorded + 1, recorded + 1]);
    assert_eq!(device.device.used_bytes(), 0);
}

#[test]
fn a_stream_recorded_twice_costs_one_event_and_the_blocks_own_stream_none() {
    let (device, allocator) = Counting::new();
    let address = allocator.allocate_raw(MIB, Stream(3)).unwrap();
    for stream in [1, 3, 1, 2, 1] {
        allocator.record_stream_raw(address, Stream(stream)).unwrap();
    }
    allocator.free_raw(address).unwrap();
    assert_eq!(device.calls()[1], 2);
}

/// An unfinished event holds back the later ones of its stream, so they are not even asked about.
#[test]
fn an_allocation_asks_once_for_each_stream_that_is_still_busy() {
    let (device, allocator) = Counting::new();
    for stream in [1, 2, 1, 2, 1] {
        let address = allocator.allocate_raw(MIB, Stream::DEFAULT).unwrap();
        device.device.set_busy(Stream(stream));
        allocator.record_stream_raw(address, Stream(stream)).unwrap();
        allocator.free_raw(address).unwrap();
    }
    let before = device.calls()[3];
    let address = allocator.allocate_raw(512, Stream::DEFAULT).unwrap();
    assert_eq!(device.calls()[3] - before, 2);
    allocator.free_raw(address).unwrap();
    assert_eq!(device.calls()[3] - before, 2, "a free asks nothing");
}
