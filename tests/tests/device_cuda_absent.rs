//! Machines without a driver, without a GPU, and with small ones. Each test runs in a process of its own, since the first
//! driver library that a process finds is the one it keeps.
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, reason = "a test that cannot start its own process can only stop")]

use std::process::Command;

use memtrack::device::{Cuda, CudaUnavailable, Device, DeviceChoice, DeviceKind, auto};
use memtrack::source::{CudaPoolSource, SourceError};
use memtrack_tests::mock::Mock;
use tracing::Level;
use tracing_mock::{expect, subscriber};

/// Set in the process that a test starts for itself.
const IS_CHILD: &str = "MEMTRACK_TEST_IS_CHILD";

/// Runs `body`, the rest of the test of this name, in a new process with this environment.
fn in_a_process_of_its_own(test: &str, environment: &[(&str, &str)], body: fn()) {
    if std::env::var_os(IS_CHILD).is_some() {
        return body();
    }
    let executable = std::env::current_exe().expect("a test knows its own path");
    let mut command = Command::new(executable);
    command.args([test, "--exact", "--nocapture"]).env(IS_CHILD, "1").envs(environment.iter().copied());
    let output = command.output().expect("the test's own executable runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    // Not even one that was caught.
    assert!(!text.contains("panicked"), "{text}");
}

/// What `auto` chooses, which it must log at INFO under its name, with nothing else.
fn chosen_and_logged(device: &str) -> DeviceKind {
    let event = expect::event()
        .with_target("memtrack::device")
        .at_level(Level::INFO)
        .with_fields(expect::field("device").with_value(&device));
    let (subscriber, handle) = subscriber::mock().event(event).only().run_with_handle();
    let kind = tracing::subscriber::with_default(subscriber, || auto().kind());
    handle.assert_finished();
    kind
}

#[test]
fn a_memory_pool_is_no_source_without_a_driver() {
    in_a_process_of_its_own("a_memory_pool_is_no_source_without_a_driver", &[], || {
        // On a machine with a GPU there is one.
        let Err(unavailable) = Cuda::new(0) else { return };
        for source in [CudaPoolSource::current(0), CudaPoolSource::default_pool(0)] {
            assert_eq!(source.err(), Some(SourceError::Unavailable(unavailable.clone())));
        }
    });
}

#[test]
fn without_a_driver_the_error_names_what_was_tried() {
    in_a_process_of_its_own("without_a_driver_the_error_names_what_was_tried", &[], || match Cuda::new(0) {
        Err(CudaUnavailable::NoLibrary { tried }) => {
            let error = CudaUnavailable::NoLibrary { tried: tried.clone() }.to_string();
            for name in ["libcuda.so:", "libcuda.so.1:"] {
                assert!(tried.iter().any(|line| line.starts_with(name)), "{name} in {tried:?}");
                assert!(error.contains(name), "{error}");
            }
            assert_eq!(chosen_and_logged("host"), DeviceKind::Host);
            let refused = DeviceChoice::Cuda(0).open().unwrap_err().to_string();
            assert_eq!(refused, error);
        }
        // A machine with a driver, with or without a GPU.
        Ok(device) => assert_eq!(device.kind(), DeviceKind::Cuda),
        Err(error) => assert!(!matches!(error, CudaUnavailable::Panicked { .. }), "{error}"),
    });
}

#[test]
fn a_driver_without_a_gpu_is_said_to_be_there() {
    let environment = [("MEMTRACK_MOCK_DEVICES", "0")];
    in_a_process_of_its_own("a_driver_without_a_gpu_is_said_to_be_there", &environment, || {
        Mock::from_environment();
        let error = Cuda::new(0).unwrap_err();
        let CudaUnavailable::NoDevice { library, call, answer } = &error else { panic!("{error:?}") };
        assert_eq!((library.as_str(), *call), ("libcuda.so", "cuInit"));
        assert!(answer.contains("CUDA_ERROR_NO_DEVICE (100)"), "{answer}");
        assert!(error.to_string().contains("CUDA_VISIBLE_DEVICES"), "{error}");
        assert_eq!(chosen_and_logged("host"), DeviceKind::Host);
    });
}

#[test]
fn auto_takes_the_first_gpu_there_is() {
    let environment = [
        ("MEMTRACK_MOCK_DEVICES", "3"),
        ("MEMTRACK_MOCK_CAPACITY_BYTES", "1073741824"),
        ("MEMTRACK_MOCK_VIRTUAL_MEMORY", "0"),
    ];
    in_a_process_of_its_own("auto_takes_the_first_gpu_there_is", &environment, || {
        Mock::from_environment();
        assert_eq!(chosen_and_logged("cuda:0"), DeviceKind::Cuda);
        let device = Cuda::new(2).unwrap();
        assert_eq!(device.total_bytes(), 1 << 30);
        assert!(device.virtual_memory().is_none());
        assert_eq!(Cuda::new(3).unwrap_err(), CudaUnavailable::NoSuchDevice { ordinal: 3, count: 3 });
    });
}
