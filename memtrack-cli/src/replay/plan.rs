//! What a recording is replayed with, and whether it can be compared then.

use memtrack::{Backend, Config, Policy, TorchConfigError};

use crate::recording::{Kind, Recording};
use crate::session::{Limit, Place, Setup};

/// What the person who replays chose.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Settings in place of the recorded ones.
    pub config: Option<Config>,
    /// A policy in place of the settings'.
    pub policy: Option<Policy>,
    /// A limit in bytes in place of the recorded one.
    pub limit_bytes: Option<u64>,
    /// Where to replay.
    pub place: Place,
}

/// Why a recording cannot be run with these settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// PyTorch would have refused what the file says it was configured with.
    #[error("the recorded configuration is refused: {0}")]
    Configuration(#[from] TorchConfigError),
    /// Figures of the driver's own allocator, which a simulation of it would not give.
    #[error(
        "with the backend {0} nothing can be measured, since the driver's own pool decides; only a recording made with it can be verified"
    )]
    Backend(Backend),
}

/// How a recording is replayed.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) setup: Setup,
    /// Whether it is comparable: the settings are the recorded ones, and all that was recorded can be done.
    pub(super) verifies: bool,
    /// What cannot be done as recorded.
    pub(super) skipped: Option<&'static str>,
}

const BUSY_STREAMS: &str =
    "a GPU cannot be told when a stream is busy, so blocks in use on other streams were free at once";
const ADDRESSES: &str = "a GPU puts segments where it likes, so addresses were not compared";

impl Plan {
    pub(super) fn new(recording: &Recording, choices: &Choices) -> Result<Self, PlanError> {
        let recorded = recorded_config(recording)?;
        let mut config = choices.config.clone().unwrap_or_else(|| recorded.clone());
        if let Some(policy) = choices.policy {
            config.policy = policy;
        }
        let scripts_streams = recording.scripts_streams();
        let on_gpu = choices.place != Place::Simulated;
        let verifies = recording.expected.is_some()
            && same_settings(&config, &recorded)
            && choices.limit_bytes.is_none_or(|limit_bytes| is_recorded_limit(recording, limit_bytes))
            && !(on_gpu && scripts_streams);
        if verifies {
            config.torch_exact = true;
        } else if config.backend != Backend::Native {
            return Err(PlanError::Backend(config.backend));
        }
        let recorded_limit = match (recording.memory_fraction, recorded.per_process_memory_fraction) {
            (fraction, _) | (_, fraction) if fraction < 1.0 => Limit::Fraction(fraction),
            _ => Limit::AsConfigured,
        };
        let limit = match choices.limit_bytes {
            Some(limit_bytes) if !verifies => Limit::Bytes(limit_bytes),
            None if choices.config.is_some() && config.per_process_memory_fraction < 1.0 => Limit::AsConfigured,
            _ => recorded_limit,
        };
        let skipped = match (on_gpu, scripts_streams) {
            (true, true) => Some(BUSY_STREAMS),
            (true, false) if verifies => Some(ADDRESSES),
            _ => None,
        };
        let setup = Setup { place: choices.place, config, total_bytes: recording.total_bytes, limit };
        Ok(Self { setup, verifies, skipped })
    }
}

/// Snapshots may be memtrack's, whose texts have keys of its own.
pub(crate) fn recorded_config(recording: &Recording) -> Result<Config, TorchConfigError> {
    let text = &recording.configuration;
    Config::from_torch(text).or_else(|refused| match text.parse() {
        Ok(config) if recording.kind == Kind::Snapshot => Ok(config),
        _ => Err(refused),
    })
}

/// PyTorch's mistakes are no setting of PyTorch's: a verification reproduces them in any case.
fn same_settings(chosen: &Config, recorded: &Config) -> bool {
    let mut chosen = chosen.clone();
    chosen.torch_exact = recorded.torch_exact;
    chosen == *recorded
}

fn is_recorded_limit(recording: &Recording, limit_bytes: u64) -> bool {
    recording
        .total_bytes
        .is_some_and(|total_bytes| (limit_bytes as f64 / total_bytes as f64).min(1.0) == recording.memory_fraction)
}
