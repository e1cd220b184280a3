//! Counts held against those that a file has: one a line, `COUNT NAME`. Lines that begin with `#` say what the file is.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs};

use crate::Failure;

/// How much more a count may be than the file's, in percent, and how much less before it is worth a word.
pub const TOLERANCE_PERCENT: u64 = 3;

/// What a count is beside that of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance.
    Kept,
    /// Above the tolerance, or the file has no such count.
    Exceeded,
    /// Below the tolerance: the file is to be written anew, so that what was gained stays gained.
    Undercut,
}

/// The counts of a file, by name.
#[derive(Debug, Default)]
pub struct Limits(BTreeMap<String, u64>);

impl Limits {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or a line is not a count and a name.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        text.parse()
    }

    /// Writes a file anew, with what it is in front.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(path: &Path, heading: &str, counts: &[(String, u64)]) -> Result<(), Failure> {
        let limits = Self(counts.iter().cloned().collect());
        fs::write(path, format!("{heading}{limits}")).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    /// What the file has for a name.
    pub fn of(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// A count beside the file's.
    pub fn judge(&self, name: &str, count: u64) -> Verdict {
        let Some(known) = self.of(name) else { return Verdict::Exceeded };
        let tolerance = known * TOLERANCE_PERCENT / 100;
        match count {
            count if count > known + tolerance => Verdict::Exceeded,
            count if count < known - tolerance => Verdict::Undercut,
            _ => Verdict::Kept,
        }
    }

    /// The names that nothing was counted for.
    pub fn unused<'a>(&'a self, counts: &'a [(String, u64)]) -> impl Iterator<Item = &'a str> {
        self.0.keys().map(String::as_str).filter(|name| !counts.iter().any(|(counted, _)| counted == name))
    }
}

impl std::str::FromStr for Limits {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let counts = lines.map(|line| {
            let (count, name) = line.trim().split_once(' ').ok_or_else(|| format!("`{line}` is not COUNT NAME"))?;
            let count = count.parse().map_err(|error| format!("`{line}`: {error}"))?;
            Ok((name.trim().to_owned(), count))
        });
        counts.collect::<Result<_, Failure>>().map(Self)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, count)| writeln!(f, "{count:>6} {name}"))
    }
}
