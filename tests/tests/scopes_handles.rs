//! Scopes taken to other threads and into spawned tasks.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use memtrack::device::Simulated;
use memtrack::scope::{InScope, OpenScope, Outcome, Scope, ScopeHandle, ScopeRecord};
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap()
}

/// (live, peak, allocations) of the scope's own.
fn own(record: &ScopeRecord) -> (i64, i64, i64) {
    (record.own_delta_bytes, record.own_peak_bytes, record.own_allocation_count)
}

#[test]
fn threads_inside_a_handle_count_to_the_scope_that_it_was_taken_in() {
    let allocator = allocator();
    let scope = Scope::open(&allocator, "parent", Some("forward"));
    let handle = ScopeHandle::current();
    let kept = std::thread::scope(|threads| {
        let work = |bytes| {
            let (handle, allocator) = (handle.clone(), &allocator);
            threads.spawn(move || {
                let outside = take(allocator, 50);
                let kept = handle.in_scope(|| {
                    let inner = Scope::open(allocator, "inner", None);
                    let kept = take(allocator, bytes);
                    let record = inner.close(Outcome::Ok);
                    assert_eq!((own(&record), record.phase), ((bytes as i64, bytes as i64, 1), Some("forward")));
                    kept
                });
                drop((take(allocator, 60), outside));
                kept
            })
        };
        let running = [work(100), work(200), work(300)];
        running.map(|thread| thread.join().unwrap())
    });
    assert_eq!(own(&scope.close(Outcome::Ok)), (600, 600, 3));
    drop(kept);
}

#[test]
fn a_handle_has_the_innermost_scope_of_every_allocator() {
    let (one, two) = (allocator(), allocator());
    let outer = Scope::open(&one, "outer", None);
    let other = Scope::open(&two, "other", None);
    let inner = Scope::open(&one, "inner", None);
    let handle = ScopeHandle::current();
    let kept = std::thread::scope(|threads| {
        threads.spawn(|| handle.in_scope(|| (take(&one, 100), take(&two, 1000)))).join().unwrap()
    });
    assert_eq!(own(&inner.close(Outcome::Ok)), (100, 100, 1));
    assert_eq!(own(&other.close(Outcome::Ok)), (1000, 1000, 1));
    assert_eq!(own(&outer.close(Outcome::Ok)), (100, 100, 1));
    drop(kept);
}

#[test]
fn a_handle_of_one_scope_leaves_other_allocators_alone() {
    let (one, two) = (allocator(), allocator());
    let scope = OpenScope::open(&one, "one", None);
    let around = Scope::open(&two, "two", None);
    let kept = scope.handle().in_scope(|| (take(&one, 100), take(&two, 1000)));
    assert_eq!(own(&around.close(Outcome::Ok)), (1000, 1000, 1));
    assert_eq!(own(&scope.close(Outcome::Ok)), (100, 100, 1));
    drop(kept);
}

#[test]
fn outside_any_scope_a_handle_changes_nothing() {
    let allocator = allocator();
    let handle = ScopeHandle::current();
    let scope = Scope::open(&allocator, "scope", None);
    let kept = handle.in_scope(|| take(&allocator, 100));
    assert_eq!(own(&scope.close(Outcome::Ok)), (100, 100, 1));
    drop(kept);
}

