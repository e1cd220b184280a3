//! What this process holds on the device outside the allocator: the CUDA context, modules and libraries.

use super::{DriverMemory, DriverSample, DriverUnavailable, ProcessBytes};

/// Bytes of the CUDA context, loaded modules and libraries.
///
/// It is measured, not asked for: no call of the driver gives it. Measured at a time when only the allocator and the
/// context hold memory, it stays as it is; what a process takes later, outside the allocator, is then unexplained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextMemory {
    /// The bytes.
    pub bytes: u64,
    /// From which figures.
    pub method: ContextMethod,
}

/// How [`ContextMemory`] was measured, the best one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContextMethod {
    /// This process's bytes in the driver's list, less what the allocator had reserved. Exact.
    OwnProcess,
    /// The device's used bytes, less a figure from before the process had a context, less reserved. Exact if no other
    /// process came, went, grew or shrank between the two.
    AboveBaseline,
    /// The device's used bytes, less reserved, less the other processes known. Inexact: it has the other processes the
    /// driver does not tell of, and whatever the device had in use before.
    WholeDevice,
}

impl ContextMemory {
    /// A context of that size, measured so.
    pub fn new(bytes: u64, method: ContextMethod) -> Self {
        Self { bytes, method }
    }

    /// Measures the context from a sample and what the allocator had reserved at that time.
    ///
    /// `baseline` is the device's memory before the process had a context, if somebody looked then; it counts only when
    /// the process list is of no use, and only when the same query gave both figures.
    ///
    /// # Errors
    ///
    /// [`DriverUnavailable::Query`] when the sample has neither this process's figure nor the device's.
    pub fn measure(
        sample: &DriverSample,
        reserved_bytes: u64,
        baseline: Option<DriverMemory>,
    ) -> Result<Self, DriverUnavailable> {
        match (&sample.own_process, &sample.memory) {
            // Less than the allocator holds cannot be this process: a stale figure, or another's with the same number.
            (ProcessBytes::Known(own_bytes), _) if *own_bytes >= reserved_bytes => {
                Ok(Self::new(own_bytes - reserved_bytes, ContextMethod::OwnProcess))
            }
            (_, Ok(memory)) => {
                let not_reserved_bytes = memory.used_bytes.saturating_sub(reserved_bytes);
                Ok(match baseline.filter(|baseline| baseline.query == memory.query) {
                    Some(baseline) => {
                        let bytes = not_reserved_bytes.saturating_sub(baseline.used_bytes);
                        Self::new(bytes, ContextMethod::AboveBaseline)
                    }
                    None => {
                        let others_bytes = sample.other_processes.known_bytes().unwrap_or(0);
                        Self::new(not_reserved_bytes.saturating_sub(others_bytes), ContextMethod::WholeDevice)
                    }
                })
            }
            (_, Err(failure)) => Err(failure.clone().into()),
        }
    }
}
