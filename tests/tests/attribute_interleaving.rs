//! Calls that are suspended: the memory of others who run meanwhile is not theirs.
//!
//! The bug class: a guard that stays entered across an await point charges the bytes of whatever the thread does next to
//! the suspended call. Whose bytes are whose shows in the rows of an epoch's summary, where each byte is booked under the
//! phase of the call that moved it; the figures of a span are the device's.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::phase::{EpochSummary, PhaseSummary};
use memtrack::scope::{OpenScope, Outcome};
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::memory::{Bench, figures};
use memtrack_tests::spans::Spans;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::channel;
use tokio::sync::Notify;

const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;

fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

/// Small blocks are cut to size from whatever is cached.
fn take_kib(allocator: &CachingAllocator, kibibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, kibibytes << 10).unwrap()
}

fn bench() -> Bench {
    Bench::with_allocator(CachingAllocator::new(Arc::new(Simulated::new())))
}

fn row<'a>(summary: &'a EpochSummary, phase: &str) -> &'a PhaseSummary {
    summary.phases.iter().find(|row| row.name == phase).unwrap_or_else(|| panic!("no row {}", phase))
}

/// Entered, allocated bytes in KiB, allocations, net bytes.
fn booked_kib(summary: &EpochSummary, phase: &str) -> (u64, u64, u64, i64) {
    let row = row(summary, phase);
    (row.entered_count, row.allocated_bytes >> 10, row.allocation_count, row.net_bytes)
}

/// As [`booked_kib`], in MiB.
fn booked(summary: &EpochSummary, phase: &str) -> (u64, u64, u64, i64) {
    let (entered, allocated_kib, allocations, net_bytes) = booked_kib(summary, phase);
    (entered, allocated_kib >> 10, allocations, net_bytes)
}

/// 100 MiB, an await, 50 MiB more, and both are freed.
#[track_memory(name = "a", phase = "a", device = allocator)]
async fn a(allocator: CachingAllocator) {
    let first = take(&allocator, 100);
    yield_now().await;
    let second = take(&allocator, 50);
    drop((first, second));
}

/// What runs while the other is suspended, and is measured by nobody.
fn b(allocator: &CachingAllocator) {
    drop(take(allocator, 200));
}

fn assert_a_was_charged_150_mib(spans: &Spans, summary: &EpochSummary, calls: u64) {
    let rows = ["a", "other"].map(|phase| booked(summary, phase));
    assert_eq!(rows, [(calls, 150 * calls, 2 * calls, 0), (0, 200, 1, 0)], "{summary}");
    assert!(summary.adds_up() && summary.net_bytes() == 0);
    let records: Vec<_> = spans.all().into_iter().filter(|span| span.name == "a").collect();
    assert_eq!(records.len() as u64, calls, "one record for each call");
    for span in &records {
        let (outcome, _, peak_delta_bytes) = figures(span);
        assert_eq!(outcome, "ok");
        assert!(peak_delta_bytes <= 300 * MIB, "the device's peak, by its own name");
    }
}

#[test]
fn guard_held_across_an_await_point() {
    let bench = bench();
    let epoch = memtrack::epoch(1);
    let mut suspended = pin!(a(bench.allocator.clone()));
    assert!(poll_once(suspended.as_mut()).is_pending());
    b(&bench.allocator);
    assert!(poll_once(suspended.as_mut()).is_ready());
    let summary = epoch.finish().unwrap();
    assert_a_was_charged_150_mib(&bench.spans, &summary, 1);
    assert_eq!(bench.call("a"), ("ok".to_owned(), 0, 300 * MIB), "the device's peak, by its own name");
}

#[test]
fn guard_held_across_an_await_point_and_resumed_on_another_thread() {
    let bench = bench();
    let (spans, allocator) = (bench.spans.clone(), bench.allocator.clone());
    let epoch = bench.allocator.epoch(1);
    let mut suspended = Box::pin(a(bench.allocator.clone()));
    assert!(poll_once(suspended.as_mut()).is_pending());
    let (go_on, turn) = channel();
    let other = std::thread::spawn(move || {
        let _installed = spans.install_here();
        // The untracked 200 MiB of that thread come before the call goes on there.
        b(&allocator);
        turn.recv().unwrap();
        assert!(poll_once(suspended.as_mut()).is_ready());
    });
    go_on.send(()).unwrap();
    other.join().unwrap();
    assert_a_was_charged_150_mib(&bench.spans, &epoch.finish().unwrap(), 1);
}

