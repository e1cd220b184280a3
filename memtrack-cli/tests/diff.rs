//! `memtrack diff`: run files written by the library, compared by the program itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::Folder;
use memtrack::device::Simulated;
use memtrack::phase::EpochSummary;
use memtrack::scope::Scope;
use memtrack::source::{Exactness, MemorySource, SourceError, SourceReading, register_source};
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
    +8.00 MiB  memtrack-cli/tests/diff.rs:41:23 in loss (forward): 12.00 MiB in 6 blocks (+4)
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

/// A run without an allocator: each epoch, a phase takes 30 MB for its time, and keeps `leaked` of them.
fn run_of_a_source(leaked: u64, keeps_peaks: bool) -> Vec<String> {
    /// What it says: in use, and the mark.
    #[derive(Debug)]
    struct Framework(Mutex<(u64, u64)>, bool);
    impl Framework {
        fn change(&self, bytes: i64) {
            let mut state = self.0.lock().unwrap();
            state.0 = state.0.checked_add_signed(bytes).unwrap();
            state.1 = state.1.max(state.0);
        }
    }
    impl MemorySource for Framework {
        fn name(&self) -> &str {
            "framework"
        }
        fn exactness(&self) -> Exactness {
            Exactness::ExactProcessWide
        }
        fn read(&self) -> Result<SourceReading, SourceError> {
            let (current, mark) = *self.0.lock().unwrap();
            let reading = SourceReading::new(current);
            Ok(if self.1 { reading.with_peak(mark).with_reserved(64 << 20) } else { reading })
        }
        fn reset_peak(&self) -> Result<(), SourceError> {
            let mut state = self.0.lock().unwrap();
            state.1 = state.0;
            Ok(())
        }
    }
    // Sources are the process's: one at a time.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let framework = Arc::new(Framework(Mutex::new((0, 0)), keeps_peaks));
    let _registered = register_source(Arc::clone(&framework) as Arc<dyn MemorySource>).unwrap();
    let lines = (1..=3_u64).map(|number| {
        let epoch = memtrack::epoch(number);
        {
            let _phase = memtrack::phase("forward");
            framework.change(30 << 20);
            {
                let _inner = memtrack::phase("loss");
            }
            framework.change(i64::try_from(leaked).unwrap() - (30 << 20));
        }
        epoch.finish().iter().map(EpochSummary::to_json).collect::<String>()
    });
    lines.collect()
}

