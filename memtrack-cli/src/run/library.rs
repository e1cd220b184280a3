//! The library that is preloaded: where it is, and how the loader is told.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const NAME: &str = "libmemtrack_preload.so";
const ENVIRONMENT_VARIABLE: &str = "MEMTRACK_PRELOAD_LIBRARY";

/// The library's path.
pub(super) fn find() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(ENVIRONMENT_VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display())),
            false => Err(format!("{ENVIRONMENT_VARIABLE}={}: there is no such file", path.display())),
        };
    }
    let program = env::current_exe().map_err(|error| format!("where this program is cannot be found out: {error}"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let candidates = [folder.join(NAME), folder.join("../lib").join(NAME), folder.join("deps").join(NAME)];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(format!(
            "{NAME} is not in {}, nor in ../lib or deps of it; build it with `cargo build --release -p memtrack-preload`, or say where \
             it is by {ENVIRONMENT_VARIABLE}",
            folder.display()
        )),
    }
}

/// The value of `LD_PRELOAD` with the library before what is in it.
pub(super) fn preload(library: &Path, before: Option<OsString>) -> Result<OsString, String> {
    // The loader takes both for the end of a name, and knows no way to write them.
    if library.to_string_lossy().contains([' ', ':']) {
        return Err(format!("{}: the loader takes no path with spaces or colons", library.display()));
    }
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_nothing_is_lost() {
        let library = Path::new("/lib/x.so");
        assert_eq!(preload(library, None), Ok("/lib/x.so".into()));
        assert_eq!(preload(library, Some("".into())), Ok("/lib/x.so".into()));
        assert_eq!(preload(library, Some("/a.so /b.so".into())), Ok("/lib/x.so:/a.so /b.so".into()));
    }

    #[test]
    fn a_path_that_the_loader_would_cut_is_refused() {
        assert!(preload(Path::new("/my lib/x.so"), None).is_err());
        assert!(preload(Path::new("/a:b/x.so"), None).is_err());
    }
}
