//! Asynchronous calls under executors: tokio's on one thread and on several, two others, and inside what joins futures.
//!
//! A process of its own, whose recorder is tracing's global default: workers of a runtime have no subscriber of their own.
//! Each test looks at spans of names of its own.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use futures::executor::{LocalPool, block_on as futures_block_on};
use futures::stream::{FuturesOrdered, FuturesUnordered, StreamExt as _};
use futures::task::LocalSpawnExt as _;
use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::wait;
use memtrack_tests::memory::figures;
use memtrack_tests::spans::{SpanLog, Spans};
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;

const KIB: i64 = 1 << 10;

static SPANS: LazyLock<Spans> = LazyLock::new(|| {
    let spans = Spans::default();
    tracing::subscriber::set_global_default(Registry::default().with(spans.clone())).unwrap();
    spans
});

fn allocator() -> CachingAllocator {
    LazyLock::force(&SPANS);
    CachingAllocator::new(Arc::new(Simulated::new()))
}

fn take(allocator: &CachingAllocator, kibibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, kibibytes << 10).unwrap()
}

/// All calls of this name.
fn calls(name: &str) -> Vec<SpanLog> {
    SPANS.all().into_iter().filter(|span| span.name == name).collect()
}

fn entries(name: &str) -> usize {
    SPANS.journal().iter().filter(|line| **line == format!("enter {name}")).count()
}

fn closed(name: &str) -> usize {
    SPANS.journal().iter().filter(|line| **line == format!("close {name}")).count()
}

/// One call that freed everything, was polled so often, and has this rise.
#[track_caller]
fn assert_one_call(name: &str, polls: usize, rise_kib: i64) {
    let [span] = &calls(name)[..] else { panic!("one call of {name}") };
    assert_eq!(figures(span), ("ok".to_owned(), 0, rise_kib * KIB));
    assert_eq!((entries(name), closed(name)), (polls, 1));
}

/// An asynchronous function `$name` that waits three times, holding 1, 2 and 3 KiB, and returns its argument.
macro_rules! waits_thrice {
    ($name:ident) => {
        #[track_memory(device = allocator)]
        async fn $name(allocator: CachingAllocator, value: u8) -> u8 {
            let mut kept = Vec::new();
            for _ in 0..3 {
                kept.push(take(&allocator, 1));
                wait(1).await;
            }
            value
        }
    };
}

fn on_one_thread() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn on_several_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(3).build().unwrap()
}

#[test]
fn tokio_on_one_thread() {
    waits_thrice!(awaited_on_one_thread);
    waits_thrice!(spawned_on_one_thread);
    let allocator = allocator();
    on_one_thread().block_on(async {
        assert_eq!(awaited_on_one_thread(allocator.clone(), 5).await, 5);
        assert_eq!(tokio::spawn(spawned_on_one_thread(allocator.clone(), 6)).await.unwrap(), 6);
    });
    assert_one_call("awaited_on_one_thread", 4, 3);
    assert_one_call("spawned_on_one_thread", 4, 3);
}

#[test]
fn tokio_on_several_threads() {
    waits_thrice!(spawned_on_several_threads);
    let allocator = allocator();
    on_several_threads().block_on(async {
        let tasks: Vec<_> = (0..20).map(|n| tokio::spawn(spawned_on_several_threads(allocator.clone(), n))).collect();
        for (n, task) in (0..20).zip(tasks) {
            assert_eq!(task.await.unwrap(), n);
        }
    });
    let calls = calls("spawned_on_several_threads");
    assert_eq!((calls.len(), entries("spawned_on_several_threads")), (20, 20 * 4));
    for span in &calls {
        assert_eq!((figures(span).0.as_str(), span.parent), ("ok", None));
        let peak_bytes = span.number("mem.peak");
        assert!((3 * KIB..=60 * KIB).contains(&peak_bytes), "its own three at least, and everyone's at most");
    }
    assert_eq!(allocator.memory_allocated(), 0);
}

#[test]
fn executors_without_tokio() {
    waits_thrice!(on_futures_block_on);
    waits_thrice!(on_pollster);
    let allocator = allocator();
    assert_eq!(futures_block_on(on_futures_block_on(allocator.clone(), 1)), 1);
    assert_eq!(pollster::block_on(on_pollster(allocator, 2)), 2);
    assert_one_call("on_futures_block_on", 4, 3);
    assert_one_call("on_pollster", 4, 3);
}

