//! Why figures are not written or not read.

use std::io;
use std::path::PathBuf;

/// Why figures are not published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The folder is not there and cannot be made.
    #[error("cannot make the folder {}: {error}; name another one in MEMTRACK_PUBLISH", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The file cannot be written, replaced or removed.
    #[error("cannot write {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}

/// Why a published file is of no use.
#[cfg(feature = "json")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It cannot be read.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// It is larger than any that memtrack writes.
    #[error("{bytes} bytes, more than the {limit_bytes} of any published file")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The most that is read.
        limit_bytes: u64,
    },
    /// It is no JSON.
    #[error("no JSON: {0}")]
    NotJson(String),
    /// It was written by a memtrack that publishes in another form.
    #[error("form {found}, of which this memtrack reads {known}; use the memtrack that wrote it")]
    OtherForm {
        /// The form it names.
        found: u64,
        /// The one this memtrack knows.
        known: u64,
    },
    /// A figure is missing or is not of its kind.
    #[error("`{field}` is missing or no {expected}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// Its name is not the one under which its process publishes, as of a copy: it would count twice.
    #[error("a copy: process {pid} publishes as {expected}")]
    OtherName {
        /// The process that it names.
        pid: u32,
        /// The name of that process's file.
        expected: String,
    },
    /// An allocator's figures that cannot be.
    #[error("allocated_bytes is {allocated_bytes} and reserved_bytes {reserved_bytes}, which cannot be")]
    Impossible {
        /// As written.
        allocated_bytes: u64,
        /// As written.
        reserved_bytes: u64,
    },
}
