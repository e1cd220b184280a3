//! What is advised is done here, and helps; what would not help is not advised. Figures are in MiB.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::OutOfMemory;
use memtrack::device::{Fault, Operation, Stream};
use memtrack::diagnosis::{Finding, FindingCode};
use memtrack::units::GIB;
use memtrack_tests::scenarios::{MIB, Scenario, codes, figure, finding, mib};

/// All that is said of an out of memory.
fn all_of(error: &OutOfMemory) -> String {
    format!("{error:#}")
}

/// The number after these words.
fn number_after(text: &str, words: &str) -> Option<f64> {
    let rest = &text[text.find(words)? + words.len()..];
    let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(rest.len());
    rest[..end].trim_end_matches('.').parse().ok()
}

#[test]
fn the_least_segment_that_may_be_set_is_advised_and_none_that_may_not() {
    let with_room = |kibibytes: u64, settings: &str| {
        let scenario = Scenario::of_bytes(300 * MIB + (kibibytes << 10), 0, settings);
        scenario.take(300);
        scenario
    };
    let error = with_room(11 << 10, "").fail(4);
    let setting = "set large_segment_size_mb to 11 (it is 20): such a segment fits now; set from the start it may help";
    assert_eq!(error.findings()[0].advice[0], setting);
    assert!(error.to_string().ends_with(&format!("its segment: {setting}; free at least 9.00 MiB earlier")), "{error}");
    with_room(11 << 10, "large_segment_size_mb:11").take(4);

    // A setting of no more than 10 is refused.
    let error = with_room((11 << 10) - 1, "").fail(4);
    assert_eq!(codes(error.findings()), [FindingCode::SegmentTooLarge]);
    assert!(!all_of(&error).contains("large_segment_size_mb"), "{error:#}");
}

#[test]
fn a_smaller_segment_is_not_advised_where_the_request_opens_one_of_its_own() {
    let scenario = Scenario::of_bytes(300 * MIB + 19 * MIB + 512 * 1024, 0, "");
    scenario.take(300);
    let error = scenario.fail(19);
    assert_eq!(codes(error.findings()), [FindingCode::SegmentTooLarge]);
    assert!(!all_of(&error).contains("large_segment_size_mb"), "{error:#}");
}

#[test]
fn a_smaller_segment_is_not_advised_where_a_device_refuses_although_it_has_room() {
    let scenario = Scenario::new(1000, "");
    scenario.device.inject(Fault::LargerThan { operation: Operation::Allocate, bytes: 15 * MIB });
    let error = scenario.fail(4);
    assert_eq!(codes(error.findings()), [FindingCode::DeviceRefusesWithRoom]);
    assert!(!all_of(&error).contains("large_segment_size_mb"), "{error:#}");
}

/// Programs that are run again with what was advised.
#[test]
fn a_smaller_page_is_advised_only_where_it_would_have_done() {
    let run = |device: u64, sizes: &[(u64, Stream)], fraction: f64, settings: &str| {
        let scenario = Scenario::new(device, settings);
        scenario.allocator.set_memory_fraction(fraction).unwrap();
        let asked = sizes.iter().map(|(size, stream)| scenario.ask(*size, *stream));
        asked.enumerate().find_map(|(place, outcome)| Some((place, outcome.err()?)))
    };
    let (mut failed_count, mut advised_count) = (0, 0);
    for device in (62..400).step_by(6) {
        for first in [20, 33, 100, 240] {
            for second in [2, 22, 47] {
                for (last, fraction) in [(3, 1.0), (8, 0.9), (25, 0.9), (45, 1.0)] {
                    let sizes = [(first, Stream::DEFAULT), (second, Stream(7)), (last, Stream::DEFAULT)];
                    let Some((place, error)) = run(device, &sizes, fraction, "expandable_segments:True") else {
                        continue;
                    };
                    failed_count += 1;
                    let error = OutOfMemory::behind(&error).unwrap();
                    let Some(mib) = number_after(&all_of(error), "set large_segment_size_mb to ") else { continue };
                    advised_count += 1;
                    let advised = format!("expandable_segments:True,large_segment_size_mb:{mib}");
                    if let Some((_, error)) = run(device, &sizes[..=place], fraction, &advised) {
                        panic!("{device} {sizes:?} {fraction}: {advised}: {error:#}");
                    }
                }
            }
        }
    }
    assert!(advised_count >= 10, "{advised_count} of {failed_count}");
}

/// Rounded up in whole numbers 0.580 would do for 58 of 100; the limit that it sets is a byte less.
#[test]
fn a_fraction_that_is_advised_is_not_a_byte_too_small() {
    for device in [100, 200, 250, 10_000] {
        for percent in 2..100 {
            let scenario = Scenario::new(device, "");
            scenario.allocator.set_memory_fraction(0.01).unwrap();
            let text = all_of(&scenario.fail((device * percent / 100).max(12)));
            let fraction = number_after(&text, "the memory fraction to at least ").unwrap_or_else(|| panic!("{text}"));
            scenario.allocator.set_memory_fraction(fraction).unwrap();
            scenario.take((device * percent / 100).max(12));
        }
    }
}

