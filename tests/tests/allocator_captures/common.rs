//! A captured stream, and what may not be done meanwhile.

use std::sync::Arc;

use memtrack::device::{Device, Fault, Operation, Simulated, Stream};
use memtrack::{CachingAllocator, Capture, Config, MemoryPool, PoolId};

/// Captured.
pub(crate) const STREAM: Stream = Stream(16);
/// Takes part in the capture where a test says so.
pub(crate) const JOINED: Stream = Stream(32);
/// Takes part in none.
pub(crate) const APART: Stream = Stream(48);

pub(crate) const CAPTURE: Option<u64> = Some(77);

pub(crate) fn with(config: &str, total_bytes: u64) -> (Arc<Simulated>, CachingAllocator) {
    let device = Arc::new(Simulated::with_capacity(total_bytes));
    let config = config.parse::<Config>().unwrap();
    (device.clone(), CachingAllocator::with_config(device, config).unwrap())
}

pub(crate) fn simulated(total_bytes: u64) -> (Arc<Simulated>, CachingAllocator) {
    with("", total_bytes)
}

/// Captures [`STREAM`] with a pool.
pub(crate) fn begin(device: &Simulated, pool: &MemoryPool) -> Capture {
    let capture = pool.begin_capture(STREAM).unwrap();
    device.set_capture(STREAM, CAPTURE);
    capture
}

/// No stream is captured any more.
pub(crate) fn end(device: &Simulated) {
    for stream in [STREAM, JOINED, APART] {
        device.set_capture(stream, None);
    }
}

/// The pool that the block at an address is of.
pub(crate) fn pool_of(allocator: &CachingAllocator, address: u64) -> PoolId {
    let segments = allocator.memory_snapshot();
    let segment =
        segments.iter().find(|segment| (segment.address..segment.address + segment.total_size).contains(&address));
    let (a, b) = segment.unwrap().segment_pool_id;
    PoolId(a, b)
}

pub(crate) fn pending(allocator: &CachingAllocator) -> i64 {
    let stats = allocator.memory_stats();
    stats.active.all.current - stats.allocation.all.current
}

/// What may not be done while a graph is captured.
pub(crate) const FORBIDDEN: [Operation; 5] = [
    Operation::RecordEvent,
    Operation::QueryEvent,
    Operation::WaitEvent,
    Operation::SynchronizeStream,
    Operation::Synchronize,
];

/// Lets the next call of each fail.
pub(crate) fn forbid(device: &Simulated, operations: &[Operation]) {
    for operation in operations {
        device.inject(Fault::Driver { operation: *operation, nth: 0 });
    }
}

/// The calls that were forbidden and not made since; they are allowed again.
pub(crate) fn untouched(device: &Simulated) -> Vec<Operation> {
    let mut untouched = Vec::new();
    let mut note = |operation, fails: bool| untouched.extend(fails.then_some(operation));
    note(Operation::RecordEvent, device.record_event(STREAM).is_err());
    let event = device.record_event(STREAM).unwrap();
    note(Operation::QueryEvent, device.query_event(&event).is_err());
    note(Operation::WaitEvent, device.wait_event(&event).is_err());
    note(Operation::SynchronizeStream, device.synchronize_stream(Stream(1)).is_err());
    device.clear_faults();
    untouched
}
