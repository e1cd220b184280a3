//! The run file that the environment names, in processes of their own: this test starts itself anew and there trains instead.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use memtrack::CachingAllocator;
use memtrack::device::Simulated;
use memtrack_tests::listening::listen;

const TEST: &str = "the_environment_names_the_run_file_of_each_process";
/// What a process prints when its first epoch is over, and in front of what it told.
const FIRST: &str = "the first epoch is over";
const TOLD: &str = "told: ";
/// Says to a process that a test has started it.
const STARTED: &str = "MEMTRACK_TEST_RUN_FILE_STARTED";

/// Two epochs; where standard input is a pipe, the second once it ends. What it told of the run file it prints.
fn train() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let _current = allocator.make_current();
    let said = listen(
        || {},
        || {
            drop(memtrack::epoch(1));
            println!("{FIRST}");
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
            drop(memtrack::epoch(2));
        },
    );
    for event in said.iter().filter(|event| event.target == "memtrack::run_file") {
        println!("{TOLD}{}: {}", event.level, event.fields["error"]);
    }
}

fn command(run_file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([TEST, "--exact", "--nocapture"]).env(STARTED, "1");
    command.env(memtrack::run_file::ENVIRONMENT_VARIABLE, run_file).stdin(Stdio::null());
    command
}

/// Runs one to its end: what it told of the run file.
fn start(run_file: &Path) -> Vec<String> {
    let output = command(run_file).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    let told = printed.lines().filter_map(|line| Some(line.split_once(TOLD)?.1.to_owned()));
    told.collect()
}

fn epochs(file: &Path) -> Vec<(u64, u64)> {
    let lines = fs::read_to_string(file).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.map(|line| (line["process"].as_u64().unwrap(), line["epoch"].as_u64().unwrap())).collect()
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
        assert_eq!(epochs(&file).iter().map(|(_, epoch)| *epoch).collect::<Vec<_>>(), [1, 2]);
    }
    // Training goes on without it.
    assert_eq!(start(&folder.join("no such folder").join("run.jsonl")).len(), 1);

    // Two at a time with one name: the first has the file, and the second says what to do.
    let file = folder.join("run.jsonl");
    let mut first = command(&file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(first.stdout.take().unwrap()).lines();
    assert!(printed.by_ref().any(|line| line.unwrap().contains(FIRST)));
    let told = start(&file);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("WARN: another process writes this file"), "{told:?}");
    assert!(told[0].ends_with("as `run-%p.jsonl`"), "{told:?}");
    drop(first.stdin.take());
    assert!(printed.all(|line| !line.unwrap().contains(TOLD)), "the first has nothing to tell");
    assert!(first.wait().unwrap().success());
    let process = u64::from(first.id());
    assert_eq!(epochs(&file), [(process, 1), (process, 2)]);
    // Once it has ended the next one begins the file anew.
    assert_eq!(start(&file), Vec::<String>::new());
    assert_ne!(epochs(&file)[0].0, process);

    // A pipe that nobody reads stops no training.
    #[cfg(target_os = "linux")]
    {
        let pipe = folder.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut waits = command(&pipe).stdout(Stdio::null()).spawn().unwrap();
        let ended = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            waits.try_wait().unwrap().is_some_and(|status| status.success())
        });
        let _ = waits.kill();
        assert!(ended, "it waits for a reader");
    }
    fs::remove_dir_all(&folder).unwrap();
}
