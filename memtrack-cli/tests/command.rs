//! The program itself: statuses, streams, options.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::fs::File;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use common::{Folder, fixtures, unpacked};
use serde_json::Value;

fn memtrack(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtrack"));
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

fn end(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), text(&stdout).to_owned(), text(&stderr).to_owned())
}

fn fixture(path: &str) -> String {
    fixtures().join(path).to_str().unwrap().to_owned()
}

const KEYS: [&str; 16] = [
    "file",
    "kind",
    "agrees",
    "first_difference",
    "operations",
    "requested_peak_bytes",
    "allocated_peak_bytes",
    "reserved_peak_bytes",
    "retries",
    "ooms",
    "segments",
    "ns_per_operation",
    "skipped",
    "error",
    "compared_statistics",
    "compared_addresses",
];

fn spoilt_program() -> String {
    let mut spoilt: Value = serde_json::from_str(&unpacked("programs/oom-simple.json.gz")).unwrap();
    spoilt["ops"][1]["changed"]["num_ooms"] = 2.into();
    spoilt.to_string()
}

#[test]
fn the_worst_status_wins_and_every_file_gets_its_line() {
    let folder = Folder::new("worst");
    let spoilt = spoilt_program();
    let (good, differs) = (fixture("programs/oom-simple.json.gz"), folder.write("differs.json", spoilt));
    let (bad, measured) = (folder.write("bad.json", "{}"), folder.write("measured.txt", "a 1 5\n"));
    for (files, status) in [
        (vec![&good], 0),
        (vec![&measured], 0),
        (vec![&good, &differs, &good], 1),
        (vec![&differs, &bad, &good], 2),
        (vec![&bad, &differs], 2),
    ] {
        let arguments: Vec<&str> = ["replay"].into_iter().chain(files.iter().map(|file| file.as_str())).collect();
        let (got, output, errors) = end(&mut memtrack(&arguments));
        assert_eq!(got, Some(status), "{arguments:?}: {output}{errors}");
        let results = files.iter().filter(|file| **file != &bad);
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines.len(), results.clone().count());
        assert!(lines.iter().zip(results).all(|(line, file)| line.starts_with(&format!("{file}: "))), "{output}");
        assert_eq!(errors.lines().count(), files.len() - lines.len());
    }
}

#[test]
fn json_has_these_keys_and_no_others_for_every_kind_of_file() {
    let folder = Folder::new("keys");
    let files = [
        (fixture("programs/peak-reset.json.gz"), "program", true),
        (fixture("golden/edge.json.gz"), "golden", true),
        (fixture("traces/gnn_sampled.default.txt.gz"), "trace", true),
        (folder.write("plain.txt", "a 1 5\nf 1\n"), "trace", false),
        (fixture("snapshots/default.pickle"), "snapshot", false),
        (folder.write("bad.txt", "?"), "", false),
    ];
    let arguments: Vec<&str> =
        ["replay", "--json"].into_iter().chain(files.iter().map(|(file, ..)| file.as_str())).collect();
    let (status, output, _) = end(&mut memtrack(&arguments));
    assert_eq!(status, Some(2));
    let objects: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), files.len());
    for (object, (file, kind, verified)) in objects.iter().zip(&files) {
        let mut keys: Vec<&String> = object.as_object().unwrap().keys().collect();
        let mut expected = KEYS;
        keys.sort();
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!(object["file"], file.as_str());
        assert_eq!(object["kind"], if kind.is_empty() { Value::Null } else { (*kind).into() });
        assert_eq!(object["agrees"], if *verified { true.into() } else { Value::Null });
        assert_eq!(object["ns_per_operation"].is_number(), !kind.is_empty() && !verified);
        assert_eq!(object["requested_peak_bytes"].is_number(), !kind.is_empty());
        // In the order of the documentation.
        let places: Vec<usize> =
            KEYS.iter().map(|key| output.lines().next().unwrap().find(&format!("\"{key}\":")).unwrap()).collect();
        assert!(places.is_sorted());
    }
    // A program that resets its peaks has them all the same.
    assert_eq!(objects[0]["operations"], 12);
    assert!(objects[0]["allocated_peak_bytes"].as_i64().unwrap() > 0);
}