/// A future that cannot leave its thread, in tokio's set of such tasks.
#[test]
fn local_tasks_of_tokio() {
    #[track_memory(device = allocator)]
    async fn in_a_local_set(allocator: Rc<CachingAllocator>) -> usize {
        let kept = take(&allocator, 2);
        tokio::task::yield_now().await;
        kept.len() + Rc::strong_count(&allocator)
    }
    let allocator = Rc::new(allocator());
    let local = tokio::task::LocalSet::new();
    let sum = local.block_on(&on_one_thread(), async {
        tokio::task::spawn_local(in_a_local_set(Rc::clone(&allocator))).await.unwrap()
    });
    assert_eq!(sum, (2 << 10) + 2);
    assert_one_call("in_a_local_set", 2, 2);
}

#[test]
fn local_tasks_of_another_executor() {
    waits_thrice!(in_a_local_pool);
    let allocator = Rc::new(allocator());
    let mut pool = LocalPool::new();
    let task = pool.spawner().spawn_local_with_handle(in_a_local_pool((*allocator).clone(), 9)).unwrap();
    assert_eq!(pool.run_until(task), 9);
    assert_one_call("in_a_local_pool", 4, 3);
}

/// Blocking work beside the task is measured too, and its memory is in the task's figures: they are the device's.
#[test]
fn blocking_work_that_a_task_waits_for() {
    #[track_memory(device = allocator)]
    async fn waits_for_blocking_work(allocator: CachingAllocator) -> usize {
        let kept = take(&allocator, 1);
        let there = allocator.clone();
        kept.len() + tokio::task::spawn_blocking(move || blocking_work(&there)).await.unwrap()
    }
    #[track_memory(device = allocator)]
    fn blocking_work(allocator: &CachingAllocator) -> usize {
        take(allocator, 5).len()
    }
    let allocator = allocator();
    let length = on_one_thread().block_on(waits_for_blocking_work(allocator));
    assert_eq!(length, 6 << 10);
    let [blocking] = &calls("blocking_work")[..] else { panic!() };
    assert_eq!((figures(blocking), blocking.parent), (("ok".to_owned(), 0, 5 * KIB), None));
    let [waiting] = &calls("waits_for_blocking_work")[..] else { panic!() };
    assert_eq!(figures(waiting), ("ok".to_owned(), 0, 6 * KIB));
}

/// Calls joined by each of the ways to join: each is entered when it is polled, and only then.
#[test]
fn joined_calls() {
    waits_thrice!(joined_by_tokio);
    waits_thrice!(joined_by_futures);
    let allocator = allocator();
    let (a, b) = on_one_thread()
        .block_on(async { tokio::join!(joined_by_tokio(allocator.clone(), 1), joined_by_tokio(allocator.clone(), 2)) });
    assert_eq!((a, b), (1, 2));
    let (a, b) = futures_block_on(async {
        futures::join!(joined_by_futures(allocator.clone(), 3), joined_by_futures(allocator.clone(), 4))
    });
    assert_eq!((a, b), (3, 4));
    for name in ["joined_by_tokio", "joined_by_futures"] {
        let [first, second] = &calls(name)[..] else { panic!("two calls of {name}") };
        assert_eq!((first.parent, second.parent, entries(name), closed(name)), (None, None, 8, 2));
        // Both saw the device at its highest, with the memory of both; the second began beside the first's.
        let [first, second] = [first, second].map(figures);
        assert_eq!((first.0.as_str(), second.0.as_str()), ("ok", "ok"));
        assert_eq!((first.2, second.2), (6 * KIB, 5 * KIB));
    }
}

#[test]
fn calls_in_sets_of_futures() {
    waits_thrice!(in_an_unordered_set);
    waits_thrice!(in_an_ordered_set);
    let allocator = allocator();
    let unordered: FuturesUnordered<_> = (0..30).map(|n| in_an_unordered_set(allocator.clone(), n)).collect();
    let ordered: FuturesOrdered<_> = (0..30).map(|n| in_an_ordered_set(allocator.clone(), n)).collect();
    let (mut found, in_order) =
        futures_block_on(async { futures::join!(unordered.collect::<Vec<_>>(), ordered.collect::<Vec<_>>()) });
    found.sort_unstable();
    let all: Vec<u8> = (0..30).collect();
    assert_eq!((found, in_order), (all.clone(), all));
    for name in ["in_an_unordered_set", "in_an_ordered_set"] {
        let calls = calls(name);
        assert_eq!((calls.len(), entries(name), closed(name)), (30, 30 * 4, 30));
        assert!(calls.iter().all(|span| figures(span).0 == "ok" && span.parent.is_none()));
    }
    assert_eq!(allocator.memory_allocated(), 0);
}

