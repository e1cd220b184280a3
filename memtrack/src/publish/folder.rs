//! Where figures are published.

use std::path::{Path, PathBuf};
use std::sync::RwLock;

use crate::sync::{read, write};

/// The environment variable that turns publishing on: a folder, or `1` for [`default_folder`]. Empty or `0` is off.
pub const ENVIRONMENT_VARIABLE: &str = "MEMTRACK_PUBLISH";

/// What [`to`] set.
static CHOSEN: RwLock<Option<PathBuf>> = RwLock::new(None);

/// Turns publishing on in this process, into `folder`, whatever the environment says. The folder is made at the first
/// publication, for this user alone.
pub fn to(folder: impl AsRef<Path>) {
    *write(&CHOSEN) = Some(folder.as_ref().to_owned());
}

/// The folder in force: the one that [`to`] named, else the environment's; `None` with publishing off.
pub fn folder() -> Option<PathBuf> {
    if let Some(chosen) = &*read(&CHOSEN) {
        return Some(chosen.clone());
    }
    let value = std::env::var_os(ENVIRONMENT_VARIABLE)?;
    match value.to_str() {
        Some("" | "0") => None,
        Some("1") => Some(default_folder()),
        _ => Some(value.into()),
    }
}

/// The folder that `MEMTRACK_PUBLISH=1` and readers without another one mean: `memtrack` in `XDG_RUNTIME_DIR`, else
/// `memtrack-` with the user's number in the folder for temporary files.
pub fn default_folder() -> PathBuf {
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|runtime| !runtime.is_empty()) {
        return PathBuf::from(runtime).join("memtrack");
    }
    let user = own_user().map_or_else(|| "user".to_owned(), |number| number.to_string());
    std::env::temp_dir().join(format!("memtrack-{user}"))
}

#[cfg(target_os = "linux")]
fn own_user() -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").ok().map(|metadata| metadata.uid())
}

#[cfg(not(target_os = "linux"))]
fn own_user() -> Option<u32> {
    None
}
