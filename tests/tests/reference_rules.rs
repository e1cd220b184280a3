//! Measured examples that the recordings do not hold, on the slow allocator: rounding, settings with mistakes, the refusal
//! after waiting, the limit in expandable mode.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack_tests::reference_allocator::{ReferenceAllocator, Refused, Routed, SettingsError, counter_names};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn allocator(settings: &str) -> ReferenceAllocator {
    ReferenceAllocator::new(settings, 140 * GIB, (1..100).map(|n| n << 40)).unwrap()
}

fn value(allocator: &ReferenceAllocator, name: &str) -> i64 {
    let at = counter_names().iter().position(|known| known == name).unwrap();
    allocator.counters().0[at]
}

/// With expandable segments a block is exactly as large as the request is rounded to.
#[test]
fn sizes_are_rounded_as_measured() {
    let divisions = [1, 2, 4, 8, 64];
    for (bytes, rounded) in [
        (1000, [1024; 5]),
        (1025, [1536; 5]),
        (3000, [3072; 5]),
        (5000, [5120, 6144, 5120, 5120, 5120]),
        (100_000, [100_352, 131_072, 114_688, 106_496, 100_352]),
        (700_000, [700_416, 786_432, 786_432, 720_896, 704_512]),
        (1_048_577, [1_049_088, 1_572_864, 1_310_720, 1_179_648, 1_064_960]),
        (9 * MIB, [9, 12, 10, 9, 9].map(|size| size * MIB)),
        (100 * MIB, [100, 128, 112, 104, 100].map(|size| size * MIB)),
        (1000 * MIB, [1000, 1024, 1024, 1024, 1000].map(|size| size * MIB)),
    ] {
        for (divisions, rounded) in divisions.into_iter().zip(rounded) {
            let settings = format!("expandable_segments:True,roundup_power2_divisions:{divisions}");
            let mut allocator = allocator(&settings);
            allocator.allocate(bytes, 0, 0).unwrap();
            assert_eq!(value(&allocator, "allocated_bytes.all.current"), rounded as i64, "{bytes} by {divisions}");
        }
    }
}

/// What 3 MiB, 9 MiB, 600 MiB and 1100 MiB are rounded to shows the divisions of their intervals.
#[test]
fn lists_of_divisions_are_read_from_left_to_right() {
    let rounded = |list: &str, mebibytes: u64| {
        let mut allocator = allocator(&format!("expandable_segments:True,roundup_power2_divisions:{list}"));
        allocator.allocate(mebibytes * MIB, 0, 0).unwrap();
        value(&allocator, "allocated_bytes.all.current") as u64 / MIB
    };
    // Entry 0 keeps 0 when the rest comes first, and gets the first boundary's divisions when a later one is named.
    assert_eq!([1, 3, 9].map(|size| rounded("[>:2]", size)), [1, 3, 12]);
    assert_eq!([600, 1100, 2100].map(|size| rounded("[512:2,>:4,1024:8]", size)), [768, 1152, 2560]);
    assert_eq!([5, 9].map(|size| rounded("[4:2,1:8]", size)), [6, 9]);
    assert_eq!([3, 9].map(|size| rounded("[]", size)), [3, 9]);
}

#[test]
fn mistakes_are_of_pythons_types() {
    let kind = |text: &str| match allocator("").apply_settings(text) {
        Ok(()) => "none",
        Err(SettingsError::Value(_)) => "ValueError",
        Err(SettingsError::Runtime(_)) => "RuntimeError",
        Err(SettingsError::Index(_)) => "IndexError",
    };
    for (text, expected) in [
        ("", "none"),
        ("max_split_size_mb,30", "none"),
        ("max_split_size_mb:30,", "none"),
        ("max_split_size_mb:30abc", "none"),
        ("max_split_size_mb:-1", "none"),
        ("max_ split_size_mb : 3 0", "none"),
        ("roundup_power2_divisions:[]", "none"),
        ("max_split_size_mb:30,,", "ValueError"),
        ("foo:1", "ValueError"),
        ("Expandable_segments:True", "ValueError"),
        ("expandable_segments:true", "ValueError"),
        ("max_split_size_mb:abc", "ValueError"),
        ("max_split_size_mb:19", "ValueError"),
        ("large_segment_size_mb:10", "ValueError"),
        ("garbage_collection_threshold:1", "ValueError"),
        ("garbage_collection_threshold:nan", "ValueError"),
        ("roundup_power2_divisions:0", "ValueError"),
        ("roundup_power2_divisions:[3:2]", "ValueError"),
        ("pinned_num_register_threads:256", "ValueError"),
        ("per_process_memory_fraction:1.1", "ValueError"),
        ("throw_on_cudamalloc_oom:True", "ValueError"),
        ("backend:other", "ValueError"),
        ("max_split_size_mb", "RuntimeError"),
        ("roundup_power2_divisions:[1:2", "RuntimeError"),
        ("backend:cudaMallocAsync", "RuntimeError"),
        ("max_split_size_mb:99999999999999999999", "IndexError"),
    ] {
        assert_eq!(kind(text), expected, "{text}");
    }
}

#[test]
fn what_stands_before_a_mistake_is_in_force() {
    let mut allocator = allocator("expandable_segments:True,max_split_size_mb:50");
    assert!(allocator.apply_settings("max_split_size_mb:30,foo:1,expandable_segments:False").is_err());
    allocator.allocate(35 * MIB, 0, 0).unwrap();
    assert_eq!(value(&allocator, "oversize_allocations.current"), 1);
    assert_eq!(value(&allocator, "segment.all.current"), 0);
    assert_eq!(value(&allocator, "max_split_size"), 50 << 20);
    // One kind of key returns to its default, the other stays.
    assert!(allocator.apply_settings("").is_ok());
    allocator.allocate(35 * MIB, 0, 0).unwrap();
    assert_eq!(value(&allocator, "oversize_allocations.current"), 1);
    assert_eq!(value(&allocator, "segment.all.current"), 0);
}

