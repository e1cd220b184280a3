//! Scenarios R06 to R08 from public reports: statistics that mislead.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Stream;
use memtrack::diagnosis::{FindingCode, Floor, Trend, growth_by_group, judge_floors};
use memtrack::scope::{LiveSite, Scope};
use memtrack::{CachingAllocator, MemoryStats};
use memtrack_tests::scenarios::{Scenario, figure};

#[test]
fn r06_resetting_the_peak_keeps_the_live_total() {
    let scenario = Scenario::new(81_920, "");
    let allocator = &scenario.allocator;
    let mebibytes = |bytes: i64| bytes >> 20;
    let counts = |stats: &MemoryStats| {
        let MemoryStats { allocation, num_alloc_retries, num_ooms, num_device_alloc, num_device_free, .. } = stats;
        (
            allocation.all.allocated,
            allocation.all.freed,
            *num_alloc_retries,
            *num_ooms,
            *num_device_alloc,
            *num_device_free,
        )
    };
    scenario.take(31_100);
    allocator.reset_peak_memory_stats();
    let temporary = scenario.take(7032);
    scenario.free([temporary]);
    assert_eq!(mebibytes(allocator.memory_allocated()), 31_100);
    assert_eq!(mebibytes(allocator.max_memory_allocated()), 38_132, "37.238 GiB");
    let before = counts(&allocator.memory_stats());
    allocator.reset_peak_memory_stats();
    assert_eq!(mebibytes(allocator.max_memory_allocated()), 31_100, "the live total, not less");
    assert_eq!(counts(&allocator.memory_stats()), before);
    assert_eq!(before, (2, 1, 0, 0, 2, 0));
}

#[test]
fn r06_samples_between_steps_miss_the_peak_that_a_scope_has() {
    let scenario = Scenario::new(81_920, "");
    scenario.take(31_100);
    for _ in 0..3 {
        let step = Scope::open(&scenario.allocator, "step", None);
        let temporary = scenario.take(7032);
        scenario.free([temporary]);
        let record = step.close(memtrack::scope::Outcome::Ok);
        assert_eq!((record.after_bytes >> 20, record.peak_bytes >> 20), (31_100, 38_132));
    }
}

const WORKSPACE_BYTES: u64 = 8_519_680;

/// A library's function: the first call on a stream makes a workspace that stays.
fn call(allocator: &CachingAllocator, workspaces: &mut Vec<Stream>, stream: Stream) {
    if !workspaces.contains(&stream) {
        let _scope = Scope::open(allocator, "workspace", None);
        allocator.allocate_raw(WORKSPACE_BYTES, stream).unwrap();
        workspaces.push(stream);
    }
    let temporary = allocator.allocate_raw(1 << 20, stream).unwrap();
    allocator.free_raw(temporary).unwrap();
}

#[test]
fn r07_a_library_workspace_is_no_leak() {
    let scenario = Scenario::new(81_920, "");
    let allocator = &scenario.allocator;
    let (mut workspaces, mut floors, mut reserved) = (Vec::new(), Vec::new(), Vec::new());
    let before = allocator.memory_view();
    for number in 1..=10 {
        call(allocator, &mut workspaces, Stream(u64::from(number > 5)));
        floors.push(Floor { number, live_bytes: allocator.memory_allocated(), peak_bytes: None });
        reserved.push(allocator.memory_reserved());
    }
    let live: Vec<i64> = floors.iter().map(|floor| floor.live_bytes).collect();
    assert_eq!(live[..5], [8_519_680; 5]);
    assert_eq!(live[5..], [17_039_360; 5]);
    // The temporary has a segment of the small pool.
    assert_eq!(reserved[0], 20_971_520 + (2 << 20));

    let trend = judge_floors(&floors);
    assert_eq!((trend.trend, trend.rise_count, trend.flat_step_count), (Trend::OneTime, 1, 4));
    let growth = growth_by_group(&before.live, &allocator.memory_view().live);
    let found = trend.finding(None, &growth, 10).unwrap();
    assert_eq!((found.code(), figure(&found, "risen_bytes")), (FindingCode::OneTimeAllocation, 8_519_680));
    assert!(found.headline.starts_with("not a leak"), "{}", found.headline);
    assert!(
        found.evidence.iter().any(|line| line.ends_with("in scope `workspace`")),
        "so that it can be allowed by name: {found:#}"
    );
}

#[test]
fn r07_a_strict_comparison_over_the_first_call_names_the_scope() {
    let scenario = Scenario::new(81_920, "");
    let before_and_after = Scope::open(&scenario.allocator, "first call", None);
    call(&scenario.allocator, &mut Vec::new(), Stream::DEFAULT);
    let sites = LiveSite::group(&before_and_after.live_blocks());
    let [site] = &sites[..] else { panic!("{sites:?}") };
    assert_eq!((site.requested_bytes, site.block_count, site.scope), (WORKSPACE_BYTES, 1, "workspace"));
}

#[test]
fn r08_requested_and_rounded_sizes_are_counted_apart_and_both_return_to_zero() {
    let scenario = Scenario::new(81_920, "");
    let allocator = &scenario.allocator;
    let held = || {
        let stats = allocator.memory_stats();
        (stats.allocated_bytes.all.current, stats.requested_bytes.all.current)
    };
    let block = allocator.allocate_raw(700, Stream::DEFAULT).unwrap();
    assert_eq!(held(), (1024, 700));
    let view = allocator.memory_view();
    assert_eq!(view.allocated_bytes - view.requested_bytes, 324, "what rounding costs");
    allocator.free_raw(block).unwrap();
    assert_eq!(held(), (0, 0));
    for bytes in 1..=1000 {
        let block = allocator.allocate_raw(bytes, Stream::DEFAULT).unwrap();
        assert_eq!(held(), (bytes.div_ceil(512) as i64 * 512, bytes as i64));
        allocator.free_raw(block).unwrap();
        assert_eq!(held(), (0, 0));
    }
}
