//! The run file: one JSON line for each epoch that ends, for `memtrack diff` and for programs of your own.
//!
//! Written to where [`record_to`] or the environment variable [`ENVIRONMENT_VARIABLE`] says, by this process alone; what stands in a
//! line is [`EpochSummary::to_json`](crate::EpochSummary::to_json)'s affair. Here live the state and the `file`.

mod file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use self::file::RunFile;
use crate::sync::lock;

/// Names the run file of a program that does not name one itself. `%p` in it becomes the number of the process, so that each
/// process of one run has its own.
///
/// A file is locked while a process writes it. A second process that is given the same name writes nothing, and says so in one
/// `WARN` event with target `memtrack::run_file`; so does one that is given a pipe or a folder.
pub const ENVIRONMENT_VARIABLE: &str = "MEMTRACK_RUN_FILE";

static STATE: Mutex<State> = Mutex::new(State::Undecided);

#[derive(Debug)]
enum State {
    /// The environment was not looked at yet, and no file was named.
    Undecided,
    /// Nothing is written.
    Off,
    /// Epochs go here.
    To(RunFile),
}

/// Writes the epochs that end from now on to a new file, in place of any file before. `%p` in the path becomes the number of the
/// process.
///
/// # Errors
///
/// When the file cannot be created, when another process writes it ([`io::ErrorKind::ResourceBusy`]), and when it is a pipe, a
/// socket, a disk or a folder ([`io::ErrorKind::InvalidInput`]): to write to a pipe could wait for its reader. Epochs then go where
/// they went before. On file systems without locks another process goes unnoticed, and the lines of both are in the file.
/// On Windows a locked file cannot be read either before the process ends.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{CachingAllocator, device::Host};
/// let path = std::env::temp_dir().join("memtrack-example-%p.jsonl");
/// memtrack::run_file::record_to(&path)?;
/// let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// allocator.epoch(1).finish();
/// let written = memtrack::run_file::stop().expect("a file was written");
/// let line = std::fs::read_to_string(&written)?;
/// assert!(line.starts_with(r#"{"schema":"memtrack.run","version":1,"kind":"epoch","#));
/// # std::fs::remove_file(written)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn record_to(path: impl AsRef<Path>) -> io::Result<()> {
    let mut state = lock(&STATE);
    let current = match &*state {
        State::To(current) => Some(current),
        State::Undecided | State::Off => None,
    };
    *state = State::To(RunFile::create(path.as_ref(), current)?);
    Ok(())
}

/// Ends the run file and says where it is; `None` without one. No file is begun by the environment any more.
pub fn stop() -> Option<PathBuf> {
    match std::mem::replace(&mut *lock(&STATE), State::Off) {
        State::To(run_file) => Some(run_file.path),
        State::Undecided | State::Off => None,
    }
}

/// Writes a line of the program's own to the run file, where there is one; whether there was. Readers pass over lines whose `kind` they
/// do not know, and refuse those without the keys `schema`, `version` and `kind` of [`EpochSummary::to_json`](crate::EpochSummary::to_json).
///
/// # Errors
///
/// When the file that the environment names cannot be created, or the line cannot be written. Nothing is written from then on.
///
/// ```
/// let path = std::env::temp_dir().join("memtrack-line-example-%p.jsonl");
/// memtrack::run_file::record_to(&path)?;
/// memtrack::run_file::write_line(r#"{"schema":"memtrack.run","version":1,"kind":"checkpoint","step":100}"#)?;
/// # std::fs::remove_file(memtrack::run_file::stop().expect("a file was written"))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_line(line: &str) -> io::Result<bool> {
    let written = decide().and_then(|is_on| if is_on { append(line.to_owned()).map(|()| true) } else { Ok(false) });
    written.map_err(|(path, error)| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Writes a line if there is a run file. What cannot be written is told once, and ends the file: training goes on.
pub(crate) fn write(line: impl FnOnce() -> String) {
    if let Err((path, error)) = decide().and_then(|is_on| if is_on { append(line()) } else { Ok(()) }) {
        // No lock is held.
        warn(&path, &error);
    }
}

type Failure = (PathBuf, io::Error);

/// Looks at the environment, if nobody did; says whether there is a file.
fn decide() -> Result<bool, Failure> {
    let mut state = lock(&STATE);
    if let State::Undecided = *state {
        *state = State::Off;
        if let Some(path) = std::env::var_os(ENVIRONMENT_VARIABLE).filter(|path| !path.is_empty()) {
            let path = PathBuf::from(path);
            *state = State::To(RunFile::create(&path, None).map_err(|error| (path, error))?);
        }
    }
    Ok(matches!(*state, State::To(_)))
}

fn append(mut line: String) -> Result<(), Failure> {
    line.push('\n');
    let mut state = lock(&STATE);
    let State::To(run_file) = &mut *state else { return Ok(()) };
    if let Err(error) = run_file.write_line(&line) {
        let path = std::mem::take(&mut run_file.path);
        *state = State::Off;
        return Err((path, error));
    }
    Ok(())
}

fn warn(path: &Path, error: &io::Error) {
    tracing::warn!(
        target: "memtrack::run_file",
        { path = %path.display(), error = %error },
        "the run file cannot be written; no more epochs go to it"
    );
}
