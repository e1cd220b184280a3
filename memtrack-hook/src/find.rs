//! Where the library is.

use std::env;
use std::path::{Path, PathBuf};

use crate::LoadError;

const NAME: &str = "libmemtrack_preload.so";
const ENVIRONMENT_VARIABLE: &str = "MEMTRACK_PRELOAD_LIBRARY";

/// The library's path: where the environment says, else beside this program or where cargo puts it.
pub(super) fn find() -> Result<PathBuf, LoadError> {
    if let Some(named) = env::var_os(ENVIRONMENT_VARIABLE).filter(|named| !named.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    let program = env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("/"));
    let candidates = [folder.join(NAME), folder.join("../lib").join(NAME), folder.join("deps").join(NAME)];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(LoadError::NotFound { looked_for: candidates.into() }),
    }
}
