//! Finding and reading the files of `fixtures/torch-2.11`.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

/// The gzipped files of one folder, sorted by name. `count` is how many there must be, so that a lost one is noticed.
pub fn gzipped_files(folder: &str, count: usize) -> Vec<PathBuf> {
    let folder = fixture(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "gz")).collect();
    assert_eq!(files.len(), count);
    files.sort();
    files
}

/// A file or folder under `fixtures/torch-2.11`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/torch-2.11").join(name)
}

/// A gzipped file's text.
pub fn read_gzipped(path: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(BufReader::new(File::open(path).unwrap())).read_to_string(&mut text).unwrap();
    text
}
