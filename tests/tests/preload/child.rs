//! A child process under the library, and what it said.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// Where cargo puts a shared library that the tests depend on: beside the test executables.
fn built(name: &str) -> PathBuf {
    let executable = env::current_exe().unwrap();
    let folder = executable.parent().unwrap();
    let candidates = [folder.join(name), folder.join("deps").join(name)];
    let found = candidates.iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("cargo has not built {name}: neither of {candidates:?} exists")).clone()
}

/// The library: the one of this build, or another to measure.
pub(crate) fn preload_library() -> PathBuf {
    let library = env::var_os("MEMTRACK_PRELOAD_LIBRARY").map(PathBuf::from);
    let library = library.unwrap_or_else(|| built("libmemtrack_preload.so"));
    // The loader does without a library that is not there.
    assert!(library.is_file(), "{}: there is no such library", library.display());
    library
}

/// A folder of this test's own, with the mock in it as the driver's library.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("memtrack-preload-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let this = Self(folder);
        symlink(built("libmemtrack_mock_driver.so"), this.path("libcuda.so.1")).unwrap();
        this
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program run to its end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
    /// Lines of the run file; `None` where none was written.
    pub(crate) run_file: Option<Vec<Value>>,
}

impl Ended {
    /// Lines `name=number` of the output.
    pub(crate) fn numbers(&self) -> BTreeMap<&str, u64> {
        let pairs = self.output.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, number)| (name, number.parse().unwrap())).collect()
    }

    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        *self.numbers().get(name).unwrap_or_else(|| panic!("{name}: not in {self:?}"))
    }

    #[track_caller]
    pub(crate) fn expect_success(self) -> Self {
        assert!(self.status.success(), "{self:#?}");
        self
    }

    /// The run file's line about the calls on a device.
    #[track_caller]
    pub(crate) fn calls_on(&self, device: &str) -> &Value {
        let lines = self.run_file.as_ref().unwrap_or_else(|| panic!("no run file: {self:#?}"));
        let found = lines.iter().find(|line| line["kind"] == "preload" && line["device"] == device);
        found.unwrap_or_else(|| panic!("{device}: not in {self:#?}"))
    }
}

/// Whether the library is preloaded, and what `MEMTRACK_PRELOAD` says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Preload {
    Yes(&'static str),
    No(&'static str),
}

/// A program with its environment, under the library or not.
pub(crate) fn command(
    folder: &Folder,
    preload: Preload,
    program: &Path,
    arguments: &[&str],
    more: &[(&str, &str)],
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    for variable in ["MEMTRACK_ALLOC_CONF", "MEMTRACK_PUBLISH", "MEMTRACK_OOM_DUMP", "LD_PRELOAD"] {
        command.env_remove(variable);
    }
    command.env("LD_LIBRARY_PATH", &folder.0);
    let mode = match preload {
        Preload::Yes(mode) => {
            command.env("LD_PRELOAD", preload_library());
            mode
        }
        Preload::No(mode) => mode,
    };
    command.env("MEMTRACK_PRELOAD", mode).env("MEMTRACK_RUN_FILE", run_file(folder));
    command.envs(more.iter().copied());
    command
}

fn run_file(folder: &Folder) -> PathBuf {
    folder.path("run.jsonl")
}

/// Runs a program to its end.
pub(crate) fn run_program(
    folder: &Folder,
    preload: Preload,
    program: &Path,
    arguments: &[&str],
    more: &[(&str, &str)],
) -> Ended {
    let run_file = run_file(folder);
    let _ = fs::remove_file(&run_file);
    let output = command(folder, preload, program, arguments, more).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    Ended {
        status: output.status,
        output: text(output.stdout),
        errors: text(output.stderr),
        run_file: fs::read_to_string(&run_file).ok().map(|lines| lines.lines().map(parse).collect()),
    }
}
