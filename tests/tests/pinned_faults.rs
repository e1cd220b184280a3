//! The class of mistakes looked for: one call of the device fails somewhere in the middle, and the pinned allocator panics,
//! leaks, loses count, or reuses memory that a stream may still touch.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::{DeviceError, Fault, Operation, Simulated, Stream};
use memtrack::pinned::{PinnedConfig, PinnedError};
use memtrack::{PinnedAllocator, PinnedBuffer};

const KIB: u64 = 1 << 10;
const STREAM: Stream = Stream(7);

fn allocator(device: &Arc<Simulated>, configure: impl FnOnce(&mut PinnedConfig)) -> PinnedAllocator {
    let mut config = PinnedConfig::default();
    configure(&mut config);
    PinnedAllocator::with_config(device.clone(), config).unwrap()
}

fn fail(device: &Simulated, operation: Operation) {
    device.inject(Fault::Driver { operation, nth: 0 });
}

fn buffer(allocator: &PinnedAllocator, bytes: u64) -> PinnedBuffer<u8> {
    PinnedBuffer::uninit(allocator, bytes as usize).unwrap()
}

/// Uses everything the allocator has; contents are right wherever they can be looked at.
fn exercise(device: &Simulated, allocator: &PinnedAllocator) -> Result<(), PinnedError> {
    let mut first = PinnedBuffer::<u8>::zeros(allocator, 5000)?;
    let second = PinnedBuffer::from_slice(allocator, &[7_u8; 100])?;
    first.record_stream(STREAM)?;
    first.as_mut_slice()?[0] = 1;
    assert_eq!((first.as_slice()?[0], second.as_slice()?[99]), (1, 7));
    device.set_busy(STREAM);
    second.record_stream(STREAM)?;
    second.record_stream(Stream::DEFAULT)?;
    second.is_idle()?;
    drop((first, second));
    let third = PinnedBuffer::<u8>::uninit(allocator, 8192)?;
    device.set_idle(STREAM);
    let fourth = PinnedBuffer::<u8>::uninit(allocator, 100)?;
    allocator.empty_cache()?;
    drop((third, fourth));
    allocator.empty_cache()?;
    // In the end there is something to give back, and to wait for.
    let last = PinnedBuffer::<u8>::uninit(allocator, 100)?;
    drop(PinnedBuffer::<u8>::uninit(allocator, 3000)?);
    device.set_busy(STREAM);
    last.record_stream(STREAM)?;
    Ok(())
}

const OPERATIONS: [Operation; 9] = [
    Operation::AllocatePinned,
    Operation::ReleasePinned,
    Operation::RegisterPinned,
    Operation::UnregisterPinned,
    Operation::RecordEvent,
    Operation::QueryEvent,
    Operation::WaitEvent,
    Operation::SynchronizeStream,
    Operation::Synchronize,
];

#[test]
fn whatever_fails_nothing_panics_and_nothing_is_left() {
    let configurations: [fn(&mut PinnedConfig); 4] = [
        |_| {},
        |config| config.use_host_register = true,
        |config| config.reserve_segment_bytes = Some(64 * KIB),
        |config| config.torch_exact = true,
    ];
    let mut came_true = 0;
    for (which, configure) in configurations.into_iter().enumerate() {
        for operation in OPERATIONS {
            for nth in 0..20 {
                for fault in [Fault::Driver { operation, nth }, Fault::OutOfMemory { operation, nth }] {
                    let device = Arc::new(Simulated::new());
                    let allocator = allocator(&device, configure);
                    device.inject(fault);
                    let outcome = exercise(&device, &allocator);
                    drop(allocator);
                    device.clear_faults();
                    came_true += usize::from(outcome.is_err());
                    // A piece whose release at the end failed is the device's to give back; nobody else can.
                    let left = device.pinned();
                    let may_be_left =
                        matches!(operation, Operation::ReleasePinned | Operation::UnregisterPinned) && outcome.is_ok();
                    assert!(
                        left.is_empty() || may_be_left && left.len() == 1,
                        "configuration {which}, {fault:?}: {outcome:?}, {left:?} is left"
                    );
                }
            }
        }
    }
    assert!(came_true >= 60, "only {came_true} failures were told");
}

