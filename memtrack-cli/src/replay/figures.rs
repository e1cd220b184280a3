//! The figures of a run, whatever resets it contains.

use memtrack::MemoryStats;

use crate::operation::Operation;
use crate::session::Session;

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Figures {
    /// The most bytes asked for and not given back, as the program asked for them.
    pub requested_peak_bytes: i64,
    /// The most bytes handed out, as rounded blocks.
    pub allocated_peak_bytes: i64,
    /// The most bytes taken from the device.
    pub reserved_peak_bytes: i64,
    /// Allocations that had to give cached memory back and ask again.
    pub retries: i64,
    /// Allocations that found no memory.
    pub ooms: i64,
    /// The most segments at once; expandable segments are not counted, as in PyTorch.
    pub segments: i64,
    /// Time of an operation in a run over a warm cache, where it was taken.
    pub ns_per_operation: Option<f64>,
}

impl Figures {
    /// To be called before an operation: some take the figures away.
    pub(super) fn before(&mut self, operation: &Operation, session: &Session) {
        match operation {
            Operation::ResetPeak => self.note_peaks(&session.stats()),
            Operation::ResetAccumulated => self.note_counts(&session.stats()),
            _ => {}
        }
    }

    /// To be called at the end.
    pub(super) fn at_end(&mut self, stats: &MemoryStats) {
        self.note_peaks(stats);
        self.note_counts(stats);
    }

    fn note_peaks(&mut self, stats: &MemoryStats) {
        self.requested_peak_bytes = self.requested_peak_bytes.max(stats.requested_bytes.all.peak);
        self.allocated_peak_bytes = self.allocated_peak_bytes.max(stats.allocated_bytes.all.peak);
        self.reserved_peak_bytes = self.reserved_peak_bytes.max(stats.reserved_bytes.all.peak);
        self.segments = self.segments.max(stats.segment.all.peak);
    }

    fn note_counts(&mut self, stats: &MemoryStats) {
        self.retries += stats.num_alloc_retries;
        self.ooms += stats.num_ooms;
    }
}
