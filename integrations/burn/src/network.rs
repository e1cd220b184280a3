//! A perceptron with two hidden layers.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use memtrack_examples::digits::{CLASSES, PIXELS};

/// The network: two hidden layers with ReLU, then a score for each digit.
#[derive(Module, Debug)]
pub struct Network<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
    last: Linear<B>,
    activation: Relu,
}

impl<B: Backend> Network<B> {
    /// Random weights, decided by the backend's seed.
    ///
    /// burn makes them when they are first used, which would book them in the first forward pass. So they are used here.
    pub fn new(hidden: usize, device: &B::Device) -> Self {
        let network = Self {
            first: LinearConfig::new(PIXELS, hidden).init(device),
            second: LinearConfig::new(hidden, hidden).init(device),
            last: LinearConfig::new(hidden, CLASSES).init(device),
            activation: Relu::new(),
        };
        for layer in [&network.first, &network.second, &network.last] {
            let _ = layer.weight.val();
            let _ = layer.bias.as_ref().map(|bias| bias.val());
        }
        network
    }

    /// A row of scores for each row of pixels.
    pub fn scores(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = self.activation.forward(self.first.forward(images));
        let hidden = self.activation.forward(self.second.forward(hidden));
        self.last.forward(hidden)
    }
}
