//! Blocks that are reused within their capture.

use memtrack::device::{Operation, Simulated, Stream};
use memtrack::units::MIB;
use memtrack::{CachingAllocator, PoolOptions};

use crate::common::*;

const REUSE: &str = "graph_capture_record_stream_reuse:True";

/// A block on [`STREAM`] with work there, that these streams use too.
fn used_on(device: &Simulated, allocator: &CachingAllocator, streams: &[Stream]) -> u64 {
    let block = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    device.capture_work(STREAM);
    for stream in streams {
        device.join_capture(*stream, STREAM);
        allocator.record_stream_raw(block, *stream).unwrap();
        device.capture_work(*stream);
    }
    block
}

/// Where a request of the same size goes; given back at once.
fn next(allocator: &CachingAllocator) -> u64 {
    let block = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    allocator.free_raw(block).unwrap();
    block
}

#[test]
fn a_block_is_reused_in_the_capture_once_its_stream_has_joined_the_other() {
    for (config, reuses) in [(REUSE, true), ("", false)] {
        let (device, allocator) = with(config, 1 << 30);
        let pool = allocator.create_pool(PoolOptions::default());
        let capture = begin(&device, &pool);
        let block = used_on(&device, &allocator, &[JOINED]);
        allocator.free_raw(block).unwrap();
        forbid(&device, &FORBIDDEN);
        assert_ne!(next(&allocator), block, "before the join");
        device.capture_work(STREAM);
        assert_ne!(next(&allocator), block, "work of its own is no join");
        assert_eq!(pending(&allocator), 1);
        device.join_capture(STREAM, JOINED);
        assert_eq!(next(&allocator) == block, reuses, "after the join, {config:?}");
        assert_eq!(pending(&allocator), i64::from(!reuses));
        assert_eq!(untouched(&device), FORBIDDEN[..4]);
        end(&device);
        drop(capture.end());
        drop(pool);
        allocator.empty_cache().unwrap();
        assert_eq!((pending(&allocator), device.used_bytes()), (0, 0));
    }
}

#[test]
fn of_four_streams_all_must_have_been_joined() {
    let (device, allocator) = with(REUSE, 1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let streams = [32, 64, 96].map(Stream);
    let block = used_on(&device, &allocator, &streams);
    allocator.free_raw(block).unwrap();
    for stream in streams {
        assert_ne!(next(&allocator), block, "{stream} is not joined");
        // Work after the free is no use of the block, and need not be joined.
        device.join_capture(STREAM, stream);
        device.capture_work(stream);
        device.capture_work(STREAM);
    }
    assert_eq!(next(&allocator), block);
    // Again in the same capture, by way of another stream.
    let block = used_on(&device, &allocator, &streams);
    device.join_capture(streams[1], streams[0]);
    device.join_capture(streams[2], streams[1]);
    device.capture_work(streams[2]);
    allocator.free_raw(block).unwrap();
    assert_ne!(next(&allocator), block);
    device.join_capture(STREAM, streams[2]);
    assert_eq!(next(&allocator), block);
}

#[test]
fn a_block_is_reused_on_its_own_stream_alone() {
    let (device, allocator) = with(REUSE, 1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let block = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(block).unwrap();
    device.join_capture(JOINED, STREAM);
    let elsewhere = allocator.allocate_raw(4 * MIB, JOINED).unwrap();
    assert_eq!((elsewhere == block, pending(&allocator)), (false, 1));
    device.join_capture(STREAM, JOINED);
    assert_eq!(next(&allocator), block);
}

#[test]
fn what_the_graph_does_not_order_waits_for_the_end_of_the_capture() {
    type Prepare = fn(&Simulated, &CachingAllocator, u64);
    let cases: [(&str, Prepare); 5] = [
        ("a stream outside of the capture", |_, allocator, block| {
            allocator.record_stream_raw(block, APART).unwrap();
        }),
        ("work given to the stream before it was captured", |device, allocator, block| {
            allocator.record_stream_raw(block, APART).unwrap();
            device.join_capture(APART, STREAM);
            device.capture_work(APART);
            device.join_capture(STREAM, APART);
        }),
        ("a stream of another capture", |device, allocator, block| {
            device.set_capture(APART, Some(5));
            device.capture_work(APART);
            allocator.record_stream_raw(block, APART).unwrap();
        }),
        ("a stream that has left the capture", |device, allocator, block| {
            device.join_capture(APART, STREAM);
            allocator.record_stream_raw(block, APART).unwrap();
            device.set_capture(APART, None);
        }),
        ("a graph that cannot be looked into", |device, _, _| forbid(device, &[Operation::CapturePoint])),
    ];
    for (case, prepare) in cases {
        let (device, allocator) = with(REUSE, 1 << 30);
        let pool = allocator.create_pool(PoolOptions::default());
        let capture = begin(&device, &pool);
        let block = used_on(&device, &allocator, &[JOINED]);
        prepare(&device, &allocator, block);
        allocator.free_raw(block).unwrap();
        device.join_capture(STREAM, JOINED);
        device.capture_work(STREAM);
        assert_ne!(next(&allocator), block, "{case}");
        end(&device);
        drop(capture);
        let capture = begin(&device, &pool);
        let again = next(&allocator);
        assert_eq!((again == block, pending(&allocator)), (false, 1), "{case}: captured again before anybody asked");
        end(&device);
        drop(capture);
        assert!(allocator.allocate_raw(512, Stream::DEFAULT).is_ok());
        assert_eq!(pending(&allocator), 0, "{case}");
    }
}

#[test]
fn what_was_known_of_another_capture_or_another_place_in_it_counts_no_more() {
    let (device, allocator) = with(REUSE, 1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let block = used_on(&device, &allocator, &[JOINED]);
    let other = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(block).unwrap();
    device.join_capture(STREAM, JOINED);
    assert_eq!(next(&allocator), block, "all of this is known to come before the stream's next work");
    // The stream begins again, as if its capture's dependencies had been replaced: nothing does any more.
    allocator.free_raw(other).unwrap();
    device.set_capture(STREAM, None);
    device.set_capture(STREAM, CAPTURE);
    let held = allocator.allocate_raw(4 * MIB, STREAM).unwrap();
    assert_eq!((held, pending(&allocator)), (block, 1), "the other block waits");
    device.join_capture(STREAM, JOINED);
    assert_eq!(next(&allocator), other);
}

#[test]
fn an_error_of_the_graph_makes_no_allocation_fail() {
    let (device, allocator) = with(REUSE, 1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let block = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(block).unwrap();
    device.join_capture(STREAM, JOINED);
    forbid(&device, &[Operation::CapturePoint]);
    assert_ne!(next(&allocator), block);
    assert_eq!(next(&allocator), block, "asked again");
}

#[test]
fn the_setting_can_be_changed_at_run_time() {
    let (device, allocator) = simulated(1 << 30);
    let pool = allocator.create_pool(PoolOptions::default());
    let _capture = begin(&device, &pool);
    let early = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(early).unwrap();
    allocator.apply_settings(REUSE).unwrap();
    let late = used_on(&device, &allocator, &[JOINED]);
    allocator.free_raw(late).unwrap();
    device.join_capture(STREAM, JOINED);
    assert_eq!((next(&allocator), pending(&allocator)), (late, 1), "nothing was noted when the first was freed");
}
