//! The model and the loop: five functions with `#[track_memory]`, and a summary for each epoch.
//!
//! Nothing here knows which memory is measured: that is decided by the sources that are registered.

use std::io;
use std::time::Instant;

use memtrack::{EpochSummary, track_memory};
use memtrack_examples::digits::{CLASSES, Digits, DigitsError, PIXELS, Split};
use tch::nn::{self, Module as _, OptimizerConfig as _};
use tch::{Device, Kind, TchError, Tensor};

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Settings {
    /// How often to go through the training images.
    pub(crate) epochs: u64,
    /// Images in one step.
    pub(crate) batch_size: usize,
    /// Width of the hidden layers.
    pub(crate) hidden: usize,
    /// How far each step moves.
    pub(crate) learning_rate: f64,
    /// Decides the first weights and the order of images.
    pub(crate) seed: u64,
}

/// What came out.
#[derive(Debug)]
pub(crate) struct Trained {
    /// The share of held-out images that the network gets right, 0 to 1.
    pub(crate) accuracy: f64,
    /// One for each epoch; none where no source and no allocator is measured.
    pub(crate) summaries: Vec<EpochSummary>,
}

/// Why training could not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrainError {
    /// The images cannot be read.
    #[error(transparent)]
    Digits(#[from] DigitsError),
    /// PyTorch refused.
    #[error(transparent)]
    Torch(#[from] TchError),
    /// Standard output is closed or full.
    #[error("what happens cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// Images and labels of one step, on the device.
#[derive(Debug)]
pub(crate) struct Batch {
    images: Tensor,
    labels: Tensor,
}

/// A perceptron with two hidden layers, its parameters on the device, and Adam.
#[derive(Debug)]
pub(crate) struct Trainer {
    store: nn::VarStore,
    network: nn::Sequential,
    optimizer: nn::Optimizer,
}

impl Trainer {
    /// Random weights, decided by the seed.
    pub(crate) fn new(settings: &Settings, device: Device) -> Result<Self, TrainError> {
        tch::manual_seed(signed(settings.seed));
        let store = nn::VarStore::new(device);
        let (pixels, hidden, classes) = (signed(PIXELS), signed(settings.hidden), signed(CLASSES));
        let layer = |name: &str, from, to| nn::linear(store.root() / name, from, to, nn::LinearConfig::default());
        let network = nn::seq()
            .add(layer("first", pixels, hidden))
            .add_fn(|scores| scores.relu())
            .add(layer("second", hidden, hidden))
            .add_fn(|scores| scores.relu())
            .add(layer("last", hidden, classes));
        let optimizer = nn::Adam::default().build(&store, settings.learning_rate)?;
        Ok(Self { store, network, optimizer })
    }

    fn device(&self) -> Device {
        self.store.device()
    }

    fn parameter_count(&self) -> usize {
        self.store.trainable_variables().iter().map(Tensor::numel).sum()
    }
}

/// Trains on `device`, and writes a line and a summary for each epoch to `output`.
///
/// # Errors
///
/// [`TrainError`].
///
/// # Panics
///
/// Where tch does: not all of it has a way to say that memory ran out.
pub(crate) fn train(settings: &Settings, device: Device, output: &mut dyn io::Write) -> Result<Trained, TrainError> {
    let Split { training, held_out } = Digits::load()?.split();
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let mut trainer = Trainer::new(settings, device)?;
    let (parameters, images) = (trainer.parameter_count(), training.len());
    writeln!(
        output,
        "training {parameters} parameters on {images} digits, {} held out, on {device:?}",
        held_out.len()
    )?;

    let mut order: Vec<usize> = (0..training.len()).collect();
    let mut trained = Trained { accuracy: 0.0, summaries: Vec::new() };
    for number in 1..=settings.epochs {
        let started = Instant::now();
        random.shuffle(&mut order);
        let batches = order.chunks(settings.batch_size.max(1));
        let step_count = batches.len() as f64;
        let epoch = memtrack::epoch(number);
        // Stays on the device: reading a loss waits for all work before it.
        let mut loss_sum = Tensor::f_zeros([], (Kind::Float, device))?;
        for (step_number, indices) in (1..).zip(batches) {
            let _step = memtrack::step(step_number);
            let batch = load_batch(&training, indices, device)?;
            let loss = forward(&trainer, batch)?;
            loss_sum += loss.detach();
            backward(&mut trainer, loss)?;
            optimizer_step(&mut trainer);
        }
        trained.accuracy = evaluate(&trainer, &held_out)?;
        let loss = loss_sum.f_double_value(&[])? / step_count;
        let (right, took_ms) = (trained.accuracy * 100.0, started.elapsed().as_secs_f64() * 1000.0);
        writeln!(output, "epoch {number}: loss {loss:.4}, {right:.1} % of held-out digits right, {took_ms:.1} ms")?;
        if let Some(summary) = epoch.finish() {
            writeln!(output, "{summary}")?;
            trained.summaries.push(summary);
        }
    }
    Ok(trained)
}

/// Images and labels to the device.
#[track_memory(phase = "data", err)]
pub(crate) fn load_batch(digits: &Digits, indices: &[usize], device: Device) -> Result<Batch, TchError> {
    let chosen = digits.select(indices);
    let labels: Vec<i64> = chosen.labels().iter().map(|&label| i64::from(label)).collect();
    let images = Tensor::f_from_slice(chosen.images())?.f_view([-1, signed(PIXELS)])?;
    Ok(Batch { images: images.f_to(device)?, labels: Tensor::f_from_slice(&labels)?.f_to(device)? })
}

/// Leaves the loss, and with it all activations for the backward pass.
#[track_memory(phase = "forward", err)]
pub(crate) fn forward(trainer: &Trainer, batch: Batch) -> Result<Tensor, TchError> {
    let scores = trainer.network.forward(&batch.images);
    scores.f_cross_entropy_loss(&batch.labels, None::<Tensor>, tch::Reduction::Mean, -100, 0.0)
}

/// Leaves gradients, and frees the activations. tch keeps the gradients, and sets them to zero here; the first call makes them.
#[track_memory(phase = "backward", err)]
pub(crate) fn backward(trainer: &mut Trainer, loss: Tensor) -> Result<(), TchError> {
    trainer.optimizer.zero_grad();
    loss.f_backward()
}

/// Moves every parameter once. The first call makes Adam's two moments of every parameter.
#[track_memory(phase = "optimizer")]
pub(crate) fn optimizer_step(trainer: &mut Trainer) {
    trainer.optimizer.step();
}

/// The share of digits that the network gets right, all of them in one batch.
#[track_memory(phase = "evaluate", err)]
pub(crate) fn evaluate(trainer: &Trainer, digits: &Digits) -> Result<f64, TchError> {
    let indices: Vec<usize> = (0..digits.len()).collect();
    let Batch { images, labels } = load_batch(digits, &indices, trainer.device())?;
    let scores = tch::no_grad(|| trainer.network.forward(&images));
    scores.accuracy_for_logits(&labels).f_double_value(&[])
}

/// PyTorch's sizes are signed; ours are far from the largest.
fn signed(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
