//! NVIDIA's own libraries with no GPU behind them: clear errors, and no panic.
//!
//! `scripts/driver-libraries FOLDER` fetches them; the tests are run with `MEMTRACK_DRIVER_LIBRARIES=FOLDER` and `--ignored`, on
//! a machine without NVIDIA's kernel driver.

#![cfg(all(target_os = "linux", feature = "cuda", feature = "nvml"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::fixtures;
use common::nvml::end;
use memtrack::driver::{DriverUnavailable, Inventory};
use serde_json::Value;

fn library(name: &str) -> PathBuf {
    let folder = std::env::var_os("MEMTRACK_DRIVER_LIBRARIES")
        .unwrap_or_else(|| panic!("set MEMTRACK_DRIVER_LIBRARIES to the folder of scripts/driver-libraries"));
    PathBuf::from(folder).join(name)
}

fn memtrack(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtrack"));
    command.args(arguments);
    command
}

#[test]
#[ignore = "needs the libraries of scripts/driver-libraries"]
fn nvml_without_a_kernel_driver_is_told_as_that_every_time() {
    let path = library("libnvidia-ml.so.1");
    for _ in 0..3 {
        assert_eq!(Inventory::open(Some(path.as_os_str())).unwrap_err(), DriverUnavailable::DriverNotLoaded);
    }
}

#[test]
#[ignore = "needs the libraries of scripts/driver-libraries"]
fn a_library_of_nvidias_that_is_not_nvml_is_told_with_the_function_it_lacks() {
    match Inventory::open(Some(library("libcuda.so.1").as_os_str())).unwrap_err() {
        DriverUnavailable::NotNvml { library, message } => {
            assert!(library.ends_with("libcuda.so.1"), "{library}");
            assert!(message.contains("nvmlInit"), "{message}");
        }
        other => panic!("{other}"),
    }
}

#[test]
#[ignore = "needs the libraries of scripts/driver-libraries"]
fn smi_and_check_say_it_in_their_forms_with_status_3() {
    let path = library("libnvidia-ml.so.1");
    let run = |arguments: &[&str]| end(memtrack(arguments).arg("--nvml-lib").arg(&path));
    let said = "the NVIDIA kernel driver is not loaded";
    let (status, output, errors) = run(&["smi", "--json"]);
    assert_eq!(status, 3);
    assert!(errors.starts_with(&format!("memtrack: {said}")), "{errors}");
    let look: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(look["devices"], Value::Null);
    assert!(look["devices_unknown"].as_str().unwrap().starts_with(said));
    let (status, output, errors) = run(&["check", "--max-used", "1GiB"]);
    assert_eq!((status, errors.as_str()), (3, ""));
    assert!(output.starts_with(&format!("unknown: {said}")) && output.lines().count() == 1, "{output}");
}

#[test]
#[ignore = "needs the libraries of scripts/driver-libraries"]
fn cuda_without_a_gpu_is_an_error_that_says_so() {
    let cuda = library("libcuda.so.1");
    let file = fixtures().join("programs/best-fit.json.gz");
    let mut command = memtrack(&["replay", "--device", "cuda", file.to_str().unwrap()]);
    let (status, output, errors) = end(command.env("LD_LIBRARY_PATH", cuda.parent().unwrap()));
    assert_eq!((status, output.as_str()), (2, ""), "{errors}");
    assert!(errors.contains("no GPU: ") && errors.lines().count() == 1, "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}

/// The preloaded library finds the driver behind it, and the program under it hears of what the driver says.
#[test]
#[ignore = "needs the libraries of scripts/driver-libraries"]
fn a_program_under_the_preloaded_library_is_told_what_the_real_driver_says() {
    let folder = library("libcuda.so.1").parent().unwrap().to_owned();
    let recording = fixtures().join("programs/small-pool-pack.json.gz");
    let built = std::env::current_exe().unwrap().parent().unwrap().join("libmemtrack_preload.so");
    for mode in ["--observe", "--cache"] {
        let program = [env!("CARGO_BIN_EXE_memtrack"), "replay", "--device", "cuda", recording.to_str().unwrap()];
        let mut command = memtrack(&[&["run", mode, "--"][..], &program[..]].concat());
        command.env("MEMTRACK_PRELOAD_LIBRARY", &built).env("LD_LIBRARY_PATH", &folder).env_remove("LD_PRELOAD");
        let (status, output, errors) = end(&mut command);
        assert_eq!((status, output.as_str()), (2, ""), "{errors}");
        // By this name cudarc finds the library that was preloaded, and in it the driver's `cuInit`.
        assert!(errors.contains("the CUDA driver library libcuda.so sees no GPU"), "{errors}");
        assert!(errors.contains("CUDA_ERROR_NO_DEVICE (100)"), "{errors}");
    }
}
