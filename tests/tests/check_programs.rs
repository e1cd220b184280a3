//! The two programs that check a machine, `device-check` and `scripts/gpu-check`, from the side of who runs them.
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, reason = "a test that cannot start a program can only stop")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Exit status, standard output, standard error.
fn end(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (output, status, error) = (text(output.stdout), output.status.code(), text(output.stderr));
    assert!(!error.contains("panicked"), "{error}");
    (status, output, error)
}

fn device_check() -> Command {
    Command::new(env!("CARGO_BIN_EXE_device-check"))
}

#[test]
fn device_check_refuses_arguments_with_the_argument_and_the_accepted_forms() {
    let not_unicode = OsStr::from_bytes(b"host\xff");
    for (arguments, named) in [
        (vec![], "no device"),
        (vec![OsStr::new("gpu")], "\"gpu\""),
        (vec![OsStr::new("auto")], "\"auto\""),
        (vec![OsStr::new("cuda:x")], "\"cuda:x\""),
        (vec![OsStr::new("--fast")], "\"--fast\""),
        (vec![not_unicode], "\"host\u{fffd}\""),
    ] {
        let (status, output, error) = end(device_check().args(arguments));
        assert_eq!((status, output.as_str()), (Some(2), ""), "{error}");
        assert!(error.contains(named) && error.contains("host, simulated, cuda or cuda:N"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let (status, _, error) = end(device_check().args(["host", "simulated"]));
    assert_eq!(status, Some(2));
    assert!(error.contains("\"simulated\""), "{error}");
}

#[test]
fn device_check_helps_and_checks() {
    let (status, output, _) = end(device_check().arg("--help"));
    assert_eq!(status, Some(0));
    assert!(output.contains("host, simulated, cuda or cuda:N"), "{output}");
    let (status, output, error) = end(device_check().arg("host"));
    assert_eq!(status, Some(0), "{output}{error}");
    assert!(output.starts_with("host: ") && output.contains(" 0 fail"), "{output}");
}

#[test]
fn device_check_ends_with_a_message_where_its_output_is_not_taken() {
    for arguments in ["host", "--help"] {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full opens");
        let (reader, closed) = io::pipe().expect("a pipe");
        drop(reader);
        for stream in [Stdio::from(full), Stdio::from(closed)] {
            let (status, _, error) = end(device_check().arg(arguments).stdout(stream));
            assert_eq!(status, Some(1), "{error}");
            assert!(error.starts_with("error: the output cannot be written: "), "{error}");
        }
    }
}

/// The script with nothing but the system's own tools: no cargo, no nvidia-smi.
fn gpu_check(tools: &Path, target: &Path) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gpu-check");
    let mut command = Command::new("/bin/bash");
    command.arg(script).env("PATH", tools).env("CARGO_TARGET_DIR", target);
    command
}

#[test]
fn gpu_check_says_what_it_lacks_and_refuses_what_it_does_not_know() {
    let folder = std::env::temp_dir().join(format!("memtrack-gpu-check-{}", std::process::id()));
    let (tools, target) = (folder.join("tools"), folder.join("target"));
    fs::create_dir_all(&tools).expect("a folder for tools");
    for tool in ["dirname", "sed"] {
        let found =
            ["/usr/bin", "/bin"].map(|place| Path::new(place).join(tool)).into_iter().find(|path| path.exists());
        std::os::unix::fs::symlink(found.expect("the system has it"), tools.join(tool)).expect("a link");
    }

    for arguments in [["everything"].as_slice(), &["run", "build"], &["all", "fast"], &[""]] {
        let (status, _, error) = end(gpu_check(&tools, &target).args(arguments));
        assert_eq!(status, Some(2), "{error}");
        assert!(error.contains("usage: scripts/gpu-check [build | run"), "{error}");
    }
    let (status, output, _) = end(gpu_check(&tools, &target).arg("--help"));
    assert_eq!(status, Some(0));
    assert!(output.contains("usage: scripts/gpu-check [build | run"), "{output}");

    let (status, output, error) = end(gpu_check(&tools, &target).arg("run"));
    assert_eq!((status, output.as_str()), (Some(1), ""), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let built = target.join("gpu-check");
    assert!(error.contains(&format!("{}/", built.display())) && error.contains("gpu-check build"), "{error}");

    fs::create_dir_all(&built).expect("a folder for programs");
    for program in [
        "train",
        "train-tests",
        "compact-check",
        "device-check",
        "driver-check",
        "source-check",
        "memtrack",
        "peer_buffers",
        "libmemtrack_peers.so",
    ] {
        fs::copy("/bin/true", built.join(program)).expect("a program");
    }
    let (status, output, error) = end(gpu_check(&tools, &target).arg("run"));
    assert_eq!((status, output.as_str()), (Some(1), ""), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("nvidia-smi"), "{error}");
    let _ = fs::remove_dir_all(&folder);
}
