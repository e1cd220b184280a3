//! The backend `cudaMallocAsync`: what PyTorch 2.11 counts with it, and what memtrack measures all the same.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use memtrack::device::{Fault, Host, Operation, Simulated, Stream};
use memtrack::scope::{Outcome, Scope};
use memtrack::units::MIB;
use memtrack::{AllocationError, Backend, Buffer, CachingAllocator, Config, PoolOptions, Refusal};
use serde_json::Value;

const STREAM: Stream = Stream::DEFAULT;
const SIDE: Stream = Stream(7);

fn config() -> Config {
    Config::from_torch("backend:cudaMallocAsync").unwrap()
}

fn simulated(total_bytes: u64) -> (Arc<Simulated>, CachingAllocator) {
    let device = Arc::new(Simulated::with_capacity(total_bytes));
    let allocator = CachingAllocator::with_config(device.clone(), config()).unwrap();
    (device, allocator)
}

#[test]
fn every_statistic_is_what_pytorch_counted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/torch-2.11/special/async.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (_, allocator) = simulated(file["total_memory"].as_u64().unwrap());
    let mut expected: BTreeMap<String, i64> = serde_json::from_value(file["initial_stats"].clone()).unwrap();
    let mut live = HashMap::new();
    let steps = file["ops"].as_array().unwrap();
    for step in steps {
        let op = &step["op"];
        match op[0].as_str().unwrap() {
            "alloc" => match allocator.allocate_raw(op[2].as_u64().unwrap(), Stream(op[3].as_u64().unwrap())) {
                Ok(address) => {
                    assert!(step.get("oom").is_none(), "{op}");
                    live.insert(op[1].as_u64().unwrap(), address);
                }
                Err(AllocationError::OutOfMemory(error)) => {
                    assert!(step["oom"].as_str().unwrap().contains("PyTorch limit"), "{op}");
                    assert_eq!((error.refused_by, error.allocated_bytes), (Refusal::Limit, 600 * MIB));
                }
                Err(error) => panic!("{op}: {error}"),
            },
            "free" => allocator.free_raw(live.remove(&op[1].as_u64().unwrap()).unwrap()).unwrap(),
            "empty_cache" => allocator.empty_cache().unwrap(),
            "reset_peak" => allocator.reset_peak_memory_stats(),
            "reset_accumulated" => allocator.reset_accumulated_memory_stats(),
            "set_fraction" => allocator.set_memory_fraction(op[1].as_f64().unwrap()).unwrap(),
            other => panic!("{other}"),
        }
        let changed: BTreeMap<String, i64> = serde_json::from_value(step["changed"].clone()).unwrap();
        expected.extend(changed);
        assert_eq!(allocator.memory_stats().to_map(), expected, "after {op}");
    }
    assert_eq!(steps.len(), 17);
    let last: BTreeMap<String, i64> = serde_json::from_value(file["final_stats"].clone()).unwrap();
    assert_eq!(allocator.memory_stats().to_map(), last);
}

#[test]
fn scopes_measure_as_with_the_native_backend() {
    let (_, allocator) = simulated(1 << 30);
    let scope = Scope::open(&allocator, "step", None);
    let kept = Buffer::<u8>::uninit(&allocator, 1000).unwrap();
    drop(Buffer::<u8>::uninit(&allocator, 5000).unwrap());
    let record = scope.close(Outcome::Ok);
    assert_eq!((record.delta_bytes(), record.peak_delta_bytes()), (1000, 6000), "unrounded");
    drop(kept);
    assert_eq!(allocator.memory_allocated(), 0);
    assert_eq!(allocator.memory_reserved() as u64, 32 * MIB);
}

#[test]
fn a_device_without_such_a_pool_refuses_the_backend() {
    let error = CachingAllocator::with_config(Arc::new(Host::new()), config()).unwrap_err();
    assert_eq!(error.key, "backend");
    assert!(error.to_string().contains("host has no stream-ordered memory"), "{error}");
}

#[test]
fn what_it_does_not_have_is_an_error_that_says_so() {
    let (_, allocator) = simulated(1 << 30);
    assert_eq!(allocator.config().backend, Backend::CudaMallocAsync);
    let pool = allocator.create_pool(PoolOptions::default());
    let refused = |error| matches!(error, AllocationError::NotWithBackend { .. });
    assert!(refused(pool.enter().unwrap_err()));
    assert!(refused(pool.begin_capture(STREAM).unwrap_err()));
    allocator.record_memory_history(Some(&memtrack::history::HistoryOptions::new()));
    let _held = allocator.allocate_raw(512, STREAM).unwrap();
    let snapshot = allocator.snapshot();
    assert!(snapshot.segments.is_empty());
    snapshot.check_consistency().unwrap();
    assert!(allocator.apply_settings("backend:native").is_err());
}

