//! `memtrack run`: the program takes its place, with the library before its driver. The driver is the mock.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MEMTRACK: &str = env!("CARGO_BIN_EXE_memtrack");

/// Where cargo puts a shared library that the tests depend on: beside the test executables.
fn built(name: &str) -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().join(name)
}

/// A folder with the mock as the driver's library.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("memtrack-run-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        symlink(built("libmemtrack_mock_driver.so"), folder.join("libcuda.so.1")).unwrap();
        Self(folder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(MEMTRACK);
        command.args(arguments).env("LD_LIBRARY_PATH", &self.0);
        command.env("MEMTRACK_PRELOAD_LIBRARY", built("libmemtrack_preload.so"));
        for variable in
            ["LD_PRELOAD", "MEMTRACK_PRELOAD", "MEMTRACK_RUN_FILE", "MEMTRACK_ALLOC_CONF", "MEMTRACK_PUBLISH"]
        {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn exit_statuses_and_signals_are_the_programs() {
    let folder = Folder::new("status");
    assert_eq!(folder.run(&["run", "--", "sh", "-c", "exit 37"]).status.code(), Some(37));
    assert_eq!(folder.run(&["run", "sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
    let output = folder.run(&["run", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n".to_owned(), "err\n".to_owned()));
}

#[test]
fn the_mode_is_told_and_a_preload_that_was_there_stays() {
    let folder = Folder::new("mode");
    let echo = r#"echo "$MEMTRACK_PRELOAD $LD_PRELOAD""#;
    let library = built("libmemtrack_preload.so");
    for (option, mode) in
        [(&["run"][..], "observe"), (&["run", "--observe"], "observe"), (&["run", "--cache"], "cache")]
    {
        let output = folder.run(&[option, &["--", "sh", "-c", echo]].concat());
        assert_eq!(text(&output.stdout), format!("{mode} {}\n", library.display()));
    }
    let output = folder.command(&["run", "--", "sh", "-c", echo]).env("LD_PRELOAD", "libc.so.6").output().unwrap();
    assert_eq!(text(&output.stdout), format!("observe {}:libc.so.6\n", library.display()));
    for (option, mode) in [(&["run"][..], "cache"), (&["run", "--observe"], "observe")] {
        let mut command = folder.command(&[option, &["--", "sh", "-c", echo]].concat());
        let output = command.env("MEMTRACK_PRELOAD", "cache").output().unwrap();
        assert!(text(&output.stdout).starts_with(mode), "{}", text(&output.stdout));
    }
    let output = folder.run(&["run", "--cache", "--observe", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn figures_are_published_only_on_request_and_where_it_says() {
    let folder = Folder::new("publish");
    let echo = ["--", "sh", "-c", r#"echo "[$MEMTRACK_PUBLISH]""#];
    for (option, published) in
        [(&[][..], "[]"), (&["--publish"], "[1]"), (&["--publish=/some/folder"], "[/some/folder]")]
    {
        let output = folder.run(&[&["run"], option, &echo].concat());
        assert_eq!(text(&output.stdout), format!("{published}\n"), "{}", text(&output.stderr));
    }
}

#[test]
fn paths_are_meant_from_where_the_command_is_run() {
    let folder = Folder::new("paths");
    let echo = r#"cd /; echo "$MEMTRACK_RUN_FILE $MEMTRACK_PUBLISH""#;
    let mut command = folder.command(&["run", "--run-file", "a-%p.jsonl", "--publish=b", "--", "sh", "-c", echo]);
    let output = command.current_dir(&folder.0).output().unwrap();
    let here = folder.0.canonicalize().unwrap();
    assert_eq!(text(&output.stdout), format!("{0}/a-%p.jsonl {0}/b\n", here.display()));
}

/// What a shell has set, `SIGPIPE` that is ignored, a signal that is blocked and a standard input that is closed, as the program sees it.
#[test]
fn the_program_begins_with_what_the_command_began_with() {
    let folder = Folder::new("inherited");
    let look = "grep -E '^Sig(Ign|Blk):' /proc/self/status; test -e /proc/self/fd/0 && echo open || echo closed";
    for around in ["", "trap '' PIPE; ", "exec <&-; ", "trap '' PIPE HUP; exec <&-; "] {
        let under = |program: &str| {
            let script = format!("{around} exec {program} sh -c \"$0\"");
            let mut command = Command::new("sh");
            command.args(["-c", &script, look]).env("MEMTRACK_PRELOAD_LIBRARY", built("libmemtrack_preload.so"));
            let output = command.env("LD_LIBRARY_PATH", &folder.0).output().unwrap();
            text(&output.stdout)
        };
        assert_eq!(under(&format!("{MEMTRACK} run --")), under("env"), "{around}");
    }
}

#[test]
fn what_is_not_the_library_is_refused() {
    let folder = Folder::new("not-the-library");
    for other in [PathBuf::from("/etc/passwd"), PathBuf::from(MEMTRACK), built("libmemtrack_mock_driver.so")] {
        let mut command = folder.command(&["run", "--", "sh", "-c", "echo ran"]);
        let output = command.env("MEMTRACK_PRELOAD_LIBRARY", &other).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
        assert!(text(&output.stderr).contains("it is not memtrack's library"), "{}", text(&output.stderr));
    }
}

#[test]
fn what_cannot_be_run_is_told() {
    let folder = Folder::new("cannot");
    let output = folder.run(&["run", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).starts_with("memtrack: /no/such/program: "), "{}", text(&output.stderr));
    assert_eq!(folder.run(&["run", "--", "/"]).status.code(), Some(126));
    assert_eq!(folder.run(&["run"]).status.code(), Some(2));
    let mut command = folder.command(&["run", "--", "true"]);
    let output = command.env("MEMTRACK_PRELOAD_LIBRARY", "/no/such/library").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("MEMTRACK_PRELOAD_LIBRARY=/no/such/library"), "{}", text(&output.stderr));
}

/// The command itself is a program that opens the driver.
#[test]
fn a_program_on_the_gpu_is_counted_and_its_run_file_is_one_that_diff_reads() {
    let folder = Folder::new("gpu");
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/torch-2.11/programs/small-pool-pack.json.gz");
    let run_file = folder.0.join("run.jsonl");
    let (program, file) = (program.to_str().unwrap(), run_file.to_str().unwrap());
    let output = folder.run(&["run", "--run-file", file, "--", MEMTRACK, "replay", "--device", "cuda", program]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("memtrack: cuda:0, observed: "), "{}", text(&output.stderr));
    let output = folder.run(&["diff", file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