/// Also where a thousandth of the device is no whole number of bytes; rounded down it would not do.
#[test]
fn every_fraction_that_is_advised_lets_the_request_through() {
    for device in [1000, 1023, 777] {
        for request in (2..700).step_by(2) {
            for reserved in [0, 100] {
                let scenario = Scenario::new(device, "");
                scenario.allocator.set_memory_fraction(0.12).unwrap();
                if reserved > 0 && scenario.ask(reserved, Stream::DEFAULT).is_err() {
                    continue;
                }
                let Err(error) = scenario.ask(request.max(12), Stream::DEFAULT) else { continue };
                let text = all_of(OutOfMemory::behind(&error).unwrap());
                let fraction =
                    number_after(&text, "the memory fraction to at least ").unwrap_or_else(|| panic!("{text}"));
                scenario.allocator.set_memory_fraction(fraction).unwrap();
                scenario.take(request.max(12));
            }
        }
    }
}

#[test]
fn what_a_fraction_withholds_is_told_from_what_others_hold() {
    let of_never_fits = |error: &OutOfMemory| -> Finding {
        assert_eq!(codes(error.findings()), [FindingCode::RequestNeverFits]);
        error.findings()[0].clone()
    };
    // Others hold 400 of 1000: no fraction helps with 700.
    let scenario = Scenario::with_outside(1000, 400, "");
    scenario.allocator.set_memory_fraction(0.5).unwrap();
    let found = of_never_fits(&scenario.fail(700));
    assert_eq!(["capacity_bytes", "withheld_bytes", "outside_bytes"].map(|name| mib(&found, name)), [500, 500, 400]);
    assert_eq!(
        found.advice[0],
        "raising the memory fraction cannot help by itself: of the device's 1000.00 MiB others hold 400.00 MiB, which leaves 600.00 \
         MiB at most; 100.00 MiB of theirs has to go first, then set it to at least 0.700"
    );
    assert_eq!(
        found.evidence,
        [
            "the memory fraction withholds 500.00 MiB of the device's 1000.00 MiB; 400.00 MiB of the device are held outside of this allocator"
        ]
    );
    scenario.device.set_other_use(300 * MIB);
    scenario.allocator.set_memory_fraction(1.0).unwrap();
    scenario.take(700);

    // What this allocator holds is in the way as well.
    let scenario = Scenario::with_outside(1000, 200, "");
    scenario.allocator.set_memory_fraction(0.5).unwrap();
    let (first, _second) = (scenario.take(100), scenario.take(200));
    let found = of_never_fits(&scenario.fail(600));
    assert_eq!(
        found.advice[0],
        "raise the memory fraction to at least 0.800 and free 100.00 MiB here: the device has 500.00 MiB free"
    );
    scenario.free([first]);
    scenario.allocator.set_memory_fraction(0.8).unwrap();
    scenario.take(600);

    let scenario = Scenario::with_outside(1000, 300, "");
    let found = of_never_fits(&scenario.fail(1200));
    assert_eq!(["withheld_bytes", "outside_bytes"].map(|name| figure(&found, name) >> 20), [0, 300]);
    assert_eq!(found.advice.len(), 1, "the card is too small, whatever is set: {found:#}");
}

#[test]
fn a_rounding_that_lets_a_large_block_serve_is_advised_with_its_size() {
    let run = |settings: &str| {
        let scenario = Scenario::new(130, "");
        let block = scenario.take(100);
        scenario.free([block]);
        scenario.take(20);
        // From here on the 80 that are left of the block are neither cut nor given to much smaller requests.
        scenario.allocator.apply_settings(settings).unwrap();
        scenario.ask(50, Stream::DEFAULT)
    };
    let error = run("max_split_size_mb:32").unwrap_err();
    let error = OutOfMemory::behind(&error).unwrap();
    let split = finding(error.findings(), FindingCode::SplitLimitRefuses);
    assert_eq!(split.advice[0], "set max_non_split_rounding_mb to 31 or more, or leave max_split_size_mb out");
    run("max_split_size_mb:32,max_non_split_rounding_mb:31").unwrap();
}

#[test]
fn expandable_segments_are_not_advised_where_no_whole_page_would_come_free() {
    // Holes of 12 in segments of 40: less than a page each.
    let scenario = Scenario::new(400, "");
    let whole: Vec<u64> = (0..10).map(|_| scenario.take(40)).collect();
    let rests: Vec<u64> = whole
        .into_iter()
        .map(|block| {
            scenario.free([block]);
            scenario.take(28);
            scenario.take(12)
        })
        .collect();
    scenario.free(rests);
    let error = scenario.fail(60);
    let found = finding(error.findings(), FindingCode::Fragmentation);
    assert!(!found.advice.join(" ").contains("expandable_segments"), "{found:#}");
}

