//! Runs the checks that every device passes on one device of this machine: `device-check host|simulated|cuda[:N]`.
//! Prints a line for each. Exits with 1 if one does not hold, the device cannot be opened or the output cannot be written,
//! and with 2 if the arguments are wrong.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use memtrack::device::{Cuda, Device, DeviceChoice};
use memtrack_tests::device_list::{Controls, Failure, run_all_telling, subjects};

const ACCEPTED: &str = "host, simulated, cuda or cuda:N (cuda:0 is the first GPU)";

/// What a device is called on the command line.
#[derive(Clone, Copy)]
enum Name {
    Host,
    Simulated,
    Cuda(usize),
}

/// What the arguments ask for.
enum Request {
    Help,
    Check(Name),
}

fn request(arguments: &[OsString]) -> Result<Request, String> {
    let (argument, rest) = match arguments {
        [] => return Err(format!("no device is named; say {ACCEPTED}")),
        [argument, rest @ ..] => (argument, rest),
    };
    // Its text for messages; a name that is not Unicode is none of those accepted.
    let text = argument.to_string_lossy();
    if matches!(text.as_ref(), "--help" | "-h") {
        return Ok(Request::Help);
    }
    let name = match text.parse() {
        _ if text == "simulated" => Name::Simulated,
        Ok(DeviceChoice::Cpu) => Name::Host,
        Ok(DeviceChoice::Cuda(ordinal)) => Name::Cuda(ordinal),
        _ => return Err(format!("no device to check is called {text:?}; say {ACCEPTED}")),
    };
    match rest {
        [] => Ok(Request::Check(name)),
        [extra, ..] => Err(format!("one device at a time, so there is no place for {:?}", extra.to_string_lossy())),
    }
}

fn open(name: Name, tell: &mut dyn FnMut(fmt::Arguments<'_>)) -> Result<(Arc<dyn Device>, Controls), Failure> {
    match name {
        Name::Host => Ok(subjects::host()),
        Name::Simulated => Ok(subjects::simulated()),
        Name::Cuda(ordinal) => {
            let device = Cuda::new(ordinal)?;
            tell(format_args!("{device:?}"));
            subjects::cuda(device)
        }
    }
}

/// Not `eprintln!`, which panics where standard error is closed or full.
fn say_error(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "error: {text}");
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut written = Ok(());
    // After the first failure nothing more is written; the checks go on.
    let mut tell = |line: fmt::Arguments<'_>| {
        if written.is_ok() {
            written = writeln!(io::stdout(), "{line}");
        }
    };
    let all_hold = match request(&arguments) {
        Err(problem) => {
            say_error(format_args!("{problem}"));
            return ExitCode::from(2);
        }
        Ok(Request::Help) => {
            tell(format_args!("Checks one device of this machine. Usage: device-check DEVICE, which is {ACCEPTED}"));
            true
        }
        Ok(Request::Check(name)) => match open(name, &mut tell) {
            Ok((device, controls)) => {
                let report = run_all_telling(&device, &controls, &mut tell);
                let (skipped, failed) = (report.skipped.len(), report.failed.len());
                tell(format_args!("{} hold, {skipped} skipped, {failed} fail", report.held));
                failed == 0
            }
            Err(error) => {
                say_error(format_args!("{}: {error}", arguments[0].to_string_lossy()));
                return ExitCode::FAILURE;
            }
        },
    };
    if let Err(error) = &written {
        say_error(format_args!("the output cannot be written: {error}"));
    }
    if all_hold && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