#[test]
fn the_branch_of_select_that_wins_and_the_one_that_loses() {
    #[track_memory(device = allocator)]
    async fn selected(allocator: CachingAllocator, waits: u32) -> u32 {
        let _kept = take(&allocator, 1);
        wait(waits).await;
        waits
    }
    let allocator = allocator();
    let value = futures_block_on(async {
        tokio::select! {
            biased;
            value = selected(allocator.clone(), 5) => value,
            value = selected(allocator.clone(), 2) => value,
        }
    });
    assert_eq!(value, 2);
    let value = futures_block_on(async {
        let (slow, quick) = (selected(allocator.clone(), 9), selected(allocator.clone(), 1));
        let (mut slow, mut quick) =
            (Box::pin(futures::FutureExt::fuse(slow)), Box::pin(futures::FutureExt::fuse(quick)));
        futures::select_biased! {
            value = slow => value,
            value = quick => value,
        }
    });
    assert_eq!(value, 1);
    let outcomes: Vec<_> = calls("selected").iter().map(|span| figures(span).0).collect();
    assert_eq!(outcomes, ["cancelled", "ok", "cancelled", "ok"]);
    assert_eq!(allocator.memory_allocated(), 0);
}

/// A loop that waits on a call through `select!` again and again does not restart it.
#[test]
fn a_call_that_is_waited_for_in_a_loop_of_selects() {
    waits_thrice!(waited_for_in_a_loop);
    let allocator = allocator();
    let (value, turns) = futures_block_on(async {
        let mut call = Box::pin(waited_for_in_a_loop(allocator.clone(), 4));
        let mut turns = 0;
        loop {
            tokio::select! {
                biased;
                value = &mut call => break (value, turns),
                () = wait(0) => turns += 1,
            }
            wait(1).await;
        }
    });
    assert_eq!((value, turns), (4, 3));
    assert_one_call("waited_for_in_a_loop", 4, 3);
}

/// Futures that are boxed, pinned on the stack, shared, or awaited through a reference.
#[test]
fn calls_behind_pointers() {
    waits_thrice!(behind_pointers);
    fn boxed(allocator: CachingAllocator) -> std::pin::Pin<Box<dyn Future<Output = u8> + Send>> {
        Box::pin(behind_pointers(allocator, 1))
    }
    let allocator = allocator();
    futures_block_on(async {
        let shared = futures::FutureExt::shared(boxed(allocator.clone()));
        let (a, b) = futures::join!(shared.clone(), shared);
        let mut pinned = std::pin::pin!(behind_pointers(allocator.clone(), 2));
        assert_eq!((a, b, pinned.as_mut().await), (1, 1, 2));
    });
    assert_eq!((calls("behind_pointers").len(), closed("behind_pointers")), (2, 2));
}

/// A panic in a task is the task's outcome, and its runtime goes on.
#[test]
fn a_task_that_panics() {
    #[track_memory(device = allocator)]
    async fn panicking_task(allocator: CachingAllocator) {
        let _kept = take(&allocator, 1);
        tokio::task::yield_now().await;
        panic!("on purpose");
    }
    waits_thrice!(after_the_panic);
    let allocator = allocator();
    on_several_threads().block_on(async {
        assert!(tokio::spawn(panicking_task(allocator.clone())).await.unwrap_err().is_panic());
        assert_eq!(tokio::spawn(after_the_panic(allocator.clone(), 1)).await.unwrap(), 1);
    });
    let [span] = &calls("panicking_task")[..] else { panic!() };
    assert_eq!(figures(span), ("panic".to_owned(), 0, KIB));
    assert_one_call("after_the_panic", 4, 3);
}

/// Measured calls that start tasks, inside measured calls: spans of tasks have no parent, those of awaited calls do.
#[test]
fn parents_of_awaited_and_of_spawned_calls() {
    #[track_memory(device = allocator)]
    async fn parent(allocator: CachingAllocator) {
        awaited_child(&allocator).await;
        tokio::spawn(spawned_child(allocator.clone())).await.unwrap();
        use tracing::Instrument as _;
        tokio::spawn(instrumented_child(allocator.clone()).in_current_span()).await.unwrap();
    }
    #[track_memory(device = allocator)]
    async fn awaited_child(allocator: &CachingAllocator) {
        let _kept = take(allocator, 1);
        wait(2).await;
    }
    #[track_memory(device = allocator)]
    async fn spawned_child(allocator: CachingAllocator) {
        wait(2).await;
    }
    #[track_memory(device = allocator)]
    async fn instrumented_child(allocator: CachingAllocator) {
        wait(2).await;
    }
    let allocator = allocator();
    on_several_threads().block_on(async { tokio::spawn(parent(allocator.clone())).await.unwrap() });
    let all = SPANS.all();
    let parent_of = |name: &str| {
        let parent = all.iter().find(|span| span.name == name).unwrap().parent;
        parent.map(|index| all[index].name)
    };
    let parents = ["parent", "awaited_child", "spawned_child", "instrumented_child"].map(parent_of);
    assert_eq!(parents, [None, Some("parent"), None, Some("parent")]);
}
