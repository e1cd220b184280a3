//! The option `oom`: what a function says and writes when memory runs out inside it.

use super::budget::show_sites;
use super::site::Site;
use crate::allocator::watch::OomWatch;
use crate::allocator::{Inner, OutOfMemory};
use crate::ledger::ScopeKey;
use crate::scope::LiveSite;
use crate::units::{Bytes, signed};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The folder that snapshots go to; without it, the system's for temporary files.
const FOLDER_VARIABLE: &str = "MEMTRACK_OOM_DUMP";

/// Told apart by these in one process.
static SNAPSHOT_COUNT: AtomicU64 = AtomicU64::new(0);

impl OomWatch for Site {
    fn out_of_memory(&self, inner: &Inner, scope: ScopeKey, error: &OutOfMemory) {
        // Once per function: a loop that keeps running out must not fill the disk.
        let is_first = self.options.oom_snapshot && !self.has_dumped.swap(true, Ordering::Relaxed);
        let snapshot = is_first.then(|| {
            let path = path(self.call_site.name());
            let written = write(inner, &path);
            (path, written)
        });
        let snapshot = match snapshot {
            Some((path, Ok(()))) => format!("; a snapshot is in {}", path.display()),
            Some((path, Err(failure))) => format!("; no snapshot could be written to {}: {failure}", path.display()),
            None if self.options.oom_event => String::new(),
            None => return,
        };
        let holders = LiveSite::group(&inner.live_blocks_inside(scope));
        self.log(error, &holders, &snapshot);
    }
}

impl Site {
    fn log(&self, error: &OutOfMemory, holders: &[LiveSite], snapshot: &str) {
        let (name, file, line) = (self.call_site.name(), self.call_site.file(), self.call_site.line());
        let place = format_args!("{file}:{line}");
        let held_bytes = holders.iter().fold(0_u64, |sum, site| sum.saturating_add(site.requested_bytes));
        let mut listed = String::new();
        // Writing to a text cannot fail.
        let _ = show_sites(&mut listed, holders);
        tracing::error!(
            target: "memtrack::oom",
            {
                mem.device = error.device.as_str(),
                mem.phase = error.phase.unwrap_or("other"),
                function = name,
                place = %place,
                requested_bytes = signed(error.requested_bytes),
                held_bytes = signed(held_bytes),
            },
            "out of memory inside `{name}` at {place}, which holds {}{listed}{snapshot}", Bytes::unsigned(held_bytes)
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
