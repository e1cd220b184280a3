//! Runs the checks that every device passes on one device of this machine: `device-check host|simulated|cuda[:N]`.
//! Prints a line for each; exits with 1 if one does not hold or the device cannot be opened.

use std::process::ExitCode;
use std::sync::Arc;

use memtrack::device::{Cuda, Device, DeviceChoice};
use memtrack_tests::device_list::{Controls, Failure, run_all, subjects};

fn open(name: &str) -> Result<(Arc<dyn Device>, Controls), Failure> {
    if name == "simulated" {
        return Ok(subjects::simulated());
    }
    match name.parse()? {
        DeviceChoice::Cpu => Ok(subjects::host()),
        DeviceChoice::Cuda(ordinal) => {
            let device = Cuda::new(ordinal)?;
            println!("{device:?}");
            subjects::cuda(device)
        }
        _ => Err("say host, simulated, cuda or cuda:N".into()),
    }
}

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        eprintln!("device-check host|simulated|cuda[:N]");
        return ExitCode::from(2);
    };
    let (device, controls) = match open(&name) {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("{name}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let report = run_all(&device, &controls);
    println!("{} hold, {} skipped, {} fail", report.held, report.skipped.len(), report.failed.len());
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
