//! Scenarios R01 to R05 from public reports: the policy of the allocator, and what is found out about it. Figures are in MiB.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::BTreeSet;

use memtrack::device::Stream;
use memtrack::diagnosis::FindingCode;
use memtrack_tests::scenarios::{Figures, Scenario, codes, figure, finding, mib};

/// Three cached segments of 530, three weights of 270 in them.
fn r01(settings: &str) -> (Scenario, Vec<i64>) {
    let scenario = Scenario::new(2000, settings);
    let cached = [530; 3].map(|size| scenario.take(size));
    scenario.free(cached);
    let reserved = [270; 3].map(|size| {
        scenario.take(size);
        scenario.reserved()
    });
    (scenario, reserved.to_vec())
}

#[test]
fn r01_long_lived_blocks_strand_the_rest_of_larger_segments() {
    let (scenario, _) = r01("");
    let before = Figures { allocated: 810, reserved: 1590, inactive_split: 780, device_free: 410, retries: 0, ooms: 0 };
    assert_eq!(scenario.figures(), before);
    let error = scenario.fail(530);
    assert_eq!(scenario.figures(), Figures { retries: 1, ooms: 1, ..before }, "no segment is wholly idle");
    assert_eq!(error.largest_free_block_bytes >> 20, 260);

    assert_eq!(codes(error.findings()), [FindingCode::Fragmentation]);
    let found = &error.findings()[0];
    let figures =
        ["unused_inside_bytes", "room_bytes", "short_bytes", "largest_hole_bytes"].map(|name| mib(found, name));
    assert_eq!(figures, [780, 410, 120, 260]);
    assert_eq!(figure(found, "hole_count"), 3);
    assert_eq!(
        found.headline,
        "780.00 MiB unused inside segments plus 410.00 MiB outside would do for 530.00 MiB, but the largest single place is \
         410.00 MiB, 120.00 MiB short"
    );
    let text = format!("{error:#}");
    assert!(text.contains("kept by 270.00 MiB in 1 block, allocated at tests/src/scenarios.rs:"), "{text}");
    let advice = found.advice.join("\n");
    assert!(
        advice.contains("expandable_segments:True") && advice.contains("max_split_size_mb:530 or less"),
        "{advice}"
    );
    assert!(!advice.contains("batch"), "{advice}");
}

#[test]
fn r01_a_split_limit_and_expandable_segments_cure_it() {
    let (scenario, reserved) = r01("max_split_size_mb:20");
    assert_eq!(reserved, [1860, 1600, 1870], "one idle segment is returned for the second");
    let device_calls = scenario.allocator.memory_stats().num_device_alloc;
    scenario.take(530);
    assert_eq!(scenario.allocator.memory_stats().num_device_alloc, device_calls, "served from the cache");
    let end = Figures { allocated: 1340, reserved: 1870, inactive_split: 0, device_free: 130, retries: 0, ooms: 0 };
    assert_eq!(scenario.figures(), end);

    let (scenario, reserved) = r01("expandable_segments:True");
    assert_eq!(reserved, [1600; 3]);
    scenario.take(530);
    let Figures { allocated, reserved, retries, ooms, .. } = scenario.figures();
    assert_eq!((allocated, reserved, retries, ooms), (1340, 1600, 0, 0));

    let (scenario, _) = r01("max_split_size_mb:530");
    scenario.take(530);
    assert_eq!(scenario.figures().ooms, 0, "what the finding advises");
}