/// 60 and 40 MiB in one segment, the first waiting for another stream, the limit at 110 MiB: PyTorch waits for it, but then
/// asks the device alone, which is refused; the same request again is served. memtrack looks into the pool.
#[test]
fn the_pool_is_searched_after_waiting_unless_pytorch_is_followed_exactly() {
    let after_waiting = |torch_exact| {
        let mut allocator = allocator("").torch_exact(torch_exact);
        allocator.set_memory_fraction(110.0 / (140.0 * 1024.0));
        let whole = allocator.allocate(100 * MIB, 0, 0).unwrap();
        assert!(allocator.free(whole));
        let first = allocator.allocate(60 * MIB, 0, 0).unwrap();
        allocator.allocate(40 * MIB, 0, 0).unwrap();
        allocator.set_busy(7);
        allocator.record_stream(first, 7);
        assert!(allocator.free(first));
        let answers = [0, 0].map(|_| allocator.allocate(50 * MIB, 0, 0));
        (answers, value(&allocator, "num_alloc_retries"), value(&allocator, "num_ooms"), first)
    };
    let (answers, retries, ooms, first) = after_waiting(true);
    assert_eq!((answers, retries, ooms), ([Err(Refused::ByLimit), Ok(first)], 1, 1));
    let (answers, retries, ooms, first) = after_waiting(false);
    assert_eq!((answers, retries, ooms), ([Ok(first), Err(Refused::ByLimit)], 2, 1));
}

/// A free tail of an oversize segment, the limit reached: PyTorch asks the device to take the tail back.
#[test]
fn part_of_a_segment_is_returned_only_where_pytorch_is_followed_exactly() {
    let asked = |torch_exact| {
        let mut allocator = allocator("").torch_exact(torch_exact);
        allocator.set_memory_fraction(110.0 / (140.0 * 1024.0));
        let whole = allocator.allocate(100 * MIB, 0, 0).unwrap();
        assert!(allocator.free(whole));
        allocator.allocate(50 * MIB, 0, 0).unwrap();
        allocator.apply_settings("max_split_size_mb:40").unwrap();
        let answer = allocator.allocate(30 * MIB, 0, 0);
        allocator.check();
        (answer, ["num_device_free", "num_alloc_retries", "num_ooms"].map(|name| value(&allocator, name)))
    };
    assert_eq!(asked(true), (Err(Refused::PartOfSegment), [1, 0, 0]));
    assert_eq!(asked(false), (Err(Refused::ByLimit), [0, 1, 1]));
}

/// The limit is checked with the segment's size, but whole pages are mapped.
#[test]
fn expandable_memory_may_pass_the_limit_by_a_page() {
    let mut allocator = allocator("expandable_segments:True");
    allocator.set_memory_fraction(130.0 / (140.0 * 1024.0));
    allocator.allocate(120 * MIB, 0, 0).unwrap();
    allocator.allocate(10 * MIB, 0, 0).unwrap();
    assert_eq!(value(&allocator, "reserved_bytes.all.current"), 140 << 20);
}

/// Events complete out of order by number; the block waits for its own, and each stream for its oldest.
#[test]
fn a_block_is_free_once_its_own_event_is_found_complete() {
    let mut allocator = allocator("");
    let blocks = [0, 0].map(|_| allocator.allocate(5 * MIB, 0, 0).unwrap());
    for (block, stream) in blocks.into_iter().zip([7, 8]) {
        allocator.set_busy(stream);
        allocator.record_stream(block, stream);
        assert!(allocator.free(block));
    }
    allocator.complete_event(1);
    assert_eq!(value(&allocator, "active.all.current"), 2);
    allocator.allocate(1, 0, 0).unwrap();
    assert_eq!(value(&allocator, "active.all.current"), 2, "the second block is free, the new one is not");
    allocator.complete_event(0);
    allocator.allocate(1, 0, 0).unwrap();
    assert_eq!(value(&allocator, "active.all.current"), 2);
}

/// While something is routed nothing is waited for, and streams recorded meanwhile are none to wait for afterwards.
#[test]
fn frees_are_put_off_while_anything_is_routed() {
    let mut allocator = allocator("").torch_exact(true);
    allocator.set_busy(7);
    let [before, within] = [0, 0].map(|_| allocator.allocate(5 * MIB, 0, 0).unwrap());
    allocator.record_stream(before, 7);
    let pool = allocator.create_pool(false, false);
    assert!(allocator.enter_pool(pool, Routed::Thread(1)));
    assert!(!allocator.enter_pool(pool, Routed::Thread(0)));
    allocator.record_stream(within, 7);
    assert!(allocator.free(before) && allocator.free(within));
    allocator.empty_cache();
    allocator.allocate(1, 0, 0).unwrap();
    assert_eq!((value(&allocator, "active.all.current"), value(&allocator, "num_sync_all_streams")), (3, 0));
    allocator.leave_pool(pool);
    allocator.allocate(1, 0, 0).unwrap();
    assert_eq!(
        value(&allocator, "active.all.current"),
        2,
        "the stream recorded meanwhile was waited for, so both are free"
    );
    assert_eq!(allocator.pool_use_count(pool), Some(1));
}
