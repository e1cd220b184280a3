//! Synchronous functions.

use super::{INSTRUMENT, INSTRUMENT_AND_RECORD, PLAIN, Subject, Unlucky, record_as_many, subject};
use memtrack::track_memory;
use std::hint::black_box;
use tracing::field::Empty;

/// The synchronous subjects.
pub const SYNCHRONOUS: &[Subject] = &[
    subject!(Plain, Synchronous, PLAIN, plain),
    subject!(Plain, Synchronous, "fn, Result", plain_result),
    subject!(Tracing, Synchronous, INSTRUMENT, instrument),
    subject!(Tracing, Synchronous, "instrument, err", instrument_err),
    subject!(Tracing, Synchronous, INSTRUMENT_AND_RECORD, instrument_record),
    subject!(Fastrace, Synchronous, "trace", fastrace),
    subject!(Hotpath, Synchronous, "measure", hotpath),
    subject!(Memtrack, Synchronous, "track_memory", track),
    subject!(Memtrack, Synchronous, "track_memory, phase", track_phase),
    subject!(Memtrack, Synchronous, "track_memory, err", track_err),
    subject!(Memtrack, Synchronous, "track_memory, device", track_device),
];

#[inline(never)]
fn plain(number: u64) -> u64 {
    black_box(number)
}

#[inline(never)]
fn plain_result(number: u64) -> Result<u64, Unlucky> {
    Ok(black_box(number))
}

#[inline(never)]
#[tracing::instrument(skip_all)]
fn instrument(number: u64) -> u64 {
    black_box(number)
}

#[inline(never)]
#[tracing::instrument(skip_all, err)]
fn instrument_err(number: u64) -> Result<u64, Unlucky> {
    Ok(black_box(number))
}

#[inline(never)]
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
fn instrument_record(number: u64) -> u64 {
    let number = black_box(number);
    record_as_many!();
    number
}

#[inline(never)]
#[fastrace::trace]
fn fastrace(number: u64) -> u64 {
    black_box(number)
}

#[inline(never)]
#[hotpath::measure]
fn hotpath(number: u64) -> u64 {
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

#[inline(never)]
#[track_memory(err)]
fn track_err(number: u64) -> Result<u64, Unlucky> {
    Ok(black_box(number))
}

#[inline(never)]
#[track_memory(device = &super::ALLOCATOR)]
fn track_device(number: u64) -> u64 {
    black_box(number)
}
