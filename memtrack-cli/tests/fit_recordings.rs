//! What `memtrack fit` makes of recordings that begin in the middle, ran out of memory, or set limits and settings themselves.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::{Folder, fixtures, run};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// Status, the objects of `--json`, standard error.
fn fit(content: (&str, &str), options: &[&str]) -> (u8, Vec<Value>, String) {
    let folder = Folder::new(&format!("fit-{}-{}", content.0, options.len()));
    let file = folder.write(content.0, content.1);
    let (status, output, errors) = run(&[&["fit", "--json"], options, &[file.as_str()]].concat());
    (status, output.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), errors)
}

fn notes(report: &Value) -> String {
    report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

fn limit_mib(report: &Value, name: &str) -> u64 {
    let policies = report["policies"].as_array().unwrap();
    let has_name = |policy: &&Value| policy["names"].as_array().unwrap().contains(&name.into());
    policies.iter().find(has_name).unwrap()["smallest_limit_bytes"].as_u64().unwrap() / MIB
}

#[test]
fn a_request_that_found_no_memory_may_fail_again_unless_it_must_be_served() {
    // 30 MiB are held, 100 were refused, 20 come after.
    let trace = ("refused.txt", "a 1 31457280\no 104857600\na 2 20971520\n");
    let (status, reports, _) = fit(trace, &[]);
    assert_eq!((status, &reports[0]["recorded_ooms"]), (0, &1.into()));
    assert_eq!(reports[0]["requested_peak_bytes"], 50 * MIB);
    assert_eq!(limit_mib(&reports[0], "default"), 50);
    // It was refused whatever was given back first, and that is no retry that could be saved.
    assert_eq!(reports[0]["policies"][0]["retries"], 0);
    assert!(notes(&reports[0]).contains("1 request found no memory in the recording and may fail here too"));

    let (_, reports, _) = fit(trace, &["--serve-ooms"]);
    assert_eq!(reports[0]["requested_peak_bytes"], 130 * MIB);
    assert_eq!(limit_mib(&reports[0], "default"), 130);
    assert!(notes(&reports[0]).contains("must be served here"));
}

#[test]
fn what_a_program_was_refused_and_never_gave_back_is_not_held_where_there_is_room() {
    let program = json!({"total_memory": 1 << 30, "limit_bytes": 60 * MIB, "ops": [
        {"op": ["alloc", 0, 31457280, 0], "ptr": 1 << 21, "changed": {"num_ooms": 0}},
        {"op": ["alloc", 1, 104857600, 0], "oom": "out of memory", "changed": {"num_ooms": 1}},
        {"op": ["alloc", 2, 20971520, 0], "ptr": 1 << 26, "changed": {}},
    ]});
    let (status, reports, errors) = fit(("refused.json", &program.to_string()), &["--on", "4GiB"]);
    assert_eq!(status, 0, "{errors}");
    assert_eq!(limit_mib(&reports[0], "default"), 50);
    // Given back at once, it leaves its segment in the cache, where it is needed no more.
    assert_eq!(reports[0]["policies"][0]["unlimited_peak_bytes"], 130 * MIB);
}

#[test]
fn limits_that_a_recording_sets_are_passed_over() {
    let program = json!({"total_memory": 1 << 30, "ops": [
        {"op": ["set_fraction", 0.001]}, {"op": ["reset_peak"]}, {"op": ["alloc", 0, 31457280, 0]}, {"op": ["reset_accumulated"]},
    ]});
    for by in ["card", "fraction"] {
        let (status, reports, errors) = fit(("limits.json", &program.to_string()), &["--by", by]);
        assert_eq!(status, 0, "{errors}");
        assert_eq!(limit_mib(&reports[0], "recorded"), 30);
        assert_eq!(reports[0]["policies"][0]["device_allocations"], 1);
        assert!(notes(&reports[0]).contains("sets its memory limit 1 time, which is passed over"));
    }
    // Neither does the limit of its configuration or of its device count.
    let trace =
        r#"# meta {"conf": "per_process_memory_fraction:0.5", "total_memory": 16777216, "memory_fraction": 0.5}"#;
    let (status, reports, errors) = fit(("limited.txt", &format!("{trace}\na 1 31457280\n")), &[]);
    assert_eq!((status, limit_mib(&reports[0], "recorded")), (0, 30), "{errors}");
}

#[test]
fn settings_that_a_recording_changes_at_run_time_are_those_of_recorded_alone() {
    let program = json!({"keys": [], "ops": [
        {"op": "settings", "conf": "expandable_segments:True"},
        {"op": "alloc", "id": 0, "size": 20971520, "ptr": 1 << 21},
        {"op": "free", "id": 0},
        {"op": "alloc", "id": 1, "size": 31457280, "ptr": 1 << 21},
    ]});
    let (status, reports, errors) = fit(("settings.json", &program.to_string()), &[]);
    assert_eq!(status, 0, "{errors}");
    let peaks: Vec<(String, u64)> = reports[0]["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|policy| (policy["names"].to_string(), policy["unlimited_peak_bytes"].as_u64().unwrap() / MIB))
        .filter(|(names, _)| !names.contains("compact"))
        .collect();
    let expected = [(r#"["default"]"#, 50), (r#"["recorded"]"#, 40), (r#"["expandable"]"#, 40)];
    assert_eq!(peaks, expected.map(|(names, mib)| (names.to_owned(), mib)));
    assert!(notes(&reports[0]).contains("changes its settings at run time"));
}

#[test]
fn a_snapshot_that_begins_in_the_middle_of_a_run_says_so_and_takes_what_was_there_first() {
    let entry = |action: &str, address: u64, mib: u64| json!({"action": action, "addr": address * MIB, "size": mib * MIB, "stream": 0});
    let freed = |address: u64, mib: u64| [entry("free_requested", address, mib), entry("free_completed", address, mib)];
    let whole = [vec![entry("alloc", 100, 30)], vec![entry("alloc", 200, 20)], freed(100, 30).to_vec()].concat();
    let snapshot = |traces: Value| json!({"segments": [], "device_traces": traces}).to_string();

    let (status, reports, errors) = fit(("whole.json", &snapshot(json!([whole]))), &[]);
    assert_eq!(status, 0, "{errors}");
    assert_eq!((notes(&reports[0]).as_str(), limit_mib(&reports[0], "default")), ("", 50));

    // The block of 30 MiB is freed and was never allocated.
    let (status, reports, errors) = fit(("middle.json", &snapshot(json!([whole[1..]]))), &[]);
    assert_eq!(status, 0, "{errors}");
    assert!(notes(&reports[0]).contains("begins in the middle of a run: 1 block allocated before it comes first"));
    assert_eq!(limit_mib(&reports[0], "default"), 50);

    // Each device's history has its own answer.
    let (_, reports, _) = fit(("twice.json", &snapshot(json!([whole, [], whole[..1]]))), &[]);
    let answers = reports.iter().map(|report| (report["history"].as_u64(), limit_mib(report, "default")));
    assert_eq!(answers.collect::<Vec<_>>(), [(Some(1), 50), (Some(2), 30)]);
}

#[test]
fn recorded_settings_that_cannot_be_tried_are_an_error_of_their_row_alone() {
    let file = fixtures().join("special/async.json");
    let (status, output, errors) = run(&["fit", file.to_str().unwrap()]);
    assert_eq!(status, 2);
    assert!(errors.contains("recorded: recorded with the backend cudaMallocAsync"), "{errors}");
    assert!(output.contains("  expandable "), "{output}");
    assert_eq!(run(&["fit", "--policy", "default,expandable", file.to_str().unwrap()]).0, 0);

    let refused = "# meta {\"conf\": \"large_segment_size_mb:5\"}\na 1 1000\n";
    let (status, _, errors) = fit(("refused-settings.txt", refused), &[]);
    assert_eq!(status, 2);
    assert!(errors.contains("the recorded configuration is refused: "), "{errors}");
}

#[test]
fn what_no_device_serves_is_an_error_with_its_place() {
    let (status, reports, errors) = fit(("never.txt", "a 1 1000\na 2 2199023255552\n"), &["--policy", "default"]);
    assert_eq!(status, 2);
    let said = "default: does not complete with 1.00 TiB, all that the simulated device has: line 2, alloc 2, 2199023255552 bytes on \
                stream 0 finds no memory";
    assert!(errors.contains(said), "{errors}");
    assert!(said.contains(reports[0]["policies"][0]["error"].as_str().unwrap()));
}

#[test]
fn settings_of_ones_own_are_a_row_and_the_same_ones_share_it() {
    let options = ["--policy", "default", "--config", "max_split_size_mb:64", "--config", "torch_exact:True"];
    let (status, reports, errors) = fit(("own.txt", "a 1 31457280\n"), &options);
    assert_eq!(status, 0, "{errors}");
    let names: Vec<String> =
        reports[0]["policies"].as_array().unwrap().iter().map(|policy| policy["names"].to_string()).collect();
    assert_eq!(names, [r#"["default","torch_exact:True"]"#, r#"["max_split_size_mb:64"]"#]);
}
