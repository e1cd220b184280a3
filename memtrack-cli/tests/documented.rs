//! The examples of `docs/replay.md` and of the README, by hand as they are, give what the documents say.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::path::Path;

use common::{Folder, run};

/// The fenced blocks of a document: what stands behind the fence, and the content.
fn blocks(document: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let content: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((info, content.join("\n") + "\n"));
        }
    }
    blocks
}

/// Times are not always the same.
fn without_times(output: &str) -> String {
    let words: Vec<&str> = output.split(' ').collect();
    let shown = words.iter().enumerate().map(|(index, word)| match words.get(index + 1) {
        Some(&"ns") => "N",
        _ => word,
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_example_gives_what_the_document_says() {
    let (files, commands) = run_examples("documented-replay", include_str!("../../docs/replay.md"));
    assert!(files >= 4 && commands >= 6, "{files} files and {commands} commands in docs/replay.md");
    let (files, commands) = run_examples("documented-readme", include_str!("../../README.md"));
    assert!(files >= 2 && commands >= 3, "{files} files and {commands} commands in the README");
}

/// Writes a document's files and runs its commands on them; how many there were.
fn run_examples(name: &str, document: &str) -> (usize, usize) {
    let folder = Folder::new(name);
    let (mut files, mut commands) = (0, 0);
    for (info, content) in blocks(document) {
        if let Some((_, name)) = info.split_once("file=") {
            folder.write(name, &content);
            files += 1;
        }
        if info != "console" {
            continue;
        }
        let mut expected: Vec<(&str, String)> = Vec::new();
        for line in content.lines() {
            match (line.strip_prefix("$ memtrack "), expected.last_mut()) {
                (Some(command), _) => expected.push((command, String::new())),
                (None, Some((_, output))) => *output += &format!("{line}\n"),
                (None, None) => panic!("output before a command: {line}"),
            }
        }
        for (command, expected) in expected {
            let arguments: Vec<String> = command
                .split(' ')
                .map(|word| if word.contains('.') { in_folder(&folder.0, word) } else { word.to_owned() })
                .collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let (_, output, errors) = run(&arguments);
            let output = output.replace(&format!("{}/", folder.0.display()), "");
            assert_eq!(without_times(&output), without_times(&expected), "{command}: {errors}");
            commands += 1;
        }
    }
    (files, commands)
}

fn in_folder(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}
