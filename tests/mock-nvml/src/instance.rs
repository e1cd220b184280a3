//! For tests: a copy of the library, loaded and configured.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use libloading::Library;

use crate::Configuration;

/// A copy of the shared library with a state of its own. The file goes when this is dropped; who loaded it keeps it.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    library: Library,
}

impl Instance {
    /// Copies and loads the library and sets its document.
    ///
    /// # Errors
    ///
    /// When the shared library does not lie beside the test's executable, where Cargo puts it for a package that
    /// depends on this one, or cannot be copied, loaded or configured.
    pub fn start(configuration: &Configuration) -> io::Result<Self> {
        Self::start_without(configuration, &[])
    }

    /// As [`start`](Self::start), with a library in which the loader does not find these functions.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start), and when the library never had one of them.
    pub fn start_without(configuration: &Configuration, functions: &[&str]) -> io::Result<Self> {
        static COPIES: AtomicU32 = AtomicU32::new(0);
        let mut bytes = std::fs::read(built_library()?)?;
        for function in functions {
            hide(&mut bytes, function)?;
        }
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("libmemtrack-mock-nvml-{}-{number}.so", std::process::id()));
        std::fs::write(&path, bytes)?;
        // SAFETY: the library is this crate's own; loading it runs no code of it.
        let library = unsafe { Library::new(&path) }.map_err(io::Error::other)?;
        let instance = Self { path, library };
        instance.configure(configuration)?;
        Ok(instance)
    }

    /// What to load in place of NVML.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the document.
    ///
    /// # Errors
    ///
    /// When the library does not take it.
    pub fn configure(&self, configuration: &Configuration) -> io::Result<()> {
        let json = CString::new(serde_json::to_string(configuration)?)?;
        // SAFETY: the function has this type in `abi.rs`.
        let configure = unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_char) -> c_int>(b"memtrack_mock_nvml_configure\0")
        }
        .map_err(io::Error::other)?;
        // SAFETY: the function wants a C string, which lives through the call.
        match unsafe { configure(json.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::other("the library does not take this configuration")),
        }
    }

    /// How often a function was called in this copy.
    ///
    /// # Errors
    ///
    /// When the name is no C string, or the library is not this one.
    pub fn calls(&self, function: &str) -> io::Result<u64> {
        let name = CString::new(function)?;
        // SAFETY: the function has this type in `abi.rs`.
        let calls =
            unsafe { self.library.get::<unsafe extern "C" fn(*const c_char) -> u64>(b"memtrack_mock_nvml_calls\0") }
                .map_err(io::Error::other)?;
        // SAFETY: the function wants a C string, which lives through the call.
        Ok(unsafe { calls(name.as_ptr()) })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Left in the folder for temporary files, it harms nobody.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The shared library, beside the running executable or in the folder of dependencies below it.
fn built_library() -> io::Result<PathBuf> {
    const NAME: &str = "libmemtrack_mock_nvml.so";
    let executable = std::env::current_exe()?;
    let folder = executable.parent().unwrap_or(Path::new("."));
    [folder.join(NAME), folder.join("deps").join(NAME)].into_iter().find(|path| path.exists()).ok_or_else(|| {
        let message = format!("no {NAME} beside {}; depend on memtrack-mock-nvml", executable.display());
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// Changes a letter of the function's name in the table of symbols: the loader compares names after their hashes.
fn hide(library: &mut [u8], function: &str) -> io::Result<()> {
    let name = [b"\0", function.as_bytes(), b"\0"].concat();
    let mut found = false;
    let mut at = 0;
    while let Some(offset) = library[at..].windows(name.len()).position(|window| window == name) {
        at += offset + 1;
        library[at] = b'-';
        found = true;
    }
    if found { Ok(()) } else { Err(io::Error::other(format!("the library has no {function}"))) }
}
