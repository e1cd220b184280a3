//! What `#[track_memory]` adds to an empty function, beside `#[tracing::instrument]` on the same one.
//!
//! Each group is one state of a program: who listens, and whether measuring is on. The listeners of a group are the
//! thread's default only, which costs `tracing` a little more than a global one, and the same for both attributes.

use std::hint::black_box;
use std::io;
use std::sync::Arc;

use divan::Bencher;
use memtrack::device::Simulated;
use memtrack::{CachingAllocator, track_memory};
use tracing::Dispatch;
use tracing::dispatcher::DefaultGuard;
use tracing_subscriber::fmt::format::FmtSpan;

fn main() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    memtrack::set_default(&allocator);
    divan::main();
}

#[inline(never)]
fn plain(number: u64) -> u64 {
    black_box(number)
}

#[inline(never)]
#[tracing::instrument(skip_all)]
fn instrument(number: u64) -> u64 {
    black_box(number)
}

#[inline(never)]
#[track_memory]
fn track(number: u64) -> u64 {
    black_box(number)
}

/// With a phase a call is measured even when nobody listens: the epoch's summary does.
#[inline(never)]
#[track_memory(phase = "forward")]
fn track_phase(number: u64) -> u64 {
    black_box(number)
}

/// Calls one of the functions above in the state that a group describes.
fn call(bencher: Bencher<'_, '_>, function: fn(u64) -> u64, listens: Option<Dispatch>, measures: bool) {
    let listening: Option<DefaultGuard> = listens.as_ref().map(tracing::dispatcher::set_default);
    // What the groups before this one left behind in the caches of `tracing`.
    tracing::callsite::rebuild_interest_cache();
    memtrack::set_enabled(measures);
    bencher.bench_local(|| function(black_box(1)));
    memtrack::set_enabled(true);
    drop(listening);
}

/// The `fmt` layer, which formats a line as each span closes.
fn text_to_a_sink() -> Option<Dispatch> {
    Some(tracing_subscriber::fmt().with_span_events(FmtSpan::CLOSE).with_writer(io::sink).finish().into())
}

/// The same as JSON.
fn json_to_a_sink() -> Option<Dispatch> {
    Some(tracing_subscriber::fmt().json().with_span_events(FmtSpan::CLOSE).with_writer(io::sink).finish().into())
}

/// The four functions in one state.
macro_rules! group {
    ($name:ident, listens: $listens:expr, measures: $measures:expr) => {
        mod $name {
            use super::*;

            #[divan::bench(sample_size = 2000)]
            fn plain(bencher: Bencher<'_, '_>) {
                call(bencher, super::plain, $listens, $measures);
            }

            #[divan::bench(sample_size = 2000)]
            fn instrument(bencher: Bencher<'_, '_>) {
                call(bencher, super::instrument, $listens, $measures);
            }

            #[divan::bench(sample_size = 2000)]
            fn track(bencher: Bencher<'_, '_>) {
                call(bencher, super::track, $listens, $measures);
            }

            #[divan::bench(sample_size = 2000)]
            fn track_phase(bencher: Bencher<'_, '_>) {
                call(bencher, super::track_phase, $listens, $measures);
            }
        }
    };
}

group!(off_nobody_listens, listens: None, measures: false);
group!(on_nobody_listens, listens: None, measures: true);
group!(off_text, listens: text_to_a_sink(), measures: false);
group!(on_text, listens: text_to_a_sink(), measures: true);
group!(on_json, listens: json_to_a_sink(), measures: true);
