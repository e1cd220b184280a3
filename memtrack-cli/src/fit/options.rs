//! The options of `memtrack fit`.

use std::path::PathBuf;

use clap::Args;
use memtrack::units::Bytes;

use super::candidate::{NamedSettings, PolicyName};
use super::trial::{DEVICE_BYTES, LimitBy, LimitedDevice};
use crate::options::size;

/// Searches for the smallest memory limit under which recorded runs complete.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Files are what `memtrack replay` reads: programs or golden files (.json), traces (.txt), and snapshots of PyTorch or memtrack with a \
history (.pickle or .json), each gzipped or not; `-` is standard input. docs/fit.md says how the search is done and what its \
answer does not tell.

Exit status: 0 when every file has its answer, and with --on at least one policy fits each; 1 when no policy fits one of them; 2 for \
wrong usage, or a file or policy without an answer.")]
pub struct FitOptions {
    /// Recordings; `-` for standard input
    #[arg(required = true, value_name = "TRACE")]
    pub files: Vec<PathBuf>,

    /// Say whether it fits a card with so much memory, as 24GiB: its total by CUDA, which is less than nvidia-smi's
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub on: Option<u64>,

    /// What the process takes of that card besides the allocator: the CUDA context, modules and libraries
    #[arg(long, value_name = "SIZE", default_value = "600MiB", value_parser = size, requires = "on")]
    pub context: u64,

    /// What else is taken of that card: by other processes, as a desktop; by libraries with memory of their own, as NCCL
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size, requires = "on")]
    pub others: u64,

    /// What stands for a limit
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub by: LimitBy,

    /// Which policies, separated by commas
    #[arg(long, value_name = "POLICIES", value_enum, value_delimiter = ',', default_values_t = PolicyName::ALL)]
    pub policy: Vec<PolicyName>,

    /// Settings to try too, in the grammar of MEMTRACK_ALLOC_CONF; may be given several times
    #[arg(long, allow_hyphen_values = true, value_name = "SETTINGS")]
    pub config: Vec<NamedSettings>,

    /// How many limits above an answer are tested too: half of them the next ones, half from there to where no limit is felt
    #[arg(long, value_name = "NUMBER", default_value = "32")]
    pub checks: usize,

    /// Requests that found no memory in the recording must be served too
    #[arg(long)]
    pub serve_ooms: bool,

    /// How many searches run at once; without it as many as there are processors
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Write one JSON object a recording and line
    #[arg(long)]
    pub json: bool,
}

/// A card and what is taken of it before the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Card {
    /// What it has.
    pub card_bytes: u64,
    /// What the process takes besides the allocator.
    pub context_bytes: u64,
    /// What others take.
    pub others_bytes: u64,
    /// What is left for the allocator, 0 when nothing is.
    pub available_bytes: u64,
}

/// What limits are limits of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limited {
    /// The card that was asked about.
    pub(super) card: Option<Card>,
    /// What stands for a limit.
    pub(super) by: LimitBy,
}

impl Limited {
    /// The device that runs under them.
    pub(super) fn device(self) -> LimitedDevice {
        LimitedDevice { by: self.by, card_bytes: self.card.map(|card| card.card_bytes) }
    }
}

impl FitOptions {
    /// The card that was asked about.
    ///
    /// # Errors
    ///
    /// A card larger than the simulated device.
    pub fn card(&self) -> Result<Option<Card>, String> {
        let Some(card_bytes) = self.on else { return Ok(None) };
        if card_bytes > DEVICE_BYTES {
            let most = Bytes::unsigned(DEVICE_BYTES);
            return Err(format!(
                "--on {}: at most {most}, which the simulated device has",
                Bytes::unsigned(card_bytes)
            ));
        }
        let (context_bytes, others_bytes) = (self.context, self.others);
        let available_bytes = card_bytes.saturating_sub(context_bytes).saturating_sub(others_bytes);
        Ok(Some(Card { card_bytes, context_bytes, others_bytes, available_bytes }))
    }
}