#[test]
fn an_out_of_memory_gives_cached_blocks_back_and_asks_once_more() {
    let device = Arc::new(Simulated::new());
    let allocator = allocator(&device, |_| {});
    drop([4 * KIB, 64 * KIB].map(|bytes| buffer(&allocator, bytes)));
    let kept = buffer(&allocator, 16 * KIB);
    device.inject(Fault::OutOfMemory { operation: Operation::AllocatePinned, nth: 0 });
    let served = buffer(&allocator, 128 * KIB);
    let locked: Vec<u64> = device.pinned().iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(locked.iter().sum::<u64>(), 144 * KIB, "{locked:?}: the cached blocks went");
    assert_eq!(allocator.host_memory_stats().num_host_free, 2);

    drop(served);
    device.inject(Fault::LargerThan { operation: Operation::AllocatePinned, bytes: 100 * KIB });
    let error = PinnedBuffer::<u8>::uninit(&allocator, 200 * KIB as usize).unwrap_err();
    let PinnedError::OutOfMemory(error) = error else { panic!("{error:?}") };
    assert_eq!((error.requested_bytes, error.size_bytes), (200 * KIB, 256 * KIB));
    assert_eq!((error.allocated_bytes, error.returned_bytes), (16 * KIB, 128 * KIB));
    let text = error.to_string();
    for part in ["page-locked", "simulated", "256.00 KiB", "200.00 KiB", "16.00 KiB", "128.00 KiB", "powers of two"] {
        assert!(text.contains(part), "`{part}` in `{text}`");
    }
    // Not sticky, and nothing was lost.
    device.clear_faults();
    drop((buffer(&allocator, 200 * KIB), kept));
    assert_eq!(allocator.host_memory_stats().active_bytes.current, 0);
}

#[test]
fn an_out_of_memory_waits_for_streams_and_takes_what_comes_back_by_it() {
    let device = Arc::new(Simulated::new());
    let allocator = allocator(&device, |_| {});
    device.set_busy(STREAM);
    let used = buffer(&allocator, 64 * KIB);
    let address = used.address();
    used.record_stream(STREAM).unwrap();
    drop(used);
    device.inject(Fault::LargerThan { operation: Operation::AllocatePinned, bytes: 0 });
    assert_eq!(buffer(&allocator, 64 * KIB).address(), address);
    assert_eq!(allocator.host_memory_stats().num_host_free, 0, "nothing had to be given back");
}

#[test]
fn an_out_of_memory_is_not_told_while_memory_is_on_its_way_back() {
    let device = Arc::new(Simulated::new());
    let allocator = allocator(&device, |_| {});
    drop(buffer(&allocator, 4 * KIB));
    let duration = std::time::Duration::from_millis(80);
    device.inject(Fault::Delay { operation: Operation::ReleasePinned, duration });
    device.inject(Fault::OutOfMemory { operation: Operation::AllocatePinned, nth: 0 });
    std::thread::scope(|scope| {
        scope.spawn(|| allocator.empty_cache().unwrap());
        std::thread::sleep(duration / 4);
        let served = buffer(&allocator, KIB);
        // Whoever came first gives the block back, and the other waits for it.
        assert_eq!(device.pinned(), [(served.address(), KIB)]);
    });
}

#[test]
fn a_block_whose_stream_gets_no_event_is_reused_when_the_stream_was_waited_for() {
    let device = Arc::new(Simulated::new());
    let allocator = allocator(&device, |_| {});
    for failing in [&[Operation::RecordEvent][..], &[Operation::RecordEvent, Operation::SynchronizeStream]] {
        let used = buffer(&allocator, KIB);
        let address = used.address();
        device.set_busy(STREAM);
        used.record_stream(STREAM).unwrap();
        failing.iter().for_each(|operation| fail(&device, *operation));
        drop(used);
        assert_eq!(buffer(&allocator, KIB).address(), address, "{failing:?}");
        assert_eq!(allocator.host_memory_stats().active_requests.current, 0);
    }
}

#[test]
fn a_block_whose_stream_cannot_be_waited_for_is_never_used_again() {
    let device = Arc::new(Simulated::new());
    let allocator = allocator(&device, |config| config.use_host_register = true);
    let used = buffer(&allocator, KIB);
    let address = used.address();
    used.record_stream(STREAM).unwrap();
    let failing = [Operation::RecordEvent, Operation::SynchronizeStream, Operation::Synchronize];
    failing.into_iter().for_each(|operation| fail(&device, operation));
    drop(used);
    assert_ne!(buffer(&allocator, KIB).address(), address);
    assert_eq!(allocator.host_memory_stats().active_requests.current, 1, "it is still in use as far as anybody knows");
    drop(allocator);
    assert_eq!(device.pinned().len(), 1, "and stays locked");
}

#[test]
fn no_slice_is_lent_while_a_stream_may_use_the_memory() {
    let device = Arc::new(Simulated::new());
    let allocator = allocator(&device, |_| {});
    let mut used = buffer(&allocator, KIB);
    used.record_stream(STREAM).unwrap();
    for _ in 0..2 {
        let failing = [Operation::SynchronizeStream, Operation::Synchronize];
        failing.into_iter().for_each(|operation| fail(&device, operation));
        let error = used.as_mut_slice().map(drop).unwrap_err();
        assert!(matches!(error, PinnedError::Device(DeviceError::Driver { .. })), "{error:?}");
        device.clear_faults();
    }
    assert!(used.as_mut_slice().is_ok(), "once the device answers again");
}

