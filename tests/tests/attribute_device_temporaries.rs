//! What the expression of `device` makes on the way is gone before the call is measured.
//!
//! The bug class: temporaries live to the end of their statement. If that is the statement that opens the scope, their
//! memory is freed inside it, their locks are held while the subscriber is called, and what their destructors do comes
//! between an asynchronous body's request for a scope and the answer.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::{CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::{Bench, Probe};
use memtrack_tests::spans::keep_interests_right;
use memtrack_tests::watchdog::within_patience;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use tracing::Subscriber;
use tracing::span::Id;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

struct Handle<'a> {
    bench: &'a Bench,
    _memory: Probe,
}

fn handle(bench: &Bench) -> Handle<'_> {
    Handle { bench, _memory: bench.probe("handle") }
}

#[test]
fn memory_of_a_temporary_is_freed_before_the_scope_opens() {
    #[track_memory(name = "f", device = handle(bench).bench.allocator)]
    fn synchronous(bench: &Bench) -> usize {
        bench.probe("local").len()
    }
    #[track_memory(name = "f", device = handle(bench).bench.allocator)]
    async fn asynchronous(bench: &Bench) -> usize {
        yield_now().await;
        bench.probe("local").len()
    }
    let calls: [fn(&Bench) -> usize; 2] = [synchronous, |bench| block_on(asynchronous(bench))];
    for call in calls {
        let bench = Bench::new();
        assert_eq!(call(&bench), 1024);
        let before_entry = bench.spans.journal().into_iter().take_while(|line| line != "enter f");
        assert_eq!(before_entry.collect::<Vec<_>>(), ["new f", "drop handle"]);
        assert_eq!(bench.call("f"), ("ok".to_owned(), 0, 1024));
        assert_eq!(bench.spans.one("f").number("mem.frees"), 1);
    }
}

/// Takes the user's lock in its callbacks.
struct Locking(Arc<Mutex<CachingAllocator>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Locking {
    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        let _allocated = self.0.lock().unwrap().memory_allocated();
    }
}

#[test]
fn a_lock_of_a_temporary_is_released_before_the_subscriber_is_called() {
    #[track_memory(device = *shared.lock().unwrap())]
    fn f(shared: &Mutex<CachingAllocator>) {
        assert!(shared.try_lock().is_ok());
    }
    keep_interests_right();
    let shared = Arc::new(Mutex::new(memtrack_tests::memory::host_allocator()));
    within_patience("a call whose device is behind a lock", move || {
        let subscriber = Registry::default().with(Locking(Arc::clone(&shared)));
        tracing::subscriber::with_default(subscriber, || f(&shared));
    });
}

#[track_memory]
async fn other() {
    yield_now().await;
}

#[test]
fn a_temporary_whose_destructor_drives_a_measured_future() {
    struct Drives<'a>(&'a Bench, &'a Cell<u32>);
    impl Drop for Drives<'_> {
        fn drop(&mut self) {
            block_on(other());
            self.1.set(self.1.get() + 1);
        }
    }
    #[track_memory(device = Drives(bench, dropped).0.allocator)]
    async fn f(bench: &Bench, dropped: &Cell<u32>) {
        let _local = bench.probe("local");
        yield_now().await;
    }
    let bench = Bench::new();
    let dropped = Cell::new(0);
    block_on(f(&bench, &dropped));
    assert_eq!(dropped.get(), 1);
    assert_eq!(bench.call("other"), ("ok".to_owned(), 0, 0));
    assert_eq!(bench.call("f"), ("ok".to_owned(), 0, 1024));
}

/// A request that nobody took must not open a scope for the next call.
#[test]
fn a_temporary_whose_destructor_panics_leaves_no_request_behind() {
    struct Panics<'a>(&'a Bench);
    impl Drop for Panics<'_> {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    #[track_memory(device = Panics(bench).0.allocator)]
    async fn f(bench: &Bench) {
        yield_now().await;
    }
    #[track_memory(level = "trace")]
    async fn not_measured() {
        yield_now().await;
    }
    let bench = Bench::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| block_on(f(&bench))));
    assert!(panicked.is_err());
    tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || block_on(not_measured()));
    let of_f: Vec<_> = bench.spans.journal().into_iter().filter(|line| line.ends_with(" f")).collect();
    assert_eq!(of_f, ["new f", "close f"], "never entered, since it did not begin");
}
