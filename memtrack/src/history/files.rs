//! Writing and reading snapshots as files.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use super::error::{ReadError, ReadLimits, WriteError};
use super::json::{self, JsonWriter};
use super::pickle::{self, PickleWriter};
use super::snapshot::Snapshot;
use super::{decode, encode};

impl Snapshot {
    /// Writes the pickle that `torch.cuda.memory._dump_snapshot` would write: what pytorch.org/memory_viz,
    /// `python -m torch.cuda._memory_viz` and Python's `pickle.load` open. Written as it goes, buffered here.
    ///
    /// # Errors
    ///
    /// [`WriteError`] when the target fails or a text has 4 GiB or more.
    pub fn write_pickle(&self, target: impl Write) -> Result<(), WriteError> {
        let mut writer = PickleWriter::new(BufWriter::new(target));
        writer.start()?;
        encode::snapshot(&mut writer, self)?;
        writer.finish()
    }

    /// Writes the same as JSON, which pytorch.org/memory_viz opens too. Call stacks are repeated in full, so the file is
    /// several times as large. Written as it goes, buffered here.
    ///
    /// # Errors
    ///
    /// [`WriteError`] when the target fails or a setting is not a finite number.
    pub fn write_json(&self, target: impl Write) -> Result<(), WriteError> {
        let mut writer = JsonWriter::new(BufWriter::new(target));
        encode::snapshot(&mut writer, self)?;
        writer.finish()
    }

    /// Reads a pickle as PyTorch or [`write_pickle`](Self::write_pickle) wrote it. Nothing in it is run: a pickle that does
    /// more than hold data is refused.
    ///
    /// # Errors
    ///
    /// [`ReadError`], with the place.
    pub fn from_pickle(bytes: &[u8], limits: &ReadLimits) -> Result<Self, ReadError> {
        check_length(bytes.len() as u64, limits)?;
        let (values, whole) = pickle::read(bytes, limits)?;
        decode::snapshot(&values, whole, limits)
    }

    /// Reads JSON of the same shape.
    ///
    /// # Errors
    ///
    /// [`ReadError`], with the place; [`ReadError::JsonNotBuilt`] without the feature `json`.
    pub fn from_json(bytes: &[u8], limits: &ReadLimits) -> Result<Self, ReadError> {
        check_length(bytes.len() as u64, limits)?;
        let (values, whole) = json::read(bytes, limits)?;
        decode::snapshot(&values, whole, limits)
    }

    /// Reads either form: JSON if the first character is a brace, else a pickle.
    ///
    /// # Errors
    ///
    /// As [`from_pickle`](Self::from_pickle) and [`from_json`](Self::from_json).
    pub fn from_bytes(bytes: &[u8], limits: &ReadLimits) -> Result<Self, ReadError> {
        // No operation of pickles is an opening brace.
        match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => Self::from_json(bytes, limits),
            _ => Self::from_pickle(bytes, limits),
        }
    }

    /// Reads a file of either form into memory and then as [`from_bytes`](Self::from_bytes).
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`] when it cannot be read, [`ReadError::TooLarge`] beyond the limit, else as `from_bytes`.
    pub fn read_file(path: impl AsRef<Path>, limits: &ReadLimits) -> Result<Self, ReadError> {
        // Pipes and devices have no length to ask for, so no more than the limit is taken.
        let mut bytes = Vec::new();
        File::open(path)?.take(limits.file_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
        Self::from_bytes(&bytes, limits)
    }
}

fn check_length(length_bytes: u64, limits: &ReadLimits) -> Result<(), ReadError> {
    if length_bytes > limits.file_bytes {
        return Err(ReadError::TooLarge { limit_bytes: limits.file_bytes });
    }
    Ok(())
}
