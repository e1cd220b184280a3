//! Each finding that no scenario has, with its figures. Figures are in MiB.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::{Fault, Operation, Stream};
use memtrack::diagnosis::{FindingCode, examine, retries_every_step};
use memtrack::{AllocationError, CachingAllocator, Config, PoolOptions};
use memtrack_tests::listening::listen;
use memtrack_tests::scenarios::{MIB, Scenario, codes, figure, finding, mib};

#[test]
fn a_request_that_can_never_fit_is_the_only_finding() {
    let scenario = Scenario::new(1000, "");
    scenario.take(300);
    let error = scenario.fail(1500);
    assert_eq!(codes(error.findings()), [FindingCode::RequestNeverFits]);
    let found = &error.findings()[0];
    assert_eq!(["capacity_bytes", "short_bytes"].map(|name| mib(found, name)), [1000, 500]);
    assert_eq!(found.advice, ["no freeing can help: split the request, or make it at most 66.7 % of its size"]);

    scenario.allocator.set_memory_fraction(0.5).unwrap();
    let error = scenario.fail(600);
    let found = finding(error.findings(), FindingCode::RequestNeverFits);
    assert_eq!(mib(found, "capacity_bytes"), 500);
    assert!(
        found.advice[0].starts_with("raise the memory fraction to at least 0.900: enough at this moment"),
        "300 are reserved: {found:#}"
    );
}

#[test]
fn a_limit_that_refuses_is_told_from_a_full_card() {
    let scenario = Scenario::new(1000, "");
    scenario.allocator.set_memory_fraction(0.5).unwrap();
    scenario.take(300);
    let error = scenario.fail(250);
    assert_eq!(codes(error.findings()), [FindingCode::LimitRefuses, FindingCode::LiveMemoryTooLarge]);
    let limit = &error.findings()[0];
    assert_eq!(
        ["limit_bytes", "reserved_bytes", "device_free_bytes", "needed_limit_bytes"].map(|name| mib(limit, name)),
        [500, 300, 700, 550]
    );
    assert!(limit.headline.starts_with("the memory fraction refuses, not the card"), "{limit}");
    assert!(
        limit.advice[0]
            .starts_with("raise the memory fraction to at least 0.550, which allows 550.00 MiB: enough at this"),
        "{limit:#}"
    );

    scenario.device.set_other_use(600 * MIB);
    let error = scenario.fail(250);
    assert!(!codes(error.findings()).contains(&FindingCode::LimitRefuses), "the card has no room either");
}

#[test]
fn room_for_a_request_and_not_for_its_segment() {
    let scenario = Scenario::new(316, "");
    scenario.take(300);
    let error = scenario.fail(4);
    assert_eq!(codes(error.findings()), [FindingCode::SegmentTooLarge]);
    let found = &error.findings()[0];
    assert_eq!(["requested_bytes", "segment_bytes", "room_bytes"].map(|name| mib(found, name)), [4, 20, 16]);
    assert!(
        found.advice[0].starts_with(
            "set large_segment_size_mb to 11, or to anything up to 16 (it is 20): such a segment fits now"
        ),
        "{found:#}"
    );
    for advised in 11..=16 {
        let advised = Scenario::new(316, &format!("large_segment_size_mb:{advised}"));
        advised.take(300);
        advised.take(4);
    }
}

#[test]
fn pages_are_taken_whole_where_segments_are_expandable() {
    let scenario = Scenario::new(310, "expandable_segments:True");
    scenario.take(260);
    let error = scenario.fail(45);
    assert_eq!(codes(error.findings()), [FindingCode::SegmentTooLarge]);
    let found = &error.findings()[0];
    assert_eq!(["segment_bytes", "room_bytes"].map(|name| mib(found, name)), [60, 50]);
    assert!(found.headline.contains("not for the whole pages of 60.00 MiB"), "{found}");
}

#[test]
fn a_device_that_refuses_with_room_is_told_from_a_full_one() {
    let scenario = Scenario::new(1000, "");
    scenario.take(300);
    scenario.device.inject(Fault::LargerThan { operation: Operation::Allocate, bytes: 100 * MIB });
    let error = scenario.fail(200);
    assert_eq!(codes(error.findings()), [FindingCode::DeviceRefusesWithRoom]);
    let found = &error.findings()[0];
    assert_eq!(["segment_bytes", "device_free_bytes"].map(|name| mib(found, name)), [200, 700]);
}

#[test]
fn idle_memory_of_the_other_pool_and_of_private_pools_is_named() {
    let scenario = Scenario::new(26, "");
    // Twelve small segments, each with a block that stays.
    let blocks: Vec<u64> = (0..24).map(|_| scenario.take(1)).collect();
    scenario.free(blocks.iter().skip(1).step_by(2).copied());
    let error = scenario.fail(8);
    assert_eq!(codes(error.findings()), [FindingCode::LiveMemoryTooLarge], "no other stream has any");
    let live = &error.findings()[0];
    assert_eq!(["cached_bytes", "room_bytes", "short_bytes"].map(|name| mib(live, name)), [0, 2, 6]);
    assert!(
        live.evidence.last().unwrap().starts_with("12.00 MiB more are idle in segments of small requests"),
        "{live:#}"
    );

    let scenario = Scenario::new(100, "");
    let pool = scenario.allocator.create_pool(PoolOptions::default());
    let guard = pool.enter().unwrap();
    let whole = scenario.take(80);
    scenario.free([whole]);
    scenario.take(2);
    drop(guard);
    let error = scenario.fail(50);
    let idle = finding(error.findings(), FindingCode::IdleCacheOfAnotherStream);
    assert_eq!(mib(idle, "largest_stream_idle_bytes"), 78);
    assert!(idle.headline.contains("stream 0 of memory pool (0, "), "{idle}");
}

