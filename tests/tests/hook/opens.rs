//! A program that opens the driver when it runs and loads the library before.

use std::path::Path;

use serde_json::json;

use crate::child::{Ended, Folder, Preload, preload_library, run_program};

fn run(preload: Preload, how: &str) -> Ended {
    let library = preload_library();
    let more = [("MEMTRACK_PRELOAD_LIBRARY", library.to_str().unwrap())];
    let program = Path::new(env!("CARGO_BIN_EXE_opens-with-hook"));
    run_program(&Folder::new(), preload, program, &[how], &more).expect_success()
}

#[track_caller]
fn expect_counts(ended: &Ended, mode: &str) {
    let calls = ended.calls_on("cuda:0");
    assert_eq!(calls["mode"], mode);
    for (function, done) in [("cuMemAlloc", 11), ("cuMemAllocAsync", 10), ("cuMemFree", 10), ("cuMemFreeAsync", 10)] {
        assert_eq!(calls["calls"][function], json!({"done": done, "failed": 0}), "{function}: {ended:#?}");
    }
    assert_eq!((&calls["live_bytes"], &calls["live_blocks"]), (&json!(5 << 20), &json!(1)));
    assert_eq!(ended.errors.matches("memtrack: cuda:0").count(), 1, "{}", ended.errors);
}

#[test]
fn calls_are_counted_once_the_library_is_loaded_and_not_without_it() {
    let ended = run(Preload::No("observe"), "load");
    expect_counts(&ended, "observe");
    assert_eq!(ended.number("cuMemAlloc_v2"), 11);
    let ended = run(Preload::No("observe"), "without");
    assert_eq!((ended.errors.as_str(), &ended.run_file), ("", &None));
}

#[test]
fn loading_what_is_loaded_changes_nothing() {
    expect_counts(&run(Preload::No("observe"), "load-twice"), "observe");
    expect_counts(&run(Preload::Yes("observe"), "load"), "observe");
}

#[test]
fn the_mode_is_passed_on_before_and_after_loading() {
    for how in ["cache", "cache-after-load"] {
        let ended = run(Preload::No("observe"), how);
        expect_counts(&ended, "cache");
        assert_eq!(ended.number("cuMemAllocAsync"), 0, "{how}");
    }
}

#[test]
fn what_cannot_be_loaded_is_told_and_harms_nothing() {
    for how in ["too-late", "not-found", "no-library"] {
        let ended = run(Preload::No("observe"), how);
        assert_eq!((ended.errors.as_str(), &ended.run_file), ("", &None), "{how}");
    }
}
