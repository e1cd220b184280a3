//! The options of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use memtrack::units::{ACCEPTED_FORMS, ParseSizeError, parse_size};
use memtrack::{Config, Policy};

use crate::check::CheckOptions;
use crate::diff::DiffOptions;
use crate::fit::FitOptions;
use crate::replay::Choices;
use crate::run::RunOptions;
use crate::session::Place;
use crate::smi::SmiOptions;

/// Tools around memtrack, the caching GPU allocator that counts as PyTorch's does.
#[derive(Debug, Clone, Parser)]
#[command(name = "memtrack", version)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Replay recorded allocations: check them against what PyTorch answered, or measure them with other settings
    Replay(Box<ReplayOptions>),
    /// Find the smallest memory limit under which recorded runs complete, and whether they fit a card
    Fit(Box<FitOptions>),
    /// Show the memory of every GPU and process: the driver's figures beside memtrack's own
    Smi(SmiOptions),
    /// Check the memory of GPUs against limits, for health checks of Kubernetes and Slurm
    Check(CheckOptions),
    /// Say what grew between two epochs, of one run or of two
    Diff(DiffOptions),
    /// Run a program that knows nothing of memtrack, and count its GPU memory or serve it from the cache
    Run(RunOptions),
}

/// Replays recordings on memtrack's allocator.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Files are programs or golden files (.json), traces (.txt), and snapshots of PyTorch or memtrack with a history (.pickle or \
.json), each gzipped or not; `-` is standard input. docs/replay.md describes them.

A file that says what PyTorch answered is verified when it is replayed with the settings it was recorded with: every \
statistic and every address has to agree. Any other file, and any with other settings, is measured.

Exit status: 0 when every file agrees or was measured, 1 when one differs (its line names the first difference), 2 when one \
cannot be read or replayed.")]
pub struct ReplayOptions {
    /// Recordings; `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Settings in place of the recorded ones, in the grammar of MEMTRACK_ALLOC_CONF, as max_split_size_mb:64
    #[arg(long, allow_hyphen_values = true, value_name = "SETTINGS")]
    pub config: Option<Config>,

    /// The most that may be taken from the device in place of the recorded limit, as 24GiB
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE", value_parser = size)]
    pub limit: Option<u64>,

    /// The policy in place of the settings': torch, or compact, which takes as little memory as it can
    #[arg(long, allow_hyphen_values = true, value_name = "POLICY")]
    pub policy: Option<Policy>,

    /// Where: simulated needs no GPU; cuda or cuda:N replays on a GPU, where addresses are not compared
    #[arg(long, allow_hyphen_values = true, value_name = "DEVICE", default_value = "simulated", value_parser = place)]
    pub device: Place,

    /// Write one JSON object a file and line
    #[arg(long)]
    pub json: bool,
}

impl ReplayOptions {
    /// What was chosen, apart from the files.
    pub fn choices(&self) -> Choices {
        Choices { config: self.config.clone(), policy: self.policy, limit_bytes: self.limit, place: self.device }
    }
}

fn place(text: &str) -> Result<Place, String> {
    if text == "simulated" {
        return Ok(Place::Simulated);
    }
    let digits = match text.strip_prefix("cuda") {
        Some("") => Some("0"),
        Some(rest) => rest.strip_prefix(':'),
        None => None,
    };
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let ordinal = digits.and_then(|digits| digits.parse().ok());
    ordinal.map(Place::Cuda).ok_or_else(|| "expected simulated, cuda, or cuda:N for the GPU of that number".to_owned())
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(bytes) => Ok(bytes),
        // The two whose messages name no forms.
        Err(error @ (ParseSizeError::TooLarge { .. } | ParseSizeError::NotWhole { .. })) => {
            Err(format!("{error}; write {ACCEPTED_FORMS}"))
        }
        Err(error) => Err(error.to_string()),
    }
}
