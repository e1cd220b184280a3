//! A perceptron with two hidden layers, and what its training keeps: all of it in device memory.

use memtrack::{AllocationError, Buffer, CachingAllocator};
use memtrack_examples::digits::{CLASSES, Digits, PIXELS};

use crate::compute::{AdamStep, Compute};
use crate::error::TrainError;
use crate::matrix::Matrix;

/// Weights and biases of one layer; also their gradients, and Adam's moments of them, which have the same shapes.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Inputs down, outputs along.
    pub(crate) weights: Matrix,
    /// One row.
    pub(crate) biases: Matrix,
}

/// The network. Lives as long as training does.
#[derive(Debug)]
pub(crate) struct Model {
    /// Two hidden layers with ReLU, then the logits.
    pub(crate) layers: [Layer; 3],
}

/// Adam's memory: two moments of every parameter, so twice the model's size.
#[derive(Debug)]
pub(crate) struct Adam {
    learning_rate: f32,
    steps: i32,
    first_moments: [Layer; 3],
    second_moments: [Layer; 3],
}

/// Images and labels of one step, on the device.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) images: Matrix,
    pub(crate) labels: Buffer<u32>,
}

/// What a forward pass leaves for the backward pass: the larger part of memory in training.
#[derive(Debug)]
pub(crate) struct Activations {
    /// The first hidden layer's output.
    pub(crate) hidden1: Matrix,
    /// The second hidden layer's output.
    pub(crate) hidden2: Matrix,
    /// What the network thinks of each image.
    pub(crate) probabilities: Matrix,
    /// The mean loss.
    pub(crate) loss: f64,
}

impl Layer {
    /// Random weights after He, zero biases.
    fn random(
        allocator: &CachingAllocator,
        inputs: usize,
        outputs: usize,
        random: &mut fastrand::Rng,
    ) -> Result<Self, AllocationError> {
        let bound = (6.0 / inputs as f32).sqrt();
        let weights: Vec<f32> = (0..inputs * outputs).map(|_| (random.f32() * 2.0 - 1.0) * bound).collect();
        Ok(Self {
            weights: Matrix::from_rows(allocator, &weights, outputs)?,
            biases: Matrix::zeros(allocator, 1, outputs)?,
        })
    }

    /// Zeros in the shapes of this layer.
    fn zeros_like(&self, allocator: &CachingAllocator) -> Result<Self, AllocationError> {
        Ok(Self {
            weights: Matrix::zeros(allocator, self.weights.rows, self.weights.columns)?,
            biases: Matrix::zeros(allocator, 1, self.biases.columns)?,
        })
    }

    /// `input · weights + biases`
    pub(crate) fn linear(&self, compute: &Compute, input: &Matrix) -> Result<Matrix, TrainError> {
        let mut output = compute.matmul(input.plain(), self.weights.plain())?;
        compute.add_row(&mut output, &self.biases)?;
        Ok(output)
    }

    /// A hidden layer: [`linear`](Self::linear), then negative values become zero.
    pub(crate) fn hidden(&self, compute: &Compute, input: &Matrix) -> Result<Matrix, TrainError> {
        let mut output = self.linear(compute, input)?;
        compute.relu(&mut output)?;
        Ok(output)
    }

    /// The gradients of weights and biases, from a layer's input and the gradient `delta` of its output.
    pub(crate) fn gradient(compute: &Compute, input: &Matrix, delta: &Matrix) -> Result<Self, TrainError> {
        Ok(Self { weights: compute.matmul(input.transposed(), delta.plain())?, biases: compute.column_sums(delta)? })
    }

    /// The gradient of the layer before this one, from `delta` and from that layer's output `hidden`; frees both.
    pub(crate) fn propagate(&self, compute: &Compute, delta: Matrix, hidden: Matrix) -> Result<Matrix, TrainError> {
        let mut before = compute.matmul(delta.plain(), self.weights.transposed())?;
        compute.relu_backward(&mut before, &hidden)?;
        Ok(before)
    }
}

impl Model {
    /// Random weights, decided by `random`.
    pub(crate) fn new(
        allocator: &CachingAllocator,
        hidden: usize,
        random: &mut fastrand::Rng,
    ) -> Result<Self, AllocationError> {
        Ok(Self {
            layers: [
                Layer::random(allocator, PIXELS, hidden, random)?,
                Layer::random(allocator, hidden, hidden, random)?,
                Layer::random(allocator, hidden, CLASSES, random)?,
            ],
        })
    }

    /// How many numbers there are to learn.
    pub(crate) fn parameter_count(&self) -> usize {
        self.layers.iter().map(|layer| layer.weights.values.len() + layer.biases.values.len()).sum()
    }

    /// Logits without keeping activations: each layer's input is freed once its output is there.
    pub(crate) fn predict(&self, compute: &Compute, images: Matrix) -> Result<Matrix, TrainError> {
        let [first, second, last] = &self.layers;
        let hidden1 = first.hidden(compute, &images)?;
        drop(images);
        let hidden2 = second.hidden(compute, &hidden1)?;
        drop(hidden1);
        last.linear(compute, &hidden2)
    }
}

impl Adam {
    const BETA1: f32 = 0.9;
    const BETA2: f32 = 0.999;
    const EPSILON: f32 = 1e-8;

    /// Moments at zero.
    pub(crate) fn new(
        allocator: &CachingAllocator,
        model: &Model,
        learning_rate: f32,
    ) -> Result<Self, AllocationError> {
        let [first, second, last] = &model.layers;
        let zeros = || {
            Ok::<_, AllocationError>([
                first.zeros_like(allocator)?,
                second.zeros_like(allocator)?,
                last.zeros_like(allocator)?,
            ])
        };
        Ok(Self { learning_rate, steps: 0, first_moments: zeros()?, second_moments: zeros()? })
    }

    /// Moves every parameter once.
    pub(crate) fn update(
        &mut self,
        compute: &Compute,
        model: &mut Model,
        gradients: &[Layer],
    ) -> Result<(), TrainError> {
        self.steps += 1;
        let step = AdamStep {
            beta1: Self::BETA1,
            beta2: Self::BETA2,
            epsilon: Self::EPSILON,
            correction1: 1.0 - Self::BETA1.powi(self.steps),
            correction2: 1.0 - Self::BETA2.powi(self.steps),
        };
        let moments = self.first_moments.iter_mut().zip(&mut self.second_moments);
        for ((layer, gradient), (first, second)) in model.layers.iter_mut().zip(gradients).zip(moments) {
            let Layer { weights, biases } = layer;
            let rate = self.learning_rate;
            compute.adam(step, rate, weights, &gradient.weights, &mut first.weights, &mut second.weights)?;
            compute.adam(step, rate, biases, &gradient.biases, &mut first.biases, &mut second.biases)?;
        }
        Ok(())
    }
}

impl Batch {
    /// Copies images and labels to the device.
    pub(crate) fn new(allocator: &CachingAllocator, digits: &Digits) -> Result<Self, AllocationError> {
        Ok(Self {
            images: Matrix::from_rows(allocator, digits.images(), PIXELS)?,
            labels: Buffer::from_slice(allocator, digits.labels())?,
        })
    }
}
