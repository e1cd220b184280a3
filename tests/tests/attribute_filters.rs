//! Filters of a subscriber decide what is shown, and nothing of what is counted.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use memtrack::device::Simulated;
use memtrack::phase::EpochSummary;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use memtrack_tests::memory::figures;
use memtrack_tests::spans::{Spans, keep_interests_right};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::{EnvFilter, Targets, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

fn take(allocator: &CachingAllocator, kibibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, kibibytes << 10).unwrap()
}

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

/// Runs `work` with an allocator under a subscriber.
fn under<T>(subscriber: impl Subscriber + Send + Sync, work: impl FnOnce(&CachingAllocator) -> T) -> T {
    keep_interests_right();
    let allocator = allocator();
    let _current = allocator.make_current();
    tracing::subscriber::with_default(subscriber, || work(&allocator))
}

fn env(directives: &str) -> EnvFilter {
    EnvFilter::builder().parse(directives).unwrap()
}

/// The names of the recorded spans, each of which was recorded on once.
fn recorded(spans: &Spans) -> Vec<&'static str> {
    let all = spans.all();
    all.iter().for_each(|span| assert_eq!(figures(span).0, "ok"));
    all.iter().map(|span| span.name).collect()
}

#[track_memory(name = "load", target = "data::loader", level = "debug")]
fn load(allocator: &CachingAllocator) {
    drop(take(allocator, 1));
}

#[track_memory(name = "forward", target = "model::layers")]
fn forward(allocator: &CachingAllocator) {
    attention(allocator, 3);
}

#[track_memory(name = "attention", target = "model::layers::attention", level = "trace", fields(heads = heads))]
fn attention(allocator: &CachingAllocator, heads: i64) {
    drop(take(allocator, 2));
}

#[track_memory(name = "step", target = "model", level = "warn")]
async fn step(allocator: &CachingAllocator) {
    yield_now().await;
    forward(allocator);
}

#[test]
fn directives_choose_by_target_name_level_and_field() {
    for (directives, expected) in [
        ("off", &[][..]),
        ("error", &[][..]),
        ("warn", &["step"][..]),
        ("info", &["step", "forward"][..]),
        ("debug", &["load", "step", "forward"][..]),
        ("trace", &["load", "step", "forward", "attention", "attention"][..]),
        // By target and what lies below it; the longest one counts.
        ("data=debug", &["load"][..]),
        ("data::loader=info", &[][..]),
        ("model=info", &["step", "forward"][..]),
        ("model::layers=trace,data=off", &["forward", "attention", "attention"][..]),
        ("info,model::layers=off", &["step"][..]),
        ("trace,model::layers::attention=off", &["load", "step", "forward"][..]),
        // By the span's name: the span itself and what happens inside it.
        ("[load]=debug", &["load"][..]),
        ("model::layers[forward]=trace", &["forward", "attention"][..]),
        ("[step]=trace", &["step", "forward", "attention"][..]),
        // By a field that it has.
        ("[attention{heads}]=trace", &["attention", "attention"][..]),
        ("[attention{tails}]=trace", &[][..]),
    ] {
        let spans = Spans::default();
        under(Registry::default().with(env(directives)).with(spans.clone()), |allocator| {
            load(allocator);
            block_on(step(allocator));
            attention(allocator, 4);
        });
        assert_eq!(recorded(&spans), expected, "{directives}");
    }
}

/// Two layers, each with a filter of its own: a call that one of them hears is measured, and only that one hears of it.
#[test]
fn filters_of_single_layers() {
    let (all, coarse, data, named) = (Spans::default(), Spans::default(), Spans::default(), Spans::default());
    let only_data = Targets::new().with_target("data", Level::TRACE);
    let only_steps = filter_fn(|metadata| metadata.name() == "step");
    let subscriber = Registry::default()
        .with(all.clone().with_filter(LevelFilter::TRACE))
        .with(coarse.clone().with_filter(LevelFilter::INFO))
        .with(data.clone().with_filter(only_data))
        .with(named.clone().with_filter(only_steps));
    under(subscriber, |allocator| {
        load(allocator);
        block_on(step(allocator));
    });
    assert_eq!(recorded(&all), ["load", "step", "forward", "attention"]);
    assert_eq!(recorded(&coarse), ["step", "forward"]);
    assert_eq!(recorded(&data), ["load"]);
    assert_eq!(recorded(&named), ["step"]);
    let figures_of = |spans: &Spans| figures(&spans.one("step"));
    assert_eq!([&coarse, &named].map(figures_of), [figures_of(&all), figures_of(&all)]);
    // A parent that a layer does not see is skipped, not replaced.
    assert_eq!((all.one("attention").parent, coarse.one("forward").parent), (Some(2), Some(0)));
}

