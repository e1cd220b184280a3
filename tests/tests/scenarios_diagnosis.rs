//! Scenarios R14 to R17 from public reports: what is found out when memory runs out. Figures are in MiB.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::fmt;

use memtrack::device::Stream;
use memtrack::diagnosis::{FindingCode, Floor, LeakDetector, Request, Trend, examine_failure};
use memtrack::scope::Scope;
use memtrack::units::GIB;
use memtrack::{AllocationError, Buffer, CachingAllocator, OutOfMemory, PoolKind, track_memory};
use memtrack_tests::scenarios::{Figures, MIB, Scenario, codes, figure, finding, mib};

/// An error that owns what the failed attempt had.
#[derive(Debug)]
struct Failed {
    error: AllocationError,
    kept: Vec<Buffer<u8>>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} buffers kept", self.error, self.kept.len())
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Takes eleven chunks.
#[track_memory(err, device = allocator)]
fn attempt(allocator: &CachingAllocator, chunk: u64) -> Result<Vec<Buffer<u8>>, Failed> {
    let mut kept = Vec::new();
    for _ in 0..11 {
        match Buffer::uninit(allocator, (chunk * MIB) as usize) {
            Ok(buffer) => kept.push(buffer),
            Err(error) => return Err(Failed { error, kept }),
        }
    }
    Ok(kept)
}

#[test]
fn r14_the_caught_error_keeps_the_buffers_alive() {
    // No subscriber reads the spans here.
    memtrack::scope::set_measure_all(true);
    let scenario = Scenario::with_outside(16_282, 697, "");
    let allocator = &scenario.allocator;
    let _weights = Buffer::<u8>::uninit(allocator, (4352 * MIB) as usize).unwrap();

    let first = attempt(allocator, 1024).unwrap_err();
    let Figures { allocated, reserved, device_free, ooms, .. } = scenario.figures();
    assert_eq!((allocated, reserved, device_free, ooms), (14_592, 14_592, 993, 1));
    let error = OutOfMemory::behind(&first).unwrap();
    assert_eq!(codes(error.findings()), [FindingCode::LiveMemoryTooLarge], "capacity, not fragmentation");
    let capacity = &error.findings()[0];
    assert_eq!(["short_bytes", "cached_bytes", "room_bytes"].map(|name| mib(capacity, name)), [31, 0, 993]);

    let second = attempt(allocator, 512).unwrap_err();
    assert_eq!(second.kept.len(), 1);
    let Figures { allocated, device_free, ooms, .. } = scenario.figures();
    assert_eq!((allocated, device_free, ooms), (15_104, 481, 2));
    let error = OutOfMemory::behind(&second).unwrap();
    assert_eq!(codes(error.findings()), [FindingCode::FailedAttemptAlive, FindingCode::LiveMemoryTooLarge]);
    let suspect = &error.findings()[0];
    assert_eq!((mib(suspect, "alive_bytes"), figure(suspect, "alive_block_count")), (10_240, 10));
    assert_eq!(mib(suspect, "attempt_requested_bytes"), 1024);
    assert!(
        suspect.headline.starts_with("first suspect: 10.00 GiB in 10 blocks that `attempt` allocated"),
        "{suspect}"
    );
    assert!(
        suspect.evidence[0].contains("10.00 GiB in 10 blocks, allocated at tests/tests/scenarios_diagnosis.rs:"),
        "{suspect:#}"
    );
    let advice: Vec<&String> = error.findings().iter().flat_map(|finding| &finding.advice).collect();
    assert!(advice.iter().all(|line| !line.contains("empty the cache")), "nothing is cached: {advice:?}");

    drop((first, second));
    let device_calls = allocator.memory_stats().num_device_alloc;
    let kept = attempt(allocator, 512).unwrap();
    let Figures { allocated, reserved, ooms, .. } = scenario.figures();
    assert_eq!((kept.len(), allocated, reserved, ooms), (11, 9984, 15_104, 2));
    assert_eq!(allocator.memory_stats().num_device_alloc, device_calls, "from the cache");
    assert!(!codes(&allocator.diagnose()).contains(&FindingCode::FailedAttemptAlive), "nothing of them is alive");
}

