//! Figures a process publishes: whole, current, and known as stale once the process ended.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memtrack::device::{DeviceKind, Host};
use memtrack::publish::{self, Liveness, ReadError};
use memtrack::{Buffer, CachingAllocator};
use serde_json::Value;

/// The folder in force is the process's, so one test at a time.
static ONE: Mutex<()> = Mutex::new(());

struct Folder(PathBuf, #[allow(dead_code, reason = "held to its end")] MutexGuard<'static, ()>);

impl Folder {
    /// An empty folder of the test's own, in force.
    fn new(test: &str) -> Self {
        let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("memtrack-publish-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        publish::to(&path);
        Self(path, guard)
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// This process's own publication, of which only the first allocator is looked at.
fn published(path: &Path) -> publish::Publication {
    publish::read_file(path).unwrap()
}

#[test]
fn what_is_published_is_what_the_allocator_counts() {
    let _folder = Folder::new("figures");
    let allocator = CachingAllocator::new(Arc::new(Host::new()));
    let kept = Buffer::<u8>::zeros(&allocator, 3_000_000).unwrap();
    drop(Buffer::<u8>::zeros(&allocator, 1000).unwrap());
    let path = publish::now().unwrap();
    let publication = published(&path);
    assert_eq!(publication.pid, std::process::id());
    assert_eq!(publication.liveness(), Liveness::Alive);
    assert!(publication.program.starts_with("publish-"), "{publication:?}");
    let [figures] = &publication.allocators[..] else { panic!("{publication:?}") };
    assert_eq!((figures.kind, figures.uuid, figures.limit_bytes), (DeviceKind::Host, None, None));
    let stats = allocator.memory_stats();
    let expected = [
        (figures.allocated_bytes, stats.allocated_bytes.all.current),
        (figures.requested_bytes, stats.requested_bytes.all.current),
        (figures.reserved_bytes, stats.reserved_bytes.all.current),
        (figures.peak_allocated_bytes, stats.allocated_bytes.all.peak),
        (figures.peak_reserved_bytes, stats.reserved_bytes.all.peak),
        (figures.inactive_split_bytes, stats.inactive_split_bytes.all.current),
    ];
    for (published, counted) in expected {
        assert_eq!(published, u64::try_from(counted).unwrap());
        assert!(published > 0);
    }
    assert_eq!(figures.peak_allocated_bytes, figures.allocated_bytes + 1024);
    // Free: the rest of the 20 MiB segment, and the 2 MiB segment of the small block.
    let rest = (20 << 20) - 3_000_320;
    assert_eq!(figures.largest_free_block_bytes, rest);
    assert_eq!(figures.cached_bytes(), rest + (2 << 20));
    assert_eq!(figures.fragmentation(), Some(2.0 / 22.0));

    drop(kept);
    publish::now().unwrap();
    assert_eq!(published(&path).allocators[0].allocated_bytes, 0);
}

#[test]
fn a_file_is_replaced_whole_while_others_read_it() {
    let folder = Folder::new("whole");
    let allocator = CachingAllocator::new(Arc::new(Host::new()));
    let _kept = Buffer::<u8>::zeros(&allocator, 10).unwrap();
    let path = publish::now().unwrap();
    std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..2).map(|_| scope.spawn(|| (0..200).for_each(|_| drop(publish::now().unwrap())))).collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            assert_eq!(published(&path).allocators[0].allocated_bytes, 512);
        }
    });
    assert_eq!(folder.files().len(), 1, "no temporary file stays: {:?}", folder.files());
    publish::withdraw().unwrap();
    assert!(folder.files().is_empty());
    publish::withdraw().unwrap();
}

