//! Measuring turned off, and no allocator to measure. Both are states of the whole process, so this is one test.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Counts warnings that nothing is measured.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
        if *event.metadata().level() == tracing::Level::WARN {
            assert_eq!(event.metadata().target(), "memtrack");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn nothing_is_measured() {
    let epoch = memtrack::epoch(1);
    let step = memtrack::step(1);
    let phase = memtrack::phase("forward");
    assert!(memtrack::scope("scope").is_none());
    assert!(phase.finish().is_none());
    assert!(step.finish().is_none());
    assert!(epoch.finish().is_none());
}

fn something_is_measured() -> bool {
    let epoch = memtrack::epoch(2);
    let phase = memtrack::phase("forward");
    let measured = memtrack::scope("scope").is_some();
    assert_eq!(phase.finish().is_some(), measured);
    assert_eq!(epoch.finish().is_some(), measured);
    measured
}

#[test]
fn without_an_allocator_or_switched_off_guards_do_nothing() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(warnings.clone()));

    assert!(memtrack::enabled());
    assert!(memtrack::current().is_none());
    nothing_is_measured();
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1, "said once, however often it happens");

    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    memtrack::set_default(&allocator);
    assert!(memtrack::current().unwrap().is_same(&allocator));
    assert!(something_is_measured());
    std::thread::spawn(|| assert!(something_is_measured())).join().unwrap();

    // Made current here, another one counts; here only, and until the guard goes.
    let another = CachingAllocator::new(Arc::new(Simulated::new()));
    let (outer, inner) = (another.make_current(), allocator.make_current());
    assert!(memtrack::current().unwrap().is_same(&allocator));
    drop(outer);
    assert!(memtrack::current().unwrap().is_same(&allocator), "the one made current last, whatever ends first");
    drop(inner);
    let _current = another.make_current();
    assert!(memtrack::current().unwrap().is_same(&another));
    std::thread::scope(|threads| {
        threads.spawn(|| assert!(memtrack::current().unwrap().is_same(&allocator)));
    });

    // What is open when measuring is turned off is measured to its end.
    let scope = memtrack::scope("open before").unwrap();
    let epoch = memtrack::epoch(3);
    memtrack::set_enabled(false);
    nothing_is_measured();
    let kept = Buffer::<u8>::uninit(&another, 1000).unwrap();
    assert_eq!(scope.close(memtrack::scope::Outcome::Ok).delta_bytes(), 1024);
    assert_eq!(epoch.finish().unwrap().net_bytes(), 1024);
    assert_eq!(another.memory_allocated(), 1024, "statistics go on");
    memtrack::set_enabled(true);
    assert!(something_is_measured());

    memtrack::clear_default();
    drop((_current, kept));
    assert!(memtrack::current().is_none());
    nothing_is_measured();
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
}