#[test]
fn guard_held_across_an_await_point_by_two_calls_at_once() {
    let bench = bench();
    let epoch = memtrack::epoch(1);
    let mut calls = [Box::pin(a(bench.allocator.clone())), Box::pin(a(bench.allocator.clone()))];
    for call in &mut calls {
        assert!(poll_once(call.as_mut()).is_pending());
    }
    // Not beside the two, so that the device's peak is theirs: 100, 100 and 50.
    for call in &mut calls {
        assert!(poll_once(call.as_mut()).is_ready());
    }
    b(&bench.allocator);
    let summary = epoch.finish().unwrap();
    assert_a_was_charged_150_mib(&bench.spans, &summary, 2);
    assert_eq!(row(&summary, "a").peak_bytes, 250 * MIB);
    // The device when each began and ended: the second began beside the first's 100 MiB, and the first ended beside the
    // second's.
    let deltas: Vec<_> = bench.spans.all().iter().map(|span| figures(span).1 / MIB).collect();
    assert_eq!(deltas, [100, -100]);
}

/// What `#[track_memory]` does at each poll, by hand, where the scope's own figures can be seen.
#[test]
fn guard_held_across_an_await_point_leaves_the_scopes_own_figures_alone() {
    let bench = bench();
    let scope = OpenScope::open(&bench.allocator, "a", Some("a"));
    let mut body = Box::pin(async {
        let first = take(&bench.allocator, 100);
        yield_now().await;
        drop((first, take(&bench.allocator, 50)));
    });
    let mut polls = pin!(poll_fn(|context| {
        let _attached = scope.attach();
        body.as_mut().poll(context)
    }));
    assert!(poll_once(polls.as_mut()).is_pending());
    b(&bench.allocator);
    assert!(poll_once(polls.as_mut()).is_ready());
    drop(body);
    let record = scope.close(Outcome::Ok);
    let own = (record.own_allocation_count, record.own_peak_bytes, record.own_delta_bytes);
    assert_eq!(own, (2, 150 * MIB, 0));
    assert_eq!((record.foreign_bytes, record.peak_delta_bytes()), (400 * MIB, 300 * MIB));
}

#[test]
fn two_tasks_that_take_turns_on_one_thread_own_their_own_bytes() {
    #[track_memory(name = "task", phase = "first", device = allocator)]
    async fn first(allocator: &CachingAllocator) -> Vec<Buffer<u8>> {
        let mut kept = Vec::new();
        for _ in 0..5 {
            kept.push(take_kib(allocator, 1));
            yield_now().await;
            drop(take_kib(allocator, 10));
        }
        kept
    }
    #[track_memory(name = "task", phase = "second", device = allocator)]
    async fn second(allocator: &CachingAllocator) -> Vec<Buffer<u8>> {
        let mut kept = Vec::new();
        for _ in 0..5 {
            kept.push(take_kib(allocator, 3));
            yield_now().await;
            inside(allocator);
        }
        kept
    }
    #[track_memory(device = allocator)]
    fn inside(allocator: &CachingAllocator) {
        drop(take_kib(allocator, 20));
    }
    let bench = bench();
    let epoch = memtrack::epoch(1);
    let kept = block_on(async {
        let turns = async {
            for _ in 0..5 {
                drop(take_kib(&bench.allocator, 100));
                yield_now().await;
            }
        };
        let (first, second, ()) = futures::join!(first(&bench.allocator), second(&bench.allocator), turns);
        (first, second)
    });
    let summary = epoch.finish().unwrap();
    let rows = ["first", "second", "other"].map(|phase| booked_kib(&summary, phase));
    assert_eq!(rows, [(1, 55, 10, 5 * KIB), (1, 115, 10, 15 * KIB), (0, 500, 5, 0)], "{summary}");
    let spans = bench.spans.all();
    let inside: Vec<_> = spans.iter().filter(|span| span.name == "inside").collect();
    assert!(inside.iter().all(|span| span.text("mem.phase") == "second" && span.number("mem.peak_delta") == 20 * KIB));
    assert_eq!(inside.len(), 5);
    // Both saw the device: what is there at the end, and the highest point, which was the turns'.
    for span in spans.iter().filter(|span| span.name == "task") {
        assert_eq!((figures(span).0.as_str(), span.number("mem.peak")), ("ok", 120 * KIB));
    }
    drop(kept);
}

