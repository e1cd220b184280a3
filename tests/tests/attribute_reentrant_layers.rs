//! A layer that uses memtrack inside its callbacks: memtrack calls a subscriber with no lock of its own held, so whatever
//! the layer asks is answered, and what it does itself is not booked for the call that it hears of.
//!
//! The bug class: an event that is emitted under the allocator's lock stops the program when a layer asks for statistics.
//!
//! Left out are `enabled` and `register_callsite`: tracing calls them with locks of its own held, under which no call site
//! can be met for the first time.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::{Fault, Operation, Simulated};
use memtrack::phase::EpochSummary;
use memtrack::scope::{Outcome, Scope};
use memtrack::{Buffer, CachingAllocator, PinnedAllocator, PinnedBuffer, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::memory::figures;
use memtrack_tests::spans::{Spans, keep_interests_right};
use memtrack_tests::watchdog::within_patience;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// Uses everything of memtrack that takes a lock, in every callback.
#[derive(Clone)]
struct Asking {
    allocator: CachingAllocator,
    /// How often in which callback.
    asked: Arc<Mutex<BTreeMap<String, u32>>>,
}

thread_local! {
    /// Whether this thread is asking already: what the layer does makes spans and events too.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    /// Pinned memory that is asked for too.
    static PINNED: RefCell<Option<PinnedAllocator>> = const { RefCell::new(None) };
}

impl Asking {
    fn ask(&self, callback: &str) {
        if BUSY.replace(true) {
            return;
        }
        *self.asked.lock().unwrap().entry(callback.to_owned()).or_default() += 1;
        let allocator = &self.allocator;
        assert_eq!(memtrack::memory_stats().num_ooms, allocator.memory_stats().num_ooms);
        assert!(!memtrack::memory_summary(true).is_empty());
        assert!(!memtrack::memory_summary(false).is_empty());
        memtrack::reset_peak_memory_stats();
        let _ = (memtrack::memory_allocated(), memtrack::max_memory_reserved(), memtrack::mem_get_info().unwrap());
        let _ = (allocator.config(), allocator.limit_bytes(), allocator.get_per_process_memory_fraction());
        let buffer = Buffer::<u8>::uninit(allocator, 512).unwrap();
        let scope = Scope::open(allocator, "the layer's", None);
        let by_function = memtrack::scope("the layer's, too");
        drop(Buffer::<u8>::uninit(allocator, 1024).unwrap());
        drop(by_function);
        assert_eq!(scope.close(Outcome::Ok).own_allocation_count, 1);
        drop(memtrack::phase("the layer's"));
        drop(memtrack::step(99));
        drop(buffer);
        drop(allocator.snapshot());
        drop(memtrack::current());
        measured(allocator);
        block_on(measured_async(allocator));
        memtrack::empty_cache().unwrap();
        PINNED.with_borrow(|pinned| {
            if let Some(pinned) = pinned {
                let _ = pinned.host_memory_stats();
                drop(PinnedBuffer::<u8>::uninit(pinned, 10).unwrap());
                pinned.empty_cache().unwrap();
            }
        });
        BUSY.set(false);
    }
}

#[track_memory(name = "the layer's call", device = allocator, level = "trace")]
fn measured(allocator: &CachingAllocator) {
    drop(Buffer::<u8>::uninit(allocator, 512).unwrap());
}

#[track_memory(name = "the layer's call", device = allocator, level = "trace")]
async fn measured_async(allocator: &CachingAllocator) {
    yield_now().await;
    drop(Buffer::<u8>::uninit(allocator, 512).unwrap());
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Asking {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.ask("new span");
    }
    fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {
        self.ask("record");
    }
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.ask(&format!("event {}", event.metadata().target()));
    }
    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        self.ask("enter");
    }
    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        self.ask("exit");
    }
    fn on_close(&self, _: Id, _: Context<'_, S>) {
        self.ask("close");
    }
}

