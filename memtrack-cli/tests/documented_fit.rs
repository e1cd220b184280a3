//! The examples of `docs/fit.md` give what the document says.
//!
//! With `MEMTRACK_BLESS=1` the document's output is written anew; look at what changed.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::process::Command;

use common::document::assert_shows_what_is_printed;
use common::{Folder, fixtures};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../docs/fit.md");

/// A folder with the document's files and the measured traces.
fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    for entry in std::fs::read_dir(fixtures().join("traces")).unwrap() {
        let path = entry.unwrap().path();
        std::os::unix::fs::symlink(&path, folder.0.join(path.file_name().unwrap())).unwrap();
    }
    for block in DOCUMENT.split("```text file=").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap();
        folder.write(name, rest.split_once("```").unwrap().0);
    }
    folder
}

fn run(folder: &Folder, line: &str) -> String {
    let arguments = line.strip_prefix("memtrack ").unwrap().split(' ');
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtrack"));
    let output = command.args(arguments).current_dir(&folder.0).output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_command_prints_what_the_document_says() {
    let folder = folder("documented-fit");
    assert_shows_what_is_printed("fit.md", DOCUMENT, 6, |line| run(&folder, line));
}

#[test]
fn every_key_is_in_the_documents_tables_and_every_key_of_the_tables_is_there() {
    let folder = folder("documented-fit-keys");
    let report: Value = serde_json::from_str(&run(&folder, "memtrack fit --json --on 1GiB trace.txt")).unwrap();
    let (_, tables) = DOCUMENT.split_once("## JSON").unwrap();
    let (tables, _) = tables.split_once("\n## ").unwrap();
    let (of_report, of_policy) = tables.split_once("| key of a policy |").unwrap();
    for (table, object) in [(of_report, &report), (of_policy, &report["policies"][0])] {
        let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
        let mut named: Vec<&str> = cells.flat_map(|cell| cell.split(", ")).map(|key| key.trim_matches('`')).collect();
        let mut keys: Vec<&String> = object.as_object().unwrap().keys().collect();
        named.sort_unstable();
        keys.sort_unstable();
        assert_eq!(named, keys);
    }
}
