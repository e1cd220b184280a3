//! What a source says at one moment, and how far it can be trusted.

use std::fmt;

/// What a source holds at one moment, in bytes as the source counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SourceReading {
    /// Bytes in use.
    pub current_bytes: u64,
    /// The most bytes in use at once since the last [`reset_peak`](super::MemorySource::reset_peak); `None` where no peak is kept.
    pub peak_bytes: Option<u64>,
    /// Bytes taken from the device, whether in use or cached.
    pub reserved_bytes: Option<u64>,
    /// The most reserved bytes since the last reset.
    pub reserved_peak_bytes: Option<u64>,
    /// Allocations that gave cached memory back and asked again, since the program began.
    pub retry_count: Option<u64>,
    /// Allocations that ran out of memory, since the program began.
    pub oom_count: Option<u64>,
}

impl SourceReading {
    /// A reading of the bytes in use alone; the other figures can be set.
    pub fn new(current_bytes: u64) -> Self {
        Self { current_bytes, ..Self::default() }
    }

    /// With the most bytes in use since the last reset.
    pub fn with_peak(mut self, peak_bytes: u64) -> Self {
        self.peak_bytes = Some(peak_bytes);
        self
    }

    /// With the bytes taken from the device.
    pub fn with_reserved(mut self, reserved_bytes: u64) -> Self {
        self.reserved_bytes = Some(reserved_bytes);
        self
    }

    /// With the most bytes taken from the device since the last reset.
    pub fn with_reserved_peak(mut self, reserved_peak_bytes: u64) -> Self {
        self.reserved_peak_bytes = Some(reserved_peak_bytes);
        self
    }

    /// With the number of retries since the program began.
    pub fn with_retries(mut self, retry_count: u64) -> Self {
        self.retry_count = Some(retry_count);
        self
    }

    /// With the number of out of memory errors since the program began.
    pub fn with_ooms(mut self, oom_count: u64) -> Self {
        self.oom_count = Some(oom_count);
        self
    }
}

/// What the figures of a source are good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exactness {
    /// Counted to the byte, of exactly what the program did with this source.
    Exact,
    /// Counted to the byte, of all threads and libraries of the process that share the source.
    ExactProcessWide,
    /// Counted, with a limit that this names, such as `calling stream only`.
    Limited(&'static str),
    /// Sampled or estimated: what happens between two looks is not seen.
    Sampled,
}

impl fmt::Display for Exactness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::ExactProcessWide => "exact, of the whole process",
            Self::Limited(limit) => limit,
            Self::Sampled => "sampled",
        })
    }
}
