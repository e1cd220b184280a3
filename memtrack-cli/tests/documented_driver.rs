//! The examples of `docs/driver.md`, by hand as they are, give what the document says.
//!
//! With `MEMTRACK_BLESS=1` the document's output is written anew; look at what changed.

#![cfg(all(target_os = "linux", feature = "nvml"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::Folder;
use common::document::assert_shows_what_is_printed;
use common::nvml::now_ms;
use memtrack_mock_nvml::{Configuration, Instance};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../docs/driver.md");

/// A folder with the document's files, and a program `memtrack` that runs on the machine they describe.
struct Described {
    folder: Folder,
    #[allow(dead_code, reason = "its file is loaded by the program")]
    library: Instance,
}

impl Described {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let library = Instance::start(&Configuration::default()).unwrap();
        std::fs::create_dir(folder.0.join("published")).unwrap();
        let mut files = 0;
        for block in DOCUMENT.split("```json file=").skip(1) {
            let (name, rest) = block.split_once('\n').unwrap();
            let (content, _) = rest.split_once("```").unwrap();
            folder.write(name, content.replace("NOW", &now_ms().to_string()));
            files += 1;
        }
        assert_eq!(files, 2);
        let program = folder.write(
            "memtrack",
            format!(
                "#!/bin/sh\nexec '{}' \"$@\" --nvml-lib '{}' --published published --all-processes\n",
                env!("CARGO_BIN_EXE_memtrack"),
                library.path().display()
            ),
        );
        std::fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
        Self { folder, library }
    }

    fn run(&self, line: &str) -> String {
        let path = format!("{}:{}", self.folder.0.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.folder.0).env("PATH", path);
        for variable in ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "MEMTRACK_PUBLISH", "MEMTRACK_NVML_LIB"] {
            command.env_remove(variable);
        }
        let output = command.env("MEMTRACK_MOCK_NVML", "nvml.json").output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn every_command_prints_what_the_document_says() {
    let described = Described::new("documented-driver");
    assert_shows_what_is_printed("driver.md", DOCUMENT, 9, |line| described.run(line));
}

#[test]
fn every_key_of_the_table_is_there_and_every_key_is_in_the_table() {
    let described = Described::new("documented-keys");
    let look: Value = serde_json::from_str(&described.run("memtrack smi --json")).unwrap();
    let device = &look["devices"][0];
    let (_, table) = DOCUMENT.split_once("### JSON").unwrap();
    let (table, _) = table.split_once("### Exit status").unwrap();
    let first_cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let named: Vec<&str> = first_cells.flat_map(|cell| cell.split(", ")).map(|key| key.trim_matches('`')).collect();
    assert!(named.len() > 10, "{named:?}");
    for key in &named {
        let found = match key.strip_prefix("devices.") {
            Some(key) => device.get(key),
            None => look.get(key),
        };
        assert!(found.is_some(), "no key {key}");
    }
    let keys = |value: &Value, prefix: &str| -> Vec<String> {
        value.as_object().unwrap().keys().map(|key| format!("{prefix}{key}")).collect()
    };
    for key in keys(&look, "").into_iter().chain(keys(device, "devices.")) {
        let key = key.strip_suffix("_unknown").unwrap_or(&key);
        assert!(named.contains(&key), "{key} is not in the table");
    }
    let process = keys(&device["processes"][0], "");
    for word in
        ["pid", "program", "driver_bytes", "published", "context_bytes", "unexplained_bytes", "published_age_seconds"]
    {
        assert!(process.iter().any(|key| key == word), "{word}");
    }
}