#[test]
fn files_of_processes_that_ended_are_known_and_removed_on_request_alone() {
    let folder = Folder::new("stale");
    let own = publish::now().unwrap();
    let mut text: Value = serde_json::from_str(&fs::read_to_string(&own).unwrap()).unwrap();
    let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    text["pid"] = pid.into();
    // The start of the child is not that of this process: another process had its number.
    let other = folder.0.join("other.json");
    fs::write(&other, text.to_string()).unwrap();
    assert_eq!(published(&other).liveness(), Liveness::Ended);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    text["start_ticks"] = start.into();
    let childs = folder.0.join("child.json");
    fs::write(&childs, text.to_string()).unwrap();
    assert_eq!(published(&childs).liveness(), Liveness::Alive);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(published(&childs).liveness(), Liveness::Ended);
    text["pid_namespace"] = "pid:[1]".into();
    fs::write(&other, text.to_string()).unwrap();
    assert_eq!(published(&other).liveness(), Liveness::Unknown);

    assert_eq!(publish::read_folder(&folder.0).unwrap().len(), 3);
    assert_eq!(publish::remove_stale(&folder.0).unwrap(), 1);
    assert!(own.exists() && other.exists() && !childs.exists());
}

#[test]
fn a_spoilt_file_says_what_is_wrong_and_the_others_are_read() {
    let folder = Folder::new("spoilt");
    let _allocator = CachingAllocator::new(Arc::new(Host::new()));
    let own = publish::now().unwrap();
    let good: Value = serde_json::from_str(&fs::read_to_string(&own).unwrap()).unwrap();
    let mut spoilt: Vec<(String, &str)> = vec![
        ("not json".to_owned(), "no JSON: "),
        ("{}".to_owned(), "`memtrack_publication` is missing or no whole number"),
        ("[".repeat(100_000), "no JSON: "),
        (" ".repeat(2 << 20), "more than the 1048576"),
    ];
    let mut with = |change: fn(&mut Value), said| {
        let mut value = good.clone();
        change(&mut value);
        spoilt.push((value.to_string(), said));
    };
    with(|value| value["memtrack_publication"] = 2.into(), "form 2, of which this memtrack reads 1");
    with(|value| value["pid"] = (1_u64 << 40).into(), "`pid` is missing or no process number");
    with(|value| value["allocators"][0]["reserved_bytes"] = (-1).into(), "`reserved_bytes` is missing");
    with(|value| value["allocators"][0]["kind"] = "tape".into(), "`kind` is missing");
    with(|value| value["allocators"][0]["uuid"] = "é".repeat(16).into(), "`uuid` is missing or no UUID");
    with(
        |value| value["allocators"][0]["context_bytes"] = 5.into(),
        "`context_method` is missing or no way to measure",
    );
    with(|value| value["published_unix_ms"] = u64::MAX.into(), "");
    spoilt.push((value_without_limit(&good), "`limit_bytes` is missing"));
    for (index, (text, _)) in spoilt.iter().enumerate() {
        fs::write(folder.0.join(format!("spoilt-{index:02}.json")), text).unwrap();
    }
    fs::create_dir(folder.0.join("zz.json")).unwrap();
    fs::write(folder.0.join("readme.txt"), "no figures").unwrap();
    let found = publish::read_folder(&folder.0).unwrap();
    assert_eq!(found.len(), spoilt.len() + 2);
    for (found, (_, said)) in found[1..].iter().zip(&spoilt) {
        match &found.publication {
            Err(error) => assert!(error.to_string().contains(said), "{error} / {said}"),
            Ok(_) => assert!(said.is_empty(), "{said}: {found:?}"),
        }
    }
    assert!(found[0].publication.is_ok());
    assert!(matches!(found.last().unwrap().publication, Err(ReadError::Io(_))));
}

fn value_without_limit(good: &Value) -> String {
    let mut value = good.clone();
    value["allocators"][0].as_object_mut().unwrap().remove("limit_bytes");
    value.to_string()
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = Folder::new("unwritable");
    fs::write(&folder.0, "a file").unwrap();
    let inside = folder.0.join("inside");
    publish::to(&inside);
    let error = publish::now().unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot make the folder {}: ", inside.display())), "{error}");
    // Told once, and nothing breaks.
    publish::when_on();
    publish::when_on();
    fs::remove_file(&folder.0).unwrap();
    assert!(publish::read_folder(&inside).unwrap().is_empty(), "no folder is no error for a reader");
}

#[test]
fn the_folder_is_for_this_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("private");
    publish::when_on();
    assert_eq!(fs::metadata(&folder.0).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(folder.files().len(), 1);
}

