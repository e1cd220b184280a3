//! The program as a process of its own, where that decides: its streams closed or full, its environment malformed, and
//! CUDA libraries that are none. Each test starts itself anew and there runs the program instead.
#![cfg(target_os = "linux")]

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memtrack::device::{Device as _, Host};
use memtrack::units::MIB;

/// The program's arguments, set in the process that a test starts for itself.
const ARGUMENTS: &str = "MEMTRACK_TEST_TRAIN_ARGUMENTS";

const SHORT_RUN: &str = "--device cpu --hidden 16 --epochs 1 --no-table";

/// How a run went.
struct Ended {
    status: Option<i32>,
    output: String,
    error: String,
}

/// In the process that a test has started, the program: this does not return then.
fn be_the_program_if_told() {
    if let Ok(arguments) = std::env::var(ARGUMENTS) {
        let arguments = ["train"].into_iter().chain(arguments.split_whitespace()).map(OsString::from);
        std::process::exit(i32::from(crate::run(arguments)));
    }
}

/// The command that runs the program with these arguments, in a process that begins with the test of this name.
fn program(test: &str, arguments: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("process_tests::{test}"), "--exact", "--nocapture"]);
    command.env(ARGUMENTS, arguments).env_remove("RUST_LOG").env_remove("MEMTRACK_ALLOC_CONF");
    command
}

fn end(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let ended = Ended { status: output.status.code(), output: text(output.stdout), error: text(output.stderr) };
    // Not even one that was caught.
    assert!(!ended.error.contains("panicked"), "{}", ended.error);
    ended
}

#[test]
fn a_log_that_standard_error_does_not_take_is_lost_and_training_goes_on() {
    be_the_program_if_told();
    let test = "a_log_that_standard_error_does_not_take_is_lost_and_training_goes_on";
    for format in ["plain", "json"] {
        let mut command = program(test, &format!("{SHORT_RUN} --log {format}"));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (reader, closed) = io::pipe().unwrap();
        drop(reader);
        for stream in [Stdio::from(full), Stdio::from(closed)] {
            let ended = end(command.stderr(stream));
            assert_eq!(ended.status, Some(0), "{}", ended.output);
            assert!(ended.output.contains("epoch 1/1"), "{}", ended.output);
        }
    }
}

#[test]
fn an_error_that_standard_error_does_not_take_still_gives_the_status() {
    be_the_program_if_told();
    let test = "an_error_that_standard_error_does_not_take_still_gives_the_status";
    let mut command = program(test, &format!("{SHORT_RUN} --capacity 1MiB"));
    assert_eq!(end(&mut command).status, Some(1));
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(end(command.stderr(full)).status, Some(1));
}

#[test]
fn a_malformed_log_filter_is_an_error_where_it_is_used() {
    be_the_program_if_told();
    let test = "a_malformed_log_filter_is_an_error_where_it_is_used";
    for (value, said) in [(b"memtrack=loud".as_slice(), "\"memtrack=loud\""), (b"inf\xff", "not Unicode")] {
        let mut command = program(test, &format!("{SHORT_RUN} --log plain"));
        let ended = end(command.env("RUST_LOG", OsStr::from_bytes(value)));
        assert_eq!(ended.status, Some(2), "{}", ended.error);
        assert!(ended.error.starts_with("error: RUST_LOG is ") && ended.error.contains(said), "{}", ended.error);
        assert!(ended.error.contains("`info`"), "{}", ended.error);

        let mut command = program(test, SHORT_RUN);
        assert_eq!(end(command.env("RUST_LOG", OsStr::from_bytes(value))).status, Some(0));
    }
}

#[test]
fn a_capacity_and_a_fraction_of_memory_do_not_multiply() {
    be_the_program_if_told();
    let test = "a_capacity_and_a_fraction_of_memory_do_not_multiply";
    let three_mebibytes = 3.0 * MIB as f64 / Host::new().total_bytes() as f64;
    for (fraction, allowed) in [(0.5, "of 26.00 MiB allowed"), (three_mebibytes, "of 3.00 MiB allowed")] {
        let mut command = program(test, "--device cpu --hidden 16 --epochs 1 --capacity 26MiB");
        let ended = end(command.env("MEMTRACK_ALLOC_CONF", format!("per_process_memory_fraction:{fraction:.15}")));
        assert!(ended.output.contains(allowed), "{}{}", ended.output, ended.error);
    }
}

