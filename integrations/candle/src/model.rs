//! A GPT: blocks of causal attention and a feed-forward part, each behind a layer norm and beside a residual path.
//!
//! It is written out in candle's basic operations, since the fused ones have no backward pass. Nothing here knows memtrack.

use candle_core::{D, Device, Result, Tensor, Var};

use crate::random::Random;
use crate::text::VOCABULARY;

const INITIAL_DEVIATION: f64 = 0.02;
const NORM_EPSILON: f64 = 1e-5;

/// Sizes of the model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    /// A multiple of `heads`.
    pub(crate) width: usize,
    pub(crate) heads: usize,
    /// Tokens that the model sees at most.
    pub(crate) context: usize,
}

/// The parameters, and the mask that hides what comes later.
#[derive(Debug)]
pub(crate) struct Gpt {
    shape: Shape,
    token_embedding: Var,
    position_embedding: Var,
    blocks: Vec<Block>,
    norm: Norm,
    head: Linear,
    mask: Tensor,
}

#[derive(Debug)]
struct Block {
    attention_norm: Norm,
    query_key_value: Linear,
    attention_output: Linear,
    feed_forward_norm: Norm,
    widen: Linear,
    narrow: Linear,
}

#[derive(Debug)]
struct Linear {
    /// `[inputs, outputs]`
    weight: Var,
    bias: Var,
}

#[derive(Debug)]
struct Norm {
    gain: Var,
    bias: Var,
}

/// Makes parameters of random numbers on a device.
struct Maker<'a> {
    random: &'a mut Random,
    device: &'a Device,
}

impl Maker<'_> {
    fn normal(&mut self, rows: usize, columns: usize, deviation: f64) -> Result<Var> {
        let numbers: Vec<f32> = (0..rows * columns).map(|_| self.random.normal(deviation)).collect();
        Var::from_tensor(&Tensor::from_vec(numbers, (rows, columns), self.device)?)
    }

    fn constant(&self, number: f32, length: usize) -> Result<Var> {
        Var::from_tensor(&Tensor::full(number, length, self.device)?)
    }

    fn linear(&mut self, inputs: usize, outputs: usize, deviation: f64) -> Result<Linear> {
        Ok(Linear { weight: self.normal(inputs, outputs, deviation)?, bias: self.constant(0.0, outputs)? })
    }

    fn norm(&self, width: usize) -> Result<Norm> {
        Ok(Norm { gain: self.constant(1.0, width)?, bias: self.constant(0.0, width)? })
    }

    fn block(&mut self, shape: Shape) -> Result<Block> {
        let width = shape.width;
        // Two parts of each block add to the residual path.
        let residual_deviation = INITIAL_DEVIATION / (2.0 * shape.layers as f64).sqrt();
        Ok(Block {
            attention_norm: self.norm(width)?,
            query_key_value: self.linear(width, 3 * width, INITIAL_DEVIATION)?,
            attention_output: self.linear(width, width, residual_deviation)?,
            feed_forward_norm: self.norm(width)?,
            widen: self.linear(width, 4 * width, INITIAL_DEVIATION)?,
            narrow: self.linear(4 * width, width, residual_deviation)?,
        })
    }
}

impl Gpt {
    /// Random parameters on the device; the same seed gives the same.
    pub(crate) fn new(shape: Shape, random: &mut Random, device: &Device) -> Result<Self> {
        let Shape { layers, width, context, .. } = shape;
        let mut maker = Maker { random, device };
        let token_embedding = maker.normal(VOCABULARY, width, INITIAL_DEVIATION)?;
        let position_embedding = maker.normal(context, width, INITIAL_DEVIATION)?;
        let blocks = (0..layers).map(|_| maker.block(shape)).collect::<Result<_>>()?;
        let norm = maker.norm(width)?;
        let head = maker.linear(width, VOCABULARY, INITIAL_DEVIATION)?;
        Ok(Self { shape, token_embedding, position_embedding, blocks, norm, head, mask: causal_mask(context, device)? })
    }

    pub(crate) fn context(&self) -> usize {
        self.shape.context
    }

    /// All parameters, always in the same order.
    pub(crate) fn parameters(&self) -> Vec<Var> {
        let mut parameters = vec![self.token_embedding.clone(), self.position_embedding.clone()];
        for block in &self.blocks {
            let Block { attention_norm, query_key_value, attention_output, feed_forward_norm, widen, narrow } = block;
            attention_norm.parameters(&mut parameters);
            query_key_value.parameters(&mut parameters);
            attention_output.parameters(&mut parameters);
            feed_forward_norm.parameters(&mut parameters);
            widen.parameters(&mut parameters);
            narrow.parameters(&mut parameters);
        }
        self.norm.parameters(&mut parameters);
        self.head.parameters(&mut parameters);
        parameters
    }

    /// For tokens `[batch, length]` the logits of what follows each, `[batch * length, VOCABULARY]`.
    ///
    /// # Errors
    ///
    /// When `length` is above the context, and what candle says.
    pub(crate) fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        let (batch, length) = tokens.dims2()?;
        let width = self.shape.width;
        let positions = self.position_embedding.narrow(0, 0, length)?;
        let embedded = self.token_embedding.index_select(&tokens.flatten_all()?, 0)?;
        let embedded = embedded.reshape((batch, length, width))?.broadcast_add(&positions)?;
        let mut stream = embedded.reshape((batch * length, width))?;
        for block in &self.blocks {
            let attended =
                block.attention(&block.attention_norm.apply(&stream)?, batch, self.shape.heads, &self.mask)?;
            stream = (stream + attended)?;
            let fed = block.feed_forward(&block.feed_forward_norm.apply(&stream)?)?;
            stream = (stream + fed)?;
        }
        self.head.apply(&self.norm.apply(&stream)?)
    }
}

