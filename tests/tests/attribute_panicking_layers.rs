//! A tracing layer that panics: its panic can be caught like any other, and what the call did is recorded once.

use memtrack::device::Host;
use memtrack::{CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tracing::Subscriber;
use tracing::span::{Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// Counts, and panics where it is told to.
#[derive(Clone, Default)]
struct Panicking {
    entered: Arc<AtomicU32>,
    records: Arc<AtomicU32>,
    at_record: bool,
    /// At which entry to panic, and at every later one. None of them if 0.
    from_entry: u32,
    at_exit: bool,
}

/// A payload whose own destructor panics.
struct Spiteful;

impl Drop for Spiteful {
    fn drop(&mut self) {
        panic!("the layer's payload");
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Panicking {
    fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {
        self.records.fetch_add(1, Ordering::Relaxed);
        if self.at_record {
            panic_any(Spiteful);
        }
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        let entry = self.entered.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(self.from_entry == 0 || entry < self.from_entry, "the layer, at an entry");
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        assert!(!self.at_exit, "the layer, at an exit");
    }
}

impl Panicking {
    fn at_record() -> Self {
        Self { at_record: true, ..Self::default() }
    }

    fn install(&self) -> (DefaultGuard, memtrack::Current) {
        let guard = tracing::subscriber::set_default(Registry::default().with(self.clone()));
        (guard, CachingAllocator::new(Arc::new(Host::new())).make_current())
    }

    fn records(&self) -> u32 {
        self.records.load(Ordering::Relaxed)
    }
}

fn panics(call: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(()) => false,
        Err(payload) => {
            std::mem::forget(payload);
            true
        }
    }
}

#[track_memory]
fn returns() -> u32 {
    3
}

#[track_memory(err)]
fn fails() -> Result<u32, String> {
    Err("told".to_owned())
}

#[track_memory]
fn unwinds() {
    panic!("told");
}

#[track_memory]
async fn returns_later() -> u32 {
    yield_now().await;
    3
}

#[track_memory(err)]
async fn fails_later() -> Result<u32, String> {
    yield_now().await;
    Err("told".to_owned())
}

#[track_memory]
async fn unwinds_later() {
    yield_now().await;
    panic!("told");
}

/// Calls of each kind that come to their end.
const CALLS_THAT_RETURN: [(&str, fn()); 4] = [
    ("sync", || assert_eq!(returns(), 3)),
    ("sync with err", || assert!(fails().is_err())),
    ("async", || assert_eq!(block_on(returns_later()), 3)),
    ("async with err", || assert!(block_on(fails_later()).is_err())),
];

#[test]
fn a_panic_in_recording_leaves_the_call_once() {
    for (name, call) in CALLS_THAT_RETURN {
        let layer = Panicking::at_record();
        let _installed = layer.install();
        assert!(panics(call), "{}", name);
        assert_eq!(layer.records(), 1, "{name}");
    }
}

#[test]
fn a_panic_in_recording_and_another_at_the_exit_end_as_one() {
    for (name, call) in CALLS_THAT_RETURN {
        let layer = Panicking { at_exit: true, ..Panicking::at_record() };
        let _installed = layer.install();
        assert!(panics(call), "{}", name);
        assert_eq!(layer.records(), 1, "{name}");
    }
}

#[test]
fn a_panic_in_recording_does_not_replace_the_bodys() {
    let calls: [(&str, fn()); 2] = [("sync", unwinds), ("async", || block_on(unwinds_later()))];
    for (name, call) in calls {
        let layer = Panicking::at_record();
        let _installed = layer.install();
        let payload = catch_unwind(call).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"told"), "{name}");
        assert_eq!(layer.records(), 1, "{name}");
    }
}

#[test]
fn a_future_whose_recording_panicked_can_be_kept_and_dropped() {
    let layer = Panicking::at_record();
    let _installed = layer.install();
    let mut future = Box::pin(returns_later());
    assert!(poll_once(future.as_mut()).is_pending());
    assert!(panics(|| assert!(poll_once(future.as_mut()).is_ready())));
    drop(future);
    assert_eq!(layer.records(), 1);
}

#[test]
fn a_panic_in_recording_a_cancelled_future_leaves_its_drop() {
    let layer = Panicking::at_record();
    let _installed = layer.install();
    let mut future = Box::pin(returns_later());
    assert!(poll_once(future.as_mut()).is_pending());
    assert!(panics(|| drop(future)));
    assert_eq!(layer.records(), 1);
}

#[test]
fn a_future_cancelled_by_another_panic_is_recorded_once() {
    let layer = Panicking::at_record();
    let _installed = layer.install();
    let payload = catch_unwind(|| {
        let mut future = pin!(returns_later());
        assert!(poll_once(future.as_mut()).is_pending());
        panic!("told");
    })
    .unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"told"));
    assert_eq!(layer.records(), 1);
}

#[test]
fn a_panic_at_an_entry_is_not_met_again_while_unwinding() {
    // The first poll enters once, the second panics there, and the drop would enter a third time.
    let layer = Panicking { from_entry: 2, ..Panicking::default() };
    let _installed = layer.install();
    assert!(panics(|| assert_eq!(block_on(returns_later()), 3)));
    assert_eq!((layer.entered.load(Ordering::Relaxed), layer.records()), (3, 1));
}

#[test]
fn a_panic_at_the_exit_of_a_call_that_unwinds_does_not_replace_the_bodys() {
    let layer = Panicking { at_exit: true, ..Panicking::default() };
    let _installed = layer.install();
    let payload = catch_unwind(unwinds).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"told"));
    assert_eq!(layer.records(), 1);
}

#[test]
fn a_panic_at_the_exit_of_a_poll_that_unwinds_does_not_replace_the_bodys() {
    #[track_memory]
    async fn f() {
        std::future::ready(()).await;
        panic!("told");
    }
    let layer = Panicking { at_exit: true, ..Panicking::default() };
    let _installed = layer.install();
    let payload = catch_unwind(|| memtrack_tests::futures::block_on(f())).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"told"));
    assert_eq!(layer.records(), 1);
}