#[test]
fn a_filter_that_is_reloaded_between_and_during_calls() {
    let spans = Spans::default();
    let (filter, handle) = reload::Layer::new(env("info"));
    under(Registry::default().with(filter).with(spans.clone()), |allocator| {
        let set = |directives: &str| handle.reload(env(directives)).unwrap();
        forward(allocator);
        set("off");
        forward(allocator);
        set("warn");
        forward(allocator);
        // Begun while it is shown, and over while nothing is: what has begun is recorded to its end.
        let mut begun = Box::pin(step(allocator));
        assert!(poll_once(begun.as_mut()).is_pending());
        set("off");
        assert!(poll_once(begun.as_mut()).is_ready());
        // Begun while nothing is shown: no span of it appears later.
        let mut silent = Box::pin(step(allocator));
        assert!(poll_once(silent.as_mut()).is_pending());
        set("info");
        assert!(poll_once(silent.as_mut()).is_ready());
    });
    assert_eq!(recorded(&spans), ["forward", "step", "forward"]);
    let parents: Vec<_> = spans.all().iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None; 3], "the last one was called by the silent step");
}

/// A layer's own reload, while another layer goes on listening.
#[test]
fn a_layers_filter_that_is_reloaded() {
    let (quiet, all) = (Spans::default(), Spans::default());
    let (filter, handle) = reload::Layer::new(LevelFilter::OFF);
    let subscriber = Registry::default().with(quiet.clone().with_filter(filter)).with(all.clone());
    under(subscriber, |allocator| {
        load(allocator);
        handle.reload(LevelFilter::DEBUG).unwrap();
        load(allocator);
        handle.reload(LevelFilter::OFF).unwrap();
        load(allocator);
    });
    assert_eq!((recorded(&quiet).len(), recorded(&all).len()), (1, 3));
}

#[track_memory(name = "forward", phase = "forward", level = "trace")]
fn forward_phase(allocator: &CachingAllocator) -> Buffer<u8> {
    drop(helper(allocator));
    take(allocator, 5)
}

#[track_memory(level = "error")]
fn helper(allocator: &CachingAllocator) -> Buffer<u8> {
    take(allocator, 2)
}

#[track_memory(name = "backward", phase = "backward", level = "debug", err)]
async fn backward_phase(allocator: &CachingAllocator, activations: Buffer<u8>) -> Result<(), usize> {
    let _gradients = take(allocator, 7);
    yield_now().await;
    if activations.is_empty() { Ok(()) } else { Err(activations.len()) }
}

#[track_memory(name = "panics", phase = "eval", level = "info")]
fn eval_phase(allocator: &CachingAllocator) {
    let _kept = take(allocator, 3);
    panic!("on purpose");
}

fn train(allocator: &CachingAllocator) -> EpochSummary {
    let epoch = memtrack::epoch(1);
    for number in 0..3 {
        let _step = memtrack::step(number);
        let activations = forward_phase(allocator);
        let _ = block_on(backward_phase(allocator, activations));
        let mut cancelled = Box::pin(backward_phase(allocator, take(allocator, 1)));
        assert!(poll_once(cancelled.as_mut()).is_pending());
        drop(cancelled);
        assert!(std::panic::catch_unwind(|| eval_phase(allocator)).is_err());
    }
    epoch.finish().unwrap()
}

/// The rows and the totals of a summary, without what depends on the clock.
fn books(summary: &EpochSummary) -> String {
    let EpochSummary { phases, step_count, peak_bytes, peak_phase, peak_step, before_bytes, after_bytes, .. } = summary;
    let mut phases = phases.clone();
    phases.iter_mut().for_each(|phase| phase.slow_path = Duration::ZERO);
    format!("{phases:#?} {step_count} {peak_bytes} {peak_phase} {peak_step:?} {before_bytes} {after_bytes}")
}

/// A log level must not change a summary.
#[test]
fn phases_are_booked_alike_under_every_filter() {
    let heard = Spans::default();
    let reference = under(Registry::default().with(heard.clone()), train);
    let rows: Vec<_> = reference.phases.iter().map(|row| (row.name, row.entered_count, row.allocation_count)).collect();
    assert_eq!(rows, [("forward", 3, 6), ("backward", 6, 6), ("eval", 3, 3), ("other", 0, 3)]);
    assert_eq!(heard.all().len(), 3 * (2 + 2 + 1));
    let reference = books(&reference);

    assert_eq!(books(&under(tracing::subscriber::NoSubscriber::default(), train)), reference);
    for directives in ["off", "error", "warn", "info", "debug", "trace", "[forward]=trace", "nowhere=trace"] {
        let summary = under(Registry::default().with(env(directives)).with(Spans::default()), train);
        assert_eq!(books(&summary), reference, "{directives}");
    }
    for level in [LevelFilter::OFF, LevelFilter::ERROR, LevelFilter::INFO] {
        let summary = under(Registry::default().with(level).with(Spans::default()), train);
        assert_eq!(books(&summary), reference, "{level}");
        let summary = under(Registry::default().with(Spans::default().with_filter(level)), train);
        assert_eq!(books(&summary), reference, "{level} of one layer");
    }
}