#[test]
fn what_a_source_said_is_compared_where_there_is_no_allocator() {
    let folder = Folder::new("diff-sources");
    write(&folder, "run.jsonl", &run_of_a_source(4 << 20, true));
    let (status, output, errors) = diff(&folder, &["run.jsonl"]);
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    assert_eq!(output, SOURCE_ONLY);
    let (_, output, _) = diff(&folder, &["run.jsonl@2", "run.jsonl@2"]);
    assert!(output.ends_with("+0 B\n    by phase  no change\n"), "{output}");
    // A phase that one side alone has counts as nothing on the other.
    let lines = run_of_a_source(4 << 20, true);
    write(&folder, "without.jsonl", &[lines[0].replace(r#""name":"loss""#, r#""name":"other loss""#)]);
    write(&folder, "with.jsonl", &lines[..1]);
    let (_, output, _) = diff(&folder, &["without.jsonl", "with.jsonl"]);
    let rows: Vec<&str> = output.lines().skip_while(|line| !line.contains("by phase")).skip(2).collect();
    assert_eq!(
        rows,
        ["      loss        +0 B  +30.00 MiB      +0 B", "      other loss  +0 B  -30.00 MiB      +0 B"],
        "{output}"
    );
    // As JSON, exact.
    let (_, output, _) = diff(&folder, &["run.jsonl", "--json"]);
    let difference: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(difference["has_allocator"], false);
    assert_eq!(difference["sources"][0]["live_bytes"]["change"], 8 << 20);
    assert_eq!(difference["sources"][0]["phases"].as_array().unwrap().len(), 2);
    // Without its mark, what it does not say is not compared with nothing.
    write(&folder, "plain.jsonl", &run_of_a_source(4 << 20, false));
    let (status, output, _) = diff(&folder, &["run.jsonl", "plain.jsonl"]);
    assert_eq!(status, Some(0));
    assert!(output.contains("    reserved  one side does not say\n"), "{output}");
}

const SOURCE_ONLY: &str = "\
framework: epoch 1 of run.jsonl -> epoch 3 of run.jsonl
  source    framework
    in use    4.00 MiB -> 12.00 MiB  +8.00 MiB
    peak      30.00 MiB -> 38.00 MiB  +8.00 MiB
    reserved  64.00 MiB -> 64.00 MiB  +0 B
    by phase
      phase     net       peak  rise max
      loss     +0 B  +8.00 MiB      +0 B
      forward  +0 B  +8.00 MiB      +0 B
";

#[test]
fn sources_beside_an_allocator_come_after_it_and_those_of_one_side_are_left_out() {
    let folder = Folder::new("diff-beside");
    let source = |name: &str, peak: u64| {
        format!(
            r#"{{"name":"{name}","exactness":"exact","peak_kind":"exact","after_bytes":0,"peak_bytes":{peak},"phases":[]}}"#
        )
    };
    let with = |line: &String, sources: &str| format!(r#"{},"sources":[{sources}]}}"#, &line[..line.len() - 1]);
    let lines = run(4);
    write(&folder, "a.jsonl", &[with(&lines[0], &format!("{},{}", source("pool", 5), source("gone", 1)))]);
    write(&folder, "b.jsonl", &[with(&lines[2], &source("pool", 1029))]);
    let (status, output, errors) = diff(&folder, &["a.jsonl", "b.jsonl"]);
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    assert!(output.contains("  live      112.00 MiB -> 112.00 MiB  +0 B\n"), "{output}");
    assert!(
        output.contains("  source    pool\n    in use    0 B -> 0 B  +0 B\n    peak      5 B -> 1.00 KiB"),
        "{output}"
    );
    assert!(!output.contains("gone"), "{output}");
    // An epoch with an allocator, and one of which a source alone is known: what can be compared is the source.
    let without = with(&lines[2], &source("pool", 7)).replacen('{', r#"{"has_allocator":false,"#, 1);
    write(&folder, "c.jsonl", &[without]);
    let (_, output, _) = diff(&folder, &["a.jsonl", "c.jsonl"]);
    assert!(output.contains("  source    pool\n") && !output.contains("  live "), "{output}");
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
    assert!(errors.starts_with("memtrack: spoilt.jsonl:2: not a line of a run file: "), "{errors}");
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

/// A line as of another allocator or process; 0 leaves the allocator out, as files of before do.
fn of(line: &str, allocator: u64, process: u64) -> String {
    let mut line: Value = serde_json::from_str(line).unwrap();
    line["process"] = process.into();
    match allocator {
        0 => drop(line.as_object_mut().unwrap().remove("allocator").unwrap()),
        number => line["allocator"] = number.into(),
    }
    line.to_string()
}

fn heads(output: &str) -> Vec<&str> {
    output.lines().filter(|line| !line.starts_with(' ')).collect()
}

#[test]
fn two_allocators_of_one_device_are_each_compared_with_themselves() {
    let folder = Folder::new("diff-allocators");
    let (small, large) = (run(4), run(12));
    let mixed = [of(&small[0], 3, 7), of(&large[0], 5, 7), of(&large[2], 5, 7), of(&small[2], 3, 7)];
    write(&folder, "run.jsonl", &mixed);
    let (status, output, errors) = diff(&folder, &["run.jsonl"]);
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    let expected = [
        "simulated allocator 3: epoch 1 of run.jsonl -> epoch 3 of run.jsonl",
        "simulated allocator 5: epoch 1 of run.jsonl -> epoch 3 of run.jsonl",
    ];
    assert_eq!(heads(&output), expected);
    assert_eq!(output.matches(" 12.00 MiB in 6 blocks (+4)").count(), 1, "{output}");
    assert_eq!(output.matches(" 36.00 MiB in 6 blocks (+4)").count(), 1, "{output}");
    // Of two runs, whose allocators have other numbers, the first with the first.
    let other = [of(&large[1], 9, 8), of(&small[1], 2, 8)];
    write(&folder, "other.jsonl", &other);
    let (_, output, _) = diff(&folder, &["--json", "run.jsonl", "other.jsonl"]);
    let pairs: Vec<(u64, u64)> = output
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["earlier_allocator"].as_u64().unwrap(), line["later_allocator"].as_u64().unwrap()))
        .collect();
    assert_eq!(pairs, [(3, 2), (5, 9)]);
}

#[test]
fn processes_of_one_file_are_told_apart_and_files_without_allocators_still_read() {
    let folder = Folder::new("diff-processes");
    let lines = run(4);
    let both = [of(&lines[0], 1, 70), of(&lines[0], 1, 80), of(&lines[1], 1, 70), of(&lines[2], 1, 80)];
    write(&folder, "both.jsonl", &both);
    let (_, output, _) = diff(&folder, &["both.jsonl"]);
    let expected = [
        "simulated of process 70: epoch 1 of both.jsonl -> epoch 2 of both.jsonl",
        "simulated of process 80: epoch 1 of both.jsonl -> epoch 3 of both.jsonl",
    ];
    assert_eq!(heads(&output), expected);
    let old: Vec<String> = lines.iter().map(|line| of(line, 0, 70)).collect();
    write(&folder, "old.jsonl", &old);
    write(&folder, "new.jsonl", &lines);
    let (status, output, _) = diff(&folder, &["old.jsonl", "new.jsonl"]);
    assert_eq!((status, heads(&output)), (Some(0), vec!["simulated: epoch 3 of old.jsonl -> epoch 3 of new.jsonl"]));
    let (status, output, _) = diff(&folder, &["old.jsonl"]);
    assert_eq!((status, output.as_str()), (Some(0), FIRST_TO_LAST.replace("run.jsonl", "old.jsonl").as_str()));
}

#[test]
fn what_is_no_plain_file_is_refused_at_once() {
    let folder = Folder::new("diff-odd");
    write(&folder, "run.jsonl", &run(4));
    fs::create_dir(folder.0.join("folder")).unwrap();
    let mut odd = vec!["folder"];
    if cfg!(target_os = "linux") {
        assert!(Command::new("mkfifo").arg(folder.0.join("pipe")).status().unwrap().success());
        odd.extend(["pipe", "/dev/zero"]);
    }
    for file in odd {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memtrack"));
        command.args(["diff", file, "run.jsonl"]).current_dir(&folder.0);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            child.try_wait().unwrap().is_some()
        });
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        assert!(ended, "{file}: it waits or reads for ever");
        let errors = String::from_utf8(output.stderr).unwrap();
        let said = format!("memtrack: {file}: it is no plain file; write what it has into one first\n");
        assert_eq!((output.status.code(), errors), (Some(2), said));
    }
    // A file of nothing but holes has one endless line.
    fs::File::create(folder.0.join("huge")).unwrap().set_len(1 << 40).unwrap();
    let (status, _, errors) = diff(&folder, &["huge", "run.jsonl"]);
    assert_eq!(status, Some(2));
    assert!(
        errors.starts_with("memtrack: huge:1: not a line of a run file: it has more than 268435456 bytes"),
        "{errors}"
    );
}

#[test]
fn names_of_a_file_stay_in_their_line_and_their_column() {
    let folder = Folder::new("diff-names");
    let hostile: Vec<String> =
        run(4).iter().map(|line| line.replace("\"forward\"", "\"for\\n\\u001b[2Jward\u{202e}\"")).collect();
    write(&folder, "run.jsonl", &hostile);
    let (status, output, _) = diff(&folder, &["run.jsonl"]);
    assert_eq!(status, Some(0));
    assert!(!output.contains(['\u{1b}', '\u{202e}']), "{output:?}");
    let rows: Vec<&str> = output.lines().skip_while(|line| !line.starts_with("    phase")).take(3).collect();
    assert!(rows[1].starts_with(r"    for\n\u{1b}[2Jward\u{202e}  "), "{output}");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:#?}");
}
