//! The option `oom`: what is said and written when memory runs out inside a function.
//!
//! One test, since the folder of the snapshots is the process's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use std::path::PathBuf;
use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::history::{ReadLimits, Snapshot};
use memtrack::units::MIB;
use memtrack::{AllocationError, Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::spans::{EventLog, Spans, Value};

fn take(allocator: &CachingAllocator, bytes: u64) -> Result<Buffer<u8>, AllocationError> {
    Buffer::uninit(allocator, bytes as usize)
}

#[track_memory(oom(event), device = allocator)]
fn inner(allocator: &CachingAllocator, bytes: u64) -> Result<Buffer<u8>, AllocationError> {
    take(allocator, bytes)
}

#[track_memory(oom(event, snapshot), phase = "forward", device = allocator)]
fn outer(allocator: &CachingAllocator, bytes: u64) -> Result<Buffer<u8>, AllocationError> {
    let _kept = take(allocator, 3 * MIB)?;
    inner(allocator, bytes)
}

#[track_memory(oom(snapshot), device = allocator)]
async fn suspended(allocator: &CachingAllocator) -> bool {
    yield_now().await;
    let fails = take(allocator, 1 << 30).is_err();
    yield_now().await;
    fails
}

#[track_memory(oom(event), device = allocator)]
fn deep(allocator: &CachingAllocator, depth: u32) {
    if depth > 0 {
        deep(allocator, depth - 1);
    } else {
        assert!(take(allocator, 1 << 30).is_err());
    }
}

fn functions(events: &[EventLog]) -> Vec<&str> {
    let name = |event: &EventLog| match event.fields.get("function") {
        Some(Value::Str(name)) => Some(match name.as_str() {
            "inner" => "inner",
            "outer" => "outer",
            "suspended" => "suspended",
            "deep" => "deep",
            _ => "another",
        }),
        _ => None,
    };
    events.iter().filter_map(name).collect()
}

#[test]
fn each_function_that_watches_says_so_and_one_snapshot_is_kept() {
    let folder = std::env::temp_dir().join(format!("memtrack-attribute-oom-{}", std::process::id()));
    // SAFETY: the only test of this program, and no other thread reads the environment.
    unsafe { std::env::set_var("MEMTRACK_OOM_DUMP", &folder) };
    let (spans, _installed) = Spans::install();
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(64 * MIB)));
    let files = || {
        let found = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|file| file.path());
        // Beside a post-mortem, which is a folder.
        let mut found: Vec<PathBuf> = found.filter(|path| path.is_file()).collect();
        found.sort();
        found
    };

    assert!(outer(&allocator, MIB).is_ok());
    assert_eq!(spans.events_of("memtrack::oom").len(), 0);

    assert!(outer(&allocator, 1 << 30).is_err());
    let events = spans.events_of("memtrack::oom");
    assert_eq!((events.len(), functions(&events)), (3, vec!["inner", "outer"]), "after the allocator's own");
    assert!(events[1..].iter().all(|event| event.fields.get("requested_bytes") == Some(&Value::I64(1 << 30))));
    assert!(events[1..].iter().all(|event| event.fields.get("mem.phase") == Some(&Value::Str("forward".to_owned()))));
    let held = events[1..].iter().map(|event| event.fields.get("held_bytes").cloned());
    assert_eq!(held.collect::<Vec<_>>(), [Some(Value::I64(0)), Some(Value::I64(3 << 20))], "each its own");
    let written = files();
    assert_eq!(written.len(), 1, "{written:?}");
    let text = spans.events().join("\n");
    assert!(
        text.contains(", which holds 3.00 MiB: 3.00 MiB in 1 block, allocated at tests/tests/attribute_oom.rs:"),
        "{text}"
    );
    assert!(text.contains(" in outer; a snapshot is in "), "{text}");
    assert!(text.contains(&format!("a snapshot is in {}", written[0].display())), "{text}");
    let snapshot = Snapshot::read_file(&written[0], &ReadLimits::default()).expect("a snapshot");
    let live: u64 = snapshot.segments.iter().map(|segment| segment.allocated_size).sum();
    assert_eq!(live, 3 * MIB, "what was live at that moment");

    assert!(outer(&allocator, 1 << 30).is_err());
    let events = spans.events_of("memtrack::oom");
    assert_eq!((functions(&events[3..]), files().len()), (vec!["inner", "outer"], 1), "written once");

    assert!(block_on(suspended(&allocator)));
    assert_eq!((functions(&spans.events_of("memtrack::oom")[6..]), files().len()), (vec!["suspended"], 2));
    assert!(take(&allocator, 1 << 30).is_err());
    assert_eq!(spans.events_of("memtrack::oom").len(), 9, "nobody watches outside of the functions");

    deep(&allocator, 3);
    assert_eq!(functions(&spans.events_of("memtrack::oom")[9..]), ["deep"], "a recursion watches once");

    std::fs::remove_dir_all(&folder).expect("the folder of the snapshots");
}
