//! What is written when memory runs out.
//!
//! One test, since the folder and the count are the process's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrack::OomResponse;
use memtrack::device::Stream;
use memtrack::history::{HistoryOptions, ReadLimits, Snapshot};
use memtrack::post_mortem::{PostMortemOptions, configure};
use memtrack::scope::Scope;
use memtrack_tests::listening::{Said, listen};
use memtrack_tests::scenarios::{MIB, Scenario};

fn names(folder: &Path) -> Vec<String> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = found.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn full(settings: &str) -> Scenario {
    let scenario = Scenario::new(100, settings);
    let _scope = Scope::open(&scenario.allocator, "model", None);
    scenario.take(60);
    scenario
}

/// Runs out of memory; the folder of the post-mortem, if one was written, and what was said of it.
fn run_out(scenario: &Scenario) -> (Option<PathBuf>, Vec<Said>) {
    let mut folder = None;
    let said = listen(|| {}, || folder = scenario.fail(50).post_mortem().map(Path::to_owned));
    (folder, said.into_iter().filter(|said| said.target == "memtrack::post_mortem").collect())
}

#[test]
fn a_post_mortem_is_written_once_and_bounded_and_its_failure_is_no_error_of_the_program() {
    let root = std::env::temp_dir().join(format!("memtrack-post-mortem-{}", std::process::id()));
    // SAFETY: the only test of this program, and no other thread reads the environment.
    unsafe { std::env::remove_var("MEMTRACK_OOM_DUMP") };
    let scenario = full("");
    assert_eq!(run_out(&scenario), (None, Vec::new()), "nobody asked for one");

    // SAFETY: as above; the threads that write have ended.
    unsafe { std::env::set_var("MEMTRACK_OOM_DUMP", &root) };
    scenario.allocator.record_memory_history(Some(&HistoryOptions::default()));
    let block = scenario.take(4);
    scenario.free([block]);
    assert!(scenario.allocator.attach_driver().is_err(), "there is none here, which is known from now on");
    let (folder, said) = run_out(&scenario);
    let folder = folder.expect("a folder");
    assert_eq!((said.len(), folder.parent()), (1, Some(&*root)));
    assert_eq!(said[0].fields["folder"], folder.display().to_string());
    assert_eq!(names(&folder), ["driver.txt", "events.jsonl", "report.json", "report.txt", "snapshot.pickle"]);
    let driver = std::fs::read_to_string(folder.join("driver.txt")).unwrap();
    assert_eq!(
        driver, "driver    no figures: simulated is a simulated device, which no GPU driver knows\n",
        "as attached"
    );
    let text = std::fs::read_to_string(folder.join("report.txt")).unwrap();
    assert!(text.starts_with("out of memory on simulated: tried to allocate 50.00 MiB"), "{text}");
    assert!(text.contains("\nlive-memory-too-large: 60.00 MiB are live"), "{text}");
    assert!(text.contains("\n60.00 MiB in 1 block, allocated at tests/src/scenarios.rs:"), "{text}");
    assert!(text.contains(" in model\n"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("report.json")).unwrap()).unwrap();
    assert_eq!(json["findings"][0]["code"], "live-memory-too-large");
    assert_eq!(json["findings"][0]["numbers"]["allocated_bytes"], 60 * MIB);
    assert_eq!(json["live"][0]["scope"], "model");
    let events = std::fs::read_to_string(folder.join("events.jsonl")).unwrap();
    let events: Vec<serde_json::Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let actions: Vec<&str> = events.iter().filter_map(|event| event["action"].as_str()).collect();
    assert!(actions.contains(&"alloc") && actions.contains(&"oom"), "{actions:?}");
    let snapshot = Snapshot::read_file(folder.join("snapshot.pickle"), &ReadLimits::default()).unwrap();
    assert_eq!(snapshot.segments.iter().map(|segment| segment.allocated_size).sum::<u64>(), 60 * MIB);

    assert_eq!(run_out(&scenario), (None, Vec::new()), "once");
    assert_eq!(names(&root).len(), 1);

    // Of what fails inside a hook nothing is written; the failure of the program's own request comes after it.
    configure(Some(PostMortemOptions::new(&root).count_limit(2).event_limit(3)));
    let allocator = scenario.allocator.clone();
    let hook = scenario.allocator.on_oom(move |_| {
        let inside = allocator.allocate_raw(90 * MIB, Stream::DEFAULT).unwrap_err();
        assert_eq!(memtrack::OutOfMemory::behind(&inside).unwrap().post_mortem(), None);
        OomResponse::GiveUp
    });
    let (folder, _) = run_out(&scenario);
    drop(hook);
    let events = std::fs::read_to_string(folder.unwrap().join("events.jsonl")).unwrap();
    assert_eq!((names(&root).len(), events.lines().count()), (2, 3), "the last three");
    assert!(run_out(&scenario).0.is_some(), "the second of two");
    assert_eq!(run_out(&scenario).0, None);

    // Too small for the snapshot with its events, not for one without.
    configure(Some(PostMortemOptions::new(&root).size_limit_bytes(20_000)));
    for _ in 0..3000 {
        let block = scenario.take(1);
        scenario.free([block]);
    }
    let (folder, said) = run_out(&scenario);
    assert_eq!(folder, None, "the events did not fit");
    assert!(said[0].fields["error"].contains("events.jsonl cannot be written: the size limit"), "{said:?}");
    let last = root.join(names(&root).into_iter().next_back().unwrap());
    assert_eq!(names(&last), ["driver.txt", "report.json", "report.txt", "snapshot.pickle"]);
    let bytes: u64 = names(&last).iter().map(|name| std::fs::metadata(last.join(name)).unwrap().len()).sum();
    assert!(bytes <= 20_000, "{bytes}");
    let snapshot = Snapshot::read_file(last.join("snapshot.pickle"), &ReadLimits::default()).unwrap();
    assert!(snapshot.device_traces.iter().all(Vec::is_empty));

    configure(Some(PostMortemOptions::new(&root).time_limit(Duration::ZERO)));
    let (folder, said) = run_out(&scenario);
    assert_eq!(folder, None);
    assert_eq!(said[0].level, tracing::Level::WARN, "{said:?}");

    // A file where the folder should be.
    configure(Some(PostMortemOptions::new(root.join("file").join("below"))));
    std::fs::write(root.join("file"), "").unwrap();
    let (folder, said) = run_out(&scenario);
    assert_eq!(folder, None);
    assert!(said[0].fields["error"].contains("cannot be made"), "{said:?}");

    configure(None);
    // The writer that took too long may still be at it, and put a file into a folder that is being removed.
    while root.exists() && std::fs::remove_dir_all(&root).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
}
