//! Stream-ordered memory: the simulated device counts what PyTorch's `cudaMallocAsync` backend read from a real driver, and
//! the cuda device keeps its pool by the rules.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a recording that cannot be read or followed fails the test")]

use std::collections::BTreeMap;

use memtrack::device::{
    Cuda, Device, DeviceError, Fault, Operation, Simulated, Stream, StreamOrderedMemory, StreamOrderedUsage,
};
use memtrack_tests::mock::{Live, Mock};
use memtrack_tests::unused::FreeUnused as _;
use serde_json::Value;

const MIB: u64 = 1 << 20;
const UNKNOWN: u32 = 999;

/// Replays what PyTorch asked of the driver, and compares all it then read from the pool, after every step. The steps that are
/// about its own limit do not reach the driver.
fn replay_async(device: &dyn Device) -> usize {
    let text = include_str!("../fixtures/torch-2.11/special/async.json");
    let program: Value = serde_json::from_str(text).unwrap();
    let memory = device.stream_ordered_memory().unwrap();
    let mut expected = BTreeMap::new();
    let mut live = BTreeMap::new();
    let mut compared = 0;
    for step in program["ops"].as_array().unwrap() {
        let op = &step["op"];
        match op[0].as_str().unwrap() {
            "alloc" if step.get("oom").is_some() => {}
            "alloc" => {
                let bytes = op[2].as_u64().unwrap();
                live.insert(op[1].as_u64().unwrap(), memory.allocate_ordered(bytes, Stream::DEFAULT).unwrap());
            }
            "free" => {
                let address = live.remove(&op[1].as_u64().unwrap()).unwrap();
                memory.free_unused(address, Stream::DEFAULT).unwrap();
            }
            "empty_cache" => {
                device.synchronize().unwrap();
                memory.trim_ordered(0).unwrap();
            }
            "reset_peak" => memory.reset_ordered_high_marks().unwrap(),
            "reset_accumulated" | "set_fraction" => {}
            other => panic!("{other}"),
        }
        for (key, value) in step["changed"].as_object().unwrap() {
            expected.insert(key.clone(), value.as_u64().unwrap());
        }
        let awaited = |key: &str| expected.get(key).copied().unwrap_or(0);
        let usage = memory.ordered_usage().unwrap();
        assert_eq!(usage.used_bytes, awaited("allocated_bytes.all.current"), "{op}");
        assert_eq!(usage.used_high_bytes, awaited("allocated_bytes.all.peak"), "{op}");
        assert_eq!(usage.reserved_bytes, awaited("reserved_bytes.all.current"), "{op}");
        assert_eq!(usage.reserved_high_bytes, awaited("reserved_bytes.all.peak"), "{op}");
        compared += 1;
    }
    for address in live.into_values() {
        memory.free_unused(address, Stream::DEFAULT).unwrap();
    }
    compared
}

#[test]
fn a_simulated_pool_counts_what_a_real_drivers_did() {
    let device = Simulated::new();
    assert_eq!(replay_async(&device), 17);
    assert_eq!(device.used_bytes(), 608 * MIB);
    device.trim_ordered(0).unwrap();
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn the_mock_drivers_pool_counts_so_too() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    assert_eq!(replay_async(&device), 17);
    assert_eq!(mock.used_bytes(0), 608 * MIB);
    drop(device);
    assert_eq!((mock.used_bytes(0), mock.live(Live::Pools)), (0, 0));
}

#[test]
fn a_simulated_pool_is_bound_by_the_devices_memory() {
    let device = Simulated::with_capacity(100 * MIB);
    let segment = device.allocate(30 * MIB).unwrap();
    let first = device.allocate_ordered(33 * MIB, Stream::DEFAULT).unwrap();
    assert_eq!(device.used_bytes(), 94 * MIB);
    assert!(device.allocate(8 * MIB).unwrap_err().is_out_of_memory());
    // 31 MiB are left in the pool, 6 beside it; a refused request leaves its high mark.
    let second = device.allocate_ordered(31 * MIB, Stream(7)).unwrap();
    let error = device.allocate_ordered(1, Stream::DEFAULT).unwrap_err();
    assert_eq!(error, DeviceError::OutOfMemory { device: "simulated".to_owned(), requested_bytes: 1 });
    let usage = device.ordered_usage().unwrap();
    let expected = StreamOrderedUsage {
        used_bytes: 64 * MIB,
        used_high_bytes: 64 * MIB,
        reserved_bytes: 64 * MIB,
        reserved_high_bytes: 96 * MIB,
    };
    assert_eq!(usage, expected);
    assert!(device.allocate_ordered(u64::MAX, Stream::DEFAULT).unwrap_err().is_out_of_memory());
    device.free_unused(first, Stream::DEFAULT).unwrap();
    device.trim_ordered(40 * MIB).unwrap();
    assert_eq!(device.ordered_usage().unwrap().reserved_bytes, 64 * MIB, "at least 40 MiB stay, in whole steps");
    device.trim_ordered(0).unwrap();
    assert_eq!(device.ordered_usage().unwrap().reserved_bytes, 32 * MIB, "what is used stays");
    device.free_unused(second, Stream::DEFAULT).unwrap();
    assert_eq!(device.segments(), [(segment, 30 * MIB)]);
}