/// A scope by hand, which nobody tells of the error; a step around it that goes on.
#[test]
fn r14_without_an_outcome_the_function_that_ended_is_the_suspect_and_the_step_is_not() {
    let scenario = Scenario::new(1000, "");
    let allocator = &scenario.allocator;
    let step = Scope::open(allocator, "step", None);
    let of_the_step = scenario.take(100);
    let mut kept = Vec::new();
    {
        let _attempt = Scope::open(allocator, "attempt", None);
        let _inner = Scope::open(allocator, "layer", None);
        kept.extend([scenario.take(300), scenario.take(300)]);
        let error = scenario.fail(400);
        assert_eq!(codes(error.findings()), [FindingCode::LiveMemoryTooLarge]);
        assert_eq!(codes(scenario.fail(400).findings()), [FindingCode::LiveMemoryTooLarge], "it is not over yet");
    }
    scenario.free(kept.pop());
    let error = {
        let _attempt = Scope::open(allocator, "attempt", None);
        scenario.fail(700)
    };
    let suspect = finding(error.findings(), FindingCode::FailedAttemptAlive);
    assert_eq!((mib(suspect, "alive_bytes"), figure(suspect, "alive_block_count")), (300, 1));
    assert!(suspect.headline.contains("`attempt`"), "{suspect}");
    drop(step);
    scenario.free(kept);
    scenario.free([of_the_step]);
    assert!(allocator.diagnose().iter().all(|finding| finding.code() != FindingCode::FailedAttemptAlive));
}

#[test]
fn r15_scalars_cost_128_times_their_size() {
    let scenario = Scenario::new(1024, "");
    for _ in 0..10_000 {
        scenario.allocator.allocate_raw(4, Stream::DEFAULT).unwrap();
    }
    let stats = scenario.allocator.memory_stats();
    let bytes = [&stats.requested_bytes, &stats.allocated_bytes, &stats.reserved_bytes].map(|of| of.all.current);
    assert_eq!(bytes, [40_000, 5_120_000, 6_291_456]);
    let findings = scenario.allocator.diagnose();
    let rounding = finding(&findings, FindingCode::RoundingOverhead);
    assert_eq!(
        ["requested_bytes", "allocated_bytes", "block_count"].map(|name| figure(rounding, name)),
        [40_000, 5_120_000, 10_000]
    );
    assert!(rounding.headline.contains("128 times as much"), "{rounding}");
}

const STEP_BYTES: i64 = 25_166_336;

/// Iterations that each keep 24 MiB and a scalar, until one fails; `each` sees what the detector says at the end of each.
fn r15(
    temporary: Option<u64>,
    mut each: impl FnMut(u64, &Scenario, &LeakDetector, Option<&memtrack::diagnosis::Finding>),
) -> u64 {
    let scenario = Scenario::with_outside(12_288, 500, "");
    let allocator = &scenario.allocator;
    {
        let _model = Scope::open(allocator, "model", None);
        scenario.take(2048);
    }
    let mut detector = LeakDetector::new();
    for number in 1.. {
        let iteration = Scope::open(allocator, "iteration", None);
        let keep = || -> Result<(), AllocationError> {
            let held = temporary.map(|size| scenario.ask(size, Stream::DEFAULT)).transpose()?;
            scenario.ask(24, Stream::DEFAULT)?;
            allocator.allocate_raw(4, Stream::DEFAULT)?;
            scenario.free(held);
            Ok(())
        };
        if keep().is_err() {
            return number - 1;
        }
        let record = iteration.close(memtrack::scope::Outcome::Ok);
        let floor = Floor { number, live_bytes: record.after_bytes, peak_bytes: Some(record.peak_bytes) };
        let said = detector.end_step(floor, || allocator.memory_view());
        each(number, &scenario, &detector, said.as_ref());
    }
    unreachable!("the device is finite")
}

