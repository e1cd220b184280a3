//! A program whose panics abort: measured functions compile and measure there, a panic ends the process at once with its
//! message, and nothing is recorded of the calls it ends.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

const SIGABRT: i32 = 6;

/// Builds the program, once more in a profile of its own, and gives its path.
fn program() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--package",
            "memtrack-tests-panic-abort",
            "--profile",
            "panic-abort",
            "--message-format",
            "json",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{messages}{}", String::from_utf8_lossy(&output.stderr));
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executables.next_back().unwrap()
}

#[test]
fn a_panic_that_aborts_ends_the_process_and_records_nothing() {
    let program = program();
    let run = |argument: &str| {
        let Output { status, stdout, stderr } = Command::new(&program).arg(argument).output().unwrap();
        let lines: Vec<_> = String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect();
        let message = String::from_utf8_lossy(&stderr).contains("on purpose");
        (status.code(), status.signal(), message, lines)
    };
    let one = ["new 1 synchronous", "record 1 0 \"ok\"", "close 1"];
    let async_one =
        ["new 1 asynchronous", "new 2 synchronous", "record 2 0 \"ok\"", "close 2", "record 1 0 \"ok\"", "close 1"];

    let (code, signal, message, lines) = run("none");
    assert_eq!((code, signal, message), (Some(0), None, false));
    let renumbered = |line: &str| line.replace('2', "3").replace('1', "2");
    let async_two: Vec<_> = async_one.map(renumbered).into();
    assert_eq!(lines, [&one.map(str::to_owned)[..], &async_two, &["the end".to_owned()]].concat());

    let (code, signal, message, lines) = run("sync");
    assert_eq!((code, signal, message), (None, Some(SIGABRT), true));
    assert_eq!(lines, [&one[..], &["new 2 synchronous"]].concat());

    let (code, signal, message, lines) = run("async");
    assert_eq!((code, signal, message), (None, Some(SIGABRT), true));
    assert_eq!(lines, [&async_one[..], &["new 3 asynchronous", "new 4 synchronous"]].concat());
}
