//! Copies between pinned and device memory on the cuda device, on the mock driver: they do not wait, no borrow is under one,
//! and no block is reused under one; and what is captured into graphs.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use memtrack::device::{Cuda, Device, Host, Stream};
use memtrack::pinned::{PinnedConfig, PinnedError};
use memtrack::{Buffer, CachingAllocator, PinnedAllocator, PinnedBuffer};
use memtrack_tests::mock::{Live, Mock};

const LEN: usize = 1000;
const PAUSE: Duration = Duration::from_millis(60);

struct Setup {
    device: Arc<dyn Device>,
    allocator: CachingAllocator,
    pinned: PinnedAllocator,
    /// A stream beside the default one.
    other: Stream,
}

fn setup() -> Setup {
    setup_with(PinnedConfig::default())
}

fn setup_with(config: PinnedConfig) -> Setup {
    let device = Cuda::new(0).unwrap();
    let other = device.register_stream(&device.context().new_stream().unwrap()).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let pinned = PinnedAllocator::with_config(Arc::clone(&device), config).unwrap();
    Setup { allocator: CachingAllocator::new(Arc::clone(&device)), device, pinned, other }
}

impl Setup {
    fn on_device(&self, stream: Stream) -> Buffer<u32> {
        let mut buffer = Buffer::uninit_on(&self.allocator, stream, LEN).unwrap();
        buffer.fill_zero().unwrap();
        buffer
    }

    fn pinned(&self, value: u32) -> PinnedBuffer<u32> {
        PinnedBuffer::from_slice(&self.pinned, &[value; LEN]).unwrap()
    }
}

/// Lets a held stream go after a pause; how long `wait` took until then.
fn let_go_during(mock: &Mock, stream: Stream, wait: impl FnOnce()) -> Duration {
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(PAUSE);
            mock.let_stream_go(0, stream);
        });
        wait();
        started.elapsed()
    })
}

#[test]
fn a_copy_to_the_device_returns_at_once_and_a_borrow_to_write_waits_for_it() {
    for use_host_register in [false, true] {
        let mock = Mock::exclusive();
        let mut config = PinnedConfig::default();
        config.use_host_register = use_host_register;
        let setup = setup_with(config);
        let (mut source, mut target) = (setup.pinned(5), setup.on_device(setup.other));
        mock.hold_stream(0, setup.other);
        target.copy_from_pinned(&source).unwrap();
        assert!(!source.is_idle().unwrap());
        // Reading is no trouble: the device reads too.
        assert_eq!(source.as_slice().unwrap(), [5; LEN]);
        let took = let_go_during(&mock, setup.other, || source.as_mut_slice().unwrap().fill(6));
        assert!(took >= PAUSE, "{took:?}");
        assert!(source.is_idle().unwrap());
        assert_eq!(target.to_vec().unwrap(), [5; LEN], "as it was when the copy was asked for");
        target.copy_from_pinned(&source).unwrap();
        assert_eq!(target.to_vec().unwrap(), [6; LEN]);
    }
}

#[test]
fn a_copy_from_the_device_returns_at_once_and_any_borrow_waits_for_it() {
    let mock = Mock::exclusive();
    let setup = setup();
    let source = Buffer::from_slice_on(&setup.allocator, setup.other, &[7_u32; LEN]).unwrap();
    let mut target = setup.pinned(0);
    mock.hold_stream(0, setup.other);
    source.copy_to_pinned(&mut target).unwrap();
    assert!(!target.is_idle().unwrap());
    let took = let_go_during(&mock, setup.other, || assert_eq!(target.as_slice().unwrap(), [7; LEN]));
    assert!(took >= PAUSE, "{took:?}");
}

#[test]
fn a_borrow_waits_for_copies_both_ways_on_one_stream() {
    let mock = Mock::exclusive();
    let setup = setup();
    let source = Buffer::from_slice_on(&setup.allocator, setup.other, &[7_u32; LEN]).unwrap();
    let mut target = setup.on_device(setup.other);
    let mut relay = setup.pinned(0);
    mock.hold_stream(0, setup.other);
    target.copy_from_pinned(&relay).unwrap();
    source.copy_to_pinned(&mut relay).unwrap();
    target.copy_from_pinned(&relay).unwrap();
    let took = let_go_during(&mock, setup.other, || assert_eq!(relay.as_slice().unwrap(), [7; LEN]));
    assert!(took >= PAUSE, "{took:?}");
}