impl Block {
    /// Each token looks at itself and at those before it. `inputs` is `[batch * length, width]`.
    fn attention(&self, inputs: &Tensor, batch: usize, heads: usize, mask: &Tensor) -> Result<Tensor> {
        let (rows, width) = inputs.dims2()?;
        let (length, head_width) = (rows / batch, width / heads);
        // `[3, batch, heads, length, head_width]`
        let all = self.query_key_value.apply(inputs)?.reshape((batch, length, 3, heads, head_width))?;
        let all = all.permute((2, 0, 3, 1, 4))?.contiguous()?;
        let (query, key, value) = (all.get(0)?, all.get(1)?, all.get(2)?);
        let scores = (query.matmul(&key.t()?)? * (1.0 / (head_width as f64).sqrt()))?;
        let mask = mask.narrow(0, 0, length)?.narrow(1, 0, length)?;
        let weights = softmax(&scores.broadcast_add(&mask)?)?;
        let seen = weights.matmul(&value)?.transpose(1, 2)?.reshape((rows, width))?;
        self.attention_output.apply(&seen)
    }

    fn feed_forward(&self, inputs: &Tensor) -> Result<Tensor> {
        self.narrow.apply(&self.widen.apply(inputs)?.gelu()?)
    }
}

impl Linear {
    fn apply(&self, inputs: &Tensor) -> Result<Tensor> {
        inputs.matmul(&self.weight)?.broadcast_add(&self.bias)
    }

    fn parameters(&self, into: &mut Vec<Var>) {
        into.extend([self.weight.clone(), self.bias.clone()]);
    }
}

impl Norm {
    fn apply(&self, inputs: &Tensor) -> Result<Tensor> {
        let centred = inputs.broadcast_sub(&inputs.mean_keepdim(D::Minus1)?)?;
        let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
        let normal = centred.broadcast_div(&(variance + NORM_EPSILON)?.sqrt()?)?;
        normal.broadcast_mul(&self.gain)?.broadcast_add(&self.bias)
    }

    fn parameters(&self, into: &mut Vec<Var>) {
        into.extend([self.gain.clone(), self.bias.clone()]);
    }
}

/// Over the last dimension. The largest number is a constant for the gradient: it cancels out.
fn softmax(inputs: &Tensor) -> Result<Tensor> {
    let largest = inputs.max_keepdim(D::Minus1)?.detach();
    let powers = inputs.broadcast_sub(&largest)?.exp()?;
    powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)
}

/// 0 where a row's token may look at a column's, negative infinity elsewhere.
fn causal_mask(context: usize, device: &Device) -> Result<Tensor> {
    let numbers: Vec<f32> = (0..context)
        .flat_map(|row| (0..context).map(move |column| if column > row { f32::NEG_INFINITY } else { 0.0 }))
        .collect();
    Tensor::from_vec(numbers, (context, context), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Shape = Shape { layers: 2, width: 16, heads: 2, context: 8 };

    fn logits(model: &Gpt, tokens: &[u32]) -> Vec<Vec<f32>> {
        let tokens = Tensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        model.logits(&tokens).unwrap().to_vec2().unwrap()
    }

    #[test]
    fn a_token_changes_what_follows_it_and_nothing_before() {
        let model = Gpt::new(TINY, &mut Random::new(3), &Device::Cpu).unwrap();
        let one = logits(&model, &[1, 2, 3, 4]);
        let other = logits(&model, &[1, 2, 9, 4]);
        assert_eq!(one[..2], other[..2]);
        assert_ne!(one[2], other[2]);
        assert_ne!(one[3], other[3]);
    }

    #[test]
    fn every_parameter_gets_a_gradient() {
        let model = Gpt::new(TINY, &mut Random::new(3), &Device::Cpu).unwrap();
        let tokens = Tensor::new(&[[1_u32, 2, 3, 4, 5, 6, 7, 8]], &Device::Cpu).unwrap();
        let gradients = model.logits(&tokens).unwrap().sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let parameters = model.parameters();
        assert_eq!(parameters.len(), 2 + 12 * TINY.layers + 2 + 2);
        for (number, parameter) in parameters.iter().enumerate() {
            let gradient = gradients.get(parameter).unwrap_or_else(|| panic!("parameter {number} has none"));
            let size = gradient.abs().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
            assert!(size.is_finite() && size > 0.0, "parameter {number}: {size}");
        }
    }

    /// The gradient of one weight of the attention against the difference of two losses.
    #[test]
    fn a_gradient_is_the_slope_of_the_loss() {
        let model = Gpt::new(TINY, &mut Random::new(5), &Device::Cpu).unwrap();
        let tokens = Tensor::new(&[[1_u32, 2, 3, 4, 5, 6, 7, 8]], &Device::Cpu).unwrap();
        let targets = Tensor::new(&[2_u32, 3, 4, 5, 6, 7, 8, 9], &Device::Cpu).unwrap();
        let loss = || candle_nn::loss::cross_entropy(&model.logits(&tokens).unwrap(), &targets).unwrap();
        let weight = &model.blocks[1].attention_output.weight;
        let gradient = loss().backward().unwrap().get(weight).unwrap().to_vec2::<f32>().unwrap()[2][3];
        let start = weight.to_vec2::<f32>().unwrap();
        let loss_at = |change: f32| {
            let mut moved = start.clone();
            moved[2][3] += change;
            weight.set(&Tensor::new(moved, &Device::Cpu).unwrap()).unwrap();
            f64::from(loss().to_scalar::<f32>().unwrap())
        };
        let slope = (loss_at(0.05) - loss_at(-0.05)) / 0.1;
        assert!((slope - f64::from(gradient)).abs() < 0.02 * slope.abs() + 1e-5, "{slope} {gradient}");
    }
}