#[test]
fn work_after_the_scope_has_closed_belongs_to_the_nearest_open_scope_around() {
    let allocator = allocator();
    let outer = Scope::open(&allocator, "outer", Some("forward"));
    let middle = Scope::open(&allocator, "middle", Some("backward"));
    let inner = Scope::open(&allocator, "inner", Some("optimizer"));
    let handle = ScopeHandle::current();
    // On another thread, whose own scope must not get what the handle's scopes do.
    let work = |bytes| {
        std::thread::scope(|threads| {
            let (handle, allocator) = (handle.clone(), &allocator);
            let work = move || {
                let own_scope = Scope::open(allocator, "worker", None);
                let kept = handle.in_scope(|| {
                    let phase = Scope::open(allocator, "asks", None).close(Outcome::Ok).phase;
                    (take(allocator, bytes), phase)
                });
                assert_eq!(own(&own_scope.close(Outcome::Ok)), (0, 0, 0));
                kept
            };
            threads.spawn(work).join().unwrap()
        })
    };
    let first = work(1);
    assert_eq!(own(&inner.close(Outcome::Ok)), (1, 1, 1));
    let second = work(10);
    assert_eq!(own(&middle.close(Outcome::Ok)), (11, 11, 2));
    let third = work(100);
    assert_eq!(own(&outer.close(Outcome::Ok)), (111, 111, 3));
    let fourth = work(1000);
    assert_eq!(
        [&first, &second, &third, &fourth].map(|(_, phase)| *phase),
        [Some("optimizer"), Some("backward"), Some("forward"), None]
    );
    let next = Scope::open(&allocator, "next", None);
    let fifth = work(10_000);
    assert_eq!(own(&next.close(Outcome::Ok)), (0, 0, 0), "it took the place of none of them");
    drop((first, second, third, fourth, fifth));
}

#[test]
fn work_after_a_phase_has_ended_is_booked_under_the_phase_around() {
    let allocator = allocator();
    let epoch = allocator.epoch(1);
    let outer = Scope::open(&allocator, "outer", Some("outer"));
    let inner = Scope::open(&allocator, "inner", Some("inner"));
    let handle = ScopeHandle::current();
    let in_handle =
        || std::thread::scope(|threads| drop(threads.spawn(|| handle.in_scope(|| drop(take(&allocator, 1))))));
    in_handle();
    drop(inner);
    (0..10).for_each(|_| in_handle());
    drop(outer);
    (0..100).for_each(|_| in_handle());
    let summary = epoch.finish().unwrap();
    let counts: Vec<_> = summary.phases.iter().map(|phase| (phase.name, phase.allocation_count)).collect();
    assert_eq!(counts, [("outer", 10), ("inner", 1), ("other", 100)]);
}

#[test]
fn a_scope_that_closes_while_work_is_inside_its_handle_passes_the_rest_on() {
    let allocator = allocator();
    let outer = Scope::open(&allocator, "outer", None);
    let inner = OpenScope::open(&allocator, "inner", None);
    let handle = inner.handle();
    let kept = handle.in_scope(|| {
        let before = take(&allocator, 100);
        assert_eq!(own(&inner.close(Outcome::Ok)), (100, 100, 1));
        (before, take(&allocator, 1000))
    });
    assert_eq!(own(&outer.close(Outcome::Ok)), (1100, 1100, 2));
    drop(kept);
}

#[test]
fn a_handle_outlives_its_scope_its_blocks_and_its_allocator() {
    let handle = {
        let allocator = allocator();
        let _scope = Scope::open(&allocator, "gone", None);
        ScopeHandle::current()
    };
    handle.in_scope(|| ());
    drop(handle.clone());
    handle.in_scope(|| ());
}

#[test]
fn a_handle_of_a_recursion_is_of_the_activation_it_was_taken_in() {
    fn recurse(allocator: &CachingAllocator, depth: usize, handles: &mut Vec<ScopeHandle>) -> Vec<ScopeRecord> {
        let scope = Scope::open(allocator, "recurse", None);
        handles.push(ScopeHandle::current());
        let mut records = Vec::new();
        if depth > 0 {
            records = recurse(allocator, depth - 1, handles);
        } else {
            std::thread::scope(|threads| {
                for (level, handle) in handles.iter().enumerate() {
                    threads.spawn(move || handle.in_scope(|| drop(take(allocator, 1 << level))));
                }
            });
        }
        records.push(scope.close(Outcome::Ok));
        records
    }
    let allocator = allocator();
    let mut records = recurse(&allocator, 3, &mut Vec::new());
    records.reverse();
    let counts: Vec<_> = records.iter().map(|record| record.own_allocation_count).collect();
    assert_eq!(counts, [4, 3, 2, 1]);
}