#[test]
fn a_borrow_waits_for_the_copy_and_not_for_the_stream() {
    let mock = Mock::exclusive();
    let setup = setup();
    let mut target = setup.on_device(setup.other);
    let mut source = setup.pinned(1);
    target.copy_from_pinned(&source).unwrap();
    mock.hold_stream(0, setup.other);
    let later = setup.pinned(2);
    target.copy_from_pinned(&later).unwrap();
    source.as_mut_slice().unwrap().fill(3);
    assert!(!later.is_idle().unwrap(), "the stream is still held");
    mock.let_stream_go(0, setup.other);
}

#[test]
fn a_buffer_dropped_under_a_copy_is_reused_when_the_copy_is_done() {
    let mock = Mock::exclusive();
    let setup = setup();
    let mut targets = [setup.on_device(setup.other), setup.on_device(Stream::DEFAULT)];
    for both in [false, true] {
        let source = setup.pinned(8);
        let address = source.address();
        mock.hold_stream(0, setup.other);
        targets[0].copy_from_pinned(&source).unwrap();
        if both {
            targets[1].copy_from_pinned(&source).unwrap();
        }
        drop(source);
        let mut next = setup.pinned(9);
        assert_ne!(next.address(), address, "the copy is not done");
        next.as_mut_slice().unwrap().fill(10);
        mock.let_stream_go(0, setup.other);
        assert_eq!(targets[0].to_vec().unwrap(), [8; LEN]);
        assert_eq!(setup.pinned(0).address(), address);
    }
    let stats = setup.pinned.host_memory_stats();
    assert_eq!((stats.active_requests.current, stats.allocations.current), (0, 2));
}

#[test]
fn a_buffer_dropped_under_a_copy_outlives_its_allocators_handles() {
    let mock = Mock::exclusive();
    let locked_before = mock.live(Live::HostMemory);
    let Setup { device, allocator, pinned, other } = setup();
    let mut target = Buffer::<u32>::zeros_on(&allocator, other, LEN).unwrap();
    let source = PinnedBuffer::from_slice(&pinned, &[4; LEN]).unwrap();
    mock.hold_stream(0, other);
    target.copy_from_pinned(&source).unwrap();
    drop(pinned);
    let took = let_go_during(&mock, other, || drop(source));
    assert!(took >= PAUSE, "{took:?}");
    assert_eq!(mock.live(Live::HostMemory), locked_before);
    assert_eq!(target.to_vec().unwrap(), [4; LEN]);
    drop((target, allocator, device));
}

#[test]
fn copies_on_several_streams_come_in_the_order_they_were_asked_for() {
    let mock = Mock::exclusive();
    let setup = setup();
    let source = Buffer::from_slice_on(&setup.allocator, setup.other, &[3_u32; LEN]).unwrap();
    let mut relay = setup.pinned(0);
    let mut target = setup.on_device(Stream::DEFAULT);
    // Onto the host on a stream that stands still, from there to the device on another.
    mock.hold_stream(0, setup.other);
    source.copy_to_pinned(&mut relay).unwrap();
    target.copy_from_pinned(&relay).unwrap();
    // And over what is still to be read.
    let zeros = setup.on_device(setup.other);
    zeros.copy_to_pinned(&mut relay).unwrap();
    mock.let_stream_go(0, setup.other);
    assert_eq!(target.to_vec().unwrap(), [3; LEN]);
    assert_eq!(relay.as_slice().unwrap(), [0; LEN]);
}

#[test]
fn an_announced_use_is_waited_for_like_a_copy() {
    let mock = Mock::exclusive();
    let setup = setup();
    let used = setup.pinned(1);
    mock.hold_stream(0, setup.other);
    used.record_stream(setup.other).unwrap();
    assert!(!used.is_idle().unwrap());
    let took = let_go_during(&mock, setup.other, || assert_eq!(used.as_slice().unwrap()[0], 1));
    assert!(took >= PAUSE, "an announced use may write: {took:?}");
    assert!(used.record_stream(Stream(0xdead_0001)).is_err());
}

