//! Asynchronous functions, each made and polled to its end at once.

use super::{INSTRUMENT, INSTRUMENT_AND_RECORD, PLAIN, Subject, Unlucky, record_as_many, subject};
use memtrack::track_memory;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tracing::field::Empty;

/// Makes the future of an asynchronous function, polls it to its end, and drops it.
macro_rules! completed {
    ($library:ident, $name:expr, $function:path) => {{
        #[inline(never)]
        fn complete(number: u64) -> Poll<impl Sized> {
            pin!($function(number)).poll(&mut Context::from_waker(Waker::noop()))
        }
        subject!($library, Asynchronous, $name, complete)
    }};
}

/// The same through a pointer behind which the compiler does not see.
macro_rules! behind_pointer {
    ($library:ident, $name:expr, $function:path) => {{
        #[inline(never)]
        fn complete(number: u64) -> Poll<impl Sized> {
            let future = pin!($function(number));
            let future: Pin<&mut dyn Future<Output = _>> = black_box(future);
            future.poll(&mut Context::from_waker(Waker::noop()))
        }
        subject!($library, Dynamic, $name, complete)
    }};
}

/// The functions, once for each form: one that two callers poll is compiled otherwise than one that has a single caller.
macro_rules! functions {
    ($($module:ident)*) => {$(
        mod $module {
            use super::*;

            pub(super) async fn plain(number: u64) -> u64 {
                black_box(number)
            }

            #[tracing::instrument(skip_all)]
            pub(super) async fn instrument(number: u64) -> u64 {
                black_box(number)
            }

            #[tracing::instrument(skip_all, err)]
            pub(super) async fn instrument_err(number: u64) -> Result<u64, Unlucky> {
                Ok(black_box(number))
            }

            #[tracing::instrument(
                skip_all,
                fields(
                    mem.device = Empty,
                    mem.phase = Empty,
                    mem.before = Empty,
                    mem.after = Empty,
                    mem.delta = Empty,
                    mem.peak = Empty,
                    mem.peak_delta = Empty,
                    mem.allocs = Empty,
                    mem.frees = Empty,
                    mem.retries = Empty,
                    mem.ooms = Empty,
                    mem.outcome = Empty
                )
            )]
            pub(super) async fn instrument_record(number: u64) -> u64 {
                let number = black_box(number);
                record_as_many!();
                number
            }

            #[fastrace::trace]
            pub(super) async fn fastrace(number: u64) -> u64 {
                black_box(number)
            }

            #[hotpath::measure]
            pub(super) async fn hotpath(number: u64) -> u64 {
                black_box(number)
            }

            #[track_memory]
            pub(super) async fn track(number: u64) -> u64 {
                black_box(number)
            }

            #[track_memory(phase = "forward")]
            pub(super) async fn track_phase(number: u64) -> u64 {
                black_box(number)
            }

            #[track_memory(err)]
            pub(super) async fn track_err(number: u64) -> Result<u64, Unlucky> {
                Ok(black_box(number))
            }
        }
    )*};
}

functions! { in_place behind_pointer }

/// The asynchronous subjects.
pub const ASYNCHRONOUS: &[Subject] = &[
    completed!(Plain, PLAIN, in_place::plain),
    completed!(Tracing, INSTRUMENT, in_place::instrument),
    completed!(Tracing, "instrument, err", in_place::instrument_err),
    completed!(Tracing, INSTRUMENT_AND_RECORD, in_place::instrument_record),
    completed!(Fastrace, "trace", in_place::fastrace),
    completed!(Hotpath, "measure", in_place::hotpath),
    completed!(Memtrack, "track_memory", in_place::track),
    completed!(Memtrack, "track_memory, phase", in_place::track_phase),
    completed!(Memtrack, "track_memory, err", in_place::track_err),
    behind_pointer!(Plain, PLAIN, behind_pointer::plain),
    behind_pointer!(Tracing, INSTRUMENT, behind_pointer::instrument),
    behind_pointer!(Tracing, "instrument, err", behind_pointer::instrument_err),
    behind_pointer!(Tracing, INSTRUMENT_AND_RECORD, behind_pointer::instrument_record),
    behind_pointer!(Fastrace, "trace", behind_pointer::fastrace),
    behind_pointer!(Hotpath, "measure", behind_pointer::hotpath),
    behind_pointer!(Memtrack, "track_memory", behind_pointer::track),
    behind_pointer!(Memtrack, "track_memory, phase", behind_pointer::track_phase),
    behind_pointer!(Memtrack, "track_memory, err", behind_pointer::track_err),
];
