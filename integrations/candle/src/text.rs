//! What the model reads: memtrack's own documentation, a token for each byte.

use candle_core::{Device, Result, Tensor};

use crate::random::Random;

/// As many tokens as a byte has values.
pub(crate) const VOCABULARY: usize = 256;

const DOCUMENTS: [&str; 9] = [
    include_str!("../../../README.md"),
    include_str!("../../../docs/attribute.md"),
    include_str!("../../../docs/driver.md"),
    include_str!("../../../docs/findings.md"),
    include_str!("../../../docs/fit.md"),
    include_str!("../../../docs/replay.md"),
    include_str!("../../../docs/summary.md"),
    include_str!("../../../docs/torch.md"),
    include_str!("../../../docs/waste.md"),
];

/// The documents one behind the other.
#[derive(Debug)]
pub(crate) struct Text {
    bytes: Vec<u8>,
}

/// A step's tokens, and for each the one that follows it.
#[derive(Debug)]
pub(crate) struct Batch {
    /// `[batch, context]`
    pub(crate) tokens: Tensor,
    /// `[batch * context]`
    pub(crate) targets: Tensor,
}

impl Text {
    pub(crate) fn documentation() -> Self {
        Self { bytes: DOCUMENTS.concat().into_bytes() }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// `batch_size` pieces of `context` bytes from random places.
    pub(crate) fn batch(
        &self,
        batch_size: usize,
        context: usize,
        random: &mut Random,
        device: &Device,
    ) -> Result<Batch> {
        let Some(places) = self.len().checked_sub(context).filter(|places| *places > 0) else {
            candle_core::bail!("the text has {} bytes: a context of {context} does not fit", self.len());
        };
        let mut tokens = Vec::with_capacity(batch_size * context);
        let mut targets = Vec::with_capacity(batch_size * context);
        for _ in 0..batch_size {
            let begin = random.below(places);
            let piece = &self.bytes[begin..=begin + context];
            tokens.extend(piece[..context].iter().map(|byte| u32::from(*byte)));
            targets.extend(piece[1..].iter().map(|byte| u32::from(*byte)));
        }
        Ok(Batch {
            tokens: Tensor::from_vec(tokens, (batch_size, context), device)?,
            targets: Tensor::from_vec(targets, batch_size * context, device)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_the_byte_after_its_token() {
        let text = Text { bytes: (0..=200).collect() };
        let batch = text.batch(3, 10, &mut Random::new(0), &Device::Cpu).unwrap();
        let tokens = batch.tokens.flatten_all().unwrap().to_vec1::<u32>().unwrap();
        let targets = batch.targets.to_vec1::<u32>().unwrap();
        assert_eq!(batch.tokens.dims(), [3, 10]);
        assert!(tokens.iter().zip(&targets).all(|(token, target)| token + 1 == *target), "{tokens:?} {targets:?}");
    }

    #[test]
    fn a_context_longer_than_the_text_is_refused_with_both_lengths() {
        let text = Text { bytes: vec![0; 20] };
        let error = text.batch(1, 20, &mut Random::new(0), &Device::Cpu).unwrap_err().to_string();
        assert!(error.contains("20 bytes") && error.contains("context of 20"), "{error}");
        assert!(text.batch(1, 19, &mut Random::new(0), &Device::Cpu).is_ok());
    }
}
