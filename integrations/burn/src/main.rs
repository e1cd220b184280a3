//! Trains a classifier of handwritten digits with burn, and shows through memtrack where the memory went.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use burn::backend::Autodiff;
use clap::Parser;
use memtrack::device::DeviceChoice;
use memtrack::source::{SourceError, register_source};
use memtrack_burn_digits::heap::CountedHeap;
use memtrack_burn_digits::training::{Settings, TrainError, train};

#[cfg(not(any(feature = "cuda", feature = "ndarray")))]
compile_error!("burn needs a backend: choose the feature `ndarray`, `cuda` or both");

#[global_allocator]
static HEAP: CountedHeap = CountedHeap;

/// Trains a small network on handwritten digits with burn, and shows, epoch by epoch, where its memory went.
#[derive(Debug, Parser)]
#[command(name = "burn-digits")]
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
    /// Waits for the GPU wherever a scope begins or ends; always so with the feature `fusion`
    #[arg(long)]
    sync: bool,
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error("memory cannot be measured: {0}")]
    Source(#[from] SourceError),
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    NoGpu(#[from] memtrack::device::CudaUnavailable),
    #[cfg(not(all(feature = "cuda", feature = "ndarray")))]
    #[error("this program was built without {0}; build it with `--features {0}`")]
    NotBuilt(&'static str),
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
    match options.device {
        DeviceChoice::Cpu => on_cpu(options),
        DeviceChoice::Cuda(ordinal) => on_cuda(options, ordinal),
        _ if has_gpu() => on_cuda(options, 0),
        _ => on_cpu(options),
    }
}

fn settings(options: &Options) -> Settings {
    Settings {
        epochs: options.epochs,
        batch_size: options.batch_size,
        hidden: options.hidden,
        learning_rate: options.learning_rate,
        seed: options.seed,
    }
}

#[cfg(feature = "ndarray")]
fn on_cpu(options: &Options) -> Result<(), Failure> {
    let _registered = if options.no_tracking {
        None
    } else {
        Some(register_source(Arc::new(memtrack_burn_digits::heap::HeapSource))?)
    };
    let device = burn::backend::ndarray::NdArrayDevice::Cpu;
    train::<Autodiff<burn::backend::NdArray>>(settings(options), &device, &mut io::stdout())?;
    Ok(())
}

#[cfg(not(feature = "ndarray"))]
fn on_cpu(_: &Options) -> Result<(), Failure> {
    Err(Failure::NotBuilt("ndarray"))
}

#[cfg(feature = "cuda")]
fn has_gpu() -> bool {
    memtrack::device::Cuda::new(0).is_ok()
}

#[cfg(not(feature = "cuda"))]
fn has_gpu() -> bool {
    false
}

#[cfg(feature = "cuda")]
fn on_cuda(options: &Options, ordinal: usize) -> Result<(), Failure> {
    use burn::backend::Cuda;
    use burn::backend::cuda::CudaDevice;
    use burn::tensor::backend::Backend as _;
    use cubecl::Runtime as _;
    use cubecl::cuda::CudaRuntime;
    use memtrack::source::CudaPoolSource;
    use memtrack_burn_digits::source::CubeclSource;

    // burn panics on a thread of its own where there is no GPU; this says what is missing.
    let _context = memtrack::device::Cuda::new(ordinal)?;
    let device = CudaDevice::new(ordinal);
    let mut registered = Vec::new();
    if !options.no_tracking {
        // First, so that it stands where an allocator of memtrack's would.
        let client = CudaRuntime::client(&device);
        let mut source = CubeclSource::of_this_thread(format!("cuda:{ordinal} cubecl"), client);
        if let Ok(number) = u32::try_from(ordinal) {
            source = source.on_device(number);
        }
        if options.sync || cfg!(feature = "fusion") {
            let device = device.clone();
            source = source.after(move || {
                <Cuda>::sync(&device)
                    .map_err(|error| SourceError::new(format!("burn cannot wait for the GPU: {error}")))
            });
        }
        registered.push(register_source(Arc::new(source))?);
        match CudaPoolSource::current(ordinal) {
            Ok(pool) => registered.push(register_source(Arc::new(pool))?),
            Err(error) => {
                writeln!(io::stderr(), "without the driver's figures: {error}").map_err(TrainError::Output)?
            }
        }
    }
    train::<Autodiff<Cuda>>(settings(options), &device, &mut io::stdout())?;
    Ok(())
}

#[cfg(not(feature = "cuda"))]
fn on_cuda(_: &Options, _: usize) -> Result<(), Failure> {
    Err(Failure::NotBuilt("cuda"))
}
