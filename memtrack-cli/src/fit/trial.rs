//! One run under one limit.

use clap::ValueEnum;

use super::GRANULARITY_BYTES;
use super::candidate::Candidate;
use super::program::{Need, Program};
use crate::operation::Operation;
use crate::session::{Limit, Outcome as Done, Place, Session, SessionError, Setup};

/// What the simulated device has, unless a card is asked about.
pub const DEVICE_BYTES: u64 = 1 << 40;

/// What stands for a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitBy {
    /// A device that has no more
    #[default]
    Card,
    /// A share of a larger device, as set_per_process_memory_fraction sets it: it counts all of a request before pages are mapped
    Fraction,
}

/// The device that runs under a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitedDevice {
    /// What stands for the limit.
    pub by: LimitBy,
    /// What the card has, of which others leave the limit; `None` for [`DEVICE_BYTES`]. It tells how many addresses expandable segments
    /// reserve. A limit above it is a card of its own size.
    pub card_bytes: Option<u64>,
}

impl LimitedDevice {
    /// What it has, of which a limit is a part.
    pub fn bytes(self) -> u64 {
        match self.by {
            LimitBy::Card => self.card_bytes.unwrap_or(DEVICE_BYTES),
            LimitBy::Fraction => DEVICE_BYTES,
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every allocation that must be served was.
    Completed(Cost),
    /// One was not, and nothing behind it was run.
    Failed(Failure),
}

/// What a run that completed took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Allocations that gave cached memory back and asked again, those apart that then found none and may.
    pub retries: u64,
    /// Those in the second half of the allocations.
    pub late_retries: u64,
    /// Calls that took memory from the device: `cudaMalloc`, or pages mapped for one allocation.
    pub device_allocations: u64,
    /// The most bytes taken from the device.
    pub reserved_peak_bytes: u64,
}

/// Where a run ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Failure {
    /// The step's number in the file: a trace's line from 1, else from 0.
    pub step: usize,
    /// Place and operation in words.
    pub operation: String,
    /// How many allocations were done before.
    pub allocations_before: usize,
}

impl Outcome {
    /// What it took, if it completed.
    pub fn cost(&self) -> Option<&Cost> {
        if let Self::Completed(cost) = self { Some(cost) } else { None }
    }

    /// Where it ended, if it did not.
    pub fn failure(&self) -> Option<&Failure> {
        if let Self::Failed(failure) = self { Some(failure) } else { None }
    }
}

/// Runs a program under a limit, or without.
///
/// # Errors
///
/// Settings that make no sense, and failures other than want of memory.
pub fn run_under(
    program: &Program<'_>,
    candidate: &Candidate,
    device: LimitedDevice,
    limit_bytes: Option<u64>,
) -> Result<Outcome, SessionError> {
    let mut config = candidate.config.clone();
    config.per_process_memory_fraction = 1.0;
    let total_bytes = match limit_bytes {
        None => DEVICE_BYTES,
        // On a device without any memory no addresses can be had, which is another failure than want of memory.
        Some(limit_bytes) => device.bytes().max(limit_bytes).max(GRANULARITY_BYTES),
    };
    let limit = match (limit_bytes, device.by) {
        (Some(limit_bytes), LimitBy::Fraction) => Limit::Bytes(limit_bytes),
        _ => Limit::AsConfigured,
    };
    let setup = Setup { place: Place::Simulated, config, total_bytes: Some(total_bytes), limit };
    let mut session = Session::new(&setup, program.block_count)?;
    if let (Some(limit_bytes), LimitBy::Card) = (limit_bytes, device.by) {
        session.set_other_use(total_bytes - limit_bytes);
    }
    let half = program.allocation_count() / 2;
    let (mut allocations, mut retries_before_half, mut vain_retries) = (0, 0, 0);
    for doing in &program.steps {
        if matches!(doing.operation, Operation::Settings { .. }) && !candidate.changes_settings {
            continue;
        }
        if doing.need != Need::None {
            if allocations == half {
                retries_before_half = session.stats().num_alloc_retries - vain_retries;
            }
            allocations += 1;
        }
        let retries_before = (doing.need == Need::MayFail).then(|| session.stats().num_alloc_retries);
        let done = session.perform(doing.operation)?;
        if let (Some(before), Done::OutOfMemory) = (retries_before, done) {
            vain_retries += session.stats().num_alloc_retries - before;
        }
        match (doing.need, done) {
            (Need::Served | Need::ServedOnce, Done::OutOfMemory) => {
                return Ok(Outcome::Failed(Failure {
                    step: doing.number,
                    operation: program.describe(doing),
                    allocations_before: allocations - 1,
                }));
            }
            (Need::MayFail | Need::ServedOnce, Done::Address(_)) => {
                if let Operation::Allocate { block, .. } = doing.operation {
                    session.perform(&Operation::Free { block: *block })?;
                }
            }
            _ => {}
        }
    }
    let stats = session.stats();
    let retries = stats.num_alloc_retries - vain_retries;
    let count = |count: i64| u64::try_from(count).unwrap_or_default();
    Ok(Outcome::Completed(Cost {
        retries: count(retries),
        late_retries: count(retries - retries_before_half),
        device_allocations: count(stats.num_device_alloc),
        reserved_peak_bytes: count(stats.reserved_bytes.all.peak),
    }))
}
