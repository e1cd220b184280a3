//! The option `oom`: what a function says and writes when memory runs out inside it.

use super::site::Site;
use crate::allocator::watch::OomWatch;
use crate::allocator::{Inner, OutOfMemory};
use crate::units::signed;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The folder that snapshots go to; without it, the system's for temporary files.
const FOLDER_VARIABLE: &str = "MEMTRACK_OOM_DUMP";

/// Told apart by these in one process.
static SNAPSHOT_COUNT: AtomicU64 = AtomicU64::new(0);

impl OomWatch for Site {
    fn out_of_memory(&self, inner: &Inner, error: &OutOfMemory) {
        // Once per function: a loop that keeps running out must not fill the disk.
        let is_first = self.options.oom_snapshot && !self.has_dumped.swap(true, Ordering::Relaxed);
        let snapshot = is_first.then(|| {
            let path = path(self.name);
            let written = write(inner, &path);
            (path, written)
        });
        match &snapshot {
            Some((path, Ok(()))) => self.log(error, &format!("; a snapshot is in {}", path.display())),
            Some((path, Err(failure))) => {
                self.log(error, &format!("; no snapshot could be written to {}: {failure}", path.display()));
            }
            None if self.options.oom_event => self.log(error, ""),
            None => {}
        }
    }
}

impl Site {
    fn log(&self, error: &OutOfMemory, snapshot: &str) {
        let Self { name, file, line, .. } = self;
        let place = format_args!("{file}:{line}");
        tracing::error!(
            target: "memtrack::oom",
            {
                mem.device = error.device.as_str(),
                mem.phase = error.phase.unwrap_or("other"),
                function = name,
                place = %place,
                requested_bytes = signed(error.requested_bytes),
            },
            "out of memory inside `{name}` at {place}{snapshot}"
        );
    }
}

fn write(inner: &Inner, path: &Path) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    inner.dump_snapshot(path).map_err(|error| error.to_string())
}

/// A file that no other call writes.
fn path(function: &str) -> PathBuf {
    let folder = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty());
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
    let function: String = function.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).take(64).collect();
    let number = SNAPSHOT_COUNT.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("memtrack-oom-{}-{number}-{function}.pickle", std::process::id()))
}
