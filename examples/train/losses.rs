//! The losses of a run in a file, to compare two runs with.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::error::TrainError;

/// Writes `{"epoch":1,"step":1,"loss":2.3}` for each step, or nothing without a file.
pub(crate) struct LossFile(Option<(PathBuf, BufWriter<File>)>);

impl LossFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    ///
    /// [`TrainError::CreateLosses`].
    pub(crate) fn create(path: Option<&Path>) -> Result<Self, TrainError> {
        let Some(path) = path else { return Ok(Self(None)) };
        match File::create(path) {
            Ok(file) => Ok(Self(Some((path.to_owned(), BufWriter::new(file))))),
            Err(source) => Err(TrainError::CreateLosses { path: path.to_owned(), source }),
        }
    }

    /// One line.
    ///
    /// # Errors
    ///
    /// [`TrainError::WriteLosses`]; as lines are buffered, it may concern an earlier one.
    pub(crate) fn write(&mut self, epoch: u64, step: u64, loss: f64) -> Result<(), TrainError> {
        let line = serde_json::json!({ "epoch": epoch, "step": step, "loss": loss });
        self.with_file(|file| writeln!(file, "{line}"))
    }

    /// All lines reach the file.
    ///
    /// # Errors
    ///
    /// [`TrainError::WriteLosses`].
    pub(crate) fn flush(&mut self) -> Result<(), TrainError> {
        self.with_file(BufWriter::flush)
    }

    fn with_file(&mut self, act: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), TrainError> {
        let Some((path, file)) = &mut self.0 else { return Ok(()) };
        act(file).map_err(|source| TrainError::WriteLosses { path: path.clone(), source })
    }
}
