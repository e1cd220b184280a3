//! Programs that are linked with the driver: one line makes the difference.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::child::{Ended, Folder, Preload, run_program};

const WITHOUT: &str = env!("CARGO_BIN_EXE_linked");
const WITH: &str = env!("CARGO_BIN_EXE_linked-with-hook");

fn run(preload: Preload, program: &str, arguments: &[&str], more: &[(&str, &str)]) -> Ended {
    run_program(&Folder::new(), preload, Path::new(program), arguments, more).expect_success()
}

#[track_caller]
fn expect_counts(ended: &Ended, rounds: u64, mode: &str) {
    let calls = ended.calls_on("cuda:0");
    assert_eq!(calls["mode"], mode);
    let count = |done| json!({"done": done, "failed": 0});
    assert_eq!(calls["calls"]["cuMemAlloc"], count(rounds + 1), "{ended:#?}");
    for function in ["cuMemFree", "cuMemAllocAsync", "cuMemFreeAsync"] {
        let done = if function == "cuMemFree" { rounds } else { 100 };
        assert_eq!(calls["calls"][function], count(done), "{function}: {ended:#?}");
    }
    assert_eq!((&calls["live_bytes"], &calls["live_blocks"]), (&json!(5 << 20), &json!(1)));
    assert_eq!(ended.errors.matches("memtrack: cuda:0").count(), 1, "{}", ended.errors);
}

#[test]
fn one_line_has_the_calls_counted_and_without_it_none_is() {
    let ended = run(Preload::No("observe"), WITHOUT, &[], &[]);
    assert_eq!((ended.errors.as_str(), &ended.run_file), ("", &None));
    let ended = run(Preload::No("observe"), WITH, &[], &[]);
    expect_counts(&ended, 100, "observe");
    assert_eq!(ended.calls_on("cuda:0")["peak_bytes"], 5 << 20);
    assert_eq!(ended.number("late"), 1);
}

#[test]
fn without_a_setting_calls_are_counted_and_with_off_none_is() {
    expect_counts(&run(Preload::No(""), WITH, &[], &[]), 100, "observe");
    let ended = run(Preload::No("off"), WITH, &[], &[]);
    assert_eq!((ended.errors.as_str(), &ended.run_file), ("", &None));
}

#[test]
fn the_library_under_the_hook_counts_each_call_once() {
    for mode in ["observe", "cache"] {
        let ended = run(Preload::Yes(mode), WITH, &[], &[]);
        expect_counts(&ended, 100, mode);
        assert_eq!(ended.run_file.as_ref().unwrap().len(), 2, "{ended:#?}");
    }
    let ended = run(Preload::Yes("off"), WITH, &[], &[]);
    assert_eq!((ended.errors.as_str(), &ended.run_file), ("", &None));
}

#[test]
fn the_cache_serves_by_the_environment_and_by_a_function() {
    let ended = run(Preload::No("cache"), WITH, &[], &[]);
    expect_counts(&ended, 100, "cache");
    assert!(ended.errors.contains("cache: 2 allocations of the driver"), "{}", ended.errors);
    for preload in [Preload::No("observe"), Preload::Yes("observe")] {
        let ended = run(preload, WITH, &[], &[("HOOK_SETS_CACHE", "1")]);
        assert_eq!(ended.number("set"), 1);
        expect_counts(&ended, 100, "cache");
    }
}

#[test]
fn a_linked_program_has_no_use_for_loading() {
    assert_eq!(run(Preload::No("observe"), WITH, &[], &[]).number("load"), 0);
    assert_eq!(run(Preload::Yes("observe"), WITH, &[], &[]).number("load"), 1, "it is there");
}

/// A shared library in C that calls the driver; `None`, told, where there is no compiler.
fn library(folder: &Folder) -> Option<PathBuf> {
    const SOURCE: &str = "
        typedef unsigned long long address;
        int cuMemAlloc_v2(address *, unsigned long), cuMemFree_v2(address);
        int rounds(void) {
            for (int round = 0; round < 7; round++) {
                address given;
                if (cuMemAlloc_v2(&given, 1 << 20) || cuMemFree_v2(given)) return 1;
            }
            return 0;
        }";
    let (source, library) = (folder.path("library.c"), folder.path("libcalls.so"));
    fs::write(&source, SOURCE).unwrap();
    match Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(library)
        }
        Err(error) => {
            eprintln!("left out: there is no C compiler to build a shared library with: {error}");
            None
        }
    }
}

#[test]
fn calls_of_shared_libraries_are_counted_too() {
    let folder = Folder::new();
    let Some(library) = library(&folder) else { return };
    for preload in [Preload::No("observe"), Preload::Yes("observe")] {
        expect_counts(&run(preload, WITH, &[library.to_str().unwrap()], &[]), 107, "observe");
    }
}

#[test]
fn memtracks_warnings_are_lines_of_its_own_where_the_program_has_no_subscriber() {
    let more = [("PROGRAM_RUNS_OUT", "1"), ("MEMTRACK_MOCK_CAPACITY_BYTES", "67108864")];
    for preload in [Preload::No("cache"), Preload::Yes("cache")] {
        let ended = run(preload, WITH, &[], &more);
        assert_eq!(ended.errors.matches("40.00 MiB of the cache were given back").count(), 1, "{}", ended.errors);
        assert_eq!(ended.errors.matches("memtrack: out of memory on cuda:0: ").count(), 1, "{}", ended.errors);
        assert_eq!(ended.number("subscribers"), 0, "the program's is left alone");
    }
}

#[test]
fn a_subscriber_of_the_programs_gets_memtracks_warnings_and_they_are_no_lines() {
    let more = [("PROGRAM_RUNS_OUT", "1"), ("PROGRAM_LISTENS", "1"), ("MEMTRACK_MOCK_CAPACITY_BYTES", "67108864")];
    let ended = run(Preload::No("cache"), WITH, &[], &more);
    assert_eq!(ended.errors.matches("WARN memtrack::alloc_retry").count(), 2, "{}", ended.errors);
    assert!(!ended.errors.contains("of the cache were given back"), "{}", ended.errors);
    assert_eq!(ended.errors.matches(" memtrack::oom").count(), 1, "{}", ended.errors);
    assert!(!ended.errors.contains("memtrack: out of memory on cuda:0: "), "{}", ended.errors);
    assert_eq!(ended.number("subscribers"), 1);
    // The library's own copy is nobody's business.
    let ended = run(Preload::Yes("cache"), WITH, &[], &more);
    assert!(!ended.errors.contains("memtrack::alloc_retry"), "{}", ended.errors);
    assert!(ended.errors.contains("of the cache were given back"), "{}", ended.errors);
}