#[test]
fn r15_a_leak_is_reported_by_iteration_20_with_its_slope_its_owner_and_the_failing_step() {
    let mut reported = Vec::new();
    let completed = r15(None, |number, scenario, detector, said| {
        if let Some(said) = said {
            reported.push(number);
            assert_eq!(said.code(), FindingCode::Leak);
            assert_eq!((figure(said, "slope_bytes"), figure(said, "step_count")), (STEP_BYTES, 18));
            assert_eq!(figure(said, "group_slope_bytes"), STEP_BYTES);
            assert_eq!(figure(said, "group_blocks_thousandths"), 2000, "two blocks an iteration");
            assert_eq!(figure(said, "failing_step"), 406);
            assert!(said.evidence[0].starts_with("scope `iteration` grows by"), "{said:#}");
        }
        if number == 100 {
            let found = detector.finding(&scenario.allocator.memory_view()).unwrap();
            assert_eq!((figure(&found, "steps_left"), figure(&found, "failing_step")), (305, 406));
        }
    });
    assert_eq!((completed, reported), (405, vec![20]));
}

#[test]
fn r15_the_slope_is_taken_on_the_floor_and_the_forecast_leaves_room_for_the_peak() {
    let completed = r15(Some(300), |number, scenario, detector, _| {
        if number == 100 {
            let trend = detector.trend();
            assert_eq!((trend.trend, trend.slope_bytes), (Trend::Leak, STEP_BYTES));
            let found = detector.finding(&scenario.allocator.memory_view()).unwrap();
            assert_eq!((figure(&found, "steps_left"), figure(&found, "failing_step")), (293, 394));
        }
    });
    assert_eq!(completed, 393);
}

/// A detector, what it watched, what is kept there, and what it told at which step.
type Kept = (LeakDetector, CachingAllocator, Vec<Buffer<u8>>, Vec<(u64, String)>);

/// Steps that each keep so many blocks; the detector and what it said, and when.
fn keeping(steps: &[(u64, usize)]) -> Kept {
    let allocator = Scenario::new(1000, "").allocator.clone();
    let (mut detector, mut kept, mut said, mut number) = (LeakDetector::new(), Vec::new(), Vec::new(), 0);
    for (count, blocks) in steps {
        for _ in 0..*count {
            number += 1;
            kept.extend((0..*blocks).map(|_| Buffer::<u8>::uninit(&allocator, 512).unwrap()));
            let floor = Floor { number, live_bytes: allocator.memory_allocated(), peak_bytes: None };
            let found = detector.end_step(floor, || allocator.memory_view());
            said.extend(found.map(|finding| (number, format!("{finding:#}"))));
        }
    }
    (detector, allocator, kept, said)
}

#[test]
fn the_growth_of_a_scope_is_of_the_same_steps_as_the_slope() {
    let (detector, allocator, _kept, _) = keeping(&[(1000, 3), (2000, 1)]);
    let found = detector.finding(&allocator.memory_view()).unwrap();
    assert_eq!(found.code(), FindingCode::Leak);
    let figures = ["slope_bytes", "group_slope_bytes", "group_blocks_thousandths"].map(|name| figure(&found, name));
    assert_eq!(figures, [512, 512, 1000]);
    assert!((512..1024).contains(&figure(&found, "step_count")), "{found}");
}

