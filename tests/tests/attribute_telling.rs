//! Telling of a returned value runs foreign code, its `Debug` and the subscriber: what that allocates is not the function's,
//! and where it panics the call is recorded once all the same.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::bench::Bench;
use memtrack_tests::futures::{block_on, yield_now};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Its `Debug` takes memory, and panics if told to.
struct Costly {
    allocator: CachingAllocator,
    panics: bool,
}

impl fmt::Debug for Costly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        drop(Buffer::<u8>::uninit(&self.allocator, 100).unwrap());
        assert!(!self.panics, "told");
        f.write_str("Costly")
    }
}

fn costly(allocator: &CachingAllocator, panics: bool) -> Costly {
    drop(Buffer::<u8>::uninit(allocator, 1000).unwrap());
    Costly { allocator: allocator.clone(), panics }
}

#[track_memory(ret, only(self))]
fn inside(allocator: &CachingAllocator, panics: bool) -> Costly {
    costly(allocator, panics)
}

#[track_memory(ret, only(self), max_allocs = 1, on_exceed = "panic")]
fn with_a_budget(allocator: &CachingAllocator, panics: bool) -> Costly {
    costly(allocator, panics)
}

#[track_caller]
#[track_memory(err(Debug), only(self))]
fn seen_by_its_caller(allocator: &CachingAllocator, panics: bool) -> Result<(), Costly> {
    if allocator.memory_allocated() == 0 {
        return Err(costly(allocator, panics));
    }
    Ok(())
}

#[track_memory(ret, only(self))]
async fn later(allocator: &CachingAllocator, panics: bool) -> Costly {
    yield_now().await;
    costly(allocator, panics)
}

/// A call by its span's name, which is to panic while it is told of or not.
type Call = (&'static str, fn(&CachingAllocator, bool));

fn calls() -> [Call; 4] {
    [
        ("inside", |allocator, panics| drop(inside(allocator, panics))),
        ("with_a_budget", |allocator, panics| drop(with_a_budget(allocator, panics))),
        ("seen_by_its_caller", |allocator, panics| assert!(seen_by_its_caller(allocator, panics).is_err())),
        ("later", |allocator, panics| drop(block_on(later(allocator, panics)))),
    ]
}

#[test]
fn what_telling_allocates_is_not_the_functions() {
    for (name, call) in calls() {
        let bench = Bench::new();
        call(&bench.allocator, false);
        let span = bench.spans.one(name);
        assert_eq!((span.number("mem.self.allocs"), span.number("mem.self.peak")), (1, 1000), "{name}");
        assert_eq!(bench.spans.events_of(module_path!()).len(), 1, "{name}");
    }
}

#[test]
fn a_call_whose_telling_panics_is_recorded_once() {
    for (name, call) in calls() {
        let bench = Bench::new();
        let payload = catch_unwind(AssertUnwindSafe(|| call(&bench.allocator, true))).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"told"), "{name}");
        let span = bench.spans.one(name);
        assert_eq!((span.text("mem.outcome").as_str(), span.number("mem.self.allocs")), ("panic", 1), "{name}");
    }
}