#[test]
fn r02_a_slow_stream_holds_back_only_what_it_uses() {
    let scenario = Scenario::new(8192, "");
    let (slow, fast) = (Stream(1), Stream(2));
    let slow_block = scenario.take(64);
    scenario.allocator.record_stream_raw(slow_block, slow).unwrap();
    let blocks: Vec<u64> = (0..10).map(|_| scenario.take(64)).collect();
    for block in &blocks {
        scenario.allocator.record_stream_raw(*block, fast).unwrap();
    }
    scenario.device.set_busy(slow);
    scenario.device.set_busy(fast);
    scenario.free([slow_block]);
    scenario.free(blocks.iter().copied());
    let active = || scenario.allocator.memory_stats().active_bytes.all.current >> 20;
    assert_eq!((scenario.figures().allocated, active(), scenario.reserved()), (0, 704, 704));

    // What can be reused is reserved less active, not less allocated.
    let view = scenario.allocator.memory_view();
    assert_eq!((view.idle_bytes(), view.pending_bytes() >> 20), (0, 704));
    let findings = scenario.allocator.diagnose();
    let pending = finding(&findings, FindingCode::PendingFrees);
    assert_eq!((mib(pending, "pending_bytes"), mib(pending, "reusable_bytes")), (704, 0));
    assert_eq!(figure(pending, "pending_block_count"), 11);

    scenario.device.set_idle(fast);
    let again: BTreeSet<u64> = (0..10).map(|_| scenario.take(64)).collect();
    assert_eq!(again, blocks.into_iter().collect());
    assert_eq!((scenario.figures().allocated, active(), scenario.reserved()), (640, 704, 704));
}

#[test]
fn r03_an_idle_segment_uses_up_the_budget_of_a_larger_request() {
    let scenario = Scenario::new(1024, "");
    let first = scenario.take(256);
    scenario.free([first]);
    scenario.take(1024);
    let Figures { reserved, retries, ooms, .. } = scenario.figures();
    let freed = scenario.allocator.memory_stats().num_device_free;
    assert_eq!((reserved, retries, ooms, freed), (1024, 1, 0, 1));

    let scenario = Scenario::new(1024, "");
    let first = scenario.take(256);
    scenario.free([first]);
    scenario.take(2);
    let before = Figures { allocated: 2, reserved: 256, inactive_split: 254, device_free: 768, retries: 0, ooms: 0 };
    assert_eq!(scenario.figures(), before);
    let error = scenario.fail(1022);
    assert_eq!(scenario.figures(), Figures { retries: 1, ooms: 1, ..before });

    assert_eq!(codes(error.findings()), [FindingCode::Fragmentation, FindingCode::PinnedSegment]);
    let fragmentation = finding(error.findings(), FindingCode::Fragmentation);
    assert_eq!(["unused_inside_bytes", "room_bytes"].map(|name| mib(fragmentation, name)), [254, 768]);
    assert!(
        fragmentation
            .headline
            .contains("254.00 MiB unused inside segments plus 768.00 MiB outside would do for 1022.00 MiB")
    );
    let pinned = finding(error.findings(), FindingCode::PinnedSegment);
    let figures = ["segment_bytes", "idle_bytes", "pinning_bytes", "room_bytes"].map(|name| mib(pinned, name));
    assert_eq!((figures, figure(pinned, "pinning_block_count")), ([256, 254, 2, 768], 1));
    assert!(pinned.headline.ends_with("the segment is pinned by one block of 2.00 MiB"), "{}", pinned.headline);

    scenario.take(768);
    assert_eq!((scenario.figures().allocated, scenario.reserved()), (770, 1024));
}

/// 21 batches, each 10 larger than the one before; `kept` of 2 is allocated before each and stays.
fn r04(device: u64, settings: &str, keeps: bool) -> Scenario {
    let scenario = Scenario::new(device, settings);
    for step in 0..=20 {
        if keeps {
            scenario.take(2);
        }
        let batch = scenario.take(100 + 10 * step);
        scenario.free([batch]);
    }
    scenario
}

