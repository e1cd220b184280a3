//! What changed between two samples, with its sign.

use std::collections::BTreeMap;
use std::fmt;

use super::{DriverMemory, DriverSample, MemoryQuery, ProcessMemory, QueryFailure};
use crate::units::{Bytes, MIB};

/// Equal processes below this are taken for contexts that do nothing. A context takes some 300 to 600 MiB.
const LARGEST_CONTEXT_BYTES: u64 = 1024 * MIB;

/// From which figures this process's own bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OwnSource {
    /// The driver's list of processes, both times: context and libraries included.
    ProcessList,
    /// What the allocator had reserved, because the list did not have this process both times. A context that was made in
    /// between counts with the others.
    Allocator,
}

/// How a device's memory changed between two samples, split into this process and the rest.
///
/// The rest may shrink: a neighbour that ends while this process allocates makes free memory rise. So nothing here is
/// told from free memory alone, and every change has its sign.
///
/// ```
/// use memtrack::driver::{DriverChange, DriverMemory, DriverSample, PidNamespace};
///
/// const MIB: u64 = 1 << 20;
/// let sample = |free_mib: u64| {
///     let memory = DriverMemory::v2(95_830 * MIB, 0, free_mib * MIB, (95_830 - free_mib) * MIB);
///     DriverSample::new(Ok(memory), Ok(Vec::new()), true, 7, PidNamespace::Initial)
/// };
/// let change = DriverChange::between((&sample(84_931), 0), (&sample(92_334), 2048 * MIB))?;
/// assert_eq!(change.own_bytes, 2048 * MIB as i64);
/// assert_eq!(change.others_bytes, -9451 * MIB as i64);
/// assert!(change.free_is_unstable());
/// # Ok::<_, memtrack::driver::ChangeUnknown>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverChange {
    /// By how much this process's bytes rose.
    pub own_bytes: i64,
    /// From which figures that is.
    pub own_source: OwnSource,
    /// Bytes in use that were not this process's at the first sample.
    pub others_before_bytes: i64,
    /// The same at the second sample.
    pub others_after_bytes: i64,
    /// By how much they rose.
    pub others_bytes: i64,
    /// By how much the device's used bytes rose.
    pub used_bytes: i64,
    /// By how much the device's free bytes rose.
    pub free_bytes: i64,
}

/// Why two samples cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeUnknown {
    /// One counts what the driver reserves as used and the other does not: a difference would be hundreds of MiB that
    /// nobody took.
    #[error("the samples are of different memory queries ({earlier} and {later}) and cannot be compared")]
    DifferentQueries {
        /// The first sample's.
        earlier: MemoryQuery,
        /// The second sample's.
        later: MemoryQuery,
    },
    /// One of them has no figure of the device.
    #[error(transparent)]
    NoFigure(#[from] QueryFailure),
}

impl DriverChange {
    /// The change from one sample to a later one of the same device, each with what the allocator had reserved then.
    ///
    /// # Errors
    ///
    /// [`ChangeUnknown`] when a sample has no figure of the device, or the two are of different queries.
    pub fn between(
        (earlier, earlier_reserved_bytes): (&DriverSample, u64),
        (later, later_reserved_bytes): (&DriverSample, u64),
    ) -> Result<Self, ChangeUnknown> {
        let (before, after) = comparable(&earlier.memory, &later.memory)?;
        let (own_before, own_after, own_source) = match (earlier.own_process.known(), later.own_process.known()) {
            (Some(before), Some(after)) => (before, after, OwnSource::ProcessList),
            _ => (earlier_reserved_bytes, later_reserved_bytes, OwnSource::Allocator),
        };
        let others_before_bytes = difference(before.used_bytes, own_before);
        let others_after_bytes = difference(after.used_bytes, own_after);
        Ok(Self {
            own_bytes: difference(own_after, own_before),
            own_source,
            others_before_bytes,
            others_after_bytes,
            others_bytes: others_after_bytes.saturating_sub(others_before_bytes),
            used_bytes: difference(after.used_bytes, before.used_bytes),
            free_bytes: difference(after.free_bytes, before.free_bytes),
        })
    }

    /// Whether memory that is not this process's came or went, so that free memory says nothing about what it took.
    pub fn free_is_unstable(&self) -> bool {
        self.others_bytes != 0
    }
}

/// The memory of both samples, if the same query gave them.
///
/// # Errors
///
/// As for [`DriverChange::between`].
pub fn comparable<'a>(
    earlier: &'a Result<DriverMemory, QueryFailure>,
    later: &'a Result<DriverMemory, QueryFailure>,
) -> Result<(&'a DriverMemory, &'a DriverMemory), ChangeUnknown> {
    let earlier = earlier.as_ref().map_err(Clone::clone)?;
    let later = later.as_ref().map_err(Clone::clone)?;
    if earlier.query != later.query {
        return Err(ChangeUnknown::DifferentQueries { earlier: earlier.query, later: later.query });
    }
    Ok((earlier, later))
}

/// Held to what an `i64` has, as only figures that no device has go beyond.
fn difference(bytes: u64, from_bytes: u64) -> i64 {
    let difference = i128::from(bytes) - i128::from(from_bytes);
    difference.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl fmt::Display for DriverChange {
    /// One line: `own +2.00 GiB, others -9.23 GiB, free +7.23 GiB (unstable)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, others, free) = (Bytes(self.own_bytes), Bytes(self.others_bytes), Bytes(self.free_bytes));
        write!(f, "own {own:+}, others {others:+}, free {free:+}")?;
        f.write_str(if self.free_is_unstable() { " (unstable)" } else { "" })
    }
}

/// Processes that hold nothing on the device but a context each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdleContexts {
    /// How many.
    pub count: u32,
    /// What each of them takes.
    pub bytes_each: u64,
}

impl IdleContexts {
    /// The largest group of processes that are equally large in both lists, at most 1 GiB each, and did not grow; `None`
    /// without two such.
    ///
    /// A guess with good reason: what computes changes, and contexts of one program are equal.
    pub fn between(earlier: &[ProcessMemory], later: &[ProcessMemory]) -> Option<Self> {
        let before: BTreeMap<u32, u64> =
            earlier.iter().filter_map(|process| Some((process.pid, known(process)?))).collect();
        let mut groups: BTreeMap<u64, u32> = BTreeMap::new();
        for process in later {
            if let Some(bytes) = known(process)
                && before.get(&process.pid) == Some(&bytes)
            {
                *groups.entry(bytes).or_default() += 1;
            }
        }
        let (bytes_each, count) = groups.into_iter().max_by_key(|(_, count)| *count)?;
        (count >= 2).then_some(Self { count, bytes_each })
    }

    /// What they take together.
    pub fn bytes(&self) -> u64 {
        self.bytes_each.saturating_mul(u64::from(self.count))
    }
}

fn known(process: &ProcessMemory) -> Option<u64> {
    process.memory.known().filter(|bytes| *bytes <= LARGEST_CONTEXT_BYTES)
}

impl fmt::Display for IdleContexts {
    /// What it is, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, bytes_each } = *self;
        let (each, all) = (Bytes::unsigned(bytes_each), Bytes::unsigned(self.bytes()));
        write!(
            f,
            "idle contexts of worker processes: {count} processes of {each} each, {all} together, did not grow; \
             start workers without CUDA (CUDA_VISIBLE_DEVICES= in their environment)"
        )
    }
}
