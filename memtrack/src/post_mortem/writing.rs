//! Writing on a thread of its own, which the program waits for so long and no longer.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use super::error::PostMortemError;
use super::files;
use super::material::Material;
use super::options::PostMortemOptions;

/// Writes a post-mortem and returns its folder.
///
/// A file system that does not answer, or a driver that does not, must not keep a program that ran out of memory from saying so: after
/// the time limit the thread is left to itself, and stops at its next write.
pub(crate) fn write(options: PostMortemOptions, material: Material) -> Result<PathBuf, PostMortemError> {
    let limit = options.time_limit;
    let root = options.folder.clone();
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let outcome =
            files::make_folder(&options).and_then(|folder| files::write(&folder, &options, material).map(|()| folder));
        // Nobody waits any more after the time limit.
        let _ = sender.send(outcome);
    };
    let spawned = thread::Builder::new().name("memtrack-post-mortem".to_owned()).spawn(work);
    if let Err(error) = spawned {
        return Err(PostMortemError::Thread { folder: root, reason: error.to_string() });
    }
    match receiver.recv_timeout(limit) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(PostMortemError::TooSlow { folder: root, limit }),
        Err(RecvTimeoutError::Disconnected) => {
            Err(PostMortemError::Thread { folder: root, reason: "it panicked".to_owned() })
        }
    }
}