#[test]
fn r04_slowly_growing_batches_take_a_new_segment_for_every_size() {
    let expandable = "expandable_segments:True";
    let figures = |scenario: &Scenario| {
        let Figures { allocated, reserved, retries, ooms, .. } = scenario.figures();
        (reserved, scenario.peak_reserved(), retries, allocated, ooms)
    };
    assert_eq!(figures(&r04(8192, "", false)), (4200, 4200, 0, 0, 0));
    assert_eq!(figures(&r04(8192, expandable, false)), (300, 300, 0, 0, 0));
    assert_eq!(figures(&r04(2048, "", false)), (300, 2040, 2, 0, 0));
    assert_eq!(figures(&r04(2048, expandable, false)), (300, 300, 0, 0, 0));
    assert_eq!(figures(&r04(2048, "", true)), (710, 1880, 2, 42, 0));
    assert_eq!(figures(&r04(2048, expandable, true)), (360, 360, 0, 42, 0));
}

#[test]
fn r04_it_is_no_leak_and_the_advice_is_what_is_not_done_yet() {
    let scenario = r04(8192, "", false);
    let findings = scenario.allocator.diagnose();
    let growing = finding(&findings, FindingCode::GrowingSizes);
    assert_eq!(["idle_segment_bytes", "largest_segment_bytes"].map(|name| mib(growing, name)), [4200, 300]);
    assert_eq!(["idle_segment_count", "size_count"].map(|name| figure(growing, name)), [21, 21]);
    assert!(growing.headline.starts_with("not a leak"), "{}", growing.headline);
    assert_eq!(
        growing.advice,
        ["set expandable_segments:True", "run the largest batch first: 300.00 MiB then serve all of them"]
    );
    // Which is so: 300 from the first step on.
    let largest_first = Scenario::new(8192, "");
    for step in (0..=20).rev() {
        let batch = largest_first.take(100 + 10 * step);
        largest_first.free([batch]);
        assert_eq!(largest_first.reserved(), 300);
    }
    assert!(
        !codes(&r04(8192, "expandable_segments:True", false).allocator.diagnose()).contains(&FindingCode::GrowingSizes)
    );
    assert!(!codes(&largest_first.allocator.diagnose()).contains(&FindingCode::GrowingSizes));
}

#[test]
fn r05_idle_memory_of_one_stream_is_invisible_to_another() {
    let (zero, one) = (Stream(0), Stream(1));
    let scenario = Scenario::new(6144, "");
    let block = scenario.take_on(4096, one);
    scenario.free([block]);
    scenario.take_on(4096, zero);
    let Figures { reserved, retries, ooms, .. } = scenario.figures();
    assert_eq!((reserved, retries, ooms), (4096, 1, 0));

    let scenario = Scenario::new(6144, "");
    let block = scenario.take_on(4096, one);
    scenario.free([block]);
    scenario.take_on(2, one);
    let error = scenario.fail_on(4096, zero);
    let after = Figures { allocated: 2, reserved: 4096, inactive_split: 4094, device_free: 2048, retries: 1, ooms: 1 };
    assert_eq!(scenario.figures(), after);

    assert_eq!(codes(error.findings()), [FindingCode::IdleCacheOfAnotherStream, FindingCode::PinnedSegment]);
    let idle = finding(error.findings(), FindingCode::IdleCacheOfAnotherStream);
    let sizes = ["own_idle_bytes", "other_idle_bytes", "largest_stream_idle_bytes", "room_bytes"];
    assert_eq!(sizes.map(|name| mib(idle, name)), [0, 4094, 4094, 2048]);
    assert_eq!(["stream", "largest_stream"].map(|name| figure(idle, name)), [0, 1]);
    assert!(idle.headline.starts_with("4094 MiB is idle but belongs to stream 1"), "{}", idle.headline);
    assert_eq!(idle.evidence, ["idle in stream 1: 4094 MiB"]);
    let pinned = finding(error.findings(), FindingCode::PinnedSegment);
    assert_eq!(figure(pinned, "stream"), 1);
    assert!(pinned.headline.ends_with("pinned by one block of 2.00 MiB"), "{}", pinned.headline);

    let device_calls = scenario.allocator.memory_stats().num_device_alloc;
    scenario.take_on(4094, one);
    assert_eq!(scenario.allocator.memory_stats().num_device_alloc, device_calls, "served from the cache");
}