/// In a process of its own, since the environment is the process's.
#[test]
fn the_environment_turns_it_on() {
    let _folder = Folder::new("environment");
    let executable = std::env::current_exe().unwrap();
    for (value, on) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true), (Some("/x/y"), true)] {
        let mut command = Command::new(&executable);
        command.args(["--ignored", "--exact", "child_says_its_folder", "--nocapture"]);
        command.env("XDG_RUNTIME_DIR", "/run/user/7").env_remove(publish::ENVIRONMENT_VARIABLE);
        if let Some(value) = value {
            command.env(publish::ENVIRONMENT_VARIABLE, value);
        }
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let expected = match value {
            Some("1") => "Some(\"/run/user/7/memtrack\")",
            Some(path) if on => &format!("Some({path:?})"),
            _ => "None",
        };
        assert!(output.contains(&format!("folder: {expected}\n")), "{value:?}: {output}");
    }
}

#[test]
#[ignore = "run by another test, with its environment"]
fn child_says_its_folder() {
    println!("folder: {:?}", publish::folder());
}

#[test]
fn a_copy_does_not_count_twice() {
    let folder = Folder::new("copy");
    let own = publish::now().unwrap();
    let text = fs::read_to_string(&own).unwrap();
    // Before and behind it in the order of names.
    for name in ["0-backup.json", "zz.json"] {
        fs::write(folder.0.join(name), &text).unwrap();
    }
    let found = publish::read_folder(&folder.0).unwrap();
    let good: Vec<_> = found.iter().filter(|found| found.publication.is_ok()).map(|found| &found.path).collect();
    assert_eq!((found.len(), good), (3, vec![&own]));
    let error = found[0].publication.as_ref().unwrap_err().to_string();
    assert!(error.starts_with("a copy: process ") && error.ends_with(".json"), "{error}");
    fs::remove_file(&own).unwrap();
    let found = publish::read_folder(&folder.0).unwrap();
    assert_eq!(found.iter().filter(|found| found.publication.is_ok()).count(), 1, "one of the copies stands for it");
}

#[test]
fn figures_that_cannot_be_are_refused() {
    let folder = Folder::new("impossible");
    let allocator = memtrack::CachingAllocator::new(std::sync::Arc::new(memtrack::device::Host::new()));
    let own = publish::now().unwrap();
    let mut text: Value = serde_json::from_str(&fs::read_to_string(&own).unwrap()).unwrap();
    for (allocated, reserved) in [(2_u64, 1_u64), (1, u64::MAX)] {
        text["allocators"][0]["allocated_bytes"] = allocated.into();
        text["allocators"][0]["reserved_bytes"] = reserved.into();
        fs::write(&own, text.to_string()).unwrap();
        let error = publish::read_file(&own).unwrap_err().to_string();
        assert!(error.contains("which cannot be"), "{error}");
    }
    drop((allocator, folder));
}

/// To open a pipe waits for the other side, so none may be opened.
#[test]
fn pipes_in_the_place_of_the_folder_or_of_files_stop_neither_writer_nor_reader() {
    let folder = Folder::new("pipes");
    fs::create_dir_all(&folder.0).unwrap();
    let pipe = |name: String| {
        let path = folder.0.join(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    let (in_place_of_folder, others) = (pipe("folder".to_owned()), pipe("1.json".to_owned()));
    let own = publish::now().unwrap();
    fs::remove_file(&own).unwrap();
    pipe(own.file_name().unwrap().to_str().unwrap().to_owned());
    let (tell, told) = std::sync::mpsc::channel();
    let path = folder.0.clone();
    std::thread::spawn(move || {
        let found = publish::read_folder(&path).unwrap();
        let written = publish::now();
        publish::to(&in_place_of_folder);
        let _ = tell.send((found, written, publish::now(), publish::read_folder(&in_place_of_folder)));
    });
    let (found, written, refused, unread) = told.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|found| matches!(&found.publication, Err(ReadError::Io(_)))), "{found:?}");
    assert_eq!(written.unwrap(), own, "its own place is taken back");
    assert!(fs::metadata(&own).unwrap().is_file() && !fs::metadata(&others).unwrap().is_file());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("it is there and is no folder; name another one in MEMTRACK_PUBLISH"), "{refused}");
    assert!(unread.is_err());
}
