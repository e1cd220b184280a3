//! A small GPT, trained with candle on memtrack's documentation.
//!
//! candle takes its tensors from the driver's memory pool and knows nothing of memtrack. The functions of the training loop carry
//! `#[track_memory]` all the same, and phases, steps and epochs read that pool: README.md of this folder has what they show.

mod error;
mod model;
mod options;
mod pool;
mod random;
mod report;
mod text;
mod tracking;
mod training;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use candle_core::Device;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

// Its functions stand in the driver's place for the whole program.
#[cfg(feature = "hook")]
use memtrack_hook as _;

use error::RunError;
use options::{DeviceChoice, Options};

fn main() -> ExitCode {
    let options = match Options::read(env::args_os()) {
        Ok(options) => options,
        Err(told) => {
            // A bad value, or the help that was asked for.
            let printed = told.print().is_ok();
            return ExitCode::from(if told.use_stderr() { 2 } else { u8::from(!printed) });
        }
    };
    start_log();
    match train(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            // candle's errors have a backtrace below. Not `eprintln!`, which panics where standard error is closed.
            let _ = writeln!(io::stderr(), "error: {}", text.lines().next().unwrap_or_default());
            ExitCode::from(error.exit_status())
        }
    }
}

/// With `RUST_LOG` set, memtrack's events and the spans of annotated functions go to standard error.
fn start_log() {
    if env::var_os("RUST_LOG").is_some() {
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::from_default_env())
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(io::stderr)
            .with_ansi(false)
            .init();
    }
}

fn train(options: &Options) -> Result<(), RunError> {
    let device = open(options.device)?;
    let mut output = io::stdout();
    if options.json {
        let report = training::run(options, &device, &mut io::sink())?;
        writeln!(output, "{report}")?;
    } else {
        training::run(options, &device, &mut output)?;
    }
    Ok(output.flush()?)
}

fn open(choice: DeviceChoice) -> Result<Device, RunError> {
    match choice {
        DeviceChoice::Cpu => Ok(Device::Cpu),
        #[cfg(feature = "cuda")]
        DeviceChoice::Cuda => Ok(Device::new_cuda(0)?),
        #[cfg(not(feature = "cuda"))]
        DeviceChoice::Cuda => Err(RunError::BuiltWithoutCuda),
    }
}