/// Runs `work` under a layer that asks, with a recorder beside it. Gives what was recorded, and in which callbacks the layer
/// asked.
fn asking(
    what: &'static str,
    allocator: &CachingAllocator,
    work: impl FnOnce(&CachingAllocator) + Send + 'static,
) -> (Spans, BTreeMap<String, u32>) {
    keep_interests_right();
    let asking = Asking { allocator: allocator.clone(), asked: Arc::default() };
    let (spans, asked, allocator) = (Spans::default(), Arc::clone(&asking.asked), allocator.clone());
    let subscriber = Registry::default().with(spans.clone()).with(asking);
    within_patience(what, move || {
        let _current = allocator.make_current();
        tracing::subscriber::with_default(subscriber, || work(&allocator));
    });
    let asked = asked.lock().unwrap().clone();
    (spans, asked)
}

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

#[track_memory(name = "call", phase = "forward")]
fn call(allocator: &CachingAllocator) -> usize {
    Buffer::<u8>::uninit(allocator, 4096).unwrap().len()
}

#[track_memory(name = "call", phase = "forward", err)]
async fn call_async(allocator: &CachingAllocator) -> Result<(), usize> {
    let kept = Buffer::<u8>::uninit(allocator, 4096).unwrap();
    yield_now().await;
    Err(kept.len())
}

#[track_memory(name = "call", phase = "forward")]
fn call_that_panics(allocator: &CachingAllocator) {
    let _kept = Buffer::<u8>::uninit(allocator, 4096).unwrap();
    panic!("on purpose");
}

/// Every callback that a call leads to is one in which memtrack can be used.
#[test]
fn statistics_are_answered_in_every_callback_of_a_call() {
    type Way = (&'static str, fn(&CachingAllocator), &'static str, u32);
    let ways: [Way; 4] = [
        ("a call", |allocator| assert_eq!(call(allocator), 4096), "ok", 1),
        ("an async call", |allocator| assert_eq!(block_on(call_async(allocator)), Err(4096)), "err", 2),
        ("a panic", |allocator| assert!(catch_unwind(|| call_that_panics(allocator)).is_err()), "panic", 1),
        (
            "a cancelled call",
            |allocator| {
                let mut future = Box::pin(call_async(allocator));
                assert!(poll_once(future.as_mut()).is_pending());
            },
            "cancelled",
            2,
        ),
    ];
    for (what, work, outcome, entries) in ways {
        let allocator = allocator();
        let (spans, asked) = asking(what, &allocator, work);
        let expected = [("new span", 1), ("enter", entries), ("exit", entries), ("record", 1), ("close", 1)];
        let expected: BTreeMap<_, _> = expected.map(|(callback, times)| (callback.to_owned(), times)).into();
        assert_eq!(asked, expected, "{what}");
        let (found, delta_bytes, _) = figures(&spans.one("call"));
        assert_eq!((found.as_str(), delta_bytes), (outcome, 0), "{what}");
        let stats = allocator.memory_stats();
        assert_eq!((stats.allocated_bytes.all.current, stats.reserved_bytes.all.current), (0, 0), "{what}");
    }
}

/// What the layer allocates in the callbacks of a call is not the call's: its scope opens after it was entered, and closes
/// before it is recorded on.
#[test]
fn the_layers_own_memory_is_not_booked_for_the_call() {
    let allocator = allocator();
    let (spans, _) = asking("a call", &allocator, |allocator| {
        call(allocator);
    });
    let span = spans.one("call");
    let counts = ["mem.allocs", "mem.frees", "mem.peak_delta"].map(|field| span.number(field));
    assert_eq!(counts, [1, 1, 4096], "neither in the figures of a call that runs through");

    // Between its polls an async call sees the device, the layer's doings too; its phase has only its own.
    let row = |summary: &EpochSummary, name: &str| {
        let row = summary.phases.iter().find(|row| row.name == name).unwrap();
        (row.entered_count, row.allocation_count, row.allocated_bytes, row.net_bytes)
    };
    let (sender, summary) = std::sync::mpsc::channel();
    asking("an async call", &allocator, move |allocator| {
        let epoch = memtrack::epoch(1);
        let _ = block_on(call_async(allocator));
        call(allocator);
        sender.send(epoch.finish().unwrap()).unwrap();
    });
    let summary = summary.recv().unwrap();
    assert_eq!(row(&summary, "forward"), (2, 2, 2 * 4096, 0), "{summary}");
    assert!(row(&summary, "other").1 > 0, "the layer's: {summary}");
    assert!(summary.adds_up());
}

