//! The run file: where it is written, what is in it, and that training goes on without it. It is one of the whole process, so this
//! is one test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, run_file};
use memtrack_tests::listening::listen;
use serde_json::Value;

fn lines(path: &std::path::Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Why a path is no run file. It has to answer: to wait for ever would be the mistake.
#[cfg(target_os = "linux")]
fn refused(path: &std::path::Path) -> std::io::Error {
    let (tell, told) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || tell.send(run_file::record_to(path)));
    told.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits").unwrap_err()
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

    // Begun anew by its own process it is empty, and goes on.
    run_file::record_to(&path).unwrap();
    drop(memtrack::epoch(1));
    run_file::record_to(&path).unwrap();
    drop(memtrack::epoch(2));
    assert_eq!(lines(&path).iter().map(|line| line["epoch"].as_u64().unwrap()).collect::<Vec<_>>(), [2]);
    assert_eq!(run_file::stop(), Some(path.clone()));

    // What could wait for a reader is refused at once, and so is what is no file.
    #[cfg(target_os = "linux")]
    {
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let said = refused(&pipe);
        assert_eq!((said.kind(), said.to_string().contains("it is a pipe")), (ErrorKind::InvalidInput, true), "{said}");
        let said = refused(&folder);
        assert_eq!(
            (said.kind(), said.to_string().contains("it is a folder")),
            (ErrorKind::InvalidInput, true),
            "{said}"
        );
        let socket = folder.join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(refused(&socket).to_string().contains("it is a socket"));
    }

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
