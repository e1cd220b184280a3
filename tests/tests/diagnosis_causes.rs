//! Findings that name the true cause, and say nothing that would not help. Figures are in MiB.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Stream;
use memtrack::diagnosis::{FindingCode, Request, examine, examine_failure};
use memtrack::{AllocationError, Buffer, PoolKind, PoolOptions, RetryOptions, retry_halving};
use memtrack_tests::scenarios::{MIB, Scenario, codes, finding, mib};

#[test]
fn a_cache_that_cannot_be_emptied_starves_nobody() {
    let scenario = Scenario::new(100, "");
    let whole = scenario.take(80);
    scenario.free([whole]);
    let kept = scenario.take(11);
    assert_eq!(scenario.allocator.diagnose_external(60 * MIB), [], "69 are idle beside the 11, and 20 are free");
    scenario.free([kept]);
    let findings = scenario.allocator.diagnose_external(60 * MIB);
    assert_eq!(mib(finding(&findings, FindingCode::CacheStarvesOutside), "returnable_bytes"), 80);
    scenario.allocator.empty_cache().unwrap();
    assert_eq!(scenario.allocator.diagnose_external(60 * MIB), [], "it helped");
}

#[test]
fn no_cap_of_nothing_is_advised_for_a_request_of_the_whole_device() {
    let scenario = Scenario::new(2048, "");
    let whole = scenario.take(100);
    scenario.free([whole]);
    let findings = scenario.allocator.diagnose_external(2048 * MIB);
    let advice = &finding(&findings, FindingCode::CacheStarvesOutside).advice;
    assert_eq!(*advice, ["empty the cache once: that frees up to 100.00 MiB"]);
}

#[test]
fn what_emptying_the_cache_frees_counts_whole_pages_of_expandable_segments() {
    let scenario = Scenario::new(2000, "expandable_segments:True");
    scenario.take(3);
    let dropped = scenario.take(600);
    scenario.free([dropped]);
    let findings = scenario.allocator.diagnose();
    let cache = finding(&findings, FindingCode::IdleCache);
    assert_eq!(["reserved_bytes", "returnable_bytes"].map(|name| mib(cache, name)), [620, 600]);
    assert!(cache.headline.ends_with("600.00 MiB of the cache is in segments or pages wholly free"), "{cache}");
    let mut view = scenario.allocator.memory_view();
    view.outside.without_driver = false;
    let findings = examine(&view);
    let driver = finding(&findings, FindingCode::DriverAboveAllocated);
    assert!(driver.advice[0].ends_with("emptying the cache frees up to 600.00 MiB"), "{driver:#}");
    let before = scenario.figures();
    scenario.allocator.empty_cache().unwrap();
    assert_eq!(before.reserved - scenario.figures().reserved, 600, "as it was said");
    assert_eq!(scenario.allocator.memory_view().returnable_bytes(), 0);
}

#[test]
fn pages_beside_blocks_at_both_ends_count_and_ranges_wholly_free_count_once() {
    let scenario = Scenario::new(2000, "expandable_segments:True");
    let blocks = [33, 100, 47].map(|size| scenario.take(size));
    scenario.free([blocks[1]]);
    let returned = |scenario: &Scenario| {
        let said = scenario.allocator.memory_view().returnable_bytes() >> 20;
        let before = scenario.figures().reserved;
        scenario.allocator.empty_cache().unwrap();
        assert_eq!(u64::try_from(before - scenario.figures().reserved).unwrap(), said);
        said
    };
    assert_eq!(returned(&scenario), 80, "from 40 to 120 of 33 to 133");
    scenario.free([blocks[0], blocks[2]]);
    assert_eq!(returned(&scenario), 100, "all that is left");
}

#[test]
fn idle_memory_of_the_same_streams_large_segments_is_no_other_streams() {
    let scenario = Scenario::new(400, "");
    let large = scenario.take(400);
    scenario.free([large]);
    scenario.take(388);
    let error = scenario.fail(1);
    assert_eq!(codes(error.findings()), [FindingCode::LiveMemoryTooLarge]);
    let live = &error.findings()[0];
    let figures = ["allocated_bytes", "cached_bytes", "room_bytes", "short_bytes"].map(|name| mib(live, name));
    assert_eq!(figures, [388, 0, 0, 1]);
    assert!(live.evidence[0].starts_with("holds 388.00 MiB in 1 block"), "{live:#}");
    assert_eq!(
        live.evidence[1],
        "12.00 MiB more are idle in segments of large requests that are partly in use; they never serve small ones"
    );
    assert!(!format!("{live:#}").contains("stream"), "{live:#}");
}

