//! The program of these tests, under the library.

use std::path::Path;

use crate::child::{Ended, Folder, Preload, run_program};

/// Runs a program under the library.
pub(crate) fn run_under(
    folder: &Folder,
    mode: &'static str,
    program: &Path,
    arguments: &[&str],
    more: &[(&str, &str)],
) -> Ended {
    run_program(folder, Preload::Yes(mode), program, arguments, more)
}

/// Runs the program of these tests, which opens `libcuda.so` through cudarc.
pub(crate) fn run(mode: &'static str, what: &str) -> Ended {
    run_with(mode, what, &[])
}

pub(crate) fn run_with(mode: &'static str, what: &str, more: &[(&str, &str)]) -> Ended {
    run_under(&Folder::new(), mode, Path::new(env!("CARGO_BIN_EXE_preload-subject")), &[what], more)
}
