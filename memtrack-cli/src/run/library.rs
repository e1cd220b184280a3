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
        if !path.is_file() {
            return Err(format!("{ENVIRONMENT_VARIABLE}={}: there is no such file", path.display()));
        }
        // The loader only warns of what it cannot load, and the program would run uncounted.
        return match std::fs::read(&path) {
            Ok(content) if is_library(&content) => {
                std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))
            }
            Ok(_) => Err(format!(
                "{ENVIRONMENT_VARIABLE}={}: it is not memtrack's library, {NAME}, for this machine",
                path.display()
            )),
            Err(error) => Err(format!("{ENVIRONMENT_VARIABLE}={}: {error}", path.display())),
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

/// Whether this is a shared library of this machine's kind that exports what only memtrack's does.
fn is_library(content: &[u8]) -> bool {
    /// A function of the library's. In the table of names each ends in zero.
    const EXPORTED: &[u8] = b"memtrack_preload_here";
    /// 64 bits, in this machine's order of bytes.
    const BEGINNING: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "little") { 1 } else { 2 }];
    /// `ET_DYN`
    const SHARED: u16 = 3;
    let kind = content.get(16..18).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    content.starts_with(&BEGINNING)
        && kind == Some(SHARED)
        && content.split(|byte| *byte == 0).any(|name| name == EXPORTED)
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
    fn what_is_not_memtracks_library_is_told_from_it() {
        let mut library = b"\x7fELF\x02\x01\x01".to_vec();
        library.resize(16, 0);
        library.extend(3_u16.to_ne_bytes());
        assert!(!is_library(&library), "another library");
        library.extend(b"\0memtrack_preload_here\0");
        assert_eq!(is_library(&library), cfg!(target_endian = "little"));
        library[16] = 2;
        assert!(!is_library(&library), "a program");
        assert!(!is_library(b"root:x:0:0:\0memtrack_preload_here\0"));
    }

    #[test]
    fn a_path_that_the_loader_would_cut_is_refused() {
        assert!(preload(Path::new("/my lib/x.so"), None).is_err());
        assert!(preload(Path::new("/a:b/x.so"), None).is_err());
    }
}