#[test]
fn a_simulated_pool_fails_as_scripted_and_places_as_scripted() {
    let device = Simulated::new();
    device.script_addresses([1 << 40]);
    let address = device.allocate_ordered(1000, Stream::DEFAULT).unwrap();
    assert_eq!(address, 1 << 40);
    device.inject(Fault::OutOfMemory { operation: Operation::AllocateOrdered, nth: 0 });
    assert!(device.allocate_ordered(1, Stream::DEFAULT).unwrap_err().is_out_of_memory());
    for operation in [Operation::AllocateOrdered, Operation::FreeOrdered, Operation::TrimOrdered] {
        device.inject(Fault::Driver { operation, nth: 0 });
    }
    let before = device.ordered_usage().unwrap();
    device.allocate_ordered(1, Stream::DEFAULT).unwrap_err();
    device.free_unused(address, Stream::DEFAULT).unwrap_err();
    device.trim_ordered(0).unwrap_err();
    assert_eq!(device.ordered_usage().unwrap(), before);
    device.free_unused(address, Stream::DEFAULT).unwrap();
}

#[test]
fn a_device_makes_one_pool_when_first_asked_and_nobody_else_draws_on_it() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    assert!(device.stream_ordered_memory().is_some());
    assert_eq!(mock.live(Live::Pools), 0, "nobody has asked yet");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| device.ordered_usage().unwrap());
        }
    });
    assert_eq!((mock.live(Live::Pools), mock.calls("cuMemPoolCreate")), (1, 1));
    let others = device.default_stream().alloc_zeros::<u8>(5000).unwrap();
    assert_eq!(device.ordered_usage(), Ok(StreamOrderedUsage::default()));
    drop(others);
    // What others do to the device's own pool changes nothing here: this one keeps what it has.
    let address = device.allocate_ordered(1000, Stream::DEFAULT).unwrap();
    device.free_unused(address, Stream::DEFAULT).unwrap();
    device.synchronize().unwrap();
    assert_eq!(device.ordered_usage().unwrap().reserved_bytes, 32 * MIB);
}

#[test]
fn dropping_the_device_gives_back_its_pool_and_what_is_alive_in_it() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let stream = device.register_stream(&device.context().new_stream().unwrap()).unwrap();
    for bytes in [1, 40 * MIB] {
        device.allocate_ordered(bytes, stream).unwrap();
    }
    assert_eq!((mock.live(Live::PoolAllocations), mock.used_bytes(0)), (2, 64 * MIB));
    drop(device);
    assert_eq!((mock.live_memory(), mock.live(Live::Pools), mock.used_bytes(0)), (vec![], 0, 0));
}

#[test]
fn what_the_table_refuses_never_reaches_the_driver() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    device.ordered_usage().unwrap();
    mock.reset();
    device.allocate_ordered(0, Stream::DEFAULT).unwrap_err();
    device.free_unused(512, Stream::DEFAULT).unwrap_err();
    device.allocate_ordered(512, Stream(3)).unwrap_err();
    for function in ["cuMemAllocFromPoolAsync", "cuMemFreeAsync"] {
        assert_eq!(mock.calls(function), 0, "{function}");
    }
}

#[test]
fn memory_whose_free_fails_can_be_freed_again() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    let address = device.allocate_ordered(1000, Stream::DEFAULT).unwrap();
    mock.fail("cuMemFreeAsync", 0, UNKNOWN);
    device.free_unused(address, Stream::DEFAULT).unwrap_err();
    device.free_unused(address, Stream::DEFAULT).unwrap();
    assert_eq!(mock.live_memory(), []);
}

#[test]
fn a_pool_that_cannot_be_set_up_is_not_kept() {
    let mock = Mock::exclusive();
    let device = Cuda::new(0).unwrap();
    mock.fail("cuMemPoolSetAttribute", 0, UNKNOWN);
    let error = device.allocate_ordered(1000, Stream::DEFAULT).unwrap_err().to_string();
    assert!(error.contains("cuMemPoolSetAttribute"), "{error}");
    assert_eq!(mock.live(Live::Pools), 0);
    let address = device.allocate_ordered(1000, Stream::DEFAULT).unwrap();
    device.free_unused(address, Stream::DEFAULT).unwrap();
    assert_eq!(mock.live(Live::Pools), 1);
}