#[test]
fn no_more_is_to_be_freed_than_there_is() {
    let advice = |bytes: u64, fraction: f64, request: u64| {
        let scenario = Scenario::of_bytes(bytes, 0, "");
        scenario.allocator.set_memory_fraction(fraction).unwrap();
        let error = scenario.allocator.allocate_raw(request, Stream::DEFAULT).unwrap_err();
        let error = OutOfMemory::behind(&error).unwrap();
        finding(error.findings(), FindingCode::SegmentTooLarge).advice.clone()
    };
    assert_eq!(
        advice(10 * MIB, 1.0, 5 * MIB),
        ["freeing cannot make room for a segment of 20.00 MiB: 10.00 MiB may be reserved at most"]
    );
    assert_eq!(
        advice(100 * MIB, 0.1, 5 * MIB),
        ["freeing cannot make room for a segment of 20.00 MiB: 10.00 MiB may be reserved at most"]
    );
    assert_eq!(
        advice(99 * MIB + MIB / 2, 1.0, 99 * MIB + MIB / 2),
        [
            "ask for 98.00 MiB at most, whose segment fits into what is left now",
            "freeing cannot make room for a segment of 100.00 MiB: 99.50 MiB may be reserved at most"
        ]
    );
    assert_eq!(
        advice(MIB, 1.0, 300 << 10),
        ["freeing cannot make room for a segment of 2.00 MiB: 1.00 MiB may be reserved at most"]
    );
}

/// Half of what is allocated is cached, but for small requests; the sentence of the error says what its first finding says.
#[test]
fn the_sentence_of_the_error_is_of_its_first_finding() {
    let scenario = Scenario::new(100, "");
    let small: Vec<u64> = (0..84).map(|_| scenario.take(1)).collect();
    scenario.free(small.into_iter().step_by(2));
    let error = scenario.fail(30);
    assert_eq!(codes(error.findings()), [FindingCode::LiveMemoryTooLarge]);
    assert!(error.to_string().ends_with(". Free buffers earlier or make the batch smaller"), "{error}");
}

/// Programs that fail from the start with what is said to be no more than possible.
#[test]
fn what_has_to_be_set_from_the_start_is_no_promise() {
    let lines = |scenario: &Scenario, request: u64| {
        let found = finding(scenario.fail(request).findings(), FindingCode::Fragmentation).clone();
        let of_start = found.advice.into_iter().filter(|line| line.contains("before the program starts"));
        let of_start: Vec<String> = of_start.collect();
        assert!(of_start.iter().all(|line| line.contains("may help")), "{of_start:?}");
        of_start
    };
    let scenario = Scenario::new(175, "");
    let first = scenario.take(61);
    scenario.take(75);
    scenario.free([first]);
    scenario.take(8);
    let said = lines(&scenario, 80);
    assert!(said.iter().all(|line| !line.contains("max_split_size_mb")), "the 8 would open 20: {said:?}");
    assert!(lines(&scenario, 78).iter().any(|line| line.contains("max_split_size_mb:62")), "62 and 37 less 20");

    let scenario = Scenario::new(150, "");
    let first = scenario.take(68);
    scenario.take(10);
    scenario.free([first]);
    scenario.allocator.allocate_raw(MIB * 7 / 4, Stream::DEFAULT).unwrap();
    scenario.take(19);
    let said = lines(&scenario, 88);
    assert!(said.iter().all(|line| !line.contains("expandable_segments")), "whole pages would not do: {said:?}");
}

#[test]
fn sizes_that_are_compared_and_read_the_same_are_shown_to_the_byte() {
    let scenario = Scenario::of_bytes(3 * GIB, GIB, "");
    let idle = scenario.take(1024);
    scenario.free([idle]);
    let findings = scenario.allocator.diagnose_external(GIB + 1);
    let starved = finding(&findings, FindingCode::CacheStarvesOutside);
    assert!(
        starved.headline.contains(
            "1.00 GiB (1073741825 B) asked for, 1.00 GiB (1073741824 B) free on the device, 1.00 GiB (1073741824 B) idle"
        ),
        "{starved}"
    );

    let scenario = Scenario::of_bytes(3 * GIB - 512, 0, "");
    scenario.take(2048);
    let error = scenario.fail(1024);
    let live = finding(error.findings(), FindingCode::LiveMemoryTooLarge);
    assert!(
        live.headline.contains("1.00 GiB (1073741824 B) asked for is 512 B more than the 1.00 GiB (1073741312 B) left"),
        "{live}"
    );
    assert!(error.to_string().contains(" of which 1.00 GiB (1073741312 B) is free"), "{error}");
}