#[test]
fn standard_input_is_a_file_called_by_a_hyphen() {
    let packed = std::fs::read(fixtures().join("programs/best-fit.json.gz")).unwrap();
    let trace = b"a 1 512\nf 1\n".to_vec();
    for (content, said) in
        [(packed, "-: verified: 19 operations"), (trace, "-: measured: "), (Vec::new(), "-: is empty")]
    {
        let mut command = memtrack(&["replay", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&content).unwrap();
        let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
        assert!(format!("{}{}", text(&stdout), text(&stderr)).contains(said));
    }
}

#[test]
fn a_reader_that_goes_is_no_mistake_and_a_full_disk_is_one() {
    let file = fixture("programs/best-fit.json.gz");
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for arguments in [&["replay", &file, &file][..], &["replay", "--help"]] {
        let closed = closed.try_clone().unwrap();
        let (status, _, errors) = end(memtrack(arguments).stdout(closed));
        assert_eq!((status, errors.as_str()), (Some(0), ""), "{arguments:?}");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (status, _, errors) = end(memtrack(arguments).stdout(full));
        assert_eq!(status, Some(2), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
    // The status is that of all files, also of those behind the one whose line nobody read.
    let folder = Folder::new("gone");
    let (bad, differs) = (folder.write("bad.json", "{}"), folder.write("differs.json", spoilt_program()));
    for (files, expected) in [([&file, &differs, &file], 1), ([&file, &differs, &bad], 2)] {
        let arguments: Vec<&str> = ["replay"].into_iter().chain(files.map(String::as_str)).collect();
        let (status, _, errors) = end(memtrack(&arguments).stdout(closed.try_clone().unwrap()));
        assert_eq!((status, errors.lines().count()), (Some(expected), usize::from(expected == 2)), "{errors}");
    }
    // Where errors cannot be written either, the status still tells.
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(end(memtrack(&["replay", "nowhere.json"]).stderr(full)).0, Some(2));
}

/// Every subcommand with something to write.
fn that_write() -> (Folder, Vec<Vec<String>>) {
    let folder = Folder::new("writes");
    let allocator = memtrack::CachingAllocator::new(std::sync::Arc::new(memtrack::device::Simulated::new()));
    let run = folder.write("run.jsonl", format!("{}\n", allocator.epoch(1).finish().unwrap().to_json()));
    let file = fixture("programs/best-fit.json.gz");
    // Without a library there is a result too: that there is none.
    let no_library = ["--nvml-lib", "/nowhere.so"];
    let commands = [
        vec!["replay", &file],
        vec!["replay", "--json", &file],
        vec!["diff", &run],
        vec!["diff", "--json", &run],
        [&["check"][..], &no_library].concat(),
        [&["check", "--json"][..], &no_library].concat(),
        [&["smi", "--json"][..], &no_library].concat(),
        vec!["--help"],
        vec!["smi", "--help"],
        vec!["--version"],
    ];
    (folder, commands.map(|command| command.iter().map(|word| (*word).to_owned()).collect()).to_vec())
}

#[test]
fn where_standard_output_is_closed_the_status_and_a_line_say_so() {
    let (_folder, commands) = that_write();
    let program = env!("CARGO_BIN_EXE_memtrack");
    let with = |redirection: &str, arguments: &[String]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}"), program]).args(arguments);
        end(&mut shell)
    };
    for arguments in &commands {
        let (status, _, errors) = with(">&-", arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {errors}");
        let told = "standard output is closed";
        assert_eq!(errors.lines().filter(|line| line.contains(told)).count(), 1, "{arguments:?}: {errors}");
        // What is thrown away on purpose is written all the same, however it was opened.
        let thrown_away = with(">/dev/null", arguments);
        assert!(!thrown_away.2.contains(told) && thrown_away.0 != Some(2), "{arguments:?}: {thrown_away:?}");
        assert_eq!(with("1<>/dev/null", arguments), thrown_away);
        // With standard error closed too the status is left.
        assert_eq!(with(">&- 2>&-", arguments).0, Some(2), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_goes_is_no_mistake_of_any_subcommand() {
    let (_folder, commands) = that_write();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for arguments in &commands {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let is_read = end(&mut memtrack(&arguments));
        let unread = end(memtrack(&arguments).stdout(closed.try_clone().unwrap()));
        assert_eq!((unread.0, unread.2), (is_read.0, is_read.2), "{arguments:?}");
    }
}

#[test]
fn nothing_of_a_file_or_its_name_steers_the_terminal() {
    let folder = Folder::new("escaped");
    let bad = folder.write("bad\u{1b}[31m\n.txt", "\u{1b}]0;title\u{7} 1\n");
    let (status, output, errors) = end(&mut memtrack(&["replay", &bad]));
    assert_eq!((status, output.as_str(), errors.lines().count()), (Some(2), "", 1));
    assert!(errors.contains(r"bad\u{1b}[31m\n.txt: line 1: `\u{1b}]0;title\u{7}` is no event"), "{errors}");
    let phase = "# marks [[1, \"\u{9b}31m\", {\"num_ooms\": 3}]]\np 1 \u{9b}31m\n".replace("\"\u{9b}", "\"\\u009b");
    let differs = folder.write("differs\u{1b}.txt", phase);
    let (status, output, _) = end(&mut memtrack(&["replay", &differs]));
    assert_eq!((status, output.lines().count()), (Some(1), 1), "{output}");
    assert!(output.contains(r"differs\u{1b}.txt: differs: line 2, phase \u{9b}31m of epoch 1"), "{output}");
}

#[test]
fn a_request_that_found_no_memory_is_called_so() {
    let folder = Folder::new("oom-line");
    let file = folder.write("trace.txt", "# final {}\no 512 3\n");
    let (status, output, _) = end(&mut memtrack(&["replay", &file]));
    assert_eq!(status, Some(1));
    assert!(output.contains("line 2, oom, 512 bytes on stream 3: address: expected out of memory"), "{output}");
}

#[test]
fn what_a_snapshot_shows_and_its_history_does_not_tell_is_said() {
    let folder = Folder::new("left-out");
    let snapshot = |pool: &str, settings: &str| {
        format!(
            r#"{{"segments": [{{"address": 4194304, "total_size": 2097152, "stream": 0, "segment_pool_id": {pool}, "blocks": []}}],
            "device_traces": [[{{"action": "alloc", "addr": 8388608, "size": 512, "stream": 0}}]],
            "allocator_settings": {settings}}}"#
        )
    };
    for (pool, settings, said) in [
        ("[0, 0]", r#"{"expandable_segments": false}"#, None),
        ("[0, 1]", "{}", Some("1 of the segments belongs to a private pool")),
        ("[0, 0]", r#"{"expandable_segments": true}"#, Some("expandable_segments differed from the configuration")),
    ] {
        let file = folder.write("snapshot.json", snapshot(pool, settings));
        let (status, output, errors) = end(&mut memtrack(&["replay", "--json", &file]));
        let object: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(status, Some(0), "{errors}");
        assert_eq!(object["skipped"].as_str().map(|skipped| skipped.contains(said.unwrap_or("?"))), said.map(|_| true));
    }
    for name in ["default", "expandable"] {
        let (_, output, _) = end(&mut memtrack(&["replay", "--json", &fixture(&format!("snapshots/{name}.pickle"))]));
        assert!(serde_json::from_str::<Value>(&output).unwrap()["skipped"].is_null(), "{output}");
    }
}

#[test]
fn wrong_usage_is_status_2_and_says_what_is_accepted() {
    let file = fixture("programs/best-fit.json.gz");
    for (arguments, said) in [
        (&["replay"][..], "<FILE>..."),
        (&[], "Usage: memtrack <COMMAND>"),
        (&["play"], "unrecognized subcommand"),
        (&["replay", "--limit", "3G", &file], "write `GB` (powers of 1000) or `GiB`"),
        (&["replay", "--limit", "-1", &file], "`512MiB`"),
        (&["replay", "--limit=", &file], "empty size"),
        (&["replay", "--policy", "best", &file], "accepted are `torch` and `compact`"),
        (&["replay", "--device", "cuda:x", &file], "expected simulated, cuda, or cuda:N"),
        (&["replay", "--device", "cuda:+1", &file], "expected simulated, cuda, or cuda:N"),
        (&["replay", "--device", "gpu", &file], "expected simulated, cuda, or cuda:N"),
        (&["replay", "--config", "max_split_size_mb,30", &file], "character 1: `max_split_size_mb,30`"),
        (&["replay", "--config", "max_split_size_mb:30abc", &file], "`30abc`: must be a whole number"),
        (&["replay", "--colour", &file], "unexpected argument '--colour'"),
    ] {
        let (status, output, errors) = end(&mut memtrack(arguments));
        assert_eq!((status, output.as_str()), (Some(2), ""), "{arguments:?}");
        let found = errors.contains(said) || said.starts_with("character") && errors.contains("character 1");
        assert!(found, "{arguments:?}: {errors}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    for (arguments, said) in [
        (&["--help"][..], "replay"),
        (&["replay", "--help"], "Exit status: 0 when every file agrees"),
        (&["help", "replay"], "--policy <POLICY>"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let (status, output, errors) = end(&mut memtrack(arguments));
        assert_eq!((status, errors.as_str()), (Some(0), ""));
        assert!(output.contains(said), "{output}");
    }
}

#[test]
fn without_a_gpu_the_device_cuda_is_an_error_that_says_so() {
    let folder = Folder::new("no-driver");
    let file = fixture("programs/best-fit.json.gz");
    // Whatever this machine has, here a text stands in the driver's place.
    for name in ["libcuda.so", "libcuda.so.12", "libcuda.so.11", "libcuda.so.10", "libcuda.so.1"] {
        folder.write(name, "no library, only a line of text\n".repeat(10));
    }
    let (status, output, errors) =
        end(memtrack(&["replay", "--json", "--device", "cuda", &file]).env("LD_LIBRARY_PATH", &folder.0));
    assert_eq!(status, Some(2), "{output}");
    assert!(errors.contains("no GPU: "), "{errors}");
    let object: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(object["kind"], "program");
    assert!(object["error"].as_str().unwrap().starts_with("no GPU: "));
}
