//! `memtrack diff`: run files written by the library, compared by the program itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use common::Folder;
use memtrack::device::Simulated;
use memtrack::scope::Scope;
use memtrack::{Buffer, CachingAllocator};
use serde_json::Value;

/// The status, and what it printed.
fn diff(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtrack"));
    let output = command.arg("diff").args(arguments).current_dir(&folder.0).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The lines of three epochs of a run; each keeps `leaked` MiB more.
fn run(leaked: usize) -> Vec<String> {
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 30)));
    let _weights = Buffer::<u8>::uninit(&allocator, 100 << 20).unwrap();
    let _current = allocator.make_current();
    let mut kept = Vec::new();
    let mut cache = Some(Buffer::<u8>::uninit(&allocator, 8 << 20).unwrap());
    let lines = (1..=3_u64).map(|number| {
        let epoch = memtrack::epoch(number);
        for _ in 0..2 {
            let _phase = memtrack::phase("forward");
            let _scope = Scope::open(&allocator, "loss", None);
            kept.push(Buffer::<u8>::uninit(&allocator, (leaked << 20) / 2).unwrap());
            drop(Buffer::<u8>::uninit(&allocator, 30 << 20).unwrap());
        }
        if number == 3 {
            cache = None;
        }
        epoch.finish().unwrap().to_json()
    });
    let lines = lines.collect();
    drop((kept, cache));
    lines
}

fn write(folder: &Folder, name: &str, lines: &[String]) -> PathBuf {
    let path = folder.0.join(name);
    fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    path
}

#[test]
fn two_epochs_of_one_run_are_compared_by_phase_and_by_line() {
    let folder = Folder::new("diff-epochs");
    write(&folder, "run.jsonl", &run(4));
    let (status, output, errors) = diff(&folder, &["run.jsonl"]);
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    assert_eq!(output, FIRST_TO_LAST);
    // The same by number.
    let by_number = diff(&folder, &["run.jsonl@1", "run.jsonl@3"]);
    assert_eq!(by_number, (Some(0), output, errors));
    let (_, output, _) = diff(&folder, &["run.jsonl@2", "run.jsonl@2"]);
    assert!(output.contains("  by phase  no change\n  by line   no change\n"), "{output}");
}

const FIRST_TO_LAST: &str = "\
simulated: epoch 1 of run.jsonl -> epoch 3 of run.jsonl
  live      112.00 MiB -> 112.00 MiB  +0 B
  peak      142.00 MiB -> 150.00 MiB  +8.00 MiB
  reserved  150.00 MiB -> 150.00 MiB  +0 B
  by phase
    phase         live  blocks       peak  allocated  allocs
    forward  +8.00 MiB      +4  +8.00 MiB       +0 B      +0
    other    -8.00 MiB      -1  +8.00 MiB       +0 B      +0
  by line   what grew
    +8.00 MiB  memtrack-cli/tests/diff.rs:38:23 in loss (forward): 12.00 MiB in 6 blocks (+4)
    -8.00 MiB  1 line that shrank
";

#[test]
fn the_last_epochs_of_two_runs_are_compared_also_as_json() {
    let folder = Folder::new("diff-runs");
    write(&folder, "before.jsonl", &run(4));
    write(&folder, "after.jsonl", &run(12));
    let (status, output, errors) = diff(&folder, &["--json", "before.jsonl", "after.jsonl"]);
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    let difference: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&difference["earlier_epoch"], &difference["later_epoch"]), (&3.into(), &3.into()));
    let grown = &difference["sites"][0];
    assert_eq!((&grown["bytes"]["change"], &grown["blocks"]["change"]), (&(24 << 20).into(), &0.into()));
    assert_eq!((&grown["scope"], &grown["phase"]), (&"loss".into(), &"forward".into()));
    assert_eq!(difference["sites"].as_array().unwrap().len(), 1, "what is equal is left out");
    assert_eq!(difference["phases"][0]["live_bytes"]["change"], 24 << 20);
}