#[test]
fn a_phase_that_recovered_is_no_suspect() {
    let scenario = Scenario::new(1000, "");
    let _current = scenario.allocator.make_current();
    let (_weights, _activations) = {
        let _load = memtrack::phase("load");
        let take = |size: u64| Buffer::<u8>::uninit(&scenario.allocator, (size * MIB) as usize);
        let weights = take(80).unwrap();
        let done = retry_halving(3200, RetryOptions::default(), |size| -> Result<_, AllocationError> { take(size) });
        let done = done.unwrap();
        assert_eq!((done.size, done.attempt_count), (800, 3));
        (weights, done)
    };
    let said = codes(&scenario.allocator.diagnose());
    assert!(!said.contains(&FindingCode::FailedAttemptAlive), "{said:?}");
    let error = scenario.fail(400);
    assert_eq!(codes(error.findings()), [FindingCode::LiveMemoryTooLarge]);
}

#[test]
fn a_phase_that_gave_up_is_a_suspect() {
    let scenario = Scenario::new(1000, "");
    let _current = scenario.allocator.make_current();
    {
        let _load = memtrack::phase("load");
        scenario.take(80);
        scenario.fail(950);
    }
    let findings = scenario.allocator.diagnose();
    assert_eq!(mib(finding(&findings, FindingCode::FailedAttemptAlive), "alive_bytes"), 80);
}

#[test]
fn a_limit_counts_the_whole_pages_of_expandable_segments() {
    let scenario = Scenario::new(1000, "expandable_segments:True");
    scenario.allocator.set_memory_fraction(0.3).unwrap();
    scenario.take(260);
    let error = scenario.fail(45);
    let limit = finding(error.findings(), FindingCode::LimitRefuses);
    assert_eq!(["segment_bytes", "needed_limit_bytes"].map(|name| mib(limit, name)), [60, 320]);
    assert_eq!(
        limit.advice,
        [
            "raise the memory fraction to at least 0.320, which allows 320.00 MiB: enough at this moment; a run that has it from the \
             start may need more"
        ]
    );
    scenario.allocator.set_memory_fraction(0.32).unwrap();
    scenario.take(45);
    assert_eq!(scenario.figures().reserved, 320);

    let scenario = Scenario::with_outside(1000, 690, "expandable_segments:True");
    scenario.allocator.set_memory_fraction(0.3).unwrap();
    scenario.take(260);
    let error = scenario.fail(45);
    assert!(!codes(error.findings()).contains(&FindingCode::LimitRefuses), "the card has 50, the pages are 60");
}

#[test]
fn a_split_limit_that_keeps_a_free_block_is_named() {
    let scenario = Scenario::new(45, "expandable_segments:True,max_split_size_mb:32");
    let blocks = [3, 33, 4].map(|size| scenario.take(size));
    scenario.free([blocks[1]]);
    let error = scenario.fail(11);
    let split = finding(error.findings(), FindingCode::SplitLimitRefuses);
    assert_eq!(["block_bytes", "max_split_size_bytes", "room_bytes"].map(|name| mib(split, name)), [33, 32, 5]);
    assert_eq!(split.advice[0], "set max_split_size_mb to 34 or more (it is 32), or leave it out");

    let advised = Scenario::new(45, "expandable_segments:True,max_split_size_mb:34");
    let blocks = [3, 33, 4].map(|size| advised.take(size));
    advised.free([blocks[1]]);
    advised.take(11);
}

/// Says what emptying the cache gives back, and holds it against what it does give back.
fn returnable(scenario: &Scenario) -> u64 {
    let said = scenario.allocator.memory_view().returnable_bytes() >> 20;
    let before = scenario.figures().reserved;
    scenario.allocator.empty_cache().unwrap();
    assert_eq!(u64::try_from(before - scenario.figures().reserved).unwrap(), said);
    said
}

#[test]
fn what_a_private_pool_in_use_keeps_starves_others_and_emptying_the_cache_does_not_help() {
    for settings in ["", "expandable_segments:True"] {
        let scenario = Scenario::new(100, settings);
        let pool = scenario.allocator.create_pool(PoolOptions::default());
        let guard = pool.enter().unwrap();
        let whole = scenario.take(80);
        scenario.free([whole]);
        drop(guard);
        assert_eq!(scenario.allocator.diagnose_external(60 * MIB), [], "the pool's owner keeps it");
        assert_eq!(returnable(&scenario), 0);
        let capture = pool.begin_capture(Stream::DEFAULT).unwrap();
        let graph = capture.end();
        drop(pool);
        assert_eq!(scenario.allocator.diagnose_external(60 * MIB), [], "the graph keeps it");
        assert_eq!(returnable(&scenario), 0);
        drop(graph);
        let findings = scenario.allocator.diagnose_external(60 * MIB);
        assert_eq!(mib(finding(&findings, FindingCode::CacheStarvesOutside), "returnable_bytes"), 80, "nobody does");
        assert_eq!(returnable(&scenario), 80);
    }
}

