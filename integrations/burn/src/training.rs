//! The loop: five functions with `#[track_memory]`, and a summary for each epoch.
//!
//! Nothing here knows which memory is measured: that is decided by the sources that are registered.

use std::io;
use std::time::Instant;

use burn::module::{AutodiffModule, Module};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Int, Tensor, TensorData};
use memtrack::{EpochSummary, track_memory};
use memtrack_examples::digits::{Digits, DigitsError, PIXELS, Split};

use crate::network::Network;

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// How often to go through the training images.
    pub epochs: u64,
    /// Images in one step.
    pub batch_size: usize,
    /// Width of the hidden layers.
    pub hidden: usize,
    /// How far each step moves.
    pub learning_rate: f64,
    /// Decides the first weights and the order of images.
    pub seed: u64,
}

/// What came out.
#[derive(Debug)]
pub struct Trained {
    /// The share of held-out images that the network gets right, 0 to 1.
    pub accuracy: f64,
    /// One for each epoch; none where no source and no allocator is measured.
    pub summaries: Vec<EpochSummary>,
}

/// Why training could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The images cannot be read.
    #[error(transparent)]
    Digits(#[from] DigitsError),
    /// Standard output is closed or full.
    #[error("what happens cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// Images and labels of one step, on the device.
#[derive(Debug)]
struct Batch<B: Backend> {
    images: Tensor<B, 2>,
    labels: Tensor<B, 1, Int>,
}

/// burn's Adam.
type Optim<B> = OptimizerAdaptor<Adam, Network<B>, B>;

/// Trains on `device`, and writes a line and a summary for each epoch to `output`.
///
/// # Errors
///
/// [`TrainError`].
///
/// # Panics
///
/// Where burn does: it has no other way to say that a device is out of memory or cannot compute.
pub fn train<B: AutodiffBackend>(
    settings: Settings,
    device: &B::Device,
    output: &mut dyn io::Write,
) -> Result<Trained, TrainError> {
    let Split { training, held_out } = Digits::load()?.split();
    let mut random = fastrand::Rng::with_seed(settings.seed);
    B::seed(device, settings.seed);
    let mut network = Network::<B>::new(settings.hidden, device);
    let mut optimizer: Optim<B> = AdamConfig::new().init();
    let backend = B::name(device);
    let (parameters, images) = (network.num_params(), training.len());
    writeln!(output, "training {parameters} parameters on {images} digits, {} held out, by {backend}", held_out.len())?;

    let mut order: Vec<usize> = (0..training.len()).collect();
    let mut trained = Trained { accuracy: 0.0, summaries: Vec::new() };
    for number in 1..=settings.epochs {
        let started = Instant::now();
        random.shuffle(&mut order);
        let batches = order.chunks(settings.batch_size.max(1));
        let step_count = batches.len() as f64;
        let epoch = memtrack::epoch(number);
        // Stays on the device: reading a loss waits for all work before it.
        let mut loss_sum = Tensor::<B::InnerBackend, 1>::zeros([1], device);
        for (step_number, indices) in (1..).zip(batches) {
            let _step = memtrack::step(step_number);
            let batch = load_batch::<B>(&training, indices, device);
            let loss = forward(&network, batch);
            loss_sum = loss_sum + loss.clone().inner();
            let gradients = backward(&network, loss);
            network = optimizer_step(&mut optimizer, settings.learning_rate, network, gradients);
        }
        trained.accuracy = evaluate(&network.valid(), &held_out, device);
        let loss = loss_sum.into_scalar().elem::<f64>() / step_count;
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
#[track_memory(phase = "data")]
fn load_batch<B: Backend>(digits: &Digits, indices: &[usize], device: &B::Device) -> Batch<B> {
    let chosen = digits.select(indices);
    let labels: Vec<i32> = chosen.labels().iter().map(|&label| label as i32).collect();
    let images = TensorData::new(chosen.images().to_vec(), [indices.len(), PIXELS]);
    Batch {
        images: Tensor::from_data(images, device),
        labels: Tensor::from_data(TensorData::new(labels, [indices.len()]), device),
    }
}

/// Leaves the loss, and with it all activations for the backward pass.
#[track_memory(phase = "forward")]
fn forward<B: AutodiffBackend>(network: &Network<B>, batch: Batch<B>) -> Tensor<B, 1> {
    let scores = network.scores(batch.images);
    CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, batch.labels)
}

/// Leaves the gradients, and frees the activations.
#[track_memory(phase = "backward")]
fn backward<B: AutodiffBackend>(network: &Network<B>, loss: Tensor<B, 1>) -> GradientsParams {
    GradientsParams::from_grads(loss.backward(), network)
}

/// Moves every parameter once, and frees the gradients. The first call makes Adam's two moments of every parameter.
#[track_memory(phase = "optimizer")]
fn optimizer_step<B: AutodiffBackend>(
    optimizer: &mut Optim<B>,
    learning_rate: f64,
    network: Network<B>,
    gradients: GradientsParams,
) -> Network<B> {
    optimizer.step(learning_rate, network, gradients)
}

/// The share of digits that the network gets right, all of them in one batch.
#[track_memory(phase = "evaluate")]
fn evaluate<B: Backend>(network: &Network<B>, digits: &Digits, device: &B::Device) -> f64 {
    let indices: Vec<usize> = (0..digits.len()).collect();
    let Batch { images, labels } = load_batch::<B>(digits, &indices, device);
    let votes = network.scores(images).argmax(1).squeeze_dim::<1>(1);
    let right = votes.equal(labels).int().sum().into_scalar().elem::<f64>();
    right / digits.len() as f64
}
