//! Writing on a thread of its own, which the program waits for so long and no longer.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
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
    // Its own folder, once that is made: what there is by then is in it.
    let made = Arc::new(OnceLock::new());
    let folder = || made.get().unwrap_or(&root).clone();
    let (sender, receiver) = mpsc::channel();
    let making = Arc::clone(&made);
    let work = move || {
        let outcome = files::make_folder(&options).and_then(|folder| {
            let folder = making.get_or_init(|| folder);
            files::write(folder, &options, material).map(|()| folder.clone())
        });
        // Nobody waits any more after the time limit.
        let _ = sender.send(outcome);
    };
    let spawned = thread::Builder::new().name("memtrack-post-mortem".to_owned()).spawn(work);
    if let Err(error) = spawned {
        return Err(PostMortemError::Thread { folder: folder(), reason: error.to_string() });
    }
    match receiver.recv_timeout(limit) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(PostMortemError::TooSlow { folder: folder(), limit }),
        Err(RecvTimeoutError::Disconnected) => {
            Err(PostMortemError::Thread { folder: folder(), reason: "it panicked".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::material::Report;
    use super::*;
    use crate::history::Snapshot;
    use std::time::Duration;

    /// Everything but what the snapshot does, which a driver or a file system can do as well.
    fn material(snapshot: impl FnOnce() -> Snapshot + Send + 'static) -> Material {
        Material {
            report: Report {
                message: String::new(),
                device: String::new(),
                phase: None,
                requested_bytes: 0,
                allocated_bytes: 0,
                reserved_bytes: 0,
                device_free_bytes: None,
                findings: Vec::new(),
                live: Vec::new(),
            },
            snapshot: Box::new(snapshot),
            driver: Box::new(String::new),
        }
    }

    #[test]
    fn what_was_cut_off_names_the_folder_in_which_the_rest_is() {
        let root = std::env::temp_dir().join(format!("memtrack-cut-off-{}", std::process::id()));
        let (let_go, held) = mpsc::channel::<()>();
        let hangs = move || {
            let _ = held.recv();
            Snapshot::default()
        };
        let options = PostMortemOptions::new(&root).time_limit(Duration::from_secs(2));
        let outcome = write(options.clone(), material(hangs));
        let Err(PostMortemError::TooSlow { folder, limit }) = &outcome else { panic!("{outcome:?}") };
        assert_eq!((folder.parent(), *limit), (Some(&*root), options.time_limit), "its own folder");
        assert!(folder.join("report.txt").is_file(), "what there was time for is there");

        let outcome = write(options, material(|| panic!("a bug")));
        let Err(PostMortemError::Thread { folder: of_the_panic, .. }) = &outcome else { panic!("{outcome:?}") };
        assert_eq!(of_the_panic.parent(), Some(&*root));
        assert_ne!(of_the_panic, folder);

        drop(let_go);
        // The thread that was let go writes the rest meanwhile.
        let removed = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            std::fs::remove_dir_all(&root).is_ok()
        });
        assert!(removed);
    }
}
