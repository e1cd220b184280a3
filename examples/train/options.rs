//! The options of the command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use memtrack::device::DeviceChoice;
use memtrack::units::{ACCEPTED_FORMS, ParseSizeError, parse_size};

/// Trains a small network on handwritten digits and shows, epoch by epoch, where its memory went.
//
// Values may be negative numbers, so that `--epochs -1` is refused for its value, with the values accepted, and not as an
// unknown option `-1`; a size may begin with any hyphen, since clap does not take `-1MiB` for a number.
#[derive(Debug, Clone, Parser)]
#[command(name = "train")]
pub(crate) struct Options {
    /// Where to compute: cpu, cuda, cuda:N for the GPU of that number, or auto (a GPU if there is one)
    #[arg(long, allow_negative_numbers = true, default_value = "auto")]
    pub(crate) device: DeviceChoice,

    /// How often to go through the training images
    #[arg(long, allow_negative_numbers = true, default_value = "8", value_parser = whole_number::<1, 100_000>)]
    pub(crate) epochs: usize,

    /// Images in one step
    #[arg(long, allow_negative_numbers = true, default_value = "128", value_parser = whole_number::<1, 1_000_000>)]
    pub(crate) batch_size: usize,

    /// Width of the two hidden layers
    #[arg(long, allow_negative_numbers = true, default_value = "512", value_parser = whole_number::<1, 16_384>)]
    pub(crate) hidden: usize,

    /// How far each step moves
    #[arg(long, allow_negative_numbers = true, default_value = "0.002", value_parser = positive_number)]
    pub(crate) learning_rate: f32,

    /// Decides the first weights and the order of images; the same seed gives the same run
    #[arg(long, allow_negative_numbers = true, default_value = "0", value_parser = whole_number_64)]
    pub(crate) seed: u64,

    /// Device memory that may be taken, as 26MiB; without it, all there is
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE", value_parser = size)]
    pub(crate) capacity: Option<u64>,

    /// Events of the allocator and its scopes, on standard error
    #[arg(long, allow_negative_numbers = true, value_enum, default_value_t = LogFormat::Off)]
    pub(crate) log: LogFormat,

    /// Writes the loss of each step to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) losses: Option<PathBuf>,

    /// Records the allocator's history and writes it to this file at the end, for pytorch.org/memory_viz
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,

    /// Leaves the memory summary of each epoch out
    #[arg(long)]
    pub(crate) no_table: bool,

    /// Samples the device's free memory where phases begin and end, and this often in the background
    #[arg(long, allow_negative_numbers = true, value_name = "MILLISECONDS", value_parser = whole_number::<1, 1_000_000>)]
    pub(crate) sample: Option<usize>,

    /// Measures in every second epoch only, and says at the end what that costs a step
    #[arg(long)]
    pub(crate) compare_tracking: bool,
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
    number.ok_or_else(|| format!("expected a number above 0, from 1e-45 to {:e} (a 32-bit float), as 0.002", f32::MAX))
}

fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("expected more than 0 bytes, as 26MiB".to_owned()),
        // More than the counters of memory hold.
        Ok(bytes) if i64::try_from(bytes).is_err() => {
            Err(format!("expected at most {} bytes; write {ACCEPTED_FORMS}", i64::MAX))
        }
        Ok(bytes) => Ok(bytes),
        // The two whose messages name no forms.
        Err(error @ (ParseSizeError::TooLarge { .. } | ParseSizeError::NotWhole { .. })) => {
            Err(format!("{error}; write {ACCEPTED_FORMS}"))
        }
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
    fn the_bounds_that_messages_name_are_accepted() {
        let parsed = |option: &str, value: &str| Options::try_parse_from(["train", option, value]).unwrap();
        assert_eq!(parsed("--learning-rate", "1e-45").learning_rate, f32::from_bits(1));
        assert_eq!(parsed("--learning-rate", "3.4028235e38").learning_rate, f32::MAX);
        assert_eq!(parsed("--capacity", "9223372036854775807").capacity, Some(i64::MAX as u64));
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
            ("--learning-rate", "1e39", "3.4028235e38"),
            ("--learning-rate", "1e-46", "1e-45"),
            ("--learning-rate", "-0.5", "above 0"),
            ("--learning-rate", "-1e3", "above 0"),
            ("--device", "-1", "cuda:N"),
            ("--epochs", "-1", "from 1 to 100000"),
            ("--batch-size", "-1", "from 1 to 1000000"),
            ("--seed", "-1", "from 0 to 18446744073709551615"),
            ("--capacity", "-1", "MiB"),
            ("--capacity", "-1MiB", "MiB"),
            ("--capacity", "9223372036854775808", "`512MiB`"),
            ("--capacity", "16777216TiB", "`512MiB`"),
            ("--capacity", "0.3B", "`512MiB`"),
            ("--log", "-1", "plain, json, off"),
            ("--seed", "1.5", "from 0 to 18446744073709551615"),
            ("--capacity", "6M", "`MiB`"),
            ("--capacity", "0", "more than 0 bytes"),
            ("--log", "xml", "plain, json, off"),
        ] {
            for arguments in [vec![format!("{option}={value}")], vec![option.to_owned(), value.to_owned()]] {
                let error = Options::try_parse_from(["train".to_owned()].into_iter().chain(arguments)).unwrap_err();
                let message = error.to_string();
                assert_eq!(error.exit_code(), 2, "{message}");
                let (option, value) = (format!("'{option} <"), format!("'{value}'"));
                assert!(message.contains(&option) && message.contains(&value), "{message}");
                assert!(message.contains(accepted), "{message}");
            }
        }
    }
}
