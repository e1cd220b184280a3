//! Trains a classifier of handwritten digits with tch, and shows through memtrack where the memory went.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use memtrack::device::DeviceChoice;
use memtrack::source::{SourceError, register_source};
use memtrack_tch::{TorchError, TorchSource};
use tch::Device;

mod training;

use training::{Settings, TrainError, train};

/// Trains a small network on handwritten digits with tch, and shows, epoch by epoch, where its memory went.
#[derive(Debug, Parser)]
#[command(name = "tch-digits")]
struct Options {
    /// Where to compute: cpu, cuda, cuda:N for the GPU of that number, or auto (a GPU if there is one)
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// How often to go through the training images
    #[arg(long, default_value_t = 8)]
    epochs: u64,
    /// Images in one step
    #[arg(long, default_value_t = 128, value_parser = at_least_one)]
    batch_size: usize,
    /// Width of the two hidden layers
    #[arg(long, default_value_t = 512, value_parser = at_least_one)]
    hidden: usize,
    /// How far each step moves
    #[arg(long, default_value_t = 0.002)]
    learning_rate: f64,
    /// Decides the first weights and the order of images
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Switches memtrack off: what training takes without it
    #[arg(long)]
    no_tracking: bool,
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error("memory cannot be measured: {0}")]
    Source(#[from] SourceError),
    #[error(transparent)]
    Torch(#[from] TorchError),
    #[error(transparent)]
    Output(#[from] io::Error),
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::builder();
    let filter = filter.with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into()).from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Not `eprintln!`, which panics where standard error is closed or full.
            let _ = writeln!(io::stderr(), "error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    memtrack::set_enabled(!options.no_tracking);
    let settings = Settings {
        epochs: options.epochs,
        batch_size: options.batch_size,
        hidden: options.hidden,
        learning_rate: options.learning_rate,
        seed: options.seed,
    };
    let ordinal = match options.device {
        DeviceChoice::Cpu => None,
        DeviceChoice::Cuda(ordinal) => Some(ordinal),
        _ => memtrack_tch::initialize().is_ok().then_some(0),
    };
    let Some(ordinal) = ordinal else {
        if !options.no_tracking {
            writeln!(
                io::stdout(),
                "on the CPU: tensors are in ordinary memory, of which PyTorch keeps no statistics; training without"
            )?;
        }
        // Nothing could be said of any scope.
        memtrack::set_enabled(false);
        train(&settings, Device::Cpu, &mut io::stdout())?;
        return Ok(());
    };
    memtrack_tch::initialize()?;
    let source = TorchSource::new(ordinal)?;
    writeln!(io::stdout(), "measuring cuda:{ordinal} by PyTorch's allocator, backend {}", source.backend())?;
    let _registered = register_source(Arc::new(source))?;
    train(&settings, Device::Cuda(ordinal), &mut io::stdout())?;
    Ok(())
}