/// Out of memory and retry, pinned memory's retry, an epoch with its phases, a snapshot without a history, and what an
/// allocator says when it ends: each event comes when statistics can be asked for.
#[test]
fn statistics_are_answered_in_every_event() {
    #[track_memory(name = "call", err)]
    fn too_much(allocator: &CachingAllocator) -> Result<Buffer<u8>, memtrack::AllocationError> {
        Buffer::uninit(allocator, 64 << 20)
    }
    let device = Arc::new(Simulated::with_capacity(32 << 20));
    let allocator = CachingAllocator::new(device);
    drop(Buffer::<u8>::uninit(&allocator, 16 << 20).unwrap());
    let (spans, asked) = asking("an out of memory", &allocator, |allocator| {
        // Retried and served, then refused.
        drop(Buffer::<u8>::uninit(allocator, 24 << 20).unwrap());
        assert!(too_much(allocator).is_err());
    });
    assert_eq!(figures(&spans.one("call")).0, "err");
    assert_eq!((asked["event memtrack::alloc_retry"], asked["event memtrack::oom"]), (2, 1), "{asked:?}");

    let (_, asked) = asking("an epoch", &allocator, |allocator| {
        let epoch = memtrack::epoch(1);
        let step = memtrack::step(1);
        let phase = memtrack::phase("forward");
        call(allocator);
        drop(phase);
        drop(step);
        // Of this layer's own phase there is a row too.
        assert_eq!(epoch.finish().unwrap().phases.len(), 3);
    });
    assert_eq!((asked["event memtrack::epoch"], asked["event memtrack::phase"]), (1, 3), "{asked:?}");

    let (_, asked) = asking("an epoch that is dropped in a panic", &allocator, |allocator| {
        let unwound = catch_unwind(|| {
            let _epoch = allocator.epoch(2);
            call_that_panics(allocator);
        });
        assert!(unwound.is_err());
    });
    assert_eq!(asked["event memtrack::epoch"], 1);

    let (_, asked) = asking("a snapshot", &allocator, |allocator| {
        let path = std::env::temp_dir().join(format!("memtrack-reentrant-{}.pickle", std::process::id()));
        allocator.dump_snapshot(&path).unwrap();
        std::fs::remove_file(path).unwrap();
    });
    assert_eq!(asked["event memtrack::snapshot"], 1, "{asked:?}");

    let (_, asked) = asking("pinned memory that runs out", &allocator, |_| {
        let device = Arc::new(Simulated::new());
        let pinned = PinnedAllocator::new(device.clone()).unwrap();
        PINNED.set(Some(pinned.clone()));
        device.inject(Fault::OutOfMemory { operation: Operation::AllocatePinned, nth: 0 });
        drop(PinnedBuffer::<u8>::uninit(&pinned, 1000).unwrap());
        // The last handle's end, of which nobody can ask the allocator any more.
        device.inject(Fault::Driver { operation: Operation::ReleasePinned, nth: 0 });
        drop((PINNED.take(), pinned));
    });
    let pinned = (asked["event memtrack::alloc_retry"], asked["event memtrack::pinned"]);
    assert_eq!(pinned, (1, 1), "{asked:?}");

    let (_, asked) = asking("the end of an allocator", &allocator, |_| {
        let device = Arc::new(Simulated::new());
        let other = CachingAllocator::new(device.clone());
        drop(Buffer::<u8>::uninit(&other, 1024).unwrap());
        device.inject(Fault::Driver { operation: Operation::Release, nth: 0 });
        drop(other);
    });
    assert_eq!(asked["event memtrack::allocator"], 1, "{asked:?}");
}
