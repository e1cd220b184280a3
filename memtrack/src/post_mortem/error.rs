//! Why a post-mortem was not written, or not whole.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why a post-mortem is missing or is not whole.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PostMortemError {
    /// The folder could not be made.
    #[error("the folder {} cannot be made: {source}", folder.display())]
    Folder {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: Arc<io::Error>,
    },
    /// A file could not be written; those before it are there.
    #[error("{} cannot be written: {reason}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// It was not done in time; what is there by then stays.
    #[error("{} was not written whole within {limit:?}; raise `PostMortemOptions::time_limit`", folder.display())]
    TooSlow {
        /// Its own folder; the one in which it was to be made, if there was no time even for that.
        folder: PathBuf,
        /// The limit.
        limit: Duration,
    },
    /// The thread that writes could not be started, or ended before it was done.
    #[error("the thread that writes to {} failed: {reason}", folder.display())]
    Thread {
        /// As for [`TooSlow`](Self::TooSlow).
        folder: PathBuf,
        /// Why.
        reason: String,
    },
}