#[test]
fn a_panic_inside_leaves_the_thread_as_it_was() {
    let allocator = allocator();
    let handle = {
        let scope = OpenScope::open(&allocator, "parent", None);
        let handle = scope.handle();
        let around = Scope::open(&allocator, "around", None);
        let work = || handle.in_scope(|| -> () { panic!("{}", take(&allocator, 100).len()) });
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        let kept = take(&allocator, 1000);
        assert_eq!(own(&around.close(Outcome::Ok)), (1000, 1000, 1));
        assert_eq!(own(&scope.close(Outcome::Ok)), (0, 100, 1));
        drop(kept);
        handle
    };
    let after = Scope::open(&allocator, "after", None);
    handle.in_scope(|| ());
    assert_eq!(own(&after.close(Outcome::Ok)), (0, 0, 0));
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    let allocator = allocator();
    let (one, two) = (OpenScope::open(&allocator, "one", None), OpenScope::open(&allocator, "two", None));
    let (first, second) = (one.handle(), two.handle());
    let entered = (first.enter(), second.enter());
    drop(entered.0);
    let of_two = take(&allocator, 10);
    drop(entered.1);
    let nobodys = take(&allocator, 100);
    assert_eq!(own(&one.close(Outcome::Ok)), (0, 0, 0));
    assert_eq!(own(&two.close(Outcome::Ok)), (10, 10, 1));
    drop((of_two, nobodys));
}

/// Allocates before and after each of so many stops, and keeps the last block.
async fn child(allocator: CachingAllocator, bytes: usize, stops: usize) -> Buffer<u8> {
    let mut kept = take(&allocator, bytes);
    for _ in 0..stops {
        tokio::task::yield_now().await;
        kept = inside(&allocator, bytes).await;
    }
    kept
}

#[track_memory(phase = "inside", device = allocator)]
async fn inside(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    tokio::task::yield_now().await;
    take(allocator, bytes)
}

#[track_memory(device = allocator)]
async fn parent(allocator: &CachingAllocator, children: usize) -> Vec<Buffer<u8>> {
    let spawn = |_| tokio::spawn(child(allocator.clone(), 100, 10).in_current_scope());
    let children: Vec<_> = (0..children).map(spawn).collect();
    let mut kept = Vec::new();
    for child in children {
        kept.push(child.await.unwrap());
    }
    kept
}

/// The parent's own figures, measured by a scope around it.
async fn measured_parent() -> ScopeRecord {
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "around", None);
    let stranger = tokio::spawn(child(allocator.clone(), 7000, 20));
    let kept = parent(&allocator, 8).in_scope(scope.handle()).await;
    let record = scope.close(Outcome::Ok);
    drop((kept, stranger.await.unwrap()));
    assert_eq!(allocator.memory_allocated(), 0);
    record
}

#[test]
fn tasks_spawned_on_many_threads_count_to_their_parent() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    for _ in 0..20 {
        let record = runtime.block_on(measured_parent());
        assert_eq!((record.own_delta_bytes, record.own_allocation_count), (800, 88));
        assert!((800..=1600).contains(&record.own_peak_bytes), "{record:?}");
    }
}

#[test]
fn tasks_spawned_on_one_thread_count_to_their_parent() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let record = runtime.block_on(measured_parent());
    assert_eq!((record.own_delta_bytes, record.own_allocation_count), (800, 88));
    assert!((800..=1600).contains(&record.own_peak_bytes), "{record:?}");
}

