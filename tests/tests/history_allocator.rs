//! Histories and snapshots of an allocator at work.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrack::device::{Simulated, Stream};
use memtrack::history::{
    BlockStatus, ContextLevel, Enabled, HistoryOptions, ReadLimits, Snapshot, Stage, TraceAction, TraceEntry,
    set_memory_metadata,
};
use memtrack::units::MIB;
use memtrack::{Buffer, CachingAllocator, Config, PoolOptions};
use memtrack_tests::listening::listen;

const STREAM: Stream = Stream::DEFAULT;
const SIDE: Stream = Stream(7);

fn on(config: &str) -> (Arc<Simulated>, CachingAllocator) {
    let device = Arc::new(Simulated::with_capacity(1 << 40));
    let allocator = CachingAllocator::with_config(device.clone(), config.parse::<Config>().unwrap()).unwrap();
    (device, allocator)
}

fn without_stacks() -> HistoryOptions {
    HistoryOptions::new().context(ContextLevel::None)
}

fn names(trace: &[TraceEntry]) -> Vec<&str> {
    trace.iter().map(|entry| entry.action.name()).collect()
}

/// One iteration: ten events.
fn iteration(allocator: &CachingAllocator) {
    let blocks = [512, 1000, 3 * MIB].map(|bytes| allocator.allocate_raw(bytes, STREAM).unwrap());
    for block in blocks {
        allocator.free_raw(block).unwrap();
    }
    // The tenth, which stays.
    allocator.allocate_raw(512, STREAM).unwrap();
}

#[test]
fn a_history_tells_all_that_happened_and_leads_to_the_segments() {
    for config in ["", "expandable_segments:True", "max_split_size_mb:20"] {
        let (device, allocator) = on(config);
        allocator.record_memory_history(Some(&without_stacks()));
        let pool = allocator.create_pool(PoolOptions::default());
        let held = {
            let _guard = pool.enter().unwrap();
            [1000, 30 * MIB].map(|bytes| allocator.allocate_raw(bytes, STREAM).unwrap())
        };
        device.set_busy(SIDE);
        let [waiting, kept, gone] =
            [5 * MIB, 700, 25 * MIB].map(|bytes| allocator.allocate_raw(bytes, STREAM).unwrap());
        allocator.record_stream_raw(waiting, SIDE).unwrap();
        allocator.free_raw(waiting).unwrap();
        allocator.free_raw(gone).unwrap();
        allocator.free_raw(held[1]).unwrap();
        allocator.set_memory_fraction(0.001).unwrap();
        assert!(allocator.allocate_raw(1 << 39, STREAM).is_err());
        let snapshot = allocator.snapshot();
        snapshot.check_consistency().unwrap();
        let trace = &snapshot.device_traces[0];
        let count = |name| trace.iter().filter(|entry| entry.action.name() == name).count();
        assert_eq!((count("alloc"), count("free_requested"), count("free_completed"), count("oom")), (5, 3, 3, 1));
        let stats = allocator.memory_stats();
        let sum = |of: fn(&memtrack::history::Segment) -> u64| snapshot.segments.iter().map(of).sum::<u64>() as i64;
        assert_eq!(sum(|segment| segment.total_size), stats.reserved_bytes.all.current, "{config}");
        assert_eq!(sum(|segment| segment.allocated_size), stats.allocated_bytes.all.current);
        assert_eq!(sum(|segment| segment.active_size), stats.active_bytes.all.current);
        assert_eq!(sum(|segment| segment.requested_size), stats.requested_bytes.all.current);
        let of_pool = pool.memory_snapshot();
        assert!(!of_pool.is_empty() && of_pool.iter().all(|segment| segment.segment_pool_id == (0, pool.id().1)));
        assert_eq!(snapshot.segments, allocator.memory_snapshot());
        allocator.free_raw(kept).unwrap();
        allocator.free_raw(held[0]).unwrap();
        drop(pool);
        allocator.empty_cache().unwrap();
        let snapshot = allocator.snapshot();
        snapshot.check_consistency().unwrap();
        let last = snapshot.device_traces[0].last().unwrap().action.name();
        assert!(["segment_free", "segment_unmap"].contains(&last), "{last}");
        assert!(snapshot.segments.is_empty());
    }
}

