//! What the tests of recordings share.

#![allow(dead_code, clippy::unwrap_used, reason = "every test file uses some of it; the helpers of tests are tests")]

pub(crate) mod document;
pub(crate) mod nvml;

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

/// Where the measured files are.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/torch-2.11")
}

/// The gzipped files of one folder, by name.
pub(crate) fn files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixtures().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "gz")).collect();
    files.sort();
    files
}

/// What is in a measured file.
pub(crate) fn unpacked(path: &str) -> String {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(fixtures().join(path)).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// Runs the command line in this process: status, standard output, standard error.
pub(crate) fn run(arguments: &[&str]) -> (u8, String, String) {
    let arguments = ["memtrack"].iter().chain(arguments).map(|argument| (*argument).into());
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let status = memtrack_cli::command::run(arguments, &mut output, &mut errors);
    (status, String::from_utf8(output).unwrap(), String::from_utf8(errors).unwrap())
}

/// A folder of a test's own, empty at first and gone with this.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Writes a file; its path as an argument.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