/// A free is booked under the phase that frees, and never under the one that is suspended.
#[test]
fn what_another_task_frees_is_not_the_suspended_calls() {
    #[track_memory(phase = "makes", device = allocator)]
    async fn makes(allocator: &CachingAllocator, place: &std::cell::RefCell<Option<Buffer<u8>>>) {
        *place.borrow_mut() = Some(take(allocator, 7));
        yield_now().await;
        assert!(place.borrow().is_none(), "the other had its turn");
    }
    #[track_memory(phase = "frees", device = allocator)]
    async fn frees(allocator: &CachingAllocator, place: &std::cell::RefCell<Option<Buffer<u8>>>) {
        let _ = allocator;
        drop(place.borrow_mut().take());
        yield_now().await;
    }
    let bench = bench();
    let place = std::cell::RefCell::new(None);
    let epoch = memtrack::epoch(1);
    block_on(async {
        futures::join!(makes(&bench.allocator, &place), frees(&bench.allocator, &place));
    });
    let summary = epoch.finish().unwrap();
    let rows = ["makes", "frees", "other"].map(|phase| booked(&summary, phase));
    assert_eq!(rows, [(1, 7, 1, 7 * MIB), (1, 0, 0, -7 * MIB), (0, 0, 0, 0)], "{summary}");
    assert!(summary.adds_up());
}

/// Sends a future to the next thread of a ring after each poll, until it ends.
fn poll_on_many_threads(spans: &Spans, future: Pin<Box<dyn Future<Output = ()> + Send>>, threads: usize) -> usize {
    type Baton = Pin<Box<dyn Future<Output = ()> + Send>>;
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| channel::<Baton>()).unzip();
    let (polled, polls) = channel();
    std::thread::scope(|scope| {
        for receiver in receivers {
            let polled = polled.clone();
            scope.spawn(move || {
                let _installed = spans.install_here();
                for mut future in receiver {
                    let poll = poll_once(future.as_mut());
                    polled.send(poll.is_pending().then_some(future)).unwrap();
                }
            });
        }
        let mut baton = Some(future);
        for count in 0.. {
            match baton {
                Some(future) => senders[count % threads].send(future).unwrap(),
                None => {
                    drop(senders);
                    return count;
                }
            }
            baton = polls.recv().unwrap();
        }
        unreachable!("the loop returns")
    })
}

#[test]
fn a_task_that_changes_its_thread_at_every_poll_is_one_call() {
    #[track_memory(phase = "wanders", device = allocator)]
    async fn wanders(allocator: CachingAllocator) {
        let mut kept = Vec::new();
        for _ in 0..20 {
            kept.push(take(&allocator, 1));
            yield_now().await;
            inside(&allocator);
        }
        kept.truncate(5);
        yield_now().await;
    }
    #[track_memory(device = allocator)]
    fn inside(allocator: &CachingAllocator) {
        drop(take(allocator, 2));
    }
    let bench = bench();
    let epoch = memtrack::epoch(1);
    let polls = poll_on_many_threads(&bench.spans, Box::pin(wanders(bench.allocator.clone())), 3);
    let summary = epoch.finish().unwrap();
    assert_eq!(polls, 22);
    assert_eq!(booked(&summary, "wanders"), (1, 20 + 2 * 20, 40, 0), "{summary}");
    assert_eq!(booked(&summary, "other"), (0, 0, 0, 0));
    assert_eq!(bench.call("wanders"), ("ok".to_owned(), 0, 22 * MIB));
    let inside: Vec<_> = bench.spans.all().into_iter().filter(|span| span.name == "inside").collect();
    assert_eq!(inside.len(), 20);
    assert!(inside.iter().all(|span| span.text("mem.phase") == "wanders"), "the phase travels with the task");
    let entered = bench.spans.journal().iter().filter(|line| *line == "enter wanders").count();
    assert_eq!(entered, 22, "once for each poll");
}

/// On a runtime of two threads, where which one goes on is the runtime's choice.
#[test]
fn two_worker_threads() {
    #[track_memory(name = "a", phase = "a", device = allocator)]
    async fn a(allocator: CachingAllocator, suspended: Arc<Notify>, go_on: Arc<Notify>) {
        let first = take(&allocator, 100);
        suspended.notify_one();
        go_on.notified().await;
        let second = take(&allocator, 50);
        drop((first, second));
    }
    let bench = bench();
    let epoch = bench.allocator.epoch(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        for _ in 0..50 {
            let (suspended, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let call = tokio::spawn(a(bench.allocator.clone(), Arc::clone(&suspended), Arc::clone(&go_on)));
            let allocator = bench.allocator.clone();
            let other = tokio::spawn(async move {
                suspended.notified().await;
                b(&allocator);
                go_on.notify_one();
            });
            call.await.unwrap();
            other.await.unwrap();
        }
    });
    let summary = epoch.finish().unwrap();
    let rows = ["a", "other"].map(|phase| booked(&summary, phase));
    assert_eq!(rows, [(50, 150 * 50, 2 * 50, 0), (0, 200 * 50, 50, 0)], "{summary}");
    assert_eq!(summary.peak_bytes, 300 * MIB);
}