#[test]
fn a_block_that_waits_is_pending_and_a_live_one_shows_what_was_asked() {
    let (device, allocator) = on("");
    device.set_busy(SIDE);
    let [live, waiting] = [1000, 2000].map(|bytes| allocator.allocate_raw(bytes, STREAM).unwrap());
    allocator.record_stream_raw(waiting, SIDE).unwrap();
    allocator.free_raw(waiting).unwrap();
    let segments = allocator.memory_snapshot();
    let blocks: Vec<_> = segments[0].blocks.iter().map(|block| (block.address, block.state)).collect();
    assert_eq!(blocks[0], (live, BlockStatus::ActiveAllocated));
    assert_eq!(blocks[1], (waiting, BlockStatus::ActivePendingFree));
    assert_eq!(blocks[2].1, BlockStatus::Inactive);
    assert_eq!(segments[0].blocks[0].requested_size, 1000);
}

#[test]
fn scopes_show_as_annotations_and_events_carry_the_threads_text() {
    let (_, allocator) = on("");
    allocator.record_memory_history(Some(&without_stacks()));
    set_memory_metadata("warm-up");
    let scope = memtrack::scope::Scope::open(&allocator, "forward", None);
    drop(Buffer::<u8>::uninit(&allocator, 1000).unwrap());
    drop(scope);
    set_memory_metadata("");
    let snapshot = allocator.snapshot();
    let ends: Vec<_> = snapshot.external_annotations.iter().map(|end| (end.stage, &*end.name)).collect();
    assert_eq!(ends, [(Stage::Start, "forward"), (Stage::End, "forward")]);
    assert!(snapshot.device_traces[0].iter().all(|entry| &*entry.user_metadata == "warm-up"));
}

#[test]
fn skipped_actions_and_a_full_ring_leave_the_rest_in_order() {
    let (_, allocator) = on("");
    let options = without_stacks().skip_actions([TraceAction::FreeRequested]).max_entries(4);
    allocator.record_memory_history(Some(&options));
    for bytes in 1..=5 {
        drop(Buffer::<u8>::uninit(&allocator, bytes).unwrap());
    }
    let snapshot = allocator.snapshot();
    let trace = &snapshot.device_traces[0];
    assert_eq!(names(trace), ["alloc", "free_completed", "alloc", "free_completed"]);
    assert_eq!(trace.iter().map(|entry| entry.size).collect::<Vec<_>>(), [4, 4, 5, 5]);
    assert_eq!(names(&allocator.snapshot().device_traces[0])[3], "snapshot", "a snapshot shows in the next one");
}

/// A look at the state costs the same whatever was recorded; a dump grows with it, and nobody waits while it is written.
#[test]
fn r21_statistics_slowed_down_by_recorded_history() {
    let (_, allocator) = on("");
    allocator.record_memory_history(Some(&without_stacks()));
    let record = |events: usize| {
        for _ in 0..events / 3 {
            drop(Buffer::<u8>::uninit(&allocator, 1000).unwrap());
        }
    };
    let quickest = |run: &dyn Fn()| {
        let time = || {
            let start = Instant::now();
            run();
            start.elapsed()
        };
        (0..30).map(|_| time()).min().unwrap_or(Duration::ZERO)
    };
    let look = || drop(allocator.memory_snapshot());
    let dump = || allocator.snapshot().write_pickle(io::sink()).unwrap();
    let before = quickest(&look);
    record(1000);
    let short_dump = quickest(&dump);
    record(99_000);
    let (after, long_dump) = (quickest(&look), quickest(&dump));
    assert_eq!(allocator.snapshot().device_traces[0].len() / 1000, 100);
    // Twice, and what a clock and a busy machine may add to some microseconds.
    assert!(after <= before * 2 + Duration::from_micros(20), "{before:?} without a history, {after:?} with one");
    assert!(long_dump <= short_dump * 200, "{short_dump:?} for 1000 events, {long_dump:?} for 100,000");

    struct Allocating<'a>(&'a CachingAllocator, usize);
    impl Write for Allocating<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(Buffer::<u8>::uninit(self.0, 1000).unwrap());
            self.1 += 1;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut target = Allocating(&allocator, 0);
    allocator.snapshot().write_pickle(&mut target).unwrap();
    assert!(target.1 > 1, "while the file was written, allocations went on");
}