#[test]
fn devices_are_compared_by_name() {
    let folder = Folder::new("diff-devices");
    let lines = run(4);
    let on = |line: &String, device: &str| line.replace(r#""device":"simulated""#, &format!(r#""device":"{device}""#));
    let mixed = [on(&lines[0], "cuda:0"), on(&lines[0], "cuda:1"), on(&lines[2], "cuda:1"), on(&lines[1], "cuda:0")];
    write(&folder, "run.jsonl", &mixed);
    let (status, output, _) = diff(&folder, &["run.jsonl"]);
    assert_eq!(status, Some(0));
    let heads: Vec<_> = output.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(
        heads,
        [
            "cuda:0: epoch 1 of run.jsonl -> epoch 2 of run.jsonl",
            "cuda:1: epoch 1 of run.jsonl -> epoch 3 of run.jsonl"
        ]
    );
    write(&folder, "host.jsonl", &lines);
    let (status, _, errors) = diff(&folder, &["run.jsonl", "host.jsonl"]);
    assert_eq!(status, Some(2));
    assert!(errors.contains("no device in common: cuda:0, cuda:1 and simulated"), "{errors}");
    // One on each side is compared whatever its name.
    write(&folder, "cuda.jsonl", &[on(&lines[0], "cuda:0")]);
    let (status, output, _) = diff(&folder, &["cuda.jsonl", "host.jsonl"]);
    assert_eq!(status, Some(0));
    assert!(output.starts_with("cuda:0, epoch 1 of cuda.jsonl -> simulated, epoch 3 of host.jsonl\n"), "{output}");
}

#[test]
fn a_line_that_was_cut_short_at_the_end_is_passed_over_and_anywhere_else_named() {
    let folder = Folder::new("diff-cut");
    let lines = run(4);
    let cut = &lines[2][..lines[2].len() / 2];
    fs::write(folder.0.join("killed.jsonl"), format!("{}\n\n{}\n{cut}", lines[0], lines[1])).unwrap();
    let (status, output, _) = diff(&folder, &["killed.jsonl"]);
    assert_eq!(status, Some(0));
    assert!(output.contains("epoch 1 of killed.jsonl -> epoch 2 of killed.jsonl"), "{output}");
    fs::write(folder.0.join("spoilt.jsonl"), format!("{}\n{cut}\n{}\n", lines[0], lines[1])).unwrap();
    let (status, output, errors) = diff(&folder, &["spoilt.jsonl"]);
    assert_eq!((status, output.as_str()), (Some(2), ""));
    assert!(errors.starts_with("memtrack: spoilt.jsonl:2: not a line of a run file: EOF"), "{errors}");
}

#[test]
fn what_cannot_be_compared_is_said_with_the_file_and_what_there_is() {
    let folder = Folder::new("diff-errors");
    let lines = run(4);
    write(&folder, "run.jsonl", &lines);
    write(&folder, "newer.jsonl", &[lines[0].replace(r#""version":1"#, r#""version":2"#)]);
    write(&folder, "other.jsonl", &[r#"{"schema":"else","version":1,"kind":"epoch"}"#.to_owned()]);
    write(&folder, "later-kinds.jsonl", &[r#"{"schema":"memtrack.run","version":1,"kind":"step"}"#.to_owned()]);
    write(&folder, "empty.jsonl", &[]);
    let cases = [
        ("run.jsonl@7", "run.jsonl: no epoch 7; it has 1, 2, 3"),
        ("none.jsonl", "none.jsonl: No such file"),
        ("newer.jsonl", "newer.jsonl:1: version 2 of the run file; this program knows versions up to 1"),
        ("other.jsonl", "its schema is \"else\""),
        ("later-kinds.jsonl", "later-kinds.jsonl: no epoch in it"),
        ("empty.jsonl", "empty.jsonl: no epoch in it"),
    ];
    for (file, said) in cases {
        let (status, output, errors) = diff(&folder, &[file, "run.jsonl"]);
        assert_eq!((status, output.as_str()), (Some(2), ""), "{file}");
        assert!(errors.starts_with("memtrack: ") && errors.contains(said), "{file}: {errors}");
    }
}