#[test]
fn a_future_that_moves_to_another_thread_at_each_poll_stays_in_its_scope() {
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "task", None);
    let work = async {
        let mut kept = Vec::new();
        for _ in 0..10 {
            kept.push(take(&allocator, 100));
            yield_now().await;
        }
        kept
    };
    let mut future = Box::pin(work.in_scope(scope.handle()));
    let kept = loop {
        let poll = std::thread::scope(|threads| {
            let poll = || {
                let poll = poll_once(future.as_mut());
                drop(take(&allocator, 5000));
                poll
            };
            threads.spawn(poll).join().unwrap()
        });
        if let Poll::Ready(kept) = poll {
            break kept;
        }
    };
    assert_eq!(own(&scope.close(Outcome::Ok)), (1000, 1000, 10));
    drop(kept);
}

/// Allocates when it is dropped.
struct AllocatesInDrop<'a>(&'a CachingAllocator, &'a mut Vec<Buffer<u8>>);

impl Drop for AllocatesInDrop<'_> {
    fn drop(&mut self) {
        self.1.push(take(self.0, 10));
    }
}

#[test]
fn a_cancelled_future_is_dropped_inside_its_scope() {
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "task", None);
    let mut left = Vec::new();
    {
        let guard = AllocatesInDrop(&allocator, &mut left);
        let work = async {
            let _guard = guard;
            let _held = take(&allocator, 100);
            std::future::pending::<()>().await;
        };
        let mut future = pin!(work.in_scope(scope.handle()));
        assert!(poll_once(future.as_mut()).is_pending());
    }
    assert_eq!(own(&scope.close(Outcome::Ok)), (10, 100, 2));
    drop(left);
}

#[test]
fn a_future_that_has_completed_is_dropped_inside_its_scope() {
    /// Unlike an async block, it still owns everything when it has completed.
    struct Ready<'a>(Option<AllocatesInDrop<'a>>);
    impl Future for Ready<'_> {
        type Output = ();
        fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<()> {
            assert!(self.0.is_some());
            Poll::Ready(())
        }
    }
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "task", None);
    let mut left = Vec::new();
    block_on(Ready(Some(AllocatesInDrop(&allocator, &mut left))).in_scope(scope.handle()));
    assert_eq!(own(&scope.close(Outcome::Ok)), (10, 10, 1));
    drop(left);
}

#[test]
fn aborted_tasks_leave_nothing_behind() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "parent", None);
    let (started, begun) = std::sync::mpsc::channel();
    let work = {
        let allocator = allocator.clone();
        async move {
            let _held = take(&allocator, 100);
            started.send(()).unwrap();
            std::future::pending::<()>().await;
        }
    };
    let task = runtime.spawn(work.in_scope(scope.handle()));
    begun.recv().unwrap();
    task.abort();
    assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    assert_eq!(own(&scope.close(Outcome::Ok)), (0, 100, 1));
}

#[test]
fn a_panic_in_a_poll_leaves_the_thread_as_it_was() {
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "task", None);
    let around = Scope::open(&allocator, "around", None);
    let work = async {
        let _held = take(&allocator, 100);
        yield_now().await;
        panic!("on purpose");
    };
    let future = work.in_scope(scope.handle());
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(future))).is_err());
    let kept = take(&allocator, 1000);
    assert_eq!(own(&around.close(Outcome::Ok)), (1000, 1000, 1));
    assert_eq!(own(&scope.close(Outcome::Ok)), (0, 100, 1));
    drop(kept);
}

#[test]
fn polled_again_after_its_end_a_future_says_so() {
    let allocator = allocator();
    let scope = OpenScope::open(&allocator, "task", None);
    let mut future = pin!(async {}.in_scope(scope.handle()));
    assert!(poll_once(future.as_mut()).is_ready());
    let again = catch_unwind(AssertUnwindSafe(|| poll_once(future.as_mut())));
    let text = *again.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(text, "a future in a scope was polled after it had completed");
}

#[test]
fn handles_and_their_futures_can_be_sent() {
    fn is_send_and_sync<T: Send + Sync>(_: &T) {}
    fn is_send<T: Send>(_: &T) {}
    let handle = ScopeHandle::current();
    is_send_and_sync(&handle);
    is_send(&async {}.in_scope(handle));
}
