//! `MEMTRACK_PRELOAD=observe`: every call is counted, none is changed.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::child::{Folder, run, run_program, run_with};

const SIGABRT: i32 = 6;

/// What the library counted of a function, failures too.
fn counted(calls: &Value, function: &str) -> u64 {
    let call = &calls["calls"][function];
    call["done"].as_u64().unwrap() + call["failed"].as_u64().unwrap()
}

#[test]
fn every_call_of_a_program_that_opens_the_driver_is_counted() {
    let ended = run("observe", "counts").expect_success();
    let calls = ended.calls_on("cuda:0");
    for (function, of_the_driver) in [
        ("cuMemAlloc", "cuMemAlloc_v2"),
        ("cuMemAllocAsync", "cuMemAllocAsync"),
        ("cuMemFree", "cuMemFree_v2"),
        ("cuMemFreeAsync", "cuMemFreeAsync"),
    ] {
        assert_eq!(counted(calls, function), ended.number(of_the_driver), "{function}: {ended:#?}");
    }
    assert_eq!(calls["calls"]["cuMemAlloc"], json!({"done": 2, "failed": 1}));
    assert_eq!(calls["calls"]["cuMemAllocAsync"], json!({"done": 4, "failed": 1}));
    assert_eq!(calls["calls"]["cuMemFree"], json!({"done": 2, "failed": 2}));
    assert_eq!(calls["calls"]["cuMemFreeAsync"], json!({"done": 2, "failed": 0}));
    assert_eq!(calls["live_bytes"], ended.number("left"));
    assert_eq!(calls["live_blocks"], 2);
    assert_eq!(calls["peak_bytes"], ended.number("peak"));
    assert_eq!((&calls["ooms"], &calls["largest_refused_bytes"]), (&json!(2), &json!(3_u64 << 30)));
    // With one device nobody is asked which it is.
    assert_eq!(ended.number("cuCtxGetDevice"), 1);
    for part in
        ["memtrack: cuda:0, observed: 6 allocations, 4 frees, 4 failures", "peak 15.00 MiB", "2 requests refused"]
    {
        assert!(ended.errors.contains(part), "{part}: {}", ended.errors);
    }
}

#[test]
fn the_run_file_has_an_epoch_that_diff_reads() {
    let ended = run("observe", "counts").expect_success();
    let lines = ended.run_file.as_ref().unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let epoch = &lines[0];
    assert_eq!(
        (&epoch["schema"], &epoch["kind"], &epoch["version"]),
        (&json!("memtrack.run"), &json!("epoch"), &json!(1))
    );
    assert_eq!(epoch["after_bytes"], ended.number("left"));
    assert_eq!(epoch["peak"]["bytes"], ended.number("peak"));
    assert_eq!(epoch["phases"][0]["allocations"], 6);
}

#[test]
fn threads_are_counted_exactly() {
    let ended = run("observe", "threads").expect_success();
    let calls = ended.calls_on("cuda:0");
    assert_eq!(calls["calls"]["cuMemAllocAsync"]["done"], 800);
    assert_eq!(calls["calls"]["cuMemFreeAsync"]["done"], 800);
    assert_eq!((&calls["live_bytes"], &calls["live_blocks"]), (&json!(0), &json!(0)));
    assert_eq!(calls["allocated_bytes"], 4 * 512 * (200 * 201 / 2));
}

#[test]
fn devices_are_told_apart() {
    let ended = run("observe", "two-devices").expect_success();
    let mib = 1_u64 << 20;
    let (first, second) = (ended.calls_on("cuda:0"), ended.calls_on("cuda:1"));
    assert_eq!((&first["live_bytes"], &first["peak_bytes"]), (&json!(2 * mib), &json!(2 * mib)));
    assert_eq!((&second["live_bytes"], &second["peak_bytes"]), (&json!(0), &json!(7 * mib)));
    assert_eq!(second["calls"]["cuMemFree"]["done"], 1);
}

#[test]
fn the_exit_status_is_the_programs() {
    let ended = run("observe", "exit-code");
    assert_eq!(ended.status.code(), Some(37));
    assert_eq!(ended.calls_on("cuda:0")["live_bytes"], 3 << 20);
}

#[test]
fn a_process_that_ends_at_once_is_left_alone() {
    let ended = run("observe", "quick-end");
    assert_eq!(ended.status.code(), Some(5));
    assert_eq!((ended.errors.as_str(), &ended.run_file), ("", &None));
    let ended = run("observe", "abort");
    assert_eq!(ended.status.signal(), Some(SIGABRT));
    assert_eq!(ended.run_file, None);
}

#[test]
fn a_forked_child_tells_nothing() {
    let ended = run("observe", "fork").expect_success();
    assert_eq!(ended.number("child"), 0);
    assert_eq!(ended.errors.matches("memtrack: cuda:0").count(), 1, "{}", ended.errors);
    assert_eq!(ended.calls_on("cuda:0")["live_blocks"], 1);
}

#[test]
fn a_program_without_a_call_tells_nothing() {
    let ended = run("observe", "nothing").expect_success();
    assert_eq!((ended.errors.as_str(), &ended.run_file), ("", &None));
}

#[test]
fn memory_that_goes_with_the_context_is_not_called_live() {
    let ended = run("observe", "leave").expect_success();
    let calls = ended.calls_on("cuda:0");
    assert_eq!((&calls["live_blocks"], &calls["vanished_bytes"]), (&json!(0), &json!(3 << 20)));
    assert!(ended.errors.contains("1 block (3.00 MiB) went with the context"), "{}", ended.errors);
}

#[test]
fn off_counts_nothing_and_an_unknown_mode_is_refused() {
    let ended = run("off", "counts").expect_success();
    assert_eq!((ended.errors.as_str(), &ended.run_file), ("", &None));
    let ended = run("observes", "counts").expect_success();
    assert!(ended.errors.contains("MEMTRACK_PRELOAD=observes: neither"), "{}", ended.errors);
    assert_eq!(ended.run_file, None);
}

#[test]
fn a_run_file_that_cannot_be_written_is_told_of_and_harms_nothing() {
    let ended = run_with("observe", "exit-code", &[("MEMTRACK_RUN_FILE", "/dev/null/none")]);
    assert_eq!(ended.status.code(), Some(37));
    assert!(ended.errors.contains("the run file cannot be written: /dev/null/none"), "{}", ended.errors);
}

#[test]
fn figures_are_published_while_the_program_runs_and_go_with_it() {
    for (mode, allocated) in [("observe", 3 << 20), ("cache", 3 << 20)] {
        let folder = Folder::new();
        let published = folder.path("published");
        let settings = [("MEMTRACK_PUBLISH", published.to_str().unwrap())];
        let program = Path::new(env!("CARGO_BIN_EXE_preload-subject"));
        let ended = run_program(&folder, mode, program, &["published"], &settings).expect_success();
        assert_eq!((ended.number("allocators"), ended.number("allocated")), (1, allocated), "{mode}");
        assert_eq!(fs::read_dir(&published).unwrap().count(), 0, "{mode}");
    }
}
