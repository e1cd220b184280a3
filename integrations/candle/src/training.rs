//! The training loop. What is memtrack's are the attributes, and the guards of steps and epochs.

use std::io::Write;
use std::time::Instant;

use candle_core::backprop::GradStore;
use candle_core::{Device, Result, Tensor};
use candle_nn::optim::{AdamW, Optimizer as _, ParamsAdamW};
use memtrack::track_memory;

use crate::error::RunError;
use crate::model::Gpt;
use crate::options::Options;
use crate::pool;
use crate::random::Random;
use crate::report::{Report, quantile};
use crate::text::{Batch, Text};
use crate::tracking::Tracking;

/// Trains and generates. What happens is written to `output`.
pub(crate) fn run<'a>(
    options: &'a Options,
    device: &Device,
    output: &mut dyn Write,
) -> std::result::Result<Report<'a>, RunError> {
    let tracking = Tracking::start(device, !options.no_tracking);
    writeln!(output, "{}", tracking.told)?;
    if options.keep_pool {
        pool::keep(device)?;
    }
    let text = Text::documentation();
    let mut random = Random::new(options.seed);
    let model = Gpt::new(options.shape(), &mut random, device)?;
    let parameters = model.parameters();
    let count = parameters.iter().map(|parameter| parameter.elem_count()).sum();
    let settings = ParamsAdamW { lr: options.learning_rate, ..ParamsAdamW::default() };
    let mut adam = AdamW::new(parameters, settings)?;
    writeln!(output, "training {count} parameters on {} bytes of text, on {}", text.len(), options.device.name())?;

    let (mut losses, mut times) = (Vec::with_capacity(options.steps), Vec::with_capacity(options.steps));
    let (mut device_bytes, mut memtrack_peak_bytes) = (None, None);
    for (epoch_number, first) in (1..).zip((0..options.steps).step_by(options.epoch_steps)) {
        let epoch = memtrack::epoch(epoch_number);
        for step_number in first..options.steps.min(first + options.epoch_steps) {
            let length = step_context(options, &mut random);
            let started = Instant::now();
            let step = memtrack::step(step_number as u64);
            let batch = data(&text, options.batch_size, length, &mut random, device)?;
            let loss = forward(&model, &batch)?;
            let shown = loss.detach();
            let gradients = backward(loss)?;
            optimizer_step(&mut adam, gradients)?;
            // Waits for the device.
            let loss = shown.to_scalar::<f32>()?;
            drop(step);
            times.push(started.elapsed());
            losses.push(loss);
            if !loss.is_finite() {
                return Err(RunError::Diverged { step: step_number, loss });
            }
            device_bytes = device_bytes.max(pool::device_bytes(device)?);
        }
        let summary = epoch.finish();
        let shown = losses.last().copied().unwrap_or_default();
        writeln!(output, "step {}/{}: loss {shown:?}", losses.len(), options.steps)?;
        if let Some(summary) = summary {
            memtrack_peak_bytes = memtrack_peak_bytes.max(Some(summary.peak_bytes));
            writeln!(output, "{summary}")?;
        }
    }
    // Where memtrack sets the driver's marks back, they are not those of the run.
    let pool = if options.no_tracking { pool::peaks(device)? } else { None };
    let generated = generate(&model, "memtrack", options.generate, &mut random, device)?;
    if !generated.is_empty() {
        writeln!(output, "it writes: {generated:?}")?;
    }
    let report =
        Report { options, parameters: count, losses, times, generated, pool, device_bytes, memtrack_peak_bytes };
    let sorted = report.sorted_milliseconds();
    let [low, median, high] = [0.1, 0.5, 0.9].map(|share| quantile(&sorted, share));
    writeln!(output, "a step takes {median:.2} ms (eight of ten from {low:.2} to {high:.2})")?;
    Ok(report)
}

/// How many bytes the pieces of the next step have.
fn step_context(options: &Options, random: &mut Random) -> usize {
    let shortest = options.context.div_ceil(2);
    if options.vary_context { shortest + random.below(options.context - shortest + 1) } else { options.context }
}

/// Copies a step's text to the device.
#[track_memory(phase = "data", err)]
fn data(text: &Text, batch_size: usize, length: usize, random: &mut Random, device: &Device) -> Result<Batch> {
    text.batch(batch_size, length, random, device)
}

/// From tokens to the loss. All that the backward pass needs stays alive with it.
#[track_memory(phase = "forward", err)]
fn forward(model: &Gpt, batch: &Batch) -> Result<Tensor> {
    candle_nn::loss::cross_entropy(&model.logits(&batch.tokens)?, &batch.targets)
}

/// From the loss to the gradients. The loss is its own, so that what the forward pass kept is freed when it ends.
#[track_memory(phase = "backward", err)]
fn backward(loss: Tensor) -> Result<GradStore> {
    loss.backward()
}

/// Moves the parameters and frees the gradients.
#[track_memory(phase = "optimizer", err)]
fn optimizer_step(adam: &mut AdamW, gradients: GradStore) -> Result<()> {
    adam.step(&gradients)
}

/// Writes on from a beginning, byte by byte. What it has written is read anew for each byte, so that sizes grow with it.
#[track_memory(phase = "generate", err)]
fn generate(model: &Gpt, beginning: &str, count: usize, random: &mut Random, device: &Device) -> Result<String> {
    let mut bytes = beginning.as_bytes().to_vec();
    for _ in 0..count {
        let seen = &bytes[bytes.len().saturating_sub(model.context())..];
        let tokens: Vec<u32> = seen.iter().map(|byte| u32::from(*byte)).collect();
        let logits = model.logits(&Tensor::from_vec(tokens, (1, seen.len()), device)?)?;
        let last = logits.get(seen.len() - 1)?.to_vec1::<f32>()?;
        bytes.push(draw(&last, random));
    }
    Ok(String::from_utf8_lossy(&bytes[beginning.len()..]).into_owned())
}

/// A byte by the chances that its logits give it.
fn draw(logits: &[f32], random: &mut Random) -> u8 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let chances: Vec<f64> = logits.iter().map(|logit| f64::from(logit - largest).exp()).collect();
    let mut left = random.fraction() * chances.iter().sum::<f64>();
    for (byte, chance) in (0..=u8::MAX).zip(&chances) {
        left -= chance;
        if left < 0.0 {
            return byte;
        }
    }
    u8::MAX
}
