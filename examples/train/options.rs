//! The options of the command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use memtrack::device::DeviceChoice;
use memtrack::units::parse_size;

/// Trains a small network on handwritten digits and shows, epoch by epoch, where its memory went.
#[derive(Debug, Clone, Parser)]
#[command(name = "train")]
pub(crate) struct Options {
    /// Where to compute: cpu, cuda, cuda:N for the GPU of that number, or auto (a GPU if there is one)
    #[arg(long, default_value = "auto")]
    pub(crate) device: DeviceChoice,

    /// How often to go through the training images
    #[arg(long, default_value = "8", value_parser = whole_number::<1, 100_000>)]
    pub(crate) epochs: usize,

    /// Images in one step
    #[arg(long, default_value = "128", value_parser = whole_number::<1, 1_000_000>)]
    pub(crate) batch_size: usize,

    /// Width of the two hidden layers
    #[arg(long, default_value = "512", value_parser = whole_number::<1, 16_384>)]
    pub(crate) hidden: usize,

    /// How far each step moves
    #[arg(long, default_value = "0.002", value_parser = positive_number)]
    pub(crate) learning_rate: f32,

    /// Decides the first weights and the order of images; the same seed gives the same run
    #[arg(long, default_value = "0", value_parser = whole_number_64)]
    pub(crate) seed: u64,

    /// Device memory that may be taken, as 26MiB; without it, all there is
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) capacity: Option<u64>,

    /// Events of the allocator and its scopes, on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Off)]
    pub(crate) log: LogFormat,

    /// Writes the loss of each step to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) losses: Option<PathBuf>,

    /// Leaves the memory summary of each epoch out
    #[arg(long)]
    pub(crate) no_table: bool,
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Plain,
    /// One JSON object a line
    Json,
    /// Not at all
    Off,
}

fn whole_number<const LEAST: usize, const MOST: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number.ok_or_else(|| format!("expected a whole number from {LEAST} to {MOST}"))
}

fn whole_number_64(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

fn positive_number(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number: &f32| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0, as 0.002".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("expected more than 0 bytes, as 26MiB".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_values_that_the_options_accept() {
        let options = Options::try_parse_from(["train"]).unwrap();
        assert_eq!((options.epochs, options.batch_size, options.hidden, options.capacity), (8, 128, 512, None));
    }

    #[test]
    fn a_bad_value_is_refused_with_the_option_and_what_it_accepts() {
        for (option, value, accepted) in [
            ("--device", "gpu", "cuda"),
            ("--epochs", "0", "from 1 to 100000"),
            ("--batch-size", "many", "from 1 to 1000000"),
            ("--hidden", "-1", "from 1 to 16384"),
            ("--learning-rate", "NaN", "above 0"),
            ("--learning-rate", "0", "above 0"),
            ("--seed", "1.5", "from 0 to 18446744073709551615"),
            ("--capacity", "6M", "`MiB`"),
            ("--capacity", "0", "more than 0 bytes"),
            ("--log", "xml", "plain, json, off"),
        ] {
            let error = Options::try_parse_from(["train".to_owned(), format!("{option}={value}")]).unwrap_err();
            let message = error.to_string();
            assert_eq!(error.exit_code(), 2, "{message}");
            assert!(message.contains(option) && message.contains(value) && message.contains(accepted), "{message}");
        }
    }
}
