//! The driver's figure and memtrack's, set side by side so that they add up.

use std::fmt;

use super::{ContextMemory, ContextMethod, DriverSample, DriverUnavailable, MemoryQuery, OtherProcesses, QueryFailure};
use crate::units::Bytes;

/// Figures above this are taken as this: 1 EiB, which no device has. Any sum of the parts then fits an `i64`.
const LARGEST_BYTES: u64 = 1 << 60;

/// Which of the driver's figures is explained.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Basis {
    /// The whole device's used bytes, from this query.
    Device(MemoryQuery),
    /// This process's bytes in the process list, because the device's used bytes cannot be had (integrated GPUs).
    OwnProcess {
        /// Why not.
        device: QueryFailure,
    },
}

/// Where the driver's used bytes are: `used = allocated + cached + context + other processes + unexplained`.
///
/// This holds to the byte whatever the figures are, with an unknown part counted as nothing, because `unexplained` is
/// what is left, with its sign. What other processes take without the driver saying so, and what this process takes
/// outside the allocator after its context was measured, is in `unexplained_bytes`; so is what the driver has in use for
/// no process at all (8.8 MiB on an H200). It is negative when the parts are
/// more than the whole: the figures are read one after another, and a context measured over the whole device has other
/// processes' memory that may since have gone.
///
/// ```
/// use memtrack::driver::{ContextMemory, DriverMemory, DriverSample, PidNamespace, ProcessMemory, Reconciliation};
///
/// const MIB: u64 = 1 << 20;
/// let sample = |used, own| {
///     let memory = DriverMemory::v2(80_000 * MIB, 0, 80_000 * MIB - used, used);
///     let processes = vec![ProcessMemory::listed(7, Some(own)), ProcessMemory::listed(8, Some(100 * MIB))];
///     DriverSample::new(Ok(memory), Ok(processes), true, 7, PidNamespace::Initial)
/// };
/// let context = ContextMemory::measure(&sample(602 * MIB, 502 * MIB), 2 * MIB, None)?;
/// let parts = Reconciliation::new(&sample(1100 * MIB, 1000 * MIB), context, 300 * MIB, 400 * MIB)?;
/// assert_eq!(parts.unexplained_bytes, 100 * MIB as i64);
/// assert_eq!(
///     parts.to_string(),
///     "used 1.07 GiB = allocated 300.00 MiB + cached 100.00 MiB + context 500.00 MiB + other processes 100.00 MiB \
///      + unexplained 100.00 MiB (this process 100.00 MiB)  (NVML v2)"
/// );
/// # Ok::<_, memtrack::driver::DriverUnavailable>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconciliation {
    /// Which figure `used_bytes` is.
    pub basis: Basis,
    /// Bytes in use according to the driver.
    pub used_bytes: u64,
    /// Bytes in blocks the allocator has handed out.
    pub allocated_bytes: u64,
    /// Bytes the allocator keeps and has not handed out: reserved less allocated.
    pub cached_bytes: u64,
    /// Bytes of the CUDA context, modules and libraries, as last measured.
    pub context_bytes: u64,
    /// How the context was measured, and so how exact it is.
    pub context_method: ContextMethod,
    /// Bytes of other processes; `None` when unknown, and with [`Basis::OwnProcess`], of which they are no part.
    pub other_processes_bytes: Option<u64>,
    /// What is behind `other_processes_bytes`: how many processes, how many without a figure, or why it is unknown.
    pub other_processes: OtherProcesses,
    /// What is left of `used_bytes`.
    pub unexplained_bytes: i64,
    /// What is left of this process's bytes in the driver's list after allocated, cached and context: memory it took
    /// outside the allocator since the context was measured. `None` when the list has no figure for it.
    pub own_unexplained_bytes: Option<i64>,
    /// Bytes the driver keeps for itself, apart from `used_bytes`; `None` when it does not say, and `used_bytes` has them.
    pub driver_reserved_bytes: Option<u64>,
}

