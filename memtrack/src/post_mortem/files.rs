//! The files of one post-mortem, one after the other, what matters most first.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::bounded::{Bounded, Bounds};
use super::error::PostMortemError;
use super::material::{Material, event_line};
use super::options::{LONGEST_WAIT, PostMortemOptions};
use crate::history::Snapshot;

/// Folders of earlier processes with the same number are passed over, so many at most.
const FOLDER_TRIES: u64 = 1000;

/// Told apart by these in one process.
static FOLDER_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Makes a folder that nobody else writes to.
pub(super) fn make_folder(options: &PostMortemOptions) -> Result<PathBuf, PostMortemError> {
    let failed =
        |folder: &Path, source| PostMortemError::Folder { folder: folder.to_owned(), source: Arc::new(source) };
    fs::create_dir_all(&options.folder).map_err(|source| failed(&options.folder, source))?;
    let mut tries = 0;
    loop {
        let number = FOLDER_NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = options.folder.join(format!("memtrack-oom-{}-{number}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < FOLDER_TRIES => tries += 1,
            Err(source) => return Err(failed(&folder, source)),
        }
    }
}

/// Writes everything, within the bounds.
pub(super) fn write(folder: &Path, options: &PostMortemOptions, material: Material) -> Result<(), PostMortemError> {
    let deadline = Instant::now() + options.time_limit.min(LONGEST_WAIT);
    let mut bounds = Bounds { left_bytes: options.size_limit_bytes, deadline };
    let Material { report, snapshot, driver } = material;
    write_file(folder, "report.txt", &mut bounds, |file| file.write_all(report.text().as_bytes()))?;
    write_file(folder, "report.json", &mut bounds, |file| file.write_all(report.json().as_bytes()))?;
    let mut snapshot = snapshot();
    keep_last_events(&mut snapshot, options.event_limit);
    let lines: String = snapshot.device_traces.iter().flatten().map(event_line).collect();
    let events = if lines.is_empty() {
        Ok(())
    } else {
        write_file(folder, "events.jsonl", &mut bounds, |file| file.write_all(lines.as_bytes()))
    };
    // Each of the rest is tried, whatever became of the others; the driver comes last, since it may not answer.
    let snapshot = write_snapshot(folder, &mut bounds, &mut snapshot);
    let driver =
        write_file(folder, "driver.txt", &mut bounds, |file| file.write_all(format!("{}\n", driver()).as_bytes()));
    events.and(snapshot).and(driver)
}

/// Cuts the traces to their last `limit` events each.
fn keep_last_events(snapshot: &mut Snapshot, limit: usize) {
    for trace in &mut snapshot.device_traces {
        let excess_count = trace.len().saturating_sub(limit);
        trace.drain(..excess_count);
    }
}

/// A snapshot that is too large is tried again without its events.
fn write_snapshot(folder: &Path, bounds: &mut Bounds, snapshot: &mut Snapshot) -> Result<(), PostMortemError> {
    const NAME: &str = "snapshot.pickle";
    let before = *bounds;
    let write = |snapshot: &Snapshot, bounds: &mut Bounds| {
        write_file(folder, NAME, bounds, |file| {
            snapshot.write_pickle(&mut *file).map_err(|error| io::Error::other(error.to_string()))
        })
    };
    let whole = write(snapshot, bounds);
    if whole.is_ok() || snapshot.device_traces.iter().all(Vec::is_empty) {
        return whole;
    }
    *bounds = before;
    snapshot.device_traces.iter_mut().for_each(Vec::clear);
    write(snapshot, bounds)
}

fn write_file(
    folder: &Path,
    name: &str,
    bounds: &mut Bounds,
    fill: impl FnOnce(&mut Bounded<'_, File>) -> io::Result<()>,
) -> Result<(), PostMortemError> {
    let path = folder.join(name);
    let outcome = File::create(&path).and_then(|file| {
        let mut bounded = Bounded::new(file, bounds);
        fill(&mut bounded)
    });
    outcome.map_err(|error| {
        // A part of a file is of no use to anybody.
        let _ = fs::remove_file(&path);
        PostMortemError::File { file: path, reason: error.to_string() }
    })
}
