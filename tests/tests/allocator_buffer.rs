//! Buffers: lengths, contents, copies, and what stays possible when the allocator is gone.

use std::sync::Arc;

use memtrack::device::{DeviceError, Host, Simulated, Stream};
use memtrack::{AllocationError, Buffer, CachingAllocator};

const MIB: u64 = 1 << 20;

fn host() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Host::with_capacity(256 * MIB)))
}

#[test]
fn lengths_and_bytes_are_those_of_the_elements() {
    let allocator = host();
    for len in [1, 2, 127, 128, 129, 262_144, 262_145] {
        let buffer = Buffer::<f32>::uninit(&allocator, len).unwrap();
        let bytes = len as u64 * 4;
        assert_eq!((buffer.len(), buffer.is_empty(), buffer.requested_bytes()), (len, false, bytes));
        assert_eq!(buffer.allocated_bytes(), bytes.next_multiple_of(512));
        assert_eq!(buffer.as_slice().unwrap().len(), len);
        assert!(buffer.address().is_multiple_of(512));
        assert_eq!(allocator.memory_stats().requested_bytes.all.current as u64, bytes);
    }
    assert_eq!(allocator.memory_allocated(), 0);
}

#[test]
fn a_buffer_knows_where_it_came_from() {
    let allocator = host();
    let buffer = Buffer::<u8>::uninit_on(&allocator, Stream(6), 10).unwrap();
    assert_eq!(buffer.stream(), Stream(6));
    assert!(Arc::ptr_eq(buffer.device(), allocator.device()));
    assert!(buffer.allocator().unwrap().is_same(&allocator));
    let empty = Buffer::<u8>::uninit_on(&allocator, Stream(7), 0).unwrap();
    assert_eq!(empty.stream(), Stream(7));
    assert!(empty.allocator().unwrap().is_same(&allocator));
}

#[test]
fn nothing_takes_no_memory_and_can_do_all_that_something_can() {
    let allocator = host();
    let mut empty = Buffer::<u64>::zeros(&allocator, 0).unwrap();
    assert_eq!((empty.len(), empty.is_empty(), empty.address()), (0, true, 0));
    assert_eq!((empty.requested_bytes(), empty.allocated_bytes()), (0, 0));
    assert!(empty.as_slice().unwrap().is_empty());
    assert!(empty.as_mut_slice().unwrap().is_empty());
    assert_eq!(empty.to_vec().unwrap(), Vec::<u64>::new());
    empty.copy_from_slice(&[]).unwrap();
    empty.fill_zero().unwrap();
    empty.record_stream(Stream(3)).unwrap();
    let mut clone = empty.try_clone().unwrap();
    clone.copy_from(&empty).unwrap();
    assert_eq!(clone.copy_from_slice(&[1]), Err(AllocationError::LengthMismatch { source_len: 1, target_len: 0 }));
    assert_eq!(allocator.memory_stats().allocation.all.allocated, 0);
    assert_eq!(allocator.memory_reserved(), 0);
}

#[test]
fn elements_without_size_take_no_memory_at_any_length() {
    let allocator = host();
    let mut units = Buffer::<[u8; 0]>::zeros(&allocator, 1000).unwrap();
    assert_eq!((units.len(), units.is_empty(), units.requested_bytes()), (1000, false, 0));
    assert_eq!(units.as_slice().unwrap().len(), 1000);
    assert_eq!(units.as_mut_slice().unwrap().len(), 1000);
    assert_eq!(units.to_vec().unwrap().len(), 1000);
    assert_eq!(units.try_clone().unwrap().len(), 1000);
    assert_eq!(Buffer::<[u8; 0]>::uninit(&allocator, usize::MAX).unwrap().len(), usize::MAX);
    assert_eq!(allocator.memory_reserved(), 0);
}

#[test]
fn a_length_whose_bytes_overflow_is_too_large() {
    let allocator = host();
    for len in [usize::MAX, usize::MAX / 8 + 1, usize::MAX / 4] {
        let refused = Buffer::<u64>::uninit(&allocator, len).unwrap_err();
        assert!(
            matches!(refused, AllocationError::TooLarge { requested_bytes } if requested_bytes >= 1 << 60),
            "{len}"
        );
    }
    let refused = Buffer::<u64>::uninit(&allocator, 1 << 57).unwrap_err();
    assert_eq!(refused, AllocationError::TooLarge { requested_bytes: 1 << 60 });
    let refused = Buffer::<u64>::uninit(&allocator, (1 << 57) - 1).unwrap_err();
    assert!(matches!(refused, AllocationError::OutOfMemory(_)));
    assert_eq!(allocator.memory_stats().allocation.all.allocated, 0);
}

#[test]
fn zeros_are_zero_also_in_memory_that_was_used() {
    let allocator = host();
    let mut used = Buffer::<u8>::uninit(&allocator, 5000).unwrap();
    let address = used.address();
    used.as_mut_slice().unwrap().fill(0xAB);
    drop(used);
    let zeros = Buffer::<u8>::zeros(&allocator, 5000).unwrap();
    assert_eq!(zeros.address(), address);
    assert!(zeros.as_slice().unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn contents_go_in_and_come_out() {
    let allocator = host();
    let values: Vec<i32> = (-500..500).collect();
    let mut buffer = Buffer::from_slice(&allocator, &values).unwrap();
    assert_eq!(buffer.as_slice().unwrap(), values);
    assert_eq!(buffer.to_vec().unwrap(), values);
    buffer.as_mut_slice().unwrap()[999] = 7;
    let mut out = vec![0; 1000];
    buffer.copy_to_slice(&mut out).unwrap();
    assert_eq!((out[0], out[998], out[999]), (-500, 498, 7));
    buffer.copy_from_slice(&[9; 1000]).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [9; 1000]);
    buffer.fill_zero().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [0; 1000]);
}

