//! Trains a network on handwritten digits with all its memory taken from memtrack, and shows where it went.
//!
//! The loop in [`train`] is the usual one. What is memtrack's: buffers come from a caching allocator, five functions
//! carry `#[track_memory]`, and each epoch ends with a summary.

mod comparison;
mod compute;
mod error;
mod logging;
mod losses;
mod matrix;
mod model;
mod options;
#[cfg(test)]
mod process_tests;
mod progress;
mod setup;
mod snapshot;
#[cfg(test)]
mod tests;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser as _;
use memtrack::phase::DriverSampler;
use memtrack::track_memory;
use memtrack_examples::digits::{Digits, Split};

use comparison::Comparison;
use compute::Compute;
use error::TrainError;
use losses::LossFile;
use model::{Activations, Adam, Batch, Layer, Model};
use options::{LogFormat, Options};
use progress::Progress;
use setup::Opened;
use snapshot::SnapshotFile;

fn main() -> ExitCode {
    ExitCode::from(run(env::args_os()))
}

/// The whole program, from the arguments to the exit status.
fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(told) => {
            // A bad value, or the help that was asked for.
            let printed = told.print().is_ok();
            return if told.use_stderr() { 2 } else { u8::from(!printed) };
        }
    };
    match open_and_train(&options, &mut io::stdout()) {
        Ok(_) => 0,
        Err(error) => {
            // Not `eprintln!`, which panics where standard error is closed or full.
            let _ = writeln!(io::stderr(), "error: {error}");
            error.exit_status()
        }
    }
}

fn open_and_train(options: &Options, output: &mut dyn io::Write) -> Result<f64, TrainError> {
    logging::start(options.log)?;
    let Opened { compute, without_gpu } = setup::open(options.device, options.capacity)?;
    if let Some(why) = without_gpu {
        writeln!(output, "using the CPU: {why}").map_err(TrainError::WriteOutput)?;
    }
    train(options, &compute, output)
}

/// Trains, writes what happens to `output`, and returns the accuracy on the held-out images.
fn train(options: &Options, compute: &Compute, output: &mut dyn io::Write) -> Result<f64, TrainError> {
    let mut losses = LossFile::create(options.losses.as_deref())?;
    let Split { training, held_out } = Digits::load()?.split();
    let mut random = fastrand::Rng::with_seed(options.seed);

    snapshot::record(compute.allocator(), options.snapshot.as_deref());
    let mut model = Model::new(compute.allocator(), options.hidden, &mut random)?;
    let mut adam = Adam::new(compute.allocator(), &model, options.learning_rate)?;
    let snapshot = SnapshotFile::new(compute.allocator(), options.snapshot.as_deref());
    writeln!(
        output,
        "training {} parameters on {} digits, {} held out, on {}",
        model.parameter_count(),
        training.len(),
        held_out.len(),
        compute.allocator().device().model()
    )
    .map_err(TrainError::WriteOutput)?;

    let mut order: Vec<usize> = (0..training.len()).collect();
    let mut accuracy = 0.0;
    let mut comparison = options.compare_tracking.then(Comparison::default);
    for epoch_number in 1..=options.epochs as u64 {
        random.shuffle(&mut order);
        let batches = order.chunks(options.batch_size);
        let progress = Progress::new(epoch_number, batches.len(), options.log == LogFormat::Off);
        let mut loss_sum = 0.0;

        if let Some(comparison) = &mut comparison {
            memtrack::set_enabled(comparison.next_epoch());
        }
        let sampler = start_sampler(options, compute)?;
        let epoch = memtrack::epoch(epoch_number);
        for (step_number, indices) in (1..).zip(batches) {
            let started = Instant::now();
            let step = memtrack::step(step_number);
            let batch = load_batch(compute, &training, indices)?;
            let activations = forward(compute, &model, &batch)?;
            let loss = activations.loss;
            let gradients = backward(compute, &model, &batch, activations)?;
            optimizer_step(compute, &mut model, &mut adam, gradients)?;

            drop(step);
            if let Some(comparison) = &mut comparison {
                comparison.step(started.elapsed());
            }

            losses.write(epoch_number, step_number, loss)?;
            if !loss.is_finite() {
                return Err(TrainError::Diverged { loss, epoch: epoch_number, step: step_number });
            }
            loss_sum += loss * indices.len() as f64;
            progress.step(loss);
        }
        let training_accuracy = evaluate(compute, &model, &training)?;
        accuracy = evaluate(compute, &model, &held_out)?;
        if epoch_number == 1 {
            // By now cuBLAS and the kernels are loaded, and count as context in the driver's line. On the CPU there is no
            // such line, and the summary says why.
            let _ = compute.allocator().attach_driver();
        }
        let summary = epoch.finish();

        drop((progress, sampler));
        writeln!(
            output,
            "epoch {epoch_number}/{}: loss {:.4}, {:.1} % of training digits right, {:.1} % of held-out digits",
            options.epochs,
            loss_sum / training.len() as f64,
            100.0 * training_accuracy,
            100.0 * accuracy
        )
        .map_err(TrainError::WriteOutput)?;
        if let Some(summary) = summary
            && !options.no_table
        {
            writeln!(output, "{summary}").map_err(TrainError::WriteOutput)?;
        }
        // Now rather than at the end, so that a full disk ends the run early.
        losses.flush()?;
    }
    snapshot.write()?;
    if let Some(comparison) = &comparison {
        writeln!(output, "{comparison}").map_err(TrainError::WriteOutput)?;
    }
    output.flush().map_err(TrainError::WriteOutput)?;
    Ok(accuracy)
}