#[test]
fn while_allocations_are_led_into_a_private_pool_the_default_pools_are_kept() {
    for settings in ["", "expandable_segments:True"] {
        let scenario = Scenario::new(400, settings);
        let blocks = [100, 60, 20].map(|size| scenario.take(size));
        scenario.free([blocks[0]]);
        let pool = scenario.allocator.create_pool(PoolOptions::default());
        let guard = pool.enter().unwrap();
        assert_eq!(returnable(&scenario), 0);
        drop(guard);
        let capture = pool.begin_capture(Stream::DEFAULT).unwrap();
        assert_eq!(returnable(&scenario), 0);
        drop(capture);
        assert_eq!(returnable(&scenario), 100);
        scenario.free([blocks[1], blocks[2]]);
        assert_eq!(returnable(&scenario), 80);
    }
}

#[test]
fn whole_segments_that_a_private_pool_keeps_are_the_cause_and_not_room() {
    let scenario = Scenario::new(100, "");
    let pool = scenario.allocator.create_pool(PoolOptions::default());
    let guard = pool.enter().unwrap();
    let whole = scenario.take(80);
    scenario.free([whole]);
    drop(guard);
    let error = scenario.fail(50);
    let idle = finding(error.findings(), FindingCode::IdleCacheOfAnotherStream);
    assert_eq!(["largest_stream_idle_bytes", "room_bytes"].map(|name| mib(idle, name)), [80, 20]);
    assert!(idle.headline.contains("belongs to stream 0 of memory pool (0, "), "{idle}");
    let [advice] = &idle.advice[..] else { panic!("{idle:#}") };
    assert!(
        advice.starts_with("drop the memory pool and the graphs that were captured with it: 80.00 MiB"),
        "{idle:#}"
    );
    drop(pool);
    scenario.take(50);
}

/// As when another thread frees between the failure and the look at it.
#[test]
fn a_failure_that_nothing_explains_any_more_has_a_note_that_says_so() {
    let scenario = Scenario::new(100, "");
    let whole = scenario.take(80);
    scenario.free([whole]);
    scenario.take(11);
    let request = Request {
        requested_bytes: 60 * MIB,
        rounded_bytes: 60 * MIB,
        segment_bytes: 60 * MIB,
        stream: Stream::DEFAULT,
        pool: PoolKind::Large,
        private_pool: None,
        by_limit: false,
    };
    let findings = examine_failure(&scenario.allocator.memory_view(), &request);
    assert_eq!(codes(&findings), [FindingCode::FreedMeanwhile]);
    let figures = ["idle_bytes", "largest_usable_bytes", "room_bytes"].map(|name| mib(&findings[0], name));
    assert_eq!(figures, [69, 69, 20]);
    assert!(findings[0].headline.ends_with("other threads or processes gave memory back meanwhile"), "{findings:?}");
    scenario.take(60);
}

/// What the own stream has idle does not come together with what the other's segments give back.
#[test]
fn what_another_stream_gives_back_is_not_added_to_holes_of_the_own() {
    let scenario = Scenario::new(130, "");
    let own = scenario.take(50);
    let other = scenario.take_on(60, Stream(1));
    scenario.free([own]);
    scenario.take(12);
    scenario.free([other]);
    let pin = scenario.take_on(12, Stream(1));
    let error = scenario.fail(84);
    let idle = finding(error.findings(), FindingCode::IdleCacheOfAnotherStream);
    assert_eq!(
        idle.advice[0],
        "free what pins the segments of stream 1: that gives back 60.00 MiB at most, and at least 4.00 MiB more has to be freed \
         elsewhere"
    );
    let error = scenario.fail(80);
    let idle = finding(error.findings(), FindingCode::IdleCacheOfAnotherStream);
    assert!(idle.advice[0].ends_with("stream 1: whole segments go back to the device and serve every stream"));
    scenario.free([pin]);
    scenario.fail(84);
    scenario.take(80);
}

#[test]
fn what_is_idle_in_the_default_pools_while_a_graph_is_captured_is_the_cause() {
    let scenario = Scenario::new(100, "");
    let whole = scenario.take(80);
    scenario.free([whole]);
    let pool = scenario.allocator.create_pool(PoolOptions::default());
    let capture = pool.begin_capture(Stream::DEFAULT).unwrap();
    scenario.device.set_capture(Stream::DEFAULT, Some(1));
    let error = scenario.fail(50);
    let idle = finding(error.findings(), FindingCode::IdleCacheOfAnotherStream);
    assert!(idle.headline.starts_with("80.00 MiB is idle but belongs to stream 0 of the default pools"), "{idle}");
    assert_eq!(
        idle.advice,
        [
            "empty the cache before allocations are led into a memory pool: 80.00 MiB of it are wholly free, and stay while they are"
        ]
    );
    scenario.device.set_capture(Stream::DEFAULT, None);
    drop(capture);
    scenario.allocator.empty_cache().unwrap();
    let capture = pool.begin_capture(Stream::DEFAULT).unwrap();
    scenario.device.set_capture(Stream::DEFAULT, Some(2));
    scenario.take(50);
    drop(capture);
}