#[test]
fn a_copy_that_the_driver_refuses_counts_as_one_that_it_may_have_begun() {
    let mock = Mock::exclusive();
    let setup = setup();
    let (source, mut target) = (setup.pinned(1), setup.on_device(setup.other));
    let address = source.address();
    mock.hold_stream(0, setup.other);
    mock.fail("cuMemcpyHtoDAsync_v2", 0, 999);
    let error = target.copy_from_pinned(&source).unwrap_err().to_string();
    assert!(error.contains("cuMemcpyHtoDAsync") && error.contains("CUDA_ERROR_UNKNOWN"), "{error}");
    drop(source);
    assert_ne!(setup.pinned(2).address(), address);
    mock.let_stream_go(0, setup.other);
}

#[test]
fn what_does_not_fit_together_is_refused_by_name() {
    let _mock = Mock::exclusive();
    let setup = setup();
    let mut target = setup.on_device(Stream::DEFAULT);
    let mut short = PinnedBuffer::<u32>::zeros(&setup.pinned, LEN - 1).unwrap();
    let from = target.copy_from_pinned(&short).unwrap_err();
    assert_eq!(from, PinnedError::LengthMismatch { source_len: LEN - 1, target_len: LEN });
    let to = target.copy_to_pinned(&mut short).unwrap_err();
    assert_eq!(to, PinnedError::LengthMismatch { source_len: LEN, target_len: LEN - 1 });

    let elsewhere = PinnedAllocator::new(Arc::new(Host::new())).unwrap();
    let foreign = PinnedBuffer::<u32>::zeros(&elsewhere, LEN).unwrap();
    let error = target.copy_from_pinned(&foreign).unwrap_err();
    assert_eq!(error, PinnedError::OtherDevice { pinned: "host".to_owned(), other: "cuda:0".to_owned() });

    let mut nothing = PinnedBuffer::<u32>::uninit(&setup.pinned, 0).unwrap();
    let mut empty = Buffer::<u32>::uninit(&setup.allocator, 0).unwrap();
    empty.copy_from_pinned(&nothing).unwrap();
    empty.copy_to_pinned(&mut nothing).unwrap();
    assert!(nothing.as_mut_slice().unwrap().is_empty());
    let error = PinnedBuffer::<u64>::uninit(&setup.pinned, usize::MAX / 4).unwrap_err();
    assert_eq!(error, PinnedError::TooLarge { requested_bytes: u64::MAX });
}

#[test]
fn a_capture_takes_buffers_of_a_capture_pool_only() {
    let mock = Mock::exclusive();
    let locked_before = mock.live(Live::HostMemory);
    let setup = setup();
    let mut target = setup.on_device(setup.other);
    let plain = setup.pinned(1);
    let pool = setup.pinned.capture_pool();
    // A block that waits for its stream, so that an allocation has a reason to look at events.
    let mut waiting = setup.on_device(Stream::DEFAULT);
    mock.hold_stream(0, Stream::DEFAULT);
    waiting.copy_from_pinned(&plain).unwrap();
    mock.set_capturing(0, setup.other, true);

    for refused in [target.copy_from_pinned(&plain), plain.record_stream(setup.other)] {
        assert_eq!(refused.unwrap_err(), PinnedError::Capturing { stream: setup.other });
    }
    drop(plain);
    let queries = mock.calls("cuEventQuery");
    let mut captured = PinnedBuffer::<u32>::uninit_in(&pool, LEN).unwrap();
    captured.as_mut_slice().unwrap().fill(2);
    target.copy_from_pinned(&captured).unwrap();
    let (address, locked) = (captured.address(), mock.live(Live::HostMemory));
    assert_eq!(captured.as_mut_slice().unwrap_err(), PinnedError::Captured);
    assert_eq!(captured.as_slice().unwrap_err(), PinnedError::Captured);
    assert!(!captured.is_idle().unwrap());
    drop(captured);

    // Never used: reused. Used: kept. Two at once: apart.
    let unused = PinnedBuffer::<u32>::uninit_in(&pool, LEN).unwrap();
    let unused_address = unused.address();
    assert_ne!(unused_address, address);
    drop(unused);
    let again = PinnedBuffer::<u32>::uninit_in(&pool, LEN).unwrap();
    assert_eq!(again.address(), unused_address);
    let beside = PinnedBuffer::<u32>::uninit_in(&pool.clone(), LEN).unwrap();
    assert!(![address, unused_address].contains(&beside.address()));
    assert_eq!(mock.calls("cuEventQuery"), queries, "a capture in its strictest mode forbids them");
    assert_eq!(mock.live(Live::HostMemory), locked + 2);
    mock.set_capturing(0, setup.other, false);
    mock.let_stream_go(0, Stream::DEFAULT);

    drop((again, beside));
    setup.pinned.empty_cache().unwrap();
    assert_eq!(mock.live(Live::HostMemory), locked + 1, "the pool keeps its blocks, the default one's went");
    assert_eq!(setup.pinned.host_memory_stats().active_requests.current, 1);
    // SAFETY: there is no graph, and no copy is under way.
    unsafe { pool.release() };
    assert_eq!(setup.pinned.host_memory_stats().active_requests.current, 0);
    let buffers: Vec<_> = (0..3).map(|_| PinnedBuffer::<u32>::uninit_in(&pool, LEN).unwrap()).collect();
    assert!(buffers.iter().any(|buffer| buffer.address() == address), "the graphs are gone");
    drop((buffers, pool));
    setup.pinned.empty_cache().unwrap();
    assert_eq!(mock.live(Live::HostMemory), locked_before);
    let stats = setup.pinned.host_memory_stats();
    assert_eq!((stats.active_bytes.current, stats.allocated_bytes.current), (0, 0));
}