impl Reconciliation {
    /// Sets the driver's figures beside the allocator's, which should be read at about the same time.
    ///
    /// Asks nobody anything. `allocated_bytes` is of `reserved_bytes`; more than that counts as no cache.
    ///
    /// # Errors
    ///
    /// [`DriverUnavailable::Query`] when the sample has neither the device's used bytes nor this process's.
    pub fn new(
        sample: &DriverSample,
        context: ContextMemory,
        allocated_bytes: u64,
        reserved_bytes: u64,
    ) -> Result<Self, DriverUnavailable> {
        let own_bytes = sample.own_process.known().map(bounded);
        let (basis, used_bytes) = match (&sample.memory, own_bytes) {
            (Ok(memory), _) => (Basis::Device(memory.query), bounded(memory.used_bytes)),
            (Err(device), Some(own_bytes)) => (Basis::OwnProcess { device: device.clone() }, own_bytes),
            (Err(device), None) => return Err(device.clone().into()),
        };
        let allocated_bytes = bounded(allocated_bytes);
        let cached_bytes = bounded(reserved_bytes).saturating_sub(allocated_bytes);
        let context_bytes = bounded(context.bytes);
        let other_processes_bytes = match basis {
            Basis::Device(_) => sample.other_processes.known_bytes().map(bounded),
            Basis::OwnProcess { .. } => None,
        };
        let own_parts = [allocated_bytes, cached_bytes, context_bytes];
        let own_explained: i64 = own_parts.into_iter().map(signed).sum();
        let others: i64 = other_processes_bytes.map_or(0, signed);
        Ok(Self {
            basis,
            used_bytes,
            allocated_bytes,
            cached_bytes,
            context_bytes,
            context_method: context.method,
            other_processes_bytes,
            other_processes: sample.other_processes.clone(),
            unexplained_bytes: signed(used_bytes) - own_explained - others,
            own_unexplained_bytes: own_bytes.map(|own_bytes| signed(own_bytes) - own_explained),
            driver_reserved_bytes: sample.memory.as_ref().ok().and_then(|memory| memory.driver_reserved_bytes),
        })
    }
}

fn bounded(bytes: u64) -> u64 {
    bytes.min(LARGEST_BYTES)
}

/// Of a figure that went through [`bounded`].
fn signed(bytes: u64) -> i64 {
    bytes as i64
}

impl fmt::Display for Reconciliation {
    /// One line: `used 4.21 GiB = allocated 2.96 GiB + cached … + unexplained 0 B  (NVML v2)`. Every part is there; an
    /// unknown one says so and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = match self.basis {
            Basis::Device(_) => "used",
            Basis::OwnProcess { .. } => "this process",
        };
        let allocated = Bytes::unsigned(self.allocated_bytes);
        let cached = Bytes::unsigned(self.cached_bytes);
        let context = Bytes::unsigned(self.context_bytes);
        write!(f, "{whole} {} = allocated {allocated} + cached {cached}", Bytes::unsigned(self.used_bytes))?;
        write!(f, " + context {context}")?;
        f.write_str(match self.context_method {
            ContextMethod::OwnProcess => "",
            ContextMethod::AboveBaseline => " (above baseline)",
            ContextMethod::WholeDevice => " (whole device)",
        })?;
        if matches!(self.basis, Basis::Device(_)) {
            self.write_other_processes(f)?;
        }
        write!(f, " + unexplained {}", Bytes(self.unexplained_bytes))?;
        match (&self.basis, self.own_unexplained_bytes) {
            (Basis::Device(_), Some(own_bytes)) if self.unexplained_bytes != 0 => {
                write!(f, " (this process {})", Bytes(own_bytes))?;
            }
            _ => {}
        }
        match (&self.basis, self.driver_reserved_bytes) {
            (Basis::Device(query), Some(0)) => write!(f, "  ({query})"),
            (Basis::Device(query), Some(bytes)) => {
                write!(f, "  ({query}, {} reserved by the driver apart)", Bytes::unsigned(bytes))
            }
            (Basis::Device(query), None) => write!(f, "  ({query}, what the driver reserves is in used)"),
            (Basis::OwnProcess { device }, _) => write!(f, "  (NVML process list; device used unknown: {device})"),
        }
    }
}

impl Reconciliation {
    fn write_other_processes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(" + other processes ")?;
        match (&self.other_processes, self.other_processes_bytes) {
            (OtherProcesses::Unknown(reason), _) => write!(f, "unknown ({reason})"),
            (OtherProcesses::Listed { unknown_count, .. }, None) => {
                write!(f, "unknown ({unknown_count} without a figure)")
            }
            (OtherProcesses::Listed { unknown_count, complete, .. }, Some(bytes)) => {
                write!(f, "{}", Bytes::unsigned(bytes))?;
                match (unknown_count, complete) {
                    (0, true) => Ok(()),
                    (0, false) => f.write_str(" (those visible)"),
                    (count, _) => write!(f, " (and {count} without a figure)"),
                }
            }
        }
    }
}