/// A file without a history says so; more detail keeps what was recorded; off and on begins anew.
#[test]
fn r22_a_dump_without_a_timeline_or_with_half_of_it() {
    let (_, allocator) = on("");
    let folder = std::env::temp_dir().join(format!("memtrack-r22-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let read = |name: &str| Snapshot::read_file(folder.join(name), &ReadLimits::default()).unwrap();

    let live = allocator.allocate_raw(1000, STREAM).unwrap();
    for name in ["never.pickle", "never.json"] {
        let said = listen(|| (), || allocator.dump_snapshot(folder.join(name)).unwrap());
        assert_eq!((said.len(), &*said[0].target), (1, "memtrack::snapshot"), "a warning when it is dumped");
        let never = read(name);
        assert_eq!(never.history[0].enabled, None, "the history is off");
        assert_eq!(never.segments[0].blocks[0].address, live);
        assert!(never.device_traces[0].is_empty());
    }

    allocator.empty_cache().unwrap();
    allocator.record_memory_history(Some(&without_stacks()));
    (0..3).for_each(|_| iteration(&allocator));
    let half = allocator.snapshot().device_traces[0].len();
    allocator.record_memory_history(Some(&HistoryOptions::new().skip_actions([TraceAction::Snapshot])));
    (0..2).for_each(|_| iteration(&allocator));
    allocator.dump_snapshot(folder.join("switched.pickle")).unwrap();
    let switched = read("switched.pickle");
    let trace = &switched.device_traces[0];
    // The snapshot in between is an event too.
    let (without, with) = trace.split_at(half + 1);
    assert_eq!(with.len(), 20, "{:?}", names(with));
    assert!(without.iter().all(|entry| entry.frames.is_none()));
    assert!(with.iter().all(|entry| entry.frames.is_some()));
    assert_eq!(switched.history[0].enabled, Some(Enabled::All));

    allocator.record_memory_history(None);
    iteration(&allocator);
    let allocated_bytes = allocator.memory_allocated() as u64;
    allocator.record_memory_history(Some(&without_stacks()));
    iteration(&allocator);
    allocator.dump_snapshot(folder.join("anew.pickle")).unwrap();
    let anew = read("anew.pickle");
    let start = anew.history[0].start.as_ref().unwrap();
    assert_eq!(anew.device_traces[0].len(), 10);
    assert_eq!(start.allocated_bytes, allocated_bytes, "what the curve begins with");
    assert!(start.entry >= trace.len() as u64 && start.time_us <= anew.device_traces[0][0].time_us);
    anew.check_consistency().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn threads_are_recorded_in_an_order_that_can_have_happened() {
    let (_, allocator) = on("");
    allocator.record_memory_history(Some(&without_stacks()));
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let allocator = &allocator;
            scope.spawn(move || {
                for turn in 0..400 {
                    let block = allocator.allocate_raw(1 + turn * 5000, Stream(number % 3)).unwrap();
                    allocator.record_stream_raw(block, Stream(number % 2)).unwrap();
                    allocator.free_raw(block).unwrap();
                    if turn % 100 == number {
                        allocator.snapshot().check_consistency().unwrap();
                        allocator.empty_cache().unwrap();
                    }
                }
            });
        }
    });
    allocator.snapshot().check_consistency().unwrap();
}
