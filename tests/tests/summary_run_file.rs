//! The run file: where it is written, what is in it, and that training goes on without it. It is one of the whole process, so this
//! is one test.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::fs;
use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, run_file};
use memtrack_tests::listening::listen;
use serde_json::Value;

fn lines(path: &std::path::Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_epoch_is_a_line_of_the_run_file() {
    let folder = std::env::temp_dir().join(format!("memtrack-run-file-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let _current = allocator.make_current();

    // Nothing was asked for.
    drop(memtrack::epoch(1));
    assert_eq!(run_file::stop(), None);

    run_file::record_to(folder.join("run-%p.jsonl")).unwrap();
    let path = folder.join(format!("run-{}.jsonl", std::process::id()));
    let kept = Buffer::<u8>::uninit(&allocator, 3 << 20).unwrap();
    let summary = memtrack::epoch(2).finish().unwrap();
    // Written when the epoch ends, not when the program does.
    assert_eq!(lines(&path).len(), 1);
    drop(memtrack::epoch(3));
    let written = lines(&path);
    assert_eq!(written.iter().map(|line| line["epoch"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().next().unwrap(), summary.to_json());
    assert_eq!((&written[0]["schema"], &written[0]["version"]), (&Value::from("memtrack.run"), &Value::from(1)));
    assert_eq!(written[0]["live"][0]["bytes"], 3 << 20);

    // Where no file can be made the old one goes on.
    assert!(run_file::record_to(folder.join("no such folder/run.jsonl")).is_err());
    drop(memtrack::epoch(4));
    assert_eq!(lines(&path).len(), 3);
    assert_eq!(run_file::stop(), Some(path.clone()));
    drop(memtrack::epoch(5));
    assert_eq!(lines(&path).len(), 3);

    // A file that cannot be written is told once.
    if cfg!(target_os = "linux") {
        run_file::record_to("/dev/full").unwrap();
        let said = listen(|| {}, || (6..9).for_each(|number| drop(memtrack::epoch(number))));
        let told: Vec<_> = said.iter().filter(|event| event.target == "memtrack::run_file").collect();
        assert_eq!(told.len(), 1, "{said:?}");
        assert_eq!(said.iter().filter(|event| event.target == "memtrack::epoch").count(), 3, "training goes on");
        assert_eq!(run_file::stop(), None);
    }
    drop(kept);
    fs::remove_dir_all(&folder).unwrap();
}
