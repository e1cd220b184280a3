//! The library, opened in the process itself: for programs that open the driver's library when they run.
//!
//! They ask the loader for `libcuda.so`, which is the name that the library bears; one that is open already is what they get.

use std::path::{Path, PathBuf};

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};

/// Why the program's calls are not counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no library.
    #[error(
        "libmemtrack_preload.so is at none of {}; build it with `cargo build --release -p memtrack-preload`, or say where it is by \
         MEMTRACK_PRELOAD_LIBRARY",
        list(looked_for)
    )]
    NotFound {
        /// Where it could have been.
        looked_for: Vec<PathBuf>,
    },
    /// The driver's library is open, so calls go there.
    #[error(
        "{driver} is loaded: call `load` before the first CUDA call; a program that is linked with it needs `use memtrack_hook as _;` \
         and no `load`"
    )]
    TooLate {
        /// Under this name.
        driver: &'static str,
    },
    /// The loader refuses the library, as it does where there is no driver.
    #[error("{} cannot be loaded: {message}", path.display())]
    Refused {
        /// The library.
        path: PathBuf,
        /// What the loader says.
        message: String,
    },
    /// Some other library, or one of another version.
    #[error("{} is loaded, and is not memtrack's library, or one of another version", path.display())]
    Foreign {
        /// The library.
        path: PathBuf,
    },
    /// The library is for 64-bit Linux.
    #[error("libmemtrack_preload.so is for 64-bit Linux")]
    Unsupported,
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Opens the library that counts, before the program's first CUDA call. It is looked for where `MEMTRACK_PRELOAD_LIBRARY` says, else
/// beside the program, in `../lib` and in `deps`. Where it is there already, by `LD_PRELOAD` or an earlier call, nothing is done.
///
/// It stays open until the process ends.
///
/// # Errors
///
/// [`LoadError`] when the calls are not counted; the program works as without it.
pub fn load() -> Result<(), LoadError> {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    {
        if loaded().is_some() {
            return Ok(());
        }
        too_late()?;
        open(&crate::find::find()?)
    }
    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    Err(LoadError::Unsupported)
}

/// As [`load()`], with the library at this path.
///
/// # Errors
///
/// [`LoadError`] when the calls are not counted; the program works as without it.
pub fn load_from(path: impl AsRef<Path>) -> Result<(), LoadError> {
    let path = path.as_ref();
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    {
        if loaded().is_some() {
            return Ok(());
        }
        too_late()?;
        open(path)
    }
    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    {
        let _ = path;
        Err(LoadError::Unsupported)
    }
}

/// The names under which programs look for the driver; cudarc knows more, of systems where this is not.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const DRIVERS: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// A library of this name that is loaded.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn already(name: &str) -> Option<Library> {
    // `RTLD_NOLOAD`
    const NO_LOAD: i32 = 4;
    // SAFETY: nothing is loaded that is not loaded already.
    unsafe { Library::open(Some(name), RTLD_LAZY | NO_LOAD) }.ok()
}

/// The library, where the process has it.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn loaded() -> Option<Library> {
    already(DRIVERS[0]).filter(|library| mode_of(library).is_some())
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
type SetMode = extern "C" fn(u32) -> u32;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn mode_of(library: &Library) -> Option<SetMode> {
    // SAFETY: the library's function of this name has this type, and no other library has one of that name.
    unsafe { library.get::<SetMode>(b"memtrack_preload_mode\0") }.ok().map(|function| *function)
}

/// Whether the driver is open and its functions are not this program's own, so that nobody sees the calls.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn is_missed() -> bool {
    DRIVERS.into_iter().any(|name| already(name).is_some()) && !memtrack_preload::is_in_the_drivers_place()
}

/// Says the library what is done with calls.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn pass_on(library: &Library, mode: memtrack_preload::Mode) -> Result<(), crate::TooLate> {
    match mode_of(library).map(|set| set(mode.number())) {
        Some(0) => Ok(()),
        _ => Err(crate::TooLate),
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn too_late() -> Result<(), LoadError> {
    match DRIVERS.into_iter().find(|name| already(name).is_some()) {
        Some(driver) => Err(LoadError::TooLate { driver }),
        None => Ok(()),
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn open(path: &Path) -> Result<(), LoadError> {
    // The loader takes a name without a folder for one that it is to look for.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if !path.is_file() {
        return Err(LoadError::NotFound { looked_for: vec![path] });
    }
    // SAFETY: the library's initialisers, and those of the driver behind it, which any CUDA program runs.
    let library = match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => library,
        Err(error) => {
            // The loader's own words are the source of libloading's.
            let reason = std::error::Error::source(&error).map(ToString::to_string);
            return Err(LoadError::Refused { path, message: reason.unwrap_or_else(|| error.to_string()) });
        }
    };
    if loaded().is_none() {
        return Err(LoadError::Foreign { path });
    }
    if let Some(mode) = memtrack_preload::chosen_mode() {
        // It was opened here, and has seen no call.
        let _ = pass_on(&library, mode);
    }
    // Never closed: others are to find it.
    std::mem::forget(library);
    Ok(())
}
