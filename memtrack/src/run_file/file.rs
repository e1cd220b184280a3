//! The file itself: opened without waiting for anybody, and one process's at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A run file that this process writes.
#[derive(Debug)]
pub(super) struct RunFile {
    pub(super) path: PathBuf,
    file: File,
}

impl RunFile {
    /// Opens the file and empties it, unless another process writes it. `current` is the one that this process writes now, which may be
    /// the same file and is then emptied too.
    pub(super) fn create(path: &Path, current: Option<&Self>) -> io::Result<Self> {
        let text = path.to_str().map(|text| text.replace("%p", &std::process::id().to_string()));
        let path = text.map_or_else(|| path.to_owned(), PathBuf::from);
        refuse_what_waits(&path)?;
        // Not emptied before the lock is held. Lines go to the end, so that where a file system has no locks nobody's are overwritten.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        if cfg!(unix) {
            // Elsewhere a file that is only appended to cannot be emptied.
            options.append(true);
        }
        let file = options.open(&path)?;
        // What is no plain file, as `/dev/null`, is nobody's and has no length.
        if !file.metadata()?.is_file() {
            return Ok(Self { path, file });
        }
        let file = match current {
            // The lock is held already, and a second one would be refused.
            Some(current) if is_same(&current.file, &file) => current.file.try_clone()?,
            _ => match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Err(is_written_elsewhere(&path)),
                // A file system without locks: none can tell.
                Ok(()) | Err(TryLockError::Error(_)) => file,
            },
        };
        file.set_len(0)?;
        Ok(Self { path, file })
    }

    /// In one piece, and at once: a run that is killed has all epochs before.
    pub(super) fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(line.as_bytes())
    }
}

fn is_written_elsewhere(path: &Path) -> io::Error {
    let (stem, end) = (path.file_stem().unwrap_or_default(), path.extension().unwrap_or_default());
    let (stem, end) = (stem.to_string_lossy(), end.to_string_lossy());
    let dot = if end.is_empty() { "" } else { "." };
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!(
            "another process writes this file, so this one writes none; put `%p` for the number of the process into the name, as \
             `{stem}-%p{dot}{end}`"
        ),
    )
}

/// To open a pipe for writing waits for a reader, and to write to a full one waits for it to read: training would stand still.
fn refuse_what_waits(path: &Path) -> io::Result<()> {
    let kind = match std::fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match what_it_is(kind) {
        None => Ok(()),
        Some(what) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {what}; name a plain file, which never waits"),
        )),
    }
}

/// `None` for plain files, and for devices such as `/dev/null`.
fn what_it_is(kind: std::fs::FileType) -> Option<&'static str> {
    if kind.is_dir() {
        return Some("a folder");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        if kind.is_fifo() {
            return Some("a pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
        if kind.is_block_device() {
            return Some("a disk");
        }
    }
    None
}

#[cfg(unix)]
fn is_same(first: &File, second: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
    matches!((identity(first), identity(second)), (Ok(first), Ok(second)) if first == second)
}

/// Elsewhere a file that is written is not begun anew by its own process.
#[cfg(not(unix))]
fn is_same(_first: &File, _second: &File) -> bool {
    false
}
