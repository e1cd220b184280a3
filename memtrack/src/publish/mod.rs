//! A process's figures for others to read: `memtrack smi` and `memtrack check` show them beside the driver's.
//!
//! A process that was started with [`MEMTRACK_PUBLISH`](ENVIRONMENT_VARIABLE) set, or that called [`to`], writes the figures of
//! its allocators into a file of its own in a folder, at the end of each epoch, and when [`now`] or [`when_on`] is called: after a
//! step, or by a thread of its own. No allocation does anything for it. A file is replaced whole, so a reader never sees half
//! of one, and names the process by its number and its start, so that a file that outlived its process is known as such.
//!
//! ```no_run
//! // A folder that the reader knows; or start the program with MEMTRACK_PUBLISH=/run/memtrack.
//! memtrack::publish::to("/run/memtrack");
//! // … at the end of each epoch:
//! if let Err(error) = memtrack::publish::now() {
//!     eprintln!("{error}");
//! }
//! ```
//!
//! Here live what is published, its file, and whether a file's process still lives. Nothing here asks the driver anything.

mod error;
mod folder;
mod gather;
mod liveness;
mod publication;
#[cfg(feature = "json")]
mod read;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

pub use error::PublishError;
#[cfg(feature = "json")]
pub use error::ReadError;
pub use folder::{ENVIRONMENT_VARIABLE, default_folder, folder, to};
pub use gather::{Source, add_source};
pub use liveness::Liveness;
pub use publication::{Publication, PublishedAllocator};
#[cfg(feature = "json")]
pub use read::{Found, read_file, read_folder, remove_stale};

use crate::sync::lock;

/// One writer at a time, so that the file that stays is the one of the latest figures.
static WRITING: Mutex<()> = Mutex::new(());
static WARNED: AtomicBool = AtomicBool::new(false);

/// Writes the figures of all this process's allocators into its file in the folder in force, or in [`default_folder`] where
/// none is; the file's path. One short lock of each allocator, and a small file.
///
/// # Errors
///
/// [`PublishError`] when the folder cannot be made or the file cannot be written; a file from before then stays.
pub fn now() -> Result<PathBuf, PublishError> {
    write_to(&folder().unwrap_or_else(default_folder))
}

/// As [`now`] where publishing is on, else nothing: for the end of an epoch. A failure is told once in the process, as a `WARN`
/// event with target `memtrack::publish`. Free of cost where it is off.
pub fn when_on() {
    let Some(folder) = folder() else { return };
    if let Err(error) = write_to(&folder)
        && !WARNED.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(target: "memtrack::publish", "figures are not published: {error}");
    }
}

/// Removes this process's file from the folder in force, for a program that ends.
///
/// # Errors
///
/// [`PublishError`] when there is a file and it cannot be removed.
pub fn withdraw() -> Result<(), PublishError> {
    let folder = folder().unwrap_or_else(default_folder);
    let _one = lock(&WRITING);
    write::remove(&folder.join(write::file_name()))
}

fn write_to(folder: &Path) -> Result<PathBuf, PublishError> {
    let _one = lock(&WRITING);
    let publication = gather::gather();
    write::write(folder, &publication)
}