#[test]
fn a_failed_release_leaves_the_rest_of_the_cache_where_it_is() {
    let device = Arc::new(Simulated::new());
    let allocator = allocator(&device, |_| {});
    drop([KIB, 2 * KIB, 4 * KIB].map(|bytes| buffer(&allocator, bytes)));
    device.inject(Fault::Driver { operation: Operation::ReleasePinned, nth: 1 });
    allocator.empty_cache().unwrap_err();
    assert_eq!((device.pinned().len(), allocator.host_memory_stats().allocations.current), (2, 2));
    let before = device.pinned();
    let again = [2 * KIB, 4 * KIB].map(|bytes| buffer(&allocator, bytes));
    assert_eq!(device.pinned(), before, "both are reused");
    drop(again);
    allocator.empty_cache().unwrap();
    assert_eq!(device.pinned(), []);
}

#[test]
fn a_failed_look_at_an_event_is_told_and_leaves_the_block_waiting() {
    let device = Arc::new(Simulated::new());
    let allocator = allocator(&device, |_| {});
    let used = buffer(&allocator, KIB);
    let address = used.address();
    used.record_stream(STREAM).unwrap();
    drop(used);
    fail(&device, Operation::QueryEvent);
    let error = PinnedBuffer::<u8>::uninit(&allocator, 10).unwrap_err();
    assert!(matches!(error, PinnedError::Device(DeviceError::Driver { .. })), "{error:?}");
    assert_eq!(buffer(&allocator, KIB).address(), address);
}

#[cfg(target_os = "linux")]
mod driver {
    //! The same, of every driver call that a pinned allocator on the cuda device makes.

    use memtrack::device::{Cuda, Device};
    use memtrack::{Buffer, CachingAllocator};
    use memtrack_tests::mock::Mock;

    use super::*;

    type Failure = Box<dyn std::error::Error + Send + Sync>;

    fn exercise(device: &Arc<dyn Device>, other: Stream, register: bool) -> Result<(), Failure> {
        let mut config = PinnedConfig::default();
        config.use_host_register = register;
        config.reserve_segment_bytes = (!register).then_some(4 * KIB);
        let pinned = PinnedAllocator::with_config(Arc::clone(device), config)?;
        let allocator = CachingAllocator::new(Arc::clone(device));
        let mut source = PinnedBuffer::from_slice(&pinned, &[3_u32; 1000])?;
        let mut target = PinnedBuffer::<u32>::zeros(&pinned, 1000)?;
        let mut on_device = Buffer::<u32>::uninit(&allocator, 1000)?;
        let mut on_other = Buffer::<u32>::uninit_on(&allocator, other, 1000)?;
        on_device.copy_from_pinned(&source)?;
        on_device.copy_to_pinned(&mut target)?;
        on_other.copy_from_pinned(&target)?;
        assert_eq!(target.as_slice()?, [3; 1000]);
        source.as_mut_slice()?.fill(4);
        on_other.copy_to_pinned(&mut source)?;
        assert_eq!(source.as_slice()?, [3; 1000]);
        on_other.copy_from_pinned(&source)?;
        drop((source, target));
        PinnedBuffer::<u32>::uninit(&pinned, 1000)?;
        pinned.empty_cache()?;
        let last = PinnedBuffer::<u32>::uninit(&pinned, 10)?;
        last.record_stream(other)?;
        Ok(())
    }

    fn run(register: bool) -> Result<(), Failure> {
        let open_use_and_drop = || {
            let device = Cuda::new(0)?;
            let other = device.register_stream(&device.context().new_stream()?)?;
            let device: Arc<dyn Device> = Arc::new(device);
            exercise(&device, other, register)
        };
        std::thread::scope(|scope| scope.spawn(open_use_and_drop).join()).unwrap()
    }

    #[test]
    fn every_driver_call_may_fail_once() {
        let mock = Mock::exclusive();
        let mut tried = 0;
        for register in [false, true] {
            mock.reset();
            run(register).unwrap();
            let functions: Vec<_> = mock.called_functions().into_iter().map(|name| (mock.calls(&name), name)).collect();
            let has = |name: &str| functions.iter().any(|(_, function)| function == name);
            assert!(has("cuMemHostAlloc") != register && has("cuMemHostRegister_v2") == register, "{functions:?}");
            for (total, function) in functions {
                for (skip, code) in (0..total).flat_map(|skip| [(skip, 999), (skip, 2)]) {
                    mock.reset();
                    mock.fail(&function, skip, code);
                    let outcome = run(register);
                    let context = format!("{function}, call {skip} of {total}, code {code}: {outcome:?}");
                    assert_eq!(mock.pending_failures(), 0, "never came; {context}");
                    assert_eq!(mock.live_memory(), [], "{context}");
                    tried += 1;
                }
            }
        }
        assert!(tried >= 200, "only {tried} calls");
    }
}
