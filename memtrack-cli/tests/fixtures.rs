//! Everything measured on PyTorch 2.11 replays with every statistic and every address equal.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::{files, fixtures};
use memtrack::history::{ReadLimits, Snapshot};
use memtrack::{Config, Policy};
use memtrack_cli::recording::{Kind, Recording};
use memtrack_cli::replay::{Choices, Report, replay_file};
use memtrack_cli::session::{Session, Setup};

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
        assert_eq!(report.compared_statistics.unwrap(), 122 * (operations + 2), "{}", report.file);
    }
    let total = |count: fn(&Report) -> usize| reports.iter().map(count).sum::<usize>();
    assert_eq!(
        (total(|report| report.operations.unwrap()), total(|report| report.compared_addresses.unwrap())),
        (10_453, 5_443)
    );
}

#[test]
fn a_recording_of_the_drivers_own_pool_gives_pytorchs_statistics() {
    let file = fixtures().join("special/async.json");
    assert_verified(&[replay_file(&file, &Choices::default())]);
}

#[test]
fn every_golden_file_gives_pytorchs_statistics_and_addresses() {
    let reports = replay_all("golden", 14, Kind::Golden, &Choices::default());
    assert_verified(&reports);
    assert!(
        reports.iter().all(|report| (report.operations, report.compared_statistics) == (Some(350), Some(122 * 350)))
    );
    assert_eq!(reports.iter().map(|report| report.compared_addresses.unwrap()).sum::<usize>(), 2_489);
}

#[test]
fn every_trace_gives_pytorchs_addresses_and_the_statistics_of_its_marks() {
    let reports = replay_all("traces", 12, Kind::Trace, &Choices::default());
    assert_verified(&reports);
    let compared = |name: &str| {
        let report = reports.iter().find(|report| report.file.contains(name)).unwrap();
        (report.operations.unwrap(), (report.compared_statistics.unwrap(), report.compared_addresses.unwrap()))
    };
    // 205 marks of 41 statistics, and 122 at the end; 165 of them where streams use each other's blocks.
    assert_eq!(compared("bert_varlen.default"), (152_101, (205 * 41 + 122, 76_052)));
    assert_eq!(compared("prefetch_streams.expand"), (32_111, (165 * 41 + 122, 16_057)));
}

#[test]
fn a_trace_measured_with_other_settings_comes_to_what_pytorch_came_to_with_them() {
    let expandable = Choices { config: Some("expandable_segments:True".parse().unwrap()), ..Choices::default() };
    let plain = Choices { config: Some(Config::default()), ..Choices::default() };
    for workload in ["gnn_sampled", "prefetch_streams", "resnet50"] {
        let file = |recorded: &str| fixtures().join(format!("traces/{workload}.{recorded}.txt.gz"));
        for (choices, replayed, like) in [(&expandable, "default", "expand"), (&plain, "expand", "default")] {
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
fn the_compact_policy_reserves_less_than_either_kind_of_segments() {
    let compact = Choices { policy: Some(Policy::Compact), ..Choices::default() };
    for workload in ["gnn_sampled", "prefetch_streams", "resnet50"] {
        let file = |recorded: &str| fixtures().join(format!("traces/{workload}.{recorded}.txt.gz"));
        let measured = replay_file(&file("default"), &compact);
        assert_eq!((measured.agrees, measured.retries, measured.ooms), (None, Some(0), Some(0)), "{measured:?}");
        for recorded in ["default", "expand"] {
            let verified = replay_file(&file(recorded), &Choices::default());
            assert_eq!(measured.requested_peak_bytes, verified.requested_peak_bytes, "{workload}");
            assert!(measured.reserved_peak_bytes < verified.reserved_peak_bytes, "{workload} {recorded}");
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

#[test]
fn snapshots_come_to_the_figures_that_pytorch_had_when_it_wrote_them() {
    for name in ["default", "expandable"] {
        let report = replay_file(&fixtures().join(format!("snapshots/{name}.pickle")), &Choices::default());
        let text = std::fs::read_to_string(fixtures().join(format!("snapshots/{name}.json"))).unwrap();
        let stats: serde_json::Value = serde_json::from_str::<serde_json::Value>(&text).unwrap()["stats"].clone();
        let recorded = |key: &str| stats[key].as_i64();
        assert_eq!((report.kind, report.agrees, report.status()), (Some(Kind::Snapshot), None, 0), "{report:?}");
        assert_eq!(report.requested_peak_bytes, recorded("requested_bytes.all.peak"));
        assert_eq!(report.allocated_peak_bytes, recorded("allocated_bytes.all.peak"));
        assert_eq!(report.reserved_peak_bytes, recorded("reserved_bytes.all.peak"));
        assert_eq!(report.retries, recorded("num_alloc_retries"));
        assert_eq!(report.ooms, recorded("num_ooms"));
        assert_eq!(report.segments, recorded("segment.all.peak"));
        assert!(report.operations.unwrap() > 200 && report.ns_per_operation.unwrap() > 0.0);
    }
}

/// What the allocator still holds at the end of a recording: bytes asked for, active ones included.
fn requested_at_the_end(recording: &Recording) -> i64 {
    let setup = Setup::simulated(Config::from_torch(&recording.configuration).unwrap());
    let mut session = Session::new(&setup, recording.block_count).unwrap();
    for step in &recording.steps {
        session.perform(&step.operation).unwrap();
    }
    session.stats().requested_bytes.all.current
}

#[test]
fn a_history_that_was_cut_begins_with_the_blocks_that_it_does_not_allocate() {
    let bytes = std::fs::read(fixtures().join("snapshots/default.pickle")).unwrap();
    let whole = Snapshot::from_pickle(&bytes, &ReadLimits::default()).unwrap();
    let active = whole.segments.iter().map(|segment| segment.requested_size as i64).sum::<i64>();
    assert!(active > 0);
    let entry_count = whole.device_traces[0].len();
    for kept in [entry_count, entry_count - 1, 300, 150, 20, 1] {
        let mut cut = whole.clone();
        cut.device_traces[0].drain(..entry_count - kept);
        let (mut pickle, mut json) = (Vec::new(), Vec::new());
        cut.write_pickle(&mut pickle).unwrap();
        cut.write_json(&mut json).unwrap();
        for (name, content) in [("cut.pickle", pickle), ("cut.json", json)] {
            let recordings = Recording::parse(name, &content).unwrap();
            assert_eq!(recordings.len(), 1);
            assert_eq!(requested_at_the_end(&recordings[0]), active, "the last {kept} entries of {name}");
        }
    }
}