/// A folder that holds the mock CUDA driver under the driver's name, for as long as this lives.
struct LibraryFolder(PathBuf);

impl LibraryFolder {
    fn with_mock_driver(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("memtrack-train-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["libcuda.so", "libcuda.so.1"] {
            fs::copy(mock_driver(), folder.join(name)).unwrap();
        }
        Self(folder)
    }

    /// Puts the same file under every name that cudarc tries, so that no library of this machine is found instead.
    fn put(&self, stem: &str, write: impl Fn(&Path)) {
        for name in cudarc::get_lib_name_candidates(stem) {
            write(&self.0.join(name));
        }
    }
}

impl Drop for LibraryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where cargo puts the mock: with the dependencies, beside the examples' folder.
fn mock_driver() -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    let profile = executable.parent().and_then(Path::parent).unwrap();
    let name = "libmemtrack_mock_driver.so";
    let candidates = [profile.join("deps").join(name), profile.join(name)];
    let found = candidates.iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("cargo has not built the mock driver: neither of {candidates:?} exists")).clone()
}

/// `auto` trains on the CPU and says this of it; `cuda` is an error that says this.
fn falls_back_and_says(test: &str, folder: &LibraryFolder, said: &[&str]) {
    let mut command = program(test, "--hidden 16 --epochs 1 --no-table --device auto");
    let ended = end(command.env("LD_LIBRARY_PATH", &folder.0));
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    let note = ended.output.lines().find(|line| line.contains("using the CPU: ")).unwrap_or_default();
    assert!(said.iter().all(|said| note.contains(said)), "{}", ended.output);
    assert!(ended.output.contains("on host memory"), "{}", ended.output);

    let mut command = program(test, "--hidden 16 --epochs 1 --no-table --device cuda");
    let ended = end(command.env("LD_LIBRARY_PATH", &folder.0));
    assert_eq!(ended.status, Some(1), "{}", ended.error);
    assert!(
        ended.error.starts_with("error: ") && said.iter().all(|said| ended.error.contains(said)),
        "{}",
        ended.error
    );
}

#[test]
fn a_cublas_without_functions_is_a_reason_to_use_the_cpu() {
    be_the_program_if_told();
    let folder = LibraryFolder::with_mock_driver("no-functions");
    // Any library that is neither.
    folder.put("cublas", |path| assert!(fs::copy(mock_driver(), path).unwrap() > 0));
    folder.put("nvrtc", |path| assert!(fs::copy(mock_driver(), path).unwrap() > 0));
    let test = "a_cublas_without_functions_is_a_reason_to_use_the_cpu";
    falls_back_and_says(test, &folder, &["cuBLAS has no function cublasCreate_v2", "undefined symbol"]);
}

#[test]
fn a_text_file_as_cublas_is_a_reason_to_use_the_cpu() {
    be_the_program_if_told();
    let folder = LibraryFolder::with_mock_driver("text");
    folder.put("cublas", |path| fs::write(path, "no library, only a line of text\n".repeat(10)).unwrap());
    let test = "a_text_file_as_cublas_is_a_reason_to_use_the_cpu";
    falls_back_and_says(test, &folder, &["cuBLAS cannot be loaded: libcublas.so", "invalid ELF header"]);
}

#[test]
fn a_text_file_as_the_driver_is_a_reason_to_use_the_cpu() {
    be_the_program_if_told();
    let folder = LibraryFolder::with_mock_driver("no-driver");
    for name in ["libcuda.so", "libcuda.so.12", "libcuda.so.11", "libcuda.so.10", "libcuda.so.1"] {
        fs::write(folder.0.join(name), "no library, only a line of text\n".repeat(10)).unwrap();
    }
    let test = "a_text_file_as_the_driver_is_a_reason_to_use_the_cpu";
    falls_back_and_says(test, &folder, &["no CUDA driver library", "invalid ELF header"]);
}