#[test]
fn a_leak_that_begins_late_is_told_and_its_owner_s_growth_is_given_since_a_step() {
    let (detector, allocator, kept, said) = keeping(&[(300, 0), (60, 2)]);
    let [(number, text)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(*number, 358, "looked at in step 318, and an eighth later");
    assert!(text.contains("grows by 1.00 KiB (1024 B) a step, over the last 64 steps"), "{text}");
    assert!(text.contains("has grown by 58.00 KiB and +116 blocks since step 2"), "{text}");
    let found = detector.finding(&allocator.memory_view()).unwrap();
    assert_eq!((figure(&found, "slope_bytes"), kept.len()), (1024, 120));
    assert!(found.numbers.entries().contains(&("group_slope_bytes", None)), "{found:?}");
}

#[test]
fn r16_a_library_outside_the_allocator_runs_out_first() {
    const DEVICE_BYTES: u64 = 150_111_977_472;
    // 26.8 GiB, so that nothing is left beside the 113 GiB.
    let scenario = Scenario::of_bytes(DEVICE_BYTES, DEVICE_BYTES - 113 * GIB, "");
    let allocator = &scenario.allocator;
    let _live = scenario.take(57 << 10);
    let idle: Vec<u64> = (0..56).map(|_| scenario.take(1 << 10)).collect();
    scenario.free(idle);
    let before = scenario.figures();
    assert_eq!((before.allocated >> 10, before.reserved >> 10, before.device_free), (57, 113, 0));

    let findings = allocator.diagnose_external(256 * MIB);
    assert_eq!(scenario.figures(), before, "no counter of the allocator's: the failure was not its own");
    assert_eq!(codes(&findings), [FindingCode::CacheStarvesOutside]);
    let starved = &findings[0];
    let gibibytes =
        ["idle_bytes", "returnable_bytes", "headroom_bytes", "cap_bytes"].map(|name| mib(starved, name) >> 10);
    assert_eq!((gibibytes, figure(starved, "cap_thousandths")), ([56, 56, 1, 112], 801));
    assert_eq!(starved.evidence, ["idle in the allocator is 224 times what was asked for"]);
    assert_eq!(
        starved.advice,
        [
            "empty the cache once: that frees up to 56.00 GiB",
            "or cap the allocator at 112.00 GiB, a memory fraction of 0.801, which leaves 1.00 GiB for others"
        ]
    );
    let larger = allocator.diagnose_external(GIB + 1);
    assert_eq!(["headroom_bytes", "cap_bytes"].map(|name| mib(&larger[0], name) >> 10), [2, 111]);
    assert_eq!(allocator.diagnose_external(57 * GIB), [], "all of the cache would not do");
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.diagnose_external(256 * MIB), [], "the device has room");
}

fn r17(settings: &str) -> Scenario {
    let scenario = Scenario::with_outside(11_018, 882, settings);
    let large = [1630; 6].map(|size| scenario.take(size));
    let rests = large.map(|block| {
        scenario.free([block]);
        scenario.take(685);
        scenario.take(945)
    });
    scenario.free(rests);
    scenario
}

#[test]
fn r17_real_fragmentation_with_its_figures() {
    let scenario = r17("");
    let before =
        Figures { allocated: 4110, reserved: 9780, inactive_split: 5670, device_free: 356, retries: 0, ooms: 0 };
    assert_eq!(scenario.figures(), before);
    let error = scenario.fail(1762);
    assert_eq!(scenario.figures(), Figures { retries: 1, ooms: 1, ..before });
    assert_eq!(codes(error.findings()), [FindingCode::Fragmentation]);
    let found = &error.findings()[0];
    assert_eq!(["largest_hole_bytes", "hole_short_bytes"].map(|name| mib(found, name)), [945, 817]);
    assert_eq!(
        found.evidence[0],
        "42.0 % of reserved memory is in use; 1 - largest/free = 83.3 %; the best hole is 817.00 MiB short"
    );
    assert_eq!(found.evidence[1], "6 holes of 945.00 MiB");
    assert!(found.advice[0].starts_with("set expandable_segments:True"), "{found:#}");

    let scenario = r17("expandable_segments:True");
    scenario.take(1762);
    let Figures { reserved, retries, ooms, .. } = scenario.figures();
    assert_eq!((reserved, retries, ooms), (5960, 1, 0));
}

#[test]
fn r17_advice_never_repeats_what_is_done_already() {
    let scenario = r17("");
    let mut view = scenario.allocator.memory_view();
    let request = Request {
        requested_bytes: 1762 * MIB,
        rounded_bytes: 1762 * MIB,
        segment_bytes: 1762 * MIB,
        stream: Stream::DEFAULT,
        pool: PoolKind::Large,
        private_pool: None,
        by_limit: false,
    };
    let mut advice = || {
        let findings = examine_failure(&view, &request);
        let said = finding(&findings, FindingCode::Fragmentation).advice.join("\n");
        view.settings.expandable_segments = true;
        view.settings.max_split_size_bytes = Some(100 * MIB);
        said
    };
    let off = advice();
    assert!(off.contains("expandable_segments") && off.contains("max_split_size_mb:1630"), "{off}");
    let on = advice();
    assert!(!on.contains("expandable_segments") && !on.contains("max_split_size_mb"), "{on}");
    assert!(on.contains("live memory") && on.contains("make the batch smaller"), "{on}");
}