#[test]
fn what_others_have_is_a_cause_when_it_would_do_and_is_no_small_part() {
    let scenario = Scenario::with_outside(1000, 300, "");
    scenario.take(600);
    let error = scenario.fail(200);
    assert_eq!(codes(error.findings()), [FindingCode::LiveMemoryTooLarge, FindingCode::OtherProcesses]);
    let others = &error.findings()[1];
    assert_eq!(["outside_bytes", "device_total_bytes"].map(|name| mib(others, name)), [300, 1000]);
    assert_eq!(others.evidence, ["30.0 % of the device is outside of this allocator"]);
    let error = scenario.fail(399);
    assert_eq!(codes(error.findings()).len(), 2, "299 missing");
    let error = scenario.fail(405);
    assert_eq!(codes(error.findings()), [FindingCode::LiveMemoryTooLarge], "305 missing, they have 300");
}

#[test]
fn growth_of_others_is_measured_from_the_first_look() {
    let scenario = Scenario::with_outside(10_000, 500, "");
    assert!(!codes(&scenario.allocator.diagnose()).contains(&FindingCode::ForeignGrowth));
    scenario.device.set_other_use(755 * MIB);
    assert!(!codes(&scenario.allocator.diagnose()).contains(&FindingCode::ForeignGrowth), "255 more");
    scenario.device.set_other_use(1500 * MIB);
    let findings = scenario.allocator.diagnose();
    let growth = finding(&findings, FindingCode::ForeignGrowth);
    assert_eq!(["before_bytes", "now_bytes", "growth_bytes"].map(|name| mib(growth, name)), [500, 1500, 1000]);
    scenario.device.set_other_use(0);
    assert!(!codes(&scenario.allocator.diagnose()).contains(&FindingCode::ForeignGrowth), "less is no growth");
}

#[test]
fn a_high_driver_figure_is_taken_apart_and_adds_up() {
    let scenario = Scenario::with_outside(10_000, 700, "");
    let block = scenario.take(900);
    scenario.take(100);
    scenario.free([block]);
    let findings = scenario.allocator.diagnose();
    assert!(!codes(&findings).contains(&FindingCode::DriverAboveAllocated), "a simulated device has no driver");
    let mut view = scenario.allocator.memory_view();
    view.outside.without_driver = false;
    let found = examine(&view);
    let driver = finding(&found, FindingCode::DriverAboveAllocated);
    let figures = ["used_bytes", "allocated_bytes", "cached_bytes", "rest_bytes"].map(|name| mib(driver, name));
    assert_eq!(figures, [1700, 100, 900, 700]);
    assert_eq!(figures[0], figures[1..].iter().sum::<i64>());
    let cache = finding(&findings, FindingCode::IdleCache);
    assert_eq!(
        ["reserved_bytes", "allocated_bytes", "returnable_bytes"].map(|name| mib(cache, name)),
        [1000, 100, 900]
    );
    assert_eq!(codes(&Scenario::new(1000, "").allocator.diagnose()), [], "nothing to say");
}

#[test]
fn retries_are_told_when_there_is_one_in_every_other_step() {
    let found = retries_every_step(10, 5, 900, 1000).unwrap();
    assert_eq!(["step_count", "retry_count"].map(|name| figure(&found, name)), [10, 5]);
    assert!(retries_every_step(11, 5, 900, 1000).is_none());
    assert!(retries_every_step(2, 2, 900, 1000).is_none());
    assert!(found.headline.starts_with("5 retries in 10 steps: "), "{found}");
    let without_steps = retries_every_step(0, 5, 900, 1000).unwrap();
    assert!(without_steps.headline.starts_with("5 retries: "), "{without_steps}");
}

#[test]
fn the_event_and_the_texts_of_the_error_carry_the_findings() {
    let scenario = Scenario::new(1000, "");
    scenario.take(700);
    let mut error = None;
    let said = listen(|| {}, || error = scenario.ask(400, Stream::DEFAULT).err());
    let event = said.iter().find(|said| said.target == "memtrack::oom").unwrap();
    assert_eq!(event.fields["findings"], "live-memory-too-large");
    let Some(AllocationError::OutOfMemory(error)) = error else { panic!("{error:?}") };
    assert!(!error.to_string().contains('\n'));
    assert!(
        format!("{error:?}").contains("\nlive-memory-too-large: 700.00 MiB are live"),
        "what `main` prints: {error:?}"
    );
    assert!(format!("{error:#}").contains("\n  -> free at least 100.00 MiB more before this request"), "{error:#}");
    let json: serde_json::Value = serde_json::from_str(&error.findings()[0].to_json()).unwrap();
    assert_eq!((&json["code"], &json["severity"]), (&"live-memory-too-large".into(), &"cause".into()));
    assert_eq!(json["numbers"]["short_bytes"], 100 * MIB);
}

#[test]
fn the_drivers_own_pool_has_findings_that_need_no_segments() {
    let config: Config = "backend:cudaMallocAsync".parse().unwrap();
    let device = std::sync::Arc::new(memtrack::device::Simulated::with_capacity(1000 * MIB));
    let allocator = CachingAllocator::with_config(device, config).unwrap();
    allocator.allocate_raw(700 * MIB, Stream::DEFAULT).unwrap();
    let error = allocator.allocate_raw(400 * MIB, Stream::DEFAULT).unwrap_err();
    let AllocationError::OutOfMemory(error) = error else { panic!("{error}") };
    assert_eq!(codes(error.findings()), [FindingCode::LiveMemoryTooLarge]);
    assert_eq!(mib(&error.findings()[0], "short_bytes"), 100);
    assert_eq!(error.findings()[0].evidence.len(), 1, "who holds it");
}
