//! Without the feature `track` the attribute returns its item as it is: it reads no option, and nothing is measured.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memtrack::device::Host;
use memtrack::{Buffer, CachingAllocator, track_memory, track_memory_block};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};

/// No build with the feature lets any of these pass.
#[track_memory(no such option = at all, max_peak = "2G")]
const fn constant() -> u32 {
    7
}

#[track_memory(phase = "forward", max_allocs = 0, on_exceed = "panic")]
fn allocates(allocator: &CachingAllocator) -> Buffer<u8> {
    Buffer::uninit(allocator, 1000).unwrap_or_else(|error| panic!("{error}"))
}

struct Model;

#[track_memory]
impl Model {
    #[track_memory(skip)]
    fn left_out(&self) -> u32 {
        1
    }

    fn included(&self) -> u32 {
        2
    }
}

#[track_memory]
trait Named {
    fn name(&self) -> &'static str;
}

impl Named for Model {
    fn name(&self) -> &'static str {
        "model"
    }
}

impl fmt::Display for Model {
    #[track_memory]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A block is left alone too, and may then even stand in a constant.
const BLOCK: u32 = track_memory_block!(no such option = at all, { 3 });

/// And the type that is wanted of it reaches its last expression.
fn closure() -> impl Fn(&str) -> &str {
    track_memory_block!("closure", max_peak = 0, { |text| text })
}

struct Counts(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Counts {
    fn on_new_span(&self, _: &tracing::span::Attributes<'_>, _: &tracing::span::Id, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn items_are_left_as_they_are() {
    const CONSTANT: u32 = constant();
    let heard = Arc::new(AtomicUsize::new(0));
    let allocator = CachingAllocator::new(Arc::new(Host::new()));
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    let figures = tracing::subscriber::with_default(Registry::default().with(Counts(Arc::clone(&heard))), || {
        let kept = allocates(&allocator);
        let block = track_memory_block!("block", phase = "forward", { constant() + 1 });
        assert_eq!((BLOCK, block), (3, 8));
        assert_eq!(closure()("text"), "text");
        (CONSTANT, Model.left_out(), Model.included(), Model.to_string(), kept.len())
    });
    assert_eq!(figures, (7, 1, 2, "model".to_owned(), 1000));
    assert_eq!(heard.load(Ordering::Relaxed), 0, "no span and no event");
    let summary = epoch.finish().expect("phases and epochs do not depend on the feature");
    let forward = summary.phases.iter().find(|phase| phase.name == "forward");
    assert!(forward.is_none_or(|phase| phase.entered_count == 0), "{forward:?}");
}