/// What `--sample` asks for; it ends with the guard.
fn start_sampler(options: &Options, compute: &Compute) -> Result<Option<DriverSampler>, TrainError> {
    let Some(milliseconds) = options.sample.filter(|_| memtrack::enabled()) else { return Ok(None) };
    compute.allocator().sample_at_phase_boundaries(true);
    let interval = Duration::from_millis(milliseconds as u64);
    compute.allocator().sample_in_background(interval).map(Some).map_err(TrainError::StartSampler)
}

/// Copies one step's images and labels to the device.
#[track_memory(phase = "data", err)]
fn load_batch(compute: &Compute, digits: &Digits, indices: &[usize]) -> Result<Batch, TrainError> {
    Ok(Batch::new(compute.allocator(), &digits.select(indices))?)
}

/// From images to probabilities and loss. The hidden layers' outputs stay, for [`backward`].
#[track_memory(phase = "forward", err)]
fn forward(compute: &Compute, model: &Model, batch: &Batch) -> Result<Activations, TrainError> {
    let [first, second, last] = &model.layers;
    let hidden1 = first.hidden(compute, &batch.images)?;
    let hidden2 = second.hidden(compute, &hidden1)?;
    let logits = last.linear(compute, &hidden2)?;
    let (probabilities, loss) = compute.softmax_cross_entropy(&logits, &batch.labels)?;
    Ok(Activations { hidden1, hidden2, probabilities, loss })
}

/// From the loss back to the gradient of every parameter. Activations are freed as soon as they have been used.
#[track_memory(phase = "backward", err)]
fn backward(
    compute: &Compute,
    model: &Model,
    batch: &Batch,
    activations: Activations,
) -> Result<[Layer; 3], TrainError> {
    let [_, second, last] = &model.layers;
    let Activations { hidden1, hidden2, probabilities, .. } = activations;
    let delta = compute.softmax_cross_entropy_backward(probabilities, &batch.labels)?;
    let last_gradient = Layer::gradient(compute, &hidden2, &delta)?;
    let delta = last.propagate(compute, delta, hidden2)?;
    let second_gradient = Layer::gradient(compute, &hidden1, &delta)?;
    let delta = second.propagate(compute, delta, hidden1)?;
    let first_gradient = Layer::gradient(compute, &batch.images, &delta)?;
    Ok([first_gradient, second_gradient, last_gradient])
}

/// Moves the parameters. The gradients are its own, so they are freed when it ends.
#[track_memory(phase = "optimizer", err)]
fn optimizer_step(
    compute: &Compute,
    model: &mut Model,
    adam: &mut Adam,
    gradients: [Layer; 3],
) -> Result<(), TrainError> {
    adam.update(compute, model, &gradients)
}

/// The share of digits that the network gets right, all of them in one batch.
#[track_memory(phase = "evaluate", err)]
fn evaluate(compute: &Compute, model: &Model, digits: &Digits) -> Result<f64, TrainError> {
    let Batch { images, .. } = Batch::new(compute.allocator(), digits)?;
    let votes = compute.largest_columns(&model.predict(compute, images)?)?;
    let right = votes.iter().zip(digits.labels()).filter(|(vote, label)| vote == label).count();
    Ok(right as f64 / digits.len() as f64)
}
