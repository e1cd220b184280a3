//! Calls on several threads at once: each is one record with exact figures, whatever overlaps.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{Driven, block_on, drive, wait, yield_now};
use memtrack_tests::memory::figures;
use memtrack_tests::spans::Spans;
use std::cell::RefCell;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

const KIB: i64 = 1 << 10;

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

fn take(allocator: &CachingAllocator, kibibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, kibibytes << 10).unwrap()
}

#[test]
fn overlapping_calls_of_two_threads_have_exact_peaks() {
    // At every barrier one of the two has moved on: the order of events is fixed.
    #[track_memory(device = allocator)]
    fn first(allocator: &CachingAllocator, turn: &Barrier) {
        let kept = take(allocator, 100);
        turn.wait(); // 1: live 100
        turn.wait(); // 2: the other began and took 50: 150
        drop(kept); // 50
        turn.wait(); // 3
    }
    #[track_memory(device = allocator)]
    fn second(allocator: &CachingAllocator, turn: &Barrier) {
        let kept = take(allocator, 50);
        turn.wait(); // 2
        turn.wait(); // 3
        turn.wait(); // 4: the other has ended
        drop(take(allocator, 70)); // 120
        drop(kept);
    }
    let (spans, allocator, turn) = (Spans::default(), allocator(), Barrier::new(2));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _installed = spans.install_here();
            first(&allocator, &turn);
            turn.wait(); // 4
        });
        threads.spawn(|| {
            let _installed = spans.install_here();
            turn.wait(); // 1
            second(&allocator, &turn);
        });
    });
    let numbers = |name: &str| {
        let span = spans.one(name);
        ["before", "after", "peak", "allocs", "frees"].map(|field| span.number(&format!("mem.{field}")))
    };
    assert_eq!(numbers("first"), [0, 50 * KIB, 150 * KIB, 2, 1]);
    assert_eq!(numbers("second"), [100 * KIB, 0, 150 * KIB, 2, 3]);
}

/// Every call of every thread is recorded, and the books balance.
#[test]
fn many_threads_at_once() {
    const THREADS: usize = 8;
    const CALLS: usize = 200;
    #[track_memory(device = allocator, phase = "outer")]
    fn outer(allocator: &CachingAllocator, n: usize) -> Result<usize, usize> {
        let kept = take(allocator, 1 + n % 3);
        inner(allocator, kept).map_err(|error| error + 1)
    }
    #[track_memory(device = allocator, phase = "inner", err)]
    fn inner(allocator: &CachingAllocator, argument: Buffer<u8>) -> Result<usize, usize> {
        drop(take(allocator, 2));
        if argument.len() > 1 << 10 { Ok(argument.len()) } else { Err(argument.len()) }
    }
    let (spans, allocator) = (Spans::default(), allocator());
    let epoch = allocator.epoch(1);
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                let _installed = spans.install_here();
                for n in 0..CALLS {
                    let _ = outer(&allocator, n);
                }
            });
        }
    });
    let summary = epoch.finish().unwrap();
    let spans = spans.all();
    let (outer, inner): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.name == "outer");
    assert_eq!((outer.len(), inner.len()), (THREADS * CALLS, THREADS * CALLS));
    let errors = inner.iter().filter(|span| figures(span).0 == "err").count();
    assert_eq!(errors, THREADS * CALLS.div_ceil(3));
    assert!(outer.iter().all(|span| figures(span).0 == "ok"));
    for span in &spans {
        let (before, after, peak) = (span.number("mem.before"), span.number("mem.after"), span.number("mem.peak"));
        assert!(peak >= before.max(after) && before.min(after) >= 0, "{span:?}");
        assert_eq!(span.number("mem.delta"), after - before);
        assert_eq!(span.number("mem.peak_delta"), peak - before);
        assert!(peak <= (THREADS * 5) as i64 * KIB, "no more than all threads' at once");
    }
    let entered: Vec<_> = summary.phases.iter().map(|row| (row.name, row.entered_count)).collect();
    let calls = (THREADS * CALLS) as u64;
    assert_eq!(entered, [("outer", calls), ("inner", calls), ("other", 0)]);
    assert!(summary.adds_up() && summary.net_bytes() == 0);
}

/// A call is measured where it is polled, however many threads drop what it made.
#[test]
fn memory_freed_on_another_thread_during_the_call() {
    #[track_memory(device = allocator)]
    fn f(allocator: &CachingAllocator) {
        let (sender, receiver) = channel::<Buffer<u8>>();
        std::thread::scope(|threads| {
            threads.spawn(move || receiver.iter().for_each(drop));
            for _ in 0..10 {
                sender.send(take(allocator, 3)).unwrap();
            }
            drop(sender);
        });
    }
    let (spans, _installed) = Spans::install();
    f(&allocator());
    let span = spans.one("f");
    assert_eq!((figures(&span).1, span.number("mem.allocs"), span.number("mem.frees")), (0, 10, 10));
}

/// Calls a measured function, and polls a measured future, when its thread's locals are destroyed.
struct AtExit(RefCell<Option<(CachingAllocator, Spans)>>);

impl Drop for AtExit {
    fn drop(&mut self) {
        #[track_memory(device = allocator)]
        fn late(allocator: &CachingAllocator) -> usize {
            take(allocator, 1).len()
        }
        #[track_memory(device = allocator, phase = "late")]
        async fn late_async(allocator: &CachingAllocator) -> usize {
            wait(1).await;
            take(allocator, 1).len()
        }
        let (allocator, _spans) = self.0.take().unwrap();
        assert_eq!(late(&allocator), 1 << 10);
        // Pending only where the body is: an executor would wait for ever for a wake that nobody gives.
        let (length, driven) = drive(late_async(&allocator));
        assert_eq!((length, driven), (1 << 10, Driven { polls: 2, wakes: 1 }));
        assert_eq!(allocator.memory_allocated(), 0);
    }
}

thread_local! {
    static AT_EXIT: AtExit = const { AtExit(RefCell::new(None)) };
}

/// A panic in the destructor of a thread-local would end the process.
#[test]
fn calls_while_a_threads_locals_are_destroyed() {
    let (spans, allocator) = (Spans::default(), allocator());
    let handle = (allocator.clone(), spans.clone());
    let thread = std::thread::spawn(move || {
        // First of all, so that it is destroyed last.
        AT_EXIT.with(|at_exit| *at_exit.0.borrow_mut() = Some(handle.clone()));
        let _installed = handle.1.install_here();
        #[track_memory(device = allocator)]
        async fn usual(allocator: &CachingAllocator) {
            yield_now().await;
            drop(take(allocator, 2));
        }
        block_on(usual(&handle.0));
    });
    thread.join().unwrap();
    assert_eq!(figures(&spans.one("usual")), ("ok".to_owned(), 0, 2 * KIB));
    assert_eq!(allocator.memory_stats().allocation.all.allocated, 3, "the late ones ran");
}