#[test]
fn a_free_is_ordered_behind_the_streams_that_use_the_block_or_put_off() {
    let (device, allocator) = simulated(1 << 30);
    let [plain, used] = [(); 2].map(|()| allocator.allocate_raw(MIB, STREAM).unwrap());
    allocator.record_stream_raw(used, SIDE).unwrap();
    // No event, so no order; the block that no other stream uses needs none.
    device.inject(Fault::Driver { operation: Operation::RecordEvent, nth: 0 });
    allocator.free_raw(plain).unwrap();
    assert_eq!(allocator.memory_allocated() as u64, MIB);
    allocator.free_raw(used).unwrap();
    assert_eq!(allocator.memory_allocated() as u64, MIB, "rather late than under the other stream's work");
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.memory_allocated(), 0);
}

#[test]
fn a_block_freed_while_its_stream_is_captured_goes_back_after_the_capture() {
    let (device, allocator) = simulated(1 << 30);
    let block = allocator.allocate_raw(MIB, STREAM).unwrap();
    device.set_capture(STREAM, Some(1));
    allocator.free_raw(block).unwrap();
    assert_eq!(allocator.memory_allocated() as u64, MIB, "the driver still has it");
    assert!(allocator.allocate_raw(MIB, STREAM).is_err(), "memory taken there would be the graph's");
    device.set_capture(STREAM, None);
    let next = allocator.allocate_raw(512, STREAM).unwrap();
    assert_eq!(allocator.memory_allocated(), 512);
    allocator.free_raw(next).unwrap();
    drop(allocator);
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn failures_of_the_driver_are_errors_and_lose_nothing() {
    for operation in
        [Operation::AllocateOrdered, Operation::FreeOrdered, Operation::TrimOrdered, Operation::RecordEvent]
    {
        let (device, allocator) = simulated(1 << 30);
        device.inject(Fault::Driver { operation, nth: 0 });
        let mut held = Vec::new();
        for _ in 0..3 {
            held.extend(allocator.allocate_raw(MIB, STREAM).ok());
        }
        for block in held {
            allocator.record_stream_raw(block, SIDE).unwrap();
            allocator.free_raw(block).unwrap();
        }
        let _ = allocator.empty_cache();
        device.clear_faults();
        allocator.empty_cache().unwrap();
        assert_eq!((allocator.memory_allocated(), allocator.memory_reserved()), (0, 0), "{operation:?}");
        assert_eq!(device.used_bytes(), 0, "{operation:?}");
    }
}

#[test]
fn everything_goes_back_whatever_is_dropped_last() {
    let (device, allocator) = simulated(1 << 30);
    let raw = allocator.allocate_raw(MIB, SIDE).unwrap();
    assert!(raw > 0);
    let buffer = Buffer::<f32>::uninit(&allocator, 1 << 20).unwrap();
    drop(allocator);
    assert!(device.used_bytes() >= 4 * MIB);
    drop(buffer);
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn a_limit_holds_for_several_threads_together() {
    let (device, allocator) = simulated(1 << 30);
    allocator.set_memory_fraction((100 * MIB) as f64 / (1 << 30) as f64).unwrap();
    let operation = Operation::AllocateOrdered;
    device.inject(Fault::Delay { operation, duration: std::time::Duration::from_millis(50) });
    let served = std::thread::scope(|scope| {
        let allocate = || allocator.allocate_raw(60 * MIB, STREAM).is_ok();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(allocate)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|served| *served).count()
    });
    assert_eq!(served, 1);
}

#[test]
fn an_out_of_memory_of_the_card_says_so_and_the_next_request_works() {
    let (_, allocator) = simulated(100 * MIB);
    let _first = allocator.allocate_raw(60 * MIB, STREAM).unwrap();
    let error = allocator.allocate_raw(60 * MIB, STREAM).unwrap_err();
    let AllocationError::OutOfMemory(error) = error else { panic!("{error}") };
    assert_eq!((error.refused_by, error.allocated_bytes), (Refusal::Device, 60 * MIB));
    assert!(!error.to_string().contains("segment"), "{error}");
    assert!(allocator.allocate_raw(MIB, STREAM).is_ok());
}

#[test]
fn threads_share_it() {
    let (device, allocator) = simulated(8 << 30);
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let allocator = &allocator;
            scope.spawn(move || {
                for turn in 1..500 {
                    let blocks =
                        [turn, MIB, 3 * turn].map(|bytes| allocator.allocate_raw(bytes, Stream(number)).unwrap());
                    allocator.record_stream_raw(blocks[1], Stream((number + 1) % 4)).unwrap();
                    blocks.into_iter().for_each(|block| allocator.free_raw(block).unwrap());
                }
            });
        }
    });
    allocator.empty_cache().unwrap();
    assert_eq!((allocator.memory_allocated(), allocator.memory_reserved(), device.used_bytes()), (0, 0, 0));
}
