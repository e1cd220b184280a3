//! The allocator's history in a file, for PyTorch's viewer: every allocation of the run, and what is live at its end.

use std::path::Path;

use memtrack::CachingAllocator;
use memtrack::history::HistoryOptions;

use crate::error::TrainError;

/// Starts the history, if it is to be written.
pub(crate) fn record(allocator: &CachingAllocator, path: Option<&Path>) {
    if path.is_some() {
        allocator.record_memory_history(Some(&HistoryOptions::new()));
    }
}

/// Writes the history to its file, or nothing without one; at the latest when it is dropped, which a run that fails does.
pub(crate) struct SnapshotFile<'a> {
    allocator: &'a CachingAllocator,
    path: Option<&'a Path>,
}

impl<'a> SnapshotFile<'a> {
    /// What is declared before it is still live when a failing run drops it.
    pub(crate) fn new(allocator: &'a CachingAllocator, path: Option<&'a Path>) -> Self {
        Self { allocator, path }
    }

    /// Writes it now.
    ///
    /// # Errors
    ///
    /// [`TrainError::WriteSnapshot`].
    pub(crate) fn write(mut self) -> Result<(), TrainError> {
        self.write_once()
    }

    fn write_once(&mut self) -> Result<(), TrainError> {
        let Some(path) = self.path.take() else { return Ok(()) };
        let failed = |source| TrainError::WriteSnapshot { path: path.to_owned(), source };
        self.allocator.dump_snapshot(path).map_err(failed)
    }
}

impl Drop for SnapshotFile<'_> {
    fn drop(&mut self) {
        // The run's own error is the one to end with.
        if let Err(error) = self.write_once() {
            tracing::warn!("{error}");
        }
    }
}
