//! Everything measured on PyTorch 2.11 replays with every statistic and every address equal.

mod common;

use common::{files, fixtures};
use memtrack::{Config, Policy};
use memtrack_cli::recording::Kind;
use memtrack_cli::replay::{Choices, Report, replay_file};

/// Replays all files of a folder, of which there are so many.
fn replay_all(folder: &str, count: usize, kind: Kind, choices: &Choices) -> Vec<Report> {
    let files = files(folder);
    assert_eq!(files.len(), count, "a file of {folder} is lost or new");
    let reports: Vec<Report> = files.iter().map(|file| replay_file(file, choices)).collect();
    assert!(reports.iter().all(|report| report.error.is_none() && report.kind == Some(kind)));
    reports
}

fn assert_verified(reports: &[Report]) {
    for report in reports {
        assert_eq!(report.agrees, Some(true), "{:?}", report.line());
        assert_eq!(report.status(), 0);
    }
}

#[test]
fn every_program_gives_pytorchs_statistics_addresses_and_tables() {
    let reports = replay_all("programs", 55, Kind::Program, &Choices::default());
    assert_verified(&reports);
    for report in &reports {
        // Before the first step, after each, and at the end.
        let operations = report.operations.unwrap();
        assert_eq!(report.compared.0, 122 * (operations + 2), "{}", report.file);
    }
    let total = |count: fn(&Report) -> usize| reports.iter().map(count).sum::<usize>();
    assert_eq!((total(|report| report.operations.unwrap()), total(|report| report.compared.1)), (10_453, 5_443));
}

#[test]
fn every_golden_file_gives_pytorchs_statistics_and_addresses() {
    let reports = replay_all("golden", 14, Kind::Golden, &Choices::default());
    assert_verified(&reports);
    assert!(reports.iter().all(|report| (report.operations, report.compared.0) == (Some(350), 122 * 350)));
    assert_eq!(reports.iter().map(|report| report.compared.1).sum::<usize>(), 2_489);
}

#[test]
fn every_trace_gives_pytorchs_addresses_and_the_statistics_of_its_marks() {
    let reports = replay_all("traces", 12, Kind::Trace, &Choices::default());
    assert_verified(&reports);
    let compared = |name: &str| {
        let report = reports.iter().find(|report| report.file.contains(name)).unwrap();
        (report.operations.unwrap(), report.compared)
    };
    // 205 marks of 41 statistics, and 122 at the end; 165 of them where streams use each other's blocks.
    assert_eq!(compared("bert_varlen.default"), (152_101, (205 * 41 + 122, 76_052)));
    assert_eq!(compared("prefetch_streams.expand"), (32_111, (165 * 41 + 122, 16_057)));
}

/// `compact` comes to what PyTorch itself came to with expandable segments on the same workload, to the byte.
#[test]
fn a_trace_measured_with_other_settings_comes_to_what_pytorch_came_to_with_them() {
    let compact = Choices { policy: Some(Policy::Compact), ..Choices::default() };
    let plain = Choices { config: Some(Config::default()), ..Choices::default() };
    for workload in ["gnn_sampled", "prefetch_streams", "resnet50"] {
        let file = |recorded: &str| fixtures().join(format!("traces/{workload}.{recorded}.txt.gz"));
        for (choices, replayed, like) in [(&compact, "default", "expand"), (&plain, "expand", "default")] {
            let measured = replay_file(&file(replayed), choices);
            let verified = replay_file(&file(like), &Choices::default());
            assert_eq!((measured.agrees, verified.agrees), (None, Some(true)), "{measured:?}");
            let peaks = |report: &Report| (report.requested_peak_bytes, report.reserved_peak_bytes, report.segments);
            assert_eq!(peaks(&measured), peaks(&verified), "{workload}");
            assert!(measured.ns_per_operation.unwrap() > 0.0 && verified.ns_per_operation.is_none());
        }
    }
}

#[test]
fn the_recorded_settings_verify_also_when_they_are_named_and_others_measure() {
    let file = fixtures().join("programs/random-big-split64-limit.json.gz");
    let agrees = |config: &str, limit_bytes: Option<u64>, policy: Option<Policy>| {
        let config = Some(config.parse().unwrap());
        replay_file(&file, &Choices { config, limit_bytes, policy, ..Choices::default() }).agrees
    };
    let recorded = "max_split_size_mb:64";
    assert_eq!(agrees(recorded, None, None), Some(true));
    assert_eq!(agrees(recorded, Some(3_221_225_472), Some(Policy::Torch)), Some(true));
    assert_eq!(agrees("max_split_size_mb:64,torch_exact:True", None, None), Some(true));
    assert_eq!(agrees("", None, None), None);
    assert_eq!(agrees("max_split_size_mb:65", None, None), None);
    assert_eq!(agrees(recorded, Some(3_221_225_473), None), None);
    assert_eq!(agrees(recorded, None, Some(Policy::Compact)), None);
}

#[test]
fn a_limit_makes_a_trace_retry_and_then_run_out() {
    let file = fixtures().join("traces/gnn_sampled.default.txt.gz");
    let limited = |limit_bytes| replay_file(&file, &Choices { limit_bytes: Some(limit_bytes), ..Choices::default() });
    let tight = limited(6 << 30);
    assert!(tight.retries.unwrap() > 0 && tight.reserved_peak_bytes.unwrap() <= 6 << 30, "{tight:?}");
    let too_tight = limited(1 << 30);
    assert!(too_tight.ooms.unwrap() > 0 && too_tight.reserved_peak_bytes.unwrap() <= 1 << 30, "{too_tight:?}");
    assert_eq!((tight.status(), too_tight.status()), (0, 0), "what runs out is measured too");
}
