//! The losses of a run in a file, to compare two runs with.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use crate::error::TrainError;

/// Writes `{"epoch":1,"step":1,"loss":2.3}` for each step, or nothing without a file.
pub(crate) struct LossFile(Option<BufWriter<File>>);

impl LossFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    ///
    /// [`TrainError::CreateLosses`].
    pub(crate) fn create(path: Option<&Path>) -> Result<Self, TrainError> {
        let Some(path) = path else { return Ok(Self(None)) };
        match File::create(path) {
            Ok(file) => Ok(Self(Some(BufWriter::new(file)))),
            Err(source) => Err(TrainError::CreateLosses { path: path.to_owned(), source }),
        }
    }

    /// One line.
    pub(crate) fn write(&mut self, epoch: u64, step: u64, loss: f64) -> io::Result<()> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        writeln!(file, "{}", serde_json::json!({ "epoch": epoch, "step": step, "loss": loss }))
    }

    /// All lines reach the file.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}
