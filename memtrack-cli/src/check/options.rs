//! The options of `memtrack check`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use memtrack::units::Bytes;

use crate::options::size;
use crate::smi::LookOptions;

/// Checks the memory of GPUs against limits.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Prints one line: ok, exceeded or unknown, and why. Without a limit it checks that every device answers with its memory.

Exit status: 0 when every limit holds, 1 when one is exceeded, 2 for wrong usage or a result that cannot be written, 3 when it \
cannot be told: no driver, no such device, or a figure that the driver does not give. What is exceeded counts before what \
cannot be told.")]
pub struct CheckOptions {
    /// Where to look.
    #[command(flatten)]
    pub look: LookOptions,

    /// The most bytes a device may have in use, as 70GiB or 90%
    #[arg(long, value_name = "SIZE")]
    pub max_used: Option<Share>,

    /// The fewest bytes a device must have free, as 4GiB or 5%
    #[arg(long, value_name = "SIZE")]
    pub min_free: Option<Share>,

    /// The most bytes of a device that neither memtrack's processes nor others explain, as 512MiB or 1%
    #[arg(long, value_name = "SIZE")]
    pub max_unexplained: Option<Share>,

    /// The most bytes by which a device's use may grow while this looks twice
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_growth: Option<u64>,

    /// The time between the two looks for --max-growth
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = crate::smi::seconds, requires = "max_growth")]
    pub over: Duration,

    /// The most of what a process reserved that may be cached in pieces smaller than the largest one, as 30%
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub max_fragmentation: Option<f64>,

    /// The most processes on a device that do not publish their figures
    #[arg(long, value_name = "NUMBER")]
    pub max_foreign: Option<usize>,

    /// Write one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A size, or a share of what a device has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// Bytes.
    Bytes(u64),
    /// Hundredths of the total.
    Percent(f64),
}

impl Share {
    /// In bytes, of a device with so many.
    pub fn of(self, total_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (total_bytes as f64 * percent / 100.0) as u64,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{}", Bytes::unsigned(*bytes)),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.ends_with('%') {
            true => percent(text).map(Self::Percent),
            false => size(text).map(Self::Bytes),
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("expected a percentage from 0% to 100%".to_owned()),
    }
}