#[test]
fn a_clone_is_another_block_with_the_same_content_on_the_same_stream() {
    let allocator = host();
    let mut original = Buffer::from_slice_on(&allocator, Stream(2), &[1.5_f64, 2.5]).unwrap();
    let clone = original.try_clone().unwrap();
    original.fill_zero().unwrap();
    assert_ne!(clone.address(), original.address());
    assert_eq!((clone.stream(), clone.to_vec().unwrap()), (Stream(2), vec![1.5, 2.5]));
}

#[test]
fn unequal_lengths_are_refused_and_nothing_is_written() {
    let allocator = host();
    let mut target = Buffer::from_slice(&allocator, &[1_u16, 2, 3]).unwrap();
    let source = Buffer::from_slice(&allocator, &[9_u16; 4]).unwrap();
    let refused = |source_len, target_len| Err(AllocationError::LengthMismatch { source_len, target_len });
    assert_eq!(target.copy_from(&source), refused(4, 3));
    assert_eq!(target.copy_from_slice(&[9; 2]), refused(2, 3));
    assert_eq!(target.copy_to_slice(&mut [0; 4]), refused(3, 4));
    assert_eq!(target.to_vec().unwrap(), [1, 2, 3]);
    let text = target.copy_from(&source).unwrap_err().to_string();
    assert_eq!(text, "cannot copy 4 elements into a buffer of 3; the lengths must be equal");
}

#[test]
fn a_copy_from_another_stream_keeps_nothing_once_the_source_is_dropped() {
    let allocator = host();
    let source = Buffer::from_slice_on(&allocator, Stream(1), &[3_u8; 600]).unwrap();
    let mut target = Buffer::<u8>::zeros_on(&allocator, Stream(2), 600).unwrap();
    target.copy_from(&source).unwrap();
    assert_eq!(target.to_vec().unwrap(), [3; 600]);
    drop(source);
    // The source's stream comes after the copy, so its memory can be used again at once.
    let stats = allocator.memory_stats();
    assert_eq!((stats.allocation.all.current, stats.active.all.current), (1, 1));
}

#[test]
fn a_copy_between_devices_says_how_to_do_it() {
    let (here, there) = (host(), host());
    let source = Buffer::from_slice(&there, &[1_u8; 4]).unwrap();
    let mut target = Buffer::<u8>::zeros(&here, 4).unwrap();
    let refused = target.copy_from(&source).unwrap_err();
    assert!(matches!(refused, AllocationError::NoAccess { .. }));
    assert!(refused.to_string().contains("to_vec"), "{refused}");
    assert_eq!(target.to_vec().unwrap(), [0; 4]);
    let neighbour = CachingAllocator::new(here.device().clone());
    let source = Buffer::from_slice(&neighbour, &[5_u8; 4]).unwrap();
    target.copy_from(&source).unwrap();
    assert_eq!(target.to_vec().unwrap(), [5; 4], "two allocators on one device can copy");
}

#[test]
fn a_device_without_bytes_hands_out_memory_and_refuses_contents() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let mut buffer = Buffer::<u32>::uninit(&allocator, 100).unwrap();
    let no_bytes = |outcome: Result<(), AllocationError>| {
        assert!(matches!(outcome, Err(AllocationError::Device(DeviceError::NoBytes { .. }))), "{outcome:?}");
    };
    no_bytes(buffer.fill_zero());
    no_bytes(buffer.copy_from_slice(&[0; 100]));
    no_bytes(buffer.copy_to_slice(&mut [0; 100]));
    no_bytes(buffer.to_vec().map(drop));
    no_bytes(buffer.try_clone().map(drop));
    no_bytes(Buffer::<u32>::zeros(&allocator, 1).map(drop));
    let refused = buffer.as_slice().unwrap_err();
    assert_eq!(refused.to_string(), "simulated memory cannot be borrowed as a slice; copy it with `to_vec`");
    assert!(buffer.as_mut_slice().is_err());
    drop(buffer);
    assert_eq!(allocator.memory_allocated(), 0, "what could not be filled went back");
}

#[test]
fn buffers_outlive_their_allocator() {
    let allocator = host();
    let device = allocator.device().clone();
    let mut buffer = Buffer::from_slice(&allocator, &[1_u8, 2, 3]).unwrap();
    let empty = Buffer::<u8>::uninit(&allocator, 0).unwrap();
    drop(allocator);
    assert!(buffer.allocator().is_none());
    assert!(matches!(buffer.try_clone(), Err(AllocationError::AllocatorDropped)));
    assert!(matches!(empty.try_clone(), Err(AllocationError::AllocatorDropped)));
    buffer.as_mut_slice().unwrap()[0] = 9;
    buffer.record_stream(Stream(8)).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [9, 2, 3]);
    assert_eq!(device.memory().unwrap().free_bytes, 254 * MIB);
    // What a stream has cached goes with the last buffer of that stream, and be it an empty one.
    drop(buffer);
    drop(empty);
    assert_eq!(device.memory().unwrap().free_bytes, 256 * MIB);
}

#[test]
fn debug_tells_what_a_person_needs_and_no_content() {
    let allocator = host();
    let buffer = Buffer::from_slice_on(&allocator, Stream(0x2a), &[1_f32; 3]).unwrap();
    let expected = format!(
        "Buffer {{ element: \"f32\", len: 3, device: \"host\", stream: Stream(42), address: {:#x} }}",
        buffer.address()
    );
    assert_eq!(format!("{buffer:?}"), expected);
}

#[test]
fn buffers_can_be_sent_and_shared() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Buffer<f32>>();
    check::<CachingAllocator>();
}