#[test]
fn a_buffer_that_outlives_its_graphs_can_be_borrowed_again() {
    let mock = Mock::exclusive();
    let setup = setup();
    let pool = setup.pinned.capture_pool();
    let source = setup.on_device(setup.other);
    let mut target = PinnedBuffer::<u32>::uninit_in(&pool, LEN).unwrap();
    mock.set_capturing(0, setup.other, true);
    source.copy_to_pinned(&mut target).unwrap();
    mock.set_capturing(0, setup.other, false);
    assert_eq!(target.as_slice().unwrap_err(), PinnedError::Captured);
    // SAFETY: there is no graph, and no copy is under way.
    unsafe { pool.release() };
    assert!(target.is_idle().unwrap());
    source.copy_to_pinned(&mut target).unwrap();
    assert_eq!(target.as_slice().unwrap(), [0; LEN]);
    let address = target.address();
    drop(target);
    let next = || PinnedBuffer::<u32>::uninit_in(&pool, LEN).unwrap();
    assert_ne!(next().address(), address, "used since, and not released since: kept");
    // SAFETY: as above.
    unsafe { pool.release() };
    assert_eq!(next().address(), address);
}

#[test]
fn a_capture_does_not_wait_for_other_streams() {
    let mock = Mock::exclusive();
    let setup = setup();
    let pool = setup.pinned.capture_pool();
    let (elsewhere, mut target) = (setup.on_device(Stream::DEFAULT), setup.on_device(setup.other));
    let mut relay = PinnedBuffer::<u32>::uninit_in(&pool, LEN).unwrap();
    elsewhere.copy_to_pinned(&mut relay).unwrap();
    mock.set_capturing(0, setup.other, true);
    let waits = mock.calls("cuStreamWaitEvent");
    let error = target.copy_from_pinned(&relay).unwrap_err();
    assert_eq!(error, PinnedError::StillUsed { stream: setup.other });
    assert_eq!(mock.calls("cuStreamWaitEvent"), waits, "it would end the capture");
    mock.set_capturing(0, setup.other, false);
    // SAFETY: there is no graph, and the copy is not the pool's.
    unsafe { pool.release() };
}

#[test]
fn memory_of_graphs_that_nobody_ended_stays_locked_with_its_device() {
    let mock = Mock::exclusive();
    // The context stays retained for the rest of the process: a device of its own.
    mock.set_device_count(2);
    let device = Cuda::new(1).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let weak = Arc::downgrade(&device);
    let pinned = PinnedAllocator::new(Arc::clone(&device)).unwrap();
    let before = mock.live(Live::HostMemory);
    let pool = pinned.capture_pool();
    let captured = PinnedBuffer::<u32>::uninit_in(&pool, LEN).unwrap();
    let late = PinnedBuffer::<u32>::uninit_in(&pool, LEN).unwrap();
    mock.set_capturing(1, Stream::DEFAULT, true);
    captured.record_stream(Stream::DEFAULT).unwrap();
    late.record_stream(Stream::DEFAULT).unwrap();
    mock.set_capturing(1, Stream::DEFAULT, false);
    drop(captured);
    drop((pool, pinned, device));
    drop(late);
    assert_eq!(mock.live(Live::HostMemory), before + 2);
    assert!(weak.upgrade().is_some(), "the device is kept: its drop would unlock the memory");
}
