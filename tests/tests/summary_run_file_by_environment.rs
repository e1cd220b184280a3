//! The run file that the environment names, in processes of their own: this test starts itself anew and there trains instead.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use memtrack::CachingAllocator;
use memtrack::device::Simulated;

const TEST: &str = "the_environment_names_the_run_file_of_each_process";
/// Says to a process that a test has started it.
const STARTED: &str = "MEMTRACK_TEST_RUN_FILE_STARTED";

fn train() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let _current = allocator.make_current();
    (1..=2).for_each(|number| drop(memtrack::epoch(number)));
}

fn start(run_file: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([TEST, "--exact"]).env(STARTED, "1").env(memtrack::run_file::ENVIRONMENT_VARIABLE, run_file);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_environment_names_the_run_file_of_each_process() {
    if std::env::var_os(STARTED).is_some() {
        return train();
    }
    let folder = std::env::temp_dir().join(format!("memtrack-run-file-environment-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    start(&folder.join("run-%p.jsonl"));
    start(&folder.join("run-%p.jsonl"));
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        let epochs: Vec<u64> = fs::read_to_string(file)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["epoch"].as_u64().unwrap())
            .collect();
        assert_eq!(epochs, [1, 2]);
    }
    // Training goes on without it.
    start(&folder.join("no such folder").join("run.jsonl"));
    fs::remove_dir_all(&folder).unwrap();
}
