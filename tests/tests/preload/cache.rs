//! `MEMTRACK_PRELOAD=cache`: memtrack serves, and the program cannot tell but by its speed.

use serde_json::{Value, json};

use crate::child::{Ended, Folder, run, run_program, run_with};
use crate::linked;

fn epoch<'a>(ended: &'a Ended, device: &str) -> &'a Value {
    let lines = ended.run_file.as_ref().unwrap_or_else(|| panic!("no run file: {ended:#?}"));
    let found = lines.iter().find(|line| line["kind"] == "epoch" && line["device"] == device);
    found.unwrap_or_else(|| panic!("{device}: {ended:#?}"))
}

#[test]
fn the_driver_is_asked_less_and_every_byte_is_the_same() {
    let (observed, cached) = (run("observe", "training").expect_success(), run("cache", "training").expect_success());
    assert_eq!(observed.number("sum"), cached.number("sum"));
    assert_eq!(observed.number("cuMemAllocAsync"), 400);
    assert_eq!(cached.number("cuMemAllocAsync"), 0, "{cached:#?}");
    assert!(cached.number("cuMemAlloc_v2") <= 5, "{cached:#?}");
    // The program's calls are counted as ever.
    assert_eq!(observed.calls_on("cuda:0")["calls"], cached.calls_on("cuda:0")["calls"]);
    assert_eq!(observed.calls_on("cuda:0")["peak_bytes"], cached.calls_on("cuda:0")["peak_bytes"]);
}

#[test]
fn the_run_file_has_memtracks_epoch() {
    let ended = run("cache", "training").expect_success();
    let epoch = epoch(&ended, "cuda:0");
    assert_eq!(epoch["phases"][0]["allocations"], 401, "{epoch:#}");
    assert_eq!(epoch["after_bytes"], 0);
    assert!(
        ended.errors.contains("memtrack: cuda:0, cached: 401 allocations, 401 frees, 0 failures"),
        "{}",
        ended.errors
    );
    assert!(ended.errors.contains("  cache: "), "{}", ended.errors);
}

#[test]
fn the_cache_is_configured_by_the_environment() {
    let settings = [("MEMTRACK_ALLOC_CONF", "policy:compact")];
    let ended = run_with("cache", "training", &settings).expect_success();
    assert_eq!(ended.number("cuMemAllocAsync"), 0, "{ended:#?}");
    let refused = run_with("cache", "training", &[("MEMTRACK_ALLOC_CONF", "policy:none")]).expect_success();
    assert_eq!(refused.number("cuMemAllocAsync"), 400, "{refused:#?}");
    assert!(
        refused.errors.contains("memtrack: cuda:0 is not cached, and the driver serves it: "),
        "{}",
        refused.errors
    );
}

#[test]
fn a_program_that_links_the_driver_is_served() {
    let folder = Folder::new();
    let Some(program) = linked::build(&folder) else { return };
    let ended = run_program(&folder, "cache", &program, &[], &[]).expect_success();
    assert_eq!(ended.calls_on("cuda:0")["calls"]["cuMemAlloc"]["done"], 100);
    assert_eq!(epoch(&ended, "cuda:0")["phases"][0]["allocations"], 200);
    assert!(ended.errors.contains("cache: 2 allocations of the driver"), "{}", ended.errors);
}

#[test]
fn a_block_is_given_out_on_its_own_stream_at_once_and_on_no_other() {
    let ended = run("cache", "reuse").expect_success();
    assert_eq!(ended.calls_on("cuda:0")["calls"]["cuMemAlloc"], json!({"done": 2, "failed": 1}));
}

#[test]
fn a_free_on_another_stream_is_ordered_behind_that_streams_work() {
    run("cache", "foreign-free").expect_success();
}

#[test]
fn a_free_by_way_of_another_device_waits_for_it() {
    run("cache", "free-on-other-device").expect_success();
}

#[test]
fn a_free_that_waits_waits() {
    run("cache", "waiting-free").expect_success();
}

#[test]
fn each_threads_own_stream_is_a_stream_of_its_own() {
    run("cache", "per-thread").expect_success();
}

#[test]
fn what_is_cached_is_given_back_before_the_program_is_out_of_memory() {
    let ended = run("cache", "out-of-memory").expect_success();
    let calls = ended.calls_on("cuda:0");
    assert_eq!((&calls["ooms"], &calls["largest_refused_bytes"]), (&json!(2), &json!(u64::MAX)));
    assert_eq!(epoch(&ended, "cuda:0")["retries"], 3, "{ended:#?}");
    // Without the cache's help.
    assert_eq!(ended.number("cuMemAllocAsync"), 0);
}

#[test]
fn memory_that_the_cache_did_not_give_is_the_drivers() {
    run("cache", "unknown").expect_success();
}

#[test]
fn captured_streams_are_the_drivers() {
    run("cache", "capture").expect_success();
}

#[test]
fn a_free_during_a_capture_waits_for_its_end() {
    run("cache", "capture-elsewhere").expect_success();
    run("cache", "unseen-capture").expect_success();
}

#[test]
fn other_contexts_than_primary_ones_are_the_drivers() {
    run("cache", "second-context").expect_success();
    run("cache", "second-context-first").expect_success();
}

#[test]
fn each_device_has_its_own_cache() {
    let ended = run("cache", "devices").expect_success();
    assert_eq!((ended.number("used0"), ended.number("used1")), (2 << 20, 2 << 20));
    for device in ["cuda:0", "cuda:1"] {
        assert_eq!(ended.calls_on(device)["calls"]["cuMemAlloc"]["done"], 2);
        assert_eq!(epoch(&ended, device)["phases"][0]["allocations"], 2);
    }
}

#[test]
fn a_destroyed_stream_is_waited_for_and_its_memory_is_found_again() {
    run("cache", "destroyed-stream").expect_success();
}

#[test]
fn a_reset_context_is_not_served_from_what_it_had() {
    let ended = run("cache", "reset").expect_success();
    assert_eq!(ended.calls_on("cuda:0")["vanished_blocks"], 1);
}

#[test]
fn exits_and_forks_are_as_without_it() {
    assert_eq!(run("cache", "exit-code").status.code(), Some(37));
    assert_eq!(run("cache", "quick-end").status.code(), Some(5));
    let ended = run("cache", "fork").expect_success();
    assert_eq!(ended.number("child"), 0);
    assert_eq!(ended.errors.matches("memtrack: cuda:0").count(), 1, "{}", ended.errors);
}

#[test]
fn no_block_is_anothers_while_it_is_held() {
    for settings in ["", "policy:compact", "expandable_segments:True"] {
        let ended = run_with("cache", "threads-and-streams", &[("MEMTRACK_ALLOC_CONF", settings)]).expect_success();
        let calls = ended.calls_on("cuda:0");
        assert_eq!((&calls["live_bytes"], &calls["live_blocks"]), (&json!(0), &json!(0)), "{settings}");
        assert_eq!(ended.number("left"), 0, "the driver served some");
    }
}

#[test]
fn pages_of_a_destroyed_stream_are_anothers() {
    let settings = [("MEMTRACK_ALLOC_CONF", "policy:compact")];
    run_with("cache", "compact-destroyed-stream", &settings).expect_success();
}
