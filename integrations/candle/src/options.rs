//! The options of the command line.

use std::ops::RangeInclusive;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum};

use crate::model::Shape;

/// Trains a small GPT on memtrack's documentation with candle, and shows where its GPU memory went
#[derive(Debug, Clone, Parser)]
#[command(name = "candle-gpt")]
pub(crate) struct Options {
    /// Where to compute; cuda needs a build with the feature of that name
    #[arg(long, value_enum, default_value_t = DeviceChoice::Cpu)]
    pub(crate) device: DeviceChoice,

    /// Steps of training
    #[arg(long, default_value = "100", value_parser = number::<1, 1_000_000>)]
    pub(crate) steps: usize,

    /// Pieces of text in one step
    #[arg(long, default_value = "16", value_parser = number::<1, 65_536>)]
    pub(crate) batch_size: usize,

    /// Bytes in one piece
    #[arg(long, default_value = "256", value_parser = number::<2, 65_536>)]
    pub(crate) context: usize,

    /// Blocks of the model
    #[arg(long, default_value = "6", value_parser = number::<1, 1_000>)]
    pub(crate) layers: usize,

    /// Numbers that stand for a byte inside the model; a multiple of the heads
    #[arg(long, default_value = "384", value_parser = number::<1, 65_536>)]
    pub(crate) width: usize,

    /// Heads of attention in a block
    #[arg(long, default_value = "6", value_parser = number::<1, 1_000>)]
    pub(crate) heads: usize,

    /// How far each step moves
    #[arg(long, default_value = "0.0005", value_parser = positive_number)]
    pub(crate) learning_rate: f64,

    /// Decides the first parameters, the pieces and the bytes generated; the same seed gives the same run
    #[arg(long, default_value = "0")]
    pub(crate) seed: u64,

    /// Steps in one of memtrack's epochs
    #[arg(long, default_value = "50", value_parser = number::<1, 1_000_000>)]
    pub(crate) epoch_steps: usize,

    /// Each step has pieces of another length, from half the context to all of it
    #[arg(long)]
    pub(crate) vary_context: bool,

    /// Bytes to generate after training
    #[arg(long, default_value = "120", value_parser = number::<0, 1_000_000>)]
    pub(crate) generate: usize,

    /// memtrack measures nothing
    #[arg(long)]
    pub(crate) no_tracking: bool,

    /// The driver's pool keeps free memory, rather than giving it back to the GPU whenever the program waits
    #[arg(long)]
    pub(crate) keep_pool: bool,

    /// Steps at the beginning whose times do not count
    #[arg(long, default_value = "5", value_parser = number::<0, 1_000_000>)]
    pub(crate) warm_up: usize,

    /// Nothing on standard output but one JSON object at the end, with losses and times
    #[arg(long)]
    pub(crate) json: bool,
}

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceChoice {
    /// This machine's processor
    Cpu,
    /// The first NVIDIA GPU
    Cuda,
}

impl DeviceChoice {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

impl Options {
    /// From the command line's words, the program's name first.
    ///
    /// # Errors
    ///
    /// A bad value, values that do not go together, or the help that was asked for.
    pub(crate) fn read<W: Into<std::ffi::OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let options = Self::try_parse_from(words)?;
        let Self { width, heads, steps, warm_up, .. } = options;
        let refuse = |message: String| Err(Self::command().error(ErrorKind::ValueValidation, message));
        if width % heads != 0 {
            return refuse(format!("a width of {width} is no multiple of {heads} heads"));
        }
        if warm_up >= steps {
            return refuse(format!("{warm_up} steps to warm up leave none of {steps} to be timed; lower --warm-up"));
        }
        Ok(options)
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { layers: self.layers, width: self.width, heads: self.heads, context: self.context }
    }
}

fn number<const LEAST: usize, const MOST: usize>(text: &str) -> Result<usize, String> {
    let accepted: RangeInclusive<usize> = LEAST..=MOST;
    let number = text.parse().ok().filter(|number| accepted.contains(number));
    number.ok_or_else(|| format!("expected a whole number from {LEAST} to {MOST}"))
}

fn positive_number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0, as 0.0005".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_a_gpt_of_six_layers() {
        let options = Options::read(["candle-gpt"]).unwrap();
        assert_eq!((options.layers, options.width, options.context, options.batch_size), (6, 384, 256, 16));
    }

    #[test]
    fn values_that_do_not_go_together_are_refused_with_both() {
        for (words, told) in [
            (["--width", "100", "--heads", "6"], "width of 100 is no multiple of 6 heads"),
            (["--steps", "3", "--warm-up", "3"], "3 steps to warm up leave none of 3"),
            (["--layers", "0", "--heads", "6"], "from 1 to 1000"),
            (["--learning-rate", "0", "--heads", "6"], "above 0"),
        ] {
            let error = Options::read(["candle-gpt"].into_iter().chain(words)).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
